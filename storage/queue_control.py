"""What people do to the queue: pause, resume, cancel, revive, and what ages out of it.

Statements only: the transaction and its durability are the caller's (`storage.queue`).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final, cast

import apsw

from storage.errors import Invalid
from storage.jobs import JobKind
from storage.queue_line import NONCE_BITS, WAITING, job_id, row_of

DAY_MS = 86_400_000
KEPT_FINISHED = 1_000
"""However old, the newest of these stay for people to look at."""


def pause_scope(kind: JobKind | None, project: str | None) -> str:
    """The name of what is paused: a kind, a project, or everything.

    Raises:
        Invalid: both a kind and a project.
    """
    if kind is not None and project is not None:
        raise Invalid("pause a kind or a project, not both at once")
    if kind is not None:
        return f"kind:{kind.value}"
    return f"project:{project}" if project is not None else "all"


PAUSE: Final = "INSERT INTO pauses (scope, paused_at) VALUES (?, ?) ON CONFLICT DO NOTHING"
RESUME: Final = "DELETE FROM pauses WHERE scope = ? RETURNING scope"
CANCEL: Final = """
UPDATE jobs SET state = 'cancelled', finished_at = :now, waiting_for = '',
  error = CASE state WHEN 'dead' THEN error ELSE 'cancelled' END,
  owner = '', token = NULL, lease_until = NULL, boot = NULL
WHERE id = :row AND nonce = :nonce AND state IN ('available', 'leased', 'dead') RETURNING id
"""
CANCEL_KIND: Final = """
UPDATE jobs SET state = 'cancelled', finished_at = :now, error = 'cancelled', waiting_for = ''
WHERE state = 'available' AND kind = :kind RETURNING id
"""
FINISHED_ROW: Final = """
SELECT kind, project, subject FROM jobs
WHERE id = ? AND nonce = ? AND state IN ('dead', 'discarded', 'cancelled')
"""
REVIVE: Final = """
UPDATE jobs SET state = 'available', nonce = :fresh, run_at = :now, runs = 0, attempt = 0,
  crashes = 0, waiting_for = '', finished_at = NULL
WHERE id = :row RETURNING nonce
"""
RELEASE_HELD: Final = """
UPDATE jobs SET run_at = :now, waiting_for = ''
WHERE state = 'available' AND waiting_for = :reason AND run_at > :now
  AND (:project IS NULL OR project = :project) RETURNING id
"""
IS_HELD: Final = """
SELECT 1 FROM jobs WHERE state = 'available' AND waiting_for = :reason AND run_at > :now
  AND (:project IS NULL OR project = :project) LIMIT 1
"""


def pause(db: apsw.Connection, scope: str, now: int) -> None:
    """Nothing of the scope is claimed from now on; what runs, runs on."""
    db.execute(PAUSE, (scope, now))


def resume(db: apsw.Connection, scope: str) -> bool:
    """Undo a pause; False if there was none."""
    return bool(db.execute(RESUME, (scope,)).fetchall())


def cancel(db: apsw.Connection, public: str, now: int) -> bool:
    """End a waiting or running job, or dismiss a dead one, which keeps its reason.

    A running job loses its lease and can publish nothing.
    """
    found = row_of(public)
    if found is None:
        return False
    values = {"row": found[0], "nonce": found[1], "now": now}
    return bool(db.execute(CANCEL, values).fetchall())


def cancel_kind(db: apsw.Connection, kind: str, now: int) -> int:
    """End all waiting jobs of a kind; returns how many."""
    return len(db.execute(CANCEL_KIND, {"kind": kind, "now": now}).fetchall())


def revive(db: apsw.Connection, public: str, now: int) -> str | None:
    """Put an ended job back with fresh counters; its new id, or None if it did not end unwell.

    If a job with the same key already waits, that one is the answer and nothing changes.
    """
    found = row_of(public)
    if found is None:
        return None
    keys = db.execute(FINISHED_ROW, found).fetchall()
    if not keys:
        return None
    if db.execute(WAITING, cast("tuple[str, str, str]", keys[0])).fetchall():
        return waiting_id(db, cast("tuple[str, str, str]", keys[0]))
    # A new nonce is a new id: an effect that the old id left in the authority must not hide
    # this run.
    fresh = secrets.randbits(NONCE_BITS)
    db.execute(REVIVE, {"row": found[0], "fresh": fresh, "now": now}).fetchall()
    return job_id(found[0], fresh)


WAITING_ID: Final = """
SELECT id, nonce FROM jobs WHERE state = 'available' AND kind = ? AND project = ? AND subject = ?
"""


def waiting_id(db: apsw.Connection, key: tuple[str, str, str]) -> str | None:
    """The id of the job that waits with this key."""
    rows = db.execute(WAITING_ID, key).fetchall()
    return job_id(*cast("tuple[int, int]", rows[0])) if rows else None


def is_held(db: apsw.Connection, reason: str, project: str | None, now: int) -> bool:
    """Whether a job waits for this reason: a read, so that asking takes no write lock."""
    values = {"reason": reason, "project": project, "now": now}
    return bool(db.execute(IS_HELD, values).fetchall())


def release_held(db: apsw.Connection, reason: str, project: str | None, now: int) -> int:
    """Make jobs that wait for one reason due now (a model was configured, a budget was raised)."""
    values = {"reason": reason, "project": project, "now": now}
    return len(db.execute(RELEASE_HELD, values).fetchall())


SHIFT: Final = """
UPDATE jobs SET run_at = max(:now, run_at + :delta)
WHERE state = 'available' AND run_at > :now AND waiting_for <> 'budget' RETURNING id
"""


def shift_later(db: apsw.Connection, delta: int, now: int) -> int:
    """Move what waits for a time along with a wall clock that was set by `delta`."""
    return len(db.execute(SHIFT, {"delta": delta, "now": now}).fetchall())


MARK_CLOCK: Final = """
INSERT INTO clock_mark (id, boot, wall, boot_ms) VALUES (1, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET boot = excluded.boot, wall = excluded.wall,
  boot_ms = excluded.boot_ms
"""
CLOCK_MARK: Final = "SELECT boot, wall, boot_ms FROM clock_mark"


def mark_clock(db: apsw.Connection, boot: str, wall: int, boot_ms: int) -> None:
    """Note how the clocks stand to each other."""
    db.execute(MARK_CLOCK, (boot, wall, boot_ms))


def stepped(db: apsw.Connection, boot: str, wall: int, boot_ms: int) -> int:
    """By how many ms the wall clock was set since the mark; negative: back.

    Across a boot only a step back can be told: how long the machine was off is not known.
    """
    rows = db.execute(CLOCK_MARK).fetchall()
    if not rows:
        return 0
    its_boot, its_wall, its_boot_ms = cast("tuple[str, int, int]", rows[0])
    if its_boot == boot:
        return (wall - boot_ms) - (its_wall - its_boot_ms)
    return min(0, wall - its_wall)


PRUNE_JOBS: Final = """
DELETE FROM jobs WHERE id IN (
  SELECT id FROM jobs WHERE finished_at IS NOT NULL AND finished_at < :before AND state <> 'dead'
    AND finished_at < (SELECT finished_at FROM jobs WHERE finished_at IS NOT NULL
                       ORDER BY finished_at DESC LIMIT 1 OFFSET :kept)
  ORDER BY finished_at LIMIT :batch)
RETURNING id
"""
PRUNE_DEAD: Final = """
DELETE FROM jobs WHERE id IN (
  SELECT id FROM jobs WHERE state = 'dead' AND finished_at < :before LIMIT :batch)
RETURNING id
"""
CAP_JOBS: Final = """
DELETE FROM jobs WHERE id IN (
  SELECT id FROM jobs WHERE finished_at IS NOT NULL AND state <> 'dead'
    AND finished_at < (SELECT finished_at FROM jobs WHERE finished_at IS NOT NULL
                       ORDER BY finished_at DESC LIMIT 1 OFFSET :most)
  ORDER BY finished_at LIMIT :batch)
RETURNING id
"""
PRUNE_FIRED: Final = "DELETE FROM fired WHERE fired_at < :before RETURNING name"
PRUNE_SPOOLED: Final = "DELETE FROM spooled WHERE taken_at < :before RETURNING name"
ORPHANS: Final = """
UPDATE reservations SET state = 'unknown' WHERE state = 'held' AND reserved_at < ? RETURNING id
"""
PRUNE_RESERVATIONS: Final = """
DELETE FROM reservations WHERE reserved_at < ? AND state <> 'held' RETURNING id
"""
PRUNE_WINDOWS: Final = "DELETE FROM budget_windows WHERE window < ? RETURNING scope"
LAST_WINDOW: Final = """
SELECT calls_used, tokens_used FROM budget_windows WHERE scope = 'all'
  AND window < (SELECT max(window) FROM budget_windows WHERE scope = 'all')
ORDER BY window DESC LIMIT 1
"""
PRUNE_VALUES: Final = "DELETE FROM huey_values WHERE set_at < ? RETURNING key"

BATCH = 2_000
MOST_FINISHED = 20_000
DEAD_DAYS = 90
WINDOW_DAYS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class RolledUp:
    """What closing finished budget windows came to."""

    unknown: int
    """Holds whose outcome nobody will ever report."""
    windows: int
    """Windows past their limit that were removed."""
    calls: int
    tokens: int
    """Spent in the last finished window of the whole home."""


def roll_up(db: apsw.Connection, now: int) -> RolledUp:
    """Close what is over: holds of two days ago, windows of last year."""
    unknown = len(db.execute(ORPHANS, (now - 2 * DAY_MS,)).fetchall())
    windows = len(db.execute(PRUNE_WINDOWS, (now - WINDOW_DAYS * DAY_MS,)).fetchall())
    spent = db.execute(LAST_WINDOW).fetchall()
    calls, tokens = cast("tuple[int, int]", spent[0]) if spent else (0, 0)
    return RolledUp(unknown=unknown, windows=windows, calls=calls, tokens=tokens)


def prune(db: apsw.Connection, now: int, retention_days: int) -> int:
    """Delete what is older than its limit, at most a batch a table; returns the rows deleted."""
    before = now - retention_days * DAY_MS
    statements: tuple[tuple[str, dict[str, int] | tuple[int, ...]], ...] = (
        (PRUNE_JOBS, {"before": before, "kept": KEPT_FINISHED, "batch": BATCH}),
        (CAP_JOBS, {"most": MOST_FINISHED, "batch": BATCH}),
        (PRUNE_DEAD, {"before": now - DEAD_DAYS * DAY_MS, "batch": BATCH}),
        # Slots outlive every catch-up window, or a pruned slot could fire again.
        (PRUNE_FIRED, {"before": now - max(retention_days, 45) * DAY_MS}),
        (PRUNE_SPOOLED, {"before": before}),
        (PRUNE_RESERVATIONS, (before,)),
        (PRUNE_WINDOWS, (now - WINDOW_DAYS * DAY_MS,)),
        (PRUNE_VALUES, (before,)),
    )
    db.execute(ORPHANS, (now - 2 * DAY_MS,)).fetchall()
    return sum(len(db.execute(sql, values).fetchall()) for sql, values in statements)
