"""Leases: the right to run one job, proved by a random token until boot time passes `lease_until`.

A claim is one statement. Every ending matches the token, so of two runs that both believe they
hold the job, one is told otherwise. Crashes are counted apart from retries; a polite stop counts
nothing.
Statements only: the transaction and its durability are the caller's (`storage.queue`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import apsw

from storage.errors import LeaseLost
from storage.jobs import JobState
from storage.queue_line import Return, job_id, put_back
from storage.records import JobStamp

TOKEN_BITS = 63
CLASS_SPAN = 10
AGEING_MS = 60_000
"""A due job gains a point a minute, so one class in ten minutes: nothing starves."""
MAX_AGEING = 30
BACKOFF_BASE_MS = 1_000
BACKOFF_LIMIT_MS = 900_000
MAX_ERROR_CHARS = 500


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job this process may run now."""

    row: int
    job_id: str
    kind: str
    project: str
    subject: str
    priority: int
    attempt: int
    """This run included; polite stops and crashes are not in it."""
    crashes: int
    run_at: int
    enqueued_at: int
    message: bytes
    token: int
    lease_until: int
    """Boot ms at the claim; renewals move it."""
    values_exist: bool = False
    """Whether Huey's corner of the queue held anything (a revocation) at the claim."""

    @property
    def stamp(self) -> JobStamp:
        return JobStamp(job_id=self.job_id, token=self.token)

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.kind, self.project, self.subject)


# Lanes are few: a skip scan seeks from each to the next, whatever the number of waiting jobs. In a
# lane only rows whose key runs elsewhere are stepped over: at most one per running job.
LANES: Final = """
WITH RECURSIVE lanes (lane) AS (
  SELECT min(lane) FROM jobs WHERE state = 'available' AND lane >= printf('%02d', :floor)
  UNION ALL
  SELECT (SELECT min(n.lane) FROM jobs AS n WHERE n.state = 'available' AND n.lane > lanes.lane)
  FROM lanes WHERE lanes.lane IS NOT NULL
)"""
NOT_RUNNING: Final = """NOT EXISTS (SELECT 1 FROM jobs AS r WHERE r.state = 'leased'
    AND r.kind = c.kind AND r.project = c.project AND r.subject = c.subject)"""
NOT_PAUSED: Final = """NOT EXISTS (SELECT 1 FROM pauses
    WHERE scope IN ('all', 'kind:' || j.kind, 'project:' || j.project))"""
OPEN_CLASS: Final = f"""instr(:closed, printf('|%02d|', j.priority / {CLASS_SPAN})) = 0"""
CLAIM: Final = f"""
UPDATE jobs SET state = 'leased', owner = :owner, token = :token, lease_until = :until,
  boot = :boot, runs = runs + 1, attempt = attempt + 1, waiting_for = '', started_at = :now
WHERE id = ({LANES}
  SELECT j.id FROM lanes JOIN jobs AS j ON j.id = (
    SELECT c.id FROM jobs AS c
    WHERE c.state = 'available' AND c.lane = lanes.lane AND c.run_at <= :now AND {NOT_RUNNING}
    ORDER BY c.run_at, c.id LIMIT 1)
  WHERE {NOT_PAUSED} AND {OPEN_CLASS}
  ORDER BY (j.priority + min({MAX_AGEING}, (:now - j.run_at) / {AGEING_MS})) / {CLASS_SPAN} DESC,
    served(j.project), j.run_at, j.id
  LIMIT 1)
RETURNING id, nonce, kind, project, subject, priority, attempt, crashes, run_at, enqueued_at,
  message, EXISTS (SELECT 1 FROM huey_values)
"""
NEXT_DUE: Final = f"""{LANES}
SELECT min(j.run_at) FROM lanes JOIN jobs AS j ON j.id = (
  SELECT c.id FROM jobs AS c
  WHERE c.state = 'available' AND c.lane = lanes.lane AND {NOT_RUNNING}
  ORDER BY c.run_at LIMIT 1)
WHERE {NOT_PAUSED} AND {OPEN_CLASS}
"""


def claim(
    db: apsw.Connection,
    *,
    owner: str,
    until: int,
    boot: str,
    now: int,
    floor: int,
    closed: frozenset[int] = frozenset(),
) -> ClaimedJob | None:
    """Take the best due job: class with ageing, then the project served longest ago, then age.

    Needs the SQL function `served(project)` on the connection.
    """
    token = secrets.randbits(TOKEN_BITS)
    values = {
        "owner": owner,
        "token": token,
        "until": until,
        "boot": boot,
        "now": now,
        "floor": floor,
        "closed": _closed(closed),
    }
    rows = db.execute(CLAIM, values).fetchall()
    if not rows:
        return None
    found = cast("tuple[int, int, str, str, str, int, int, int, int, int, bytes, int]", rows[0])
    row, nonce, kind, project, subject, priority, attempt, crashes, run_at = found[:9]
    enqueued_at, message, any_value = found[9:]
    return ClaimedJob(
        row,
        job_id(row, nonce),
        kind,
        project,
        subject,
        priority,
        attempt,
        crashes,
        run_at,
        enqueued_at,
        message,
        token,
        until,
        bool(any_value),
    )


def next_due(
    db: apsw.Connection, *, floor: int, closed: frozenset[int] = frozenset()
) -> int | None:
    """UTC ms at which a job can next be claimed (past: now); None when nothing waits."""
    found = db.execute(NEXT_DUE, {"floor": floor, "closed": _closed(closed)}).fetchall()
    return cast("int | None", found[0][0]) if found else None


def _closed(classes: frozenset[int]) -> str:
    return "".join(f"|{priority // CLASS_SPAN:02d}|" for priority in sorted(classes))


RENEW: Final = """
UPDATE jobs SET lease_until = :until
WHERE id = :row AND token = :token AND state = 'leased' RETURNING id
"""
HOLDS: Final = "SELECT 1 FROM jobs WHERE id = ? AND token = ? AND state = 'leased'"


def renew(db: apsw.Connection, jobs: Sequence[ClaimedJob], until: int) -> frozenset[int]:
    """Move the leases; the tokens of those still held."""
    return frozenset(
        job.token
        for job in jobs
        if db.execute(RENEW, {"until": until, "row": job.row, "token": job.token}).fetchall()
    )


def holds(db: apsw.Connection, job: ClaimedJob) -> bool:
    """Whether the token still is the job's."""
    return bool(db.execute(HOLDS, (job.row, job.token)).fetchall())


FINISH: Final = """
UPDATE jobs SET state = :state, finished_at = :now, error = :error, note = :note, owner = '',
  token = NULL, lease_until = NULL, boot = NULL, waiting_for = ''
WHERE id = :row AND token = :token AND state = 'leased' RETURNING id
"""
SUCCEEDED: Final = """
INSERT INTO last_success (kind, project, ended_at) VALUES (?, ?, ?)
ON CONFLICT (kind, project) DO UPDATE SET ended_at = excluded.ended_at
WHERE abs(excluded.ended_at - last_success.ended_at) >= 1000
"""
"""To the second: a page less to sync in most endings of a busy queue."""


def finish(
    db: apsw.Connection,
    job: ClaimedJob,
    state: JobState,
    now: int,
    *,
    error: str = "",
    note: str = "",
) -> None:
    """End the job.

    Raises:
        LeaseLost: the token is not the job's any more; nothing changed.
    """
    values = {
        "state": state.value,
        "now": now,
        "error": error[:MAX_ERROR_CHARS],
        "note": note[:MAX_ERROR_CHARS],
        "row": job.row,
        "token": job.token,
    }
    if not db.execute(FINISH, values).fetchall():
        raise LeaseLost(f"job {job.job_id}: another run holds it, or it was cancelled")
    if state is JobState.COMPLETED:
        db.execute(SUCCEEDED, (job.kind, job.project, now))


def give_back(db: apsw.Connection, job: ClaimedJob, back: Return, now: int) -> None:
    """Return the job to the line.

    Raises:
        LeaseLost: the token is not the job's any more; nothing changed.
    """
    if not holds(db, job):
        raise LeaseLost(f"job {job.job_id}: another run holds it, or it was cancelled")
    put_back(db, job.row, job.key, back, now)


def backoff_ms(attempt: int, jitter: float) -> int:
    """min(15 min, 1 s x 2^(attempt-1)), of which up to half is jitter (0 <= jitter < 1)."""
    whole = min(BACKOFF_LIMIT_MS, BACKOFF_BASE_MS * 2 ** min(attempt - 1, 30))
    return int(whole * (0.5 + jitter / 2))


LEASED_OWNERS: Final = "SELECT DISTINCT owner FROM jobs WHERE state = 'leased'"
LAPSED_SQL: Final = """state = 'leased' AND (boot <> :boot OR lease_until <= :boot_ms
  OR owner IN (SELECT value FROM json_each(:dead)))"""
LAPSED: Final = f"""
SELECT id, kind, project, subject, attempt, crashes, owner, boot FROM jobs
WHERE {LAPSED_SQL} LIMIT 1000
"""
ANY_LAPSED: Final = f"SELECT 1 FROM jobs WHERE {LAPSED_SQL} LIMIT 1"
BURY_CRASHED: Final = """
UPDATE jobs SET state = 'dead', finished_at = :now, crashes = :crashes, attempt = :attempt,
  error = :error, owner = '', token = NULL, lease_until = NULL, boot = NULL
WHERE id = :row
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """What one pass of the reaper found."""

    returned: int = 0
    buried: int = 0
    lapsed: int = 0
    """Of the above, those whose owner still lives: a hung or frozen run."""
    watched: int = 0
    """Owners that held leases when the pass began."""


def leased_owners(db: apsw.Connection) -> tuple[str, ...]:
    """Owners that hold a lease by the rows."""
    return tuple(cast("str", row[0]) for row in db.execute(LEASED_OWNERS).fetchall())


def any_lapsed(db: apsw.Connection, dead_json: str, boot: str, boot_ms: int) -> bool:
    """Whether the reaper has something to do: a read, so that an idle tick takes no write lock."""
    values = {"dead": dead_json, "boot": boot, "boot_ms": boot_ms}
    return bool(db.execute(ANY_LAPSED, values).fetchall())


def reap(
    db: apsw.Connection,
    *,
    dead_json: str,
    boot: str,
    boot_ms: int,
    now: int,
    max_crashes: int,
) -> Reaped:
    """Free up to 1000 leases: dead owners, lapsed ones, and those of an earlier boot."""
    values = {"dead": dead_json, "boot": boot, "boot_ms": boot_ms}
    returned = buried = lapsed = 0
    for found in db.execute(LAPSED, values).fetchall():
        row, kind, project, subject, attempt, crashes, owner, its_boot = cast(
            "tuple[int, str, str, str, int, int, str, str]", found
        )
        # A reboot is nobody's fault; everything else is a crash of this run.
        rebooted = its_boot != boot
        count = crashes if rebooted else crashes + 1
        lapsed += not rebooted and f'"{owner}"' not in dead_json
        back = Return(run_at=now, attempt=max(0, attempt - 1), crashes=count, error="worker lost")
        if count >= max_crashes:
            error = f"poison: its worker was lost {count} times"
            db.execute(
                BURY_CRASHED,
                {
                    "row": row,
                    "now": now,
                    "crashes": count,
                    "attempt": back.attempt,
                    "error": error,
                },
            )
            buried += 1
        else:
            put_back(db, row, (kind, project, subject), back, now)
            returned += 1
    return Reaped(returned=returned, buried=buried, lapsed=lapsed)
