"""Maintenance schedules as rows: when each entry runs next, and which slots have run.

A slot is claimed (`fired`) in the transaction that enqueues its jobs and moves `next_run_at`, so it
runs once however many consumers look. What an expression means is `tasks.schedule`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import apsw

from storage.connection import translated
from storage.queue_line import Line, put


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """An entry as people see it."""

    name: str
    expression: str
    zone: str
    next_run_at: int
    last_run_at: int | None
    missed: int
    """Slots that passed while nobody looked and were not made up for."""


LIST: Final = """
SELECT name, expression, zone, next_run_at, last_run_at, missed FROM schedules ORDER BY name
"""
REGISTER: Final = """
INSERT INTO schedules (name, expression, zone, next_run_at)
VALUES (:name, :expression, :zone, :next)
ON CONFLICT (name) DO UPDATE SET expression = excluded.expression, zone = excluded.zone,
  next_run_at = excluded.next_run_at
WHERE expression <> excluded.expression OR zone <> excluded.zone
"""
FORGET: Final = "DELETE FROM schedules WHERE name NOT IN (SELECT value FROM json_each(?))"
FIRE: Final = """
INSERT INTO fired (name, slot, fired_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING slot
"""
MOVE: Final = """
UPDATE schedules SET next_run_at = :next, missed = missed + :missed,
  last_run_at = CASE WHEN :ran THEN :now ELSE last_run_at END
WHERE name = :name AND next_run_at = :expected
"""


def views(db: apsw.Connection) -> list[ScheduleView]:
    """Every entry: last, next, missed."""
    with translated():
        rows = db.execute(LIST).fetchall()
    return [
        ScheduleView(
            name=name,
            expression=expression,
            zone=zone,
            next_run_at=next_run_at,
            last_run_at=last_run_at,
            missed=missed,
        )
        for name, expression, zone, next_run_at, last_run_at, missed in cast(
            "list[tuple[str, str, str, int, int | None, int]]", rows
        )
    ]


def register(db: apsw.Connection, name: str, expression: str, zone: str, next_run_at: int) -> None:
    """Add an entry, or change its expression; an unchanged one keeps its next run."""
    db.execute(
        REGISTER, {"name": name, "expression": expression, "zone": zone, "next": next_run_at}
    )


def keep_only(db: apsw.Connection, names_json: str) -> None:
    """Forget the entries not in this JSON list."""
    db.execute(FORGET, (names_json,))


def fire(
    db: apsw.Connection,
    entry: ScheduleView,
    *,
    slots: Sequence[str],
    waiting: Sequence[Line],
    next_run_at: int,
    missed: int,
    now: int,
) -> int:
    """Claim slots, enqueue once if any was new, and move on; returns how many were new."""
    fresh = sum(bool(db.execute(FIRE, (entry.name, slot, now)).fetchall()) for slot in slots)
    if fresh:
        put(db, waiting, now)
    db.execute(
        MOVE,
        {
            "next": next_run_at,
            "missed": missed,
            "ran": fresh > 0,
            "now": now,
            "name": entry.name,
            "expected": entry.next_run_at,
        },
    )
    return fresh
