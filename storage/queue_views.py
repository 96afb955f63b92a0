"""What the queue looks like from outside: plain reads, nothing decoded, nothing executed.

Every function takes a connection, so people's tools can pass a read-only one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import apsw

from storage.connection import translated
from storage.jobs import JobKind, JobState, JobView
from storage.queue_line import job_id, row_of

COLUMNS = """id, nonce, kind, project, subject, state, priority, run_at, enqueued_at, attempt,
  crashes, owner, waiting_for, error, finished_at,
  EXISTS (SELECT 1 FROM pauses
          WHERE scope IN ('all', 'kind:' || kind, 'project:' || project)) AS paused"""
LIST: Final = f"""
SELECT {COLUMNS} FROM jobs
WHERE (:state IS NULL OR state = :state) AND (:kind IS NULL OR kind = :kind)
  AND (:project IS NULL OR project = :project)
ORDER BY id DESC LIMIT :limit
"""
ONE: Final = f"SELECT {COLUMNS} FROM jobs WHERE id = ? AND nonce = ?"
COUNTS: Final = "SELECT state, count(*) FROM jobs GROUP BY state"
OLDEST: Final = """
SELECT min(run_at) FROM jobs WHERE state = 'available' AND run_at <= :now
  AND NOT EXISTS (SELECT 1 FROM pauses
                  WHERE scope IN ('all', 'kind:' || kind, 'project:' || project))
"""
UNSETTLED: Final = """
SELECT count(*) FROM jobs WHERE state = 'leased' OR (state = 'available' AND run_at <= :now
  AND NOT EXISTS (SELECT 1 FROM pauses
                  WHERE scope IN ('all', 'kind:' || kind, 'project:' || project)))
"""
WAITING: Final = """
SELECT count(*) FROM jobs WHERE state = 'available' AND (run_at <= :now) = :due
"""
MESSAGES: Final = """
SELECT message FROM jobs WHERE state = 'available' AND kind = :kind AND (run_at <= :now) = :due
ORDER BY priority DESC, run_at, id LIMIT :limit
"""
LEASES: Final = """
SELECT id, nonce, kind, project, owner, attempt, started_at, lease_until, boot FROM jobs
WHERE state = 'leased' ORDER BY id
"""
HAS_OPEN: Final = """
SELECT 1 FROM jobs WHERE state IN ('available', 'leased') AND kind = ? AND project = ? LIMIT 1
"""
PAUSES: Final = "SELECT scope FROM pauses ORDER BY scope"
SUCCESSES: Final = "SELECT kind, max(ended_at) FROM last_success GROUP BY kind"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseView:
    """A lease as people see it."""

    job_id: str
    kind: str
    project: str
    owner: str
    attempt: int
    started_at: int
    lease_until: int
    """Boot ms; compares only within one boot."""
    boot: str


def list_jobs(
    db: apsw.Connection,
    *,
    state: JobState | None = None,
    kind: str | None = None,
    project: str | None = None,
    limit: int = 100,
) -> list[JobView]:
    """Jobs, newest first."""
    values = {
        "state": state.value if state else None,
        "kind": kind,
        "project": project,
        "limit": limit,
    }
    with translated():
        return [_view(row) for row in db.execute(LIST, values).fetchall()]


def one_job(db: apsw.Connection, public: str) -> JobView | None:
    """The job with this id, if it is still kept."""
    found = row_of(public)
    if found is None:
        return None
    with translated():
        rows = db.execute(ONE, found).fetchall()
    return _view(rows[0]) if rows else None


def _view(row: tuple[apsw.SQLiteValue, ...]) -> JobView:
    (
        number,
        nonce,
        kind,
        project,
        subject,
        state,
        priority,
        run_at,
        enqueued_at,
        attempt,
        crashes,
        owner,
        waiting_for,
        error,
        finished_at,
        paused,
    ) = cast(  # Any: int or None, which the field's type states
        "tuple[int, int, str, str, str, str, int, int, int, int, int, str, str, str, Any, int]", row
    )
    waits = state == JobState.AVAILABLE.value
    return JobView(
        job_id=job_id(number, nonce),
        kind=kind,
        project=project,
        subject=subject,
        state=JobState(state),
        priority=priority,
        run_at=run_at,
        enqueued_at=enqueued_at,
        attempt=attempt,
        crashes=crashes,
        owner=owner,
        waiting_for="paused" if waits and paused else waiting_for,
        error=error,
        finished_at=finished_at,
    )


def counts(db: apsw.Connection) -> dict[JobState, int]:
    """Jobs in each state; every state has a number."""
    with translated():
        found = dict(cast("list[tuple[str, int]]", db.execute(COUNTS).fetchall()))
    return {state: found.get(state.value, 0) for state in JobState}


def oldest_ready_age_ms(db: apsw.Connection, now: int) -> int:
    """How long the longest-due job has waited; 0 when nothing is due. Paused work is not due."""
    with translated():
        found = cast("int | None", db.execute(OLDEST, {"now": now}).fetchall()[0][0])
    return 0 if found is None else max(0, now - found)


def unsettled(db: apsw.Connection, now: int) -> int:
    """Jobs that run, or are due and not paused: 0 means drained."""
    with translated():
        return cast("int", db.execute(UNSETTLED, {"now": now}).fetchall()[0][0])


def waiting_count(db: apsw.Connection, *, due: bool, now: int) -> int:
    """Jobs that wait: those that are due, or those for later."""
    with translated():
        rows = db.execute(WAITING, {"now": now, "due": due}).fetchall()
    return cast("int", rows[0][0])


def messages(
    db: apsw.Connection, kind: str, *, due: bool, now: int, limit: int | None
) -> list[bytes]:
    """The bytes of the messages that wait, undecoded, in the order of their claims."""
    values = {"kind": kind, "now": now, "due": due, "limit": -1 if limit is None else limit}
    with translated():
        return [cast("bytes", row[0]) for row in db.execute(MESSAGES, values).fetchall()]


def has_open(db: apsw.Connection, kind: JobKind, project: str) -> bool:
    """Whether a job of this kind and project waits or runs."""
    with translated():
        return bool(db.execute(HAS_OPEN, (kind.value, project)).fetchall())


def leases(db: apsw.Connection) -> list[LeaseView]:
    """Every running lease."""
    with translated():
        rows = db.execute(LEASES).fetchall()
    return [
        LeaseView(
            job_id=job_id(number, nonce),
            kind=kind,
            project=project,
            owner=owner,
            attempt=attempt,
            started_at=started_at,
            lease_until=until,
            boot=boot,
        )
        for number, nonce, kind, project, owner, attempt, started_at, until, boot in cast(
            "list[tuple[int, int, str, str, str, int, int, int, str]]", rows
        )
    ]


def pauses(db: apsw.Connection) -> list[str]:
    """What is paused: `all`, `kind:<kind>`, `project:<id>`."""
    with translated():
        return [cast("str", row[0]) for row in db.execute(PAUSES).fetchall()]


def last_successes(db: apsw.Connection) -> dict[str, int]:
    """UTC ms of the last completed job of each kind."""
    with translated():
        return dict(cast("list[tuple[str, int]]", db.execute(SUCCESSES).fetchall()))
