"""How much happened in a project since its sources were last read, and whether that is enough.

Counters only grow. A sync moves its adapters' watermarks to the counters it saw when it started, so
what happens during a sync counts towards the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

import apsw

DEFAULT_ADAPTER = ""
MAX_DELTA = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Counts: of a delta, of a total, or of a watermark."""

    turns: int = 0
    tokens: int = 0
    inserts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRule:
    """Enough activity for a sync: any threshold met, but never more often than the interval."""

    turns: int
    tokens: int
    inserts: int
    interval_ms: int


RULES: Final[Mapping[str, DueRule]] = MappingProxyType(
    {
        "pi-session": DueRule(turns=8, tokens=16_000, inserts=4, interval_ms=60_000),
        DEFAULT_ADAPTER: DueRule(turns=20, tokens=40_000, inserts=10, interval_ms=300_000),
    }
)


ADD: Final = """
INSERT INTO activity (project, turns, tokens, inserts) VALUES (:project, :turns, :tokens, :inserts)
ON CONFLICT (project) DO UPDATE SET turns = turns + excluded.turns,
  tokens = tokens + excluded.tokens, inserts = inserts + excluded.inserts
"""
TOTAL: Final = "SELECT turns, tokens, inserts FROM activity WHERE project = ?"
MARK: Final = """
INSERT INTO watermarks (project, adapter, turns, tokens, inserts, ran_at)
VALUES (:project, :adapter, :turns, :tokens, :inserts, :now)
ON CONFLICT (project, adapter) DO UPDATE SET turns = max(turns, excluded.turns),
  tokens = max(tokens, excluded.tokens), inserts = max(inserts, excluded.inserts),
  ran_at = excluded.ran_at
"""
WATERMARK: Final = """
SELECT turns, tokens, inserts, ran_at FROM watermarks WHERE project = ? AND adapter = ?
"""


def add(db: apsw.Connection, project: str, delta: Activity) -> None:
    """Count; negative deltas are ignored, absurd ones bounded. Needs a transaction."""
    values = {
        "project": project,
        "turns": min(max(0, delta.turns), MAX_DELTA),
        "tokens": min(max(0, delta.tokens), MAX_DELTA),
        "inserts": min(max(0, delta.inserts), MAX_DELTA),
    }
    db.execute(ADD, values)


def total(db: apsw.Connection, project: str) -> Activity:
    """The counters of a project."""
    rows = db.execute(TOTAL, (project,)).fetchall()
    if not rows:
        return Activity()
    turns, tokens, inserts = cast("tuple[int, int, int]", rows[0])
    return Activity(turns=turns, tokens=tokens, inserts=inserts)


def mark(db: apsw.Connection, project: str, adapter: str, seen: Activity, now: int) -> None:
    """Record that the adapter was read when the counters stood at `seen`. Needs a transaction."""
    db.execute(
        MARK,
        {
            "project": project,
            "adapter": adapter,
            "turns": seen.turns,
            "tokens": seen.tokens,
            "inserts": seen.inserts,
            "now": now,
        },
    )


def due_at(db: apsw.Connection, project: str, adapter: str, now: int) -> int | None:
    """UTC ms at which the adapter may be read, None while too little happened."""
    rule = RULES.get(adapter, RULES[DEFAULT_ADAPTER])
    rows = db.execute(WATERMARK, (project, adapter)).fetchall()
    if not rows:
        return now
    turns, tokens, inserts, ran_at = cast("tuple[int, int, int, int]", rows[0])
    seen = total(db, project)
    enough = (
        seen.turns - turns >= rule.turns
        or seen.tokens - tokens >= rule.tokens
        or seen.inserts - inserts >= rule.inserts
    )
    if not enough:
        return None
    # A clock that was set back must not silence a project: never later than one interval from now.
    return min(max(now, ran_at + rule.interval_ms), now + rule.interval_ms)


def sync_due_at(db: apsw.Connection, project: str, now: int) -> int | None:
    """The earliest due time over all adapters; a sync reads them all."""
    found = [at for name in RULES if (at := due_at(db, project, name, now)) is not None]
    return min(found, default=None)
