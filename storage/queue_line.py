"""The waiting line: how a job gets into it, joins one that waits, and comes back after a run.

Every function works inside the caller's transaction, so enqueues can be part of an acknowledgement,
a schedule's slot or a spool file. Per key (kind, project, subject) at most one job waits. An event
joins the waiting one only if that one never ran: one that ran may have applied its effect already,
and its re-run would only acknowledge and lose the event. It is then superseded by a new job.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import apsw

from storage.jobs import JobSpec, Priority
from storage.queue_message import encode_args

NONCE_BITS = 47
HELD_SQL: Final = f"waiting_for <> '' AND :priority < {int(Priority.INTERACTIVE)}"
"""A job that was put off (backoff, budget, model) keeps its time when an event joins it; only a
person's request pulls it forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A job to put in, its message encoded: everything that can be refused was refused."""

    kind: str
    project: str
    subject: str
    priority: int
    run_at: int | None
    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """How a leased job goes back into the line."""

    run_at: int
    attempt: int
    crashes: int
    waiting_for: str = ""
    error: str = ""


def job_id(row: int, nonce: int) -> str:
    """The public id: row number and nonce, so that it is never reused."""
    return f"{row}-{nonce:012x}"


def row_of(public: str) -> tuple[int, int] | None:
    """Row and nonce of a public id, None if it is not one."""
    row, _, nonce = public.partition("-")
    try:
        return int(row), int(nonce, 16)
    except ValueError:
        return None


def lines(specs: Sequence[JobSpec]) -> tuple[Line, ...]:
    """The specs, checked and encoded before any lock is taken.

    Raises:
        Invalid: arguments that are not JSON or too large.
    """
    return tuple(
        Line(
            kind=spec.kind.value,
            project=spec.project,
            subject=spec.subject,
            priority=int(spec.priority),
            run_at=spec.run_at,
            message=encode_args(spec.args),
        )
        for spec in specs
    )


JOIN_OR_INSERT: Final = f"""
INSERT INTO jobs (nonce, kind, project, subject, state, priority, run_at, enqueued_at, message)
VALUES (:nonce, :kind, :project, :subject, 'available', :priority, :run_at, :now, :message)
ON CONFLICT (kind, project, subject) WHERE state = 'available' DO UPDATE SET
  priority = max(priority, excluded.priority),
  run_at = CASE WHEN {HELD_SQL} THEN run_at ELSE min(run_at, excluded.run_at) END,
  waiting_for = CASE WHEN {HELD_SQL} THEN waiting_for ELSE '' END,
  message = excluded.message
WHERE runs = 0
RETURNING id, nonce
"""
WAITING: Final = """
SELECT id, attempt, crashes, priority, run_at, waiting_for, error FROM jobs
WHERE state = 'available' AND kind = ? AND project = ? AND subject = ?
"""
SUPERSEDE: Final = """
UPDATE jobs SET state = 'discarded', finished_at = :now, waiting_for = '', owner = '',
  token = NULL, lease_until = NULL, boot = NULL, error = 'superseded by a newer event'
WHERE id = :row
"""
INSERT_HEIR: Final = """
INSERT INTO jobs (nonce, kind, project, subject, state, priority, run_at, enqueued_at, attempt,
  crashes, waiting_for, error, message)
VALUES (:nonce, :kind, :project, :subject, 'available', :priority, :run_at, :now, :attempt,
  :crashes, :waiting_for, :error, :message)
RETURNING id, nonce
"""


def put(db: apsw.Connection, waiting: Sequence[Line], now: int) -> list[str]:
    """Put each line in, or join it to the waiting job of its key; the ids, in order."""
    return [_put(db, line, now) for line in waiting]


def _put(db: apsw.Connection, line: Line, now: int) -> str:
    values: dict[str, apsw.SQLiteValue] = {
        "nonce": secrets.randbits(NONCE_BITS),
        "kind": line.kind,
        "project": line.project,
        "subject": line.subject,
        "priority": line.priority,
        "run_at": now if line.run_at is None else line.run_at,
        "now": now,
        "message": line.message,
    }
    found = db.execute(JOIN_OR_INSERT, values).fetchall()
    if not found:
        found = _succeed(db, values, line, now)
    row, nonce = found[0]
    return job_id(cast("int", row), cast("int", nonce))


def _succeed(
    db: apsw.Connection, values: dict[str, apsw.SQLiteValue], line: Line, now: int
) -> list[tuple[apsw.SQLiteValue, ...]]:
    row, attempt, crashes, priority, run_at, waiting_for, error = db.execute(
        WAITING, (line.kind, line.project, line.subject)
    ).fetchall()[0]
    db.execute(SUPERSEDE, {"row": row, "now": now})
    heir = dict(values, attempt=attempt, crashes=crashes, waiting_for="", error=error)
    heir["priority"] = max(cast("int", priority), line.priority)
    if waiting_for and line.priority < Priority.INTERACTIVE:
        heir["waiting_for"], heir["run_at"] = waiting_for, run_at
    return db.execute(INSERT_HEIR, heir).fetchall()


BACK: Final = """
UPDATE jobs SET state = 'available', run_at = :run_at, attempt = :attempt, crashes = :crashes,
  waiting_for = :waiting_for, error = :error, owner = '', token = NULL, lease_until = NULL,
  boot = NULL
WHERE id = :row
"""
ADOPT: Final = """
UPDATE jobs SET attempt = max(attempt, :attempt), crashes = max(crashes, :crashes),
  run_at = max(run_at, :run_at), waiting_for = CASE WHEN run_at < :run_at THEN :waiting_for
    ELSE waiting_for END, error = :error
WHERE id = :row
"""


def put_back(
    db: apsw.Connection, row: int, key: tuple[str, str, str], back: Return, now: int
) -> None:
    """Return a leased row to the line; a waiting follow-up takes its place and its history."""
    follow_up = db.execute(WAITING, key).fetchall()
    values: dict[str, apsw.SQLiteValue] = {
        "run_at": back.run_at,
        "attempt": back.attempt,
        "crashes": back.crashes,
        "waiting_for": back.waiting_for,
        "error": back.error,
    }
    if follow_up:
        db.execute(SUPERSEDE, {"row": row, "now": now})
        db.execute(ADOPT, {**values, "row": follow_up[0][0]})
    else:
        db.execute(BACK, {**values, "row": row})
