"""The leased queue: nothing acknowledged is lost, nothing takes effect twice.

A job waits, is claimed under a lease, and ends: completed, discarded, cancelled or dead. Delivery
is at least once; the effect is exactly once because the authority applies a job's stamp once.
Enqueues are durable (FULL) when they return; claims and endings are NORMAL, and losing one to a
power cut only repeats a run. Deleting the file costs time, never memory.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable, Sequence

from storage import activity, leases, queue_control, queue_views, spool
from storage.activity import Activity
from storage.clock import Clock
from storage.connection import BUSY_TIMEOUT_MS, Durability, translated
from storage.jobs import JobKind, JobSpec, JobState, JobView
from storage.leases import ClaimedJob, Reaped
from storage.paths import HomePaths
from storage.queue_file import QueueFile, open_queue_file
from storage.queue_line import Line, Return, lines, put
from storage.queue_owner import dead_owners
from storage.spool import Entry
from storage.wakeup import ring

DEFAULT_LEASE_MS = 60_000
DEFAULT_MAX_CRASHES = 3
REAP_BATCHES = 20


class JobQueue:
    """One process's view of the queue. Safe to share between threads, never across a fork."""

    def __init__(
        self,
        file: QueueFile,
        clock: Clock,
        *,
        durability: Durability = "NORMAL",
        enqueue_durability: Durability = "FULL",
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.file = file
        self.paths = file.paths
        self.clock = clock
        self._durability = durability
        self._enqueue_durability = enqueue_durability
        self._jitter = jitter
        self._claiming = threading.Lock()
        self._turn = itertools.count(1)
        self._served: dict[str, int] = {}
        file.provide("served", lambda project: self._served.get(str(project), 0))

    # Putting in

    def enqueue(self, specs: Sequence[JobSpec]) -> list[str]:
        """Ids of the jobs that will do this, durable when this returns.

        A spec joins the job that already waits with its key; while one runs it makes one follow-up.

        Raises:
            Invalid: arguments that are not JSON or too large; nothing was enqueued.
            Busy: the write lock was not had in time; nothing was enqueued.
        """
        return self.enqueue_lines(lines(specs))

    def enqueue_lines(self, waiting: Sequence[Line]) -> list[str]:
        """As `enqueue`, for jobs whose kind is not ours (a task that somebody gave to Huey)."""
        with self.file.write(self._enqueue_durability) as db:
            ids = put(db, waiting, self.clock.now_ms())
        ring(self.paths)
        return ids

    def accept(self, entry: Entry) -> int:
        """Count activity and enqueue what it makes due, durably; returns the jobs asked for.

        Raises:
            Busy: the write lock was not had in time; nothing changed.
        """
        with self.file.write(self._enqueue_durability) as db:
            jobs = spool.apply(db, entry, self.clock.now_ms())
        if jobs:
            ring(self.paths)
        return jobs

    def drain_spool(self) -> int:
        """Take spooled entries in and remove their files; returns the jobs they asked for."""
        files = spool.waiting(self.paths)
        if not files:
            return 0
        with self.file.write("FULL") as db:
            jobs, refused = spool.take_in(db, files, self.clock.now_ms())
        spool.quarantine(refused)
        spool.remove([path for path in files if path not in refused])
        if jobs:
            ring(self.paths)
        return jobs

    # Running

    def claim(
        self, owner: str, *, lease_ms: int = DEFAULT_LEASE_MS, floor: int = 0
    ) -> ClaimedJob | None:
        """The best due job of class `floor` or higher, leased to the owner; None without one."""
        with self._claiming, translated():
            db = self.file.settle(self._durability)
            job = leases.claim(
                db,
                owner=owner,
                until=self.clock.boot_ms() + lease_ms,
                boot=self.clock.boot_id(),
                now=self.clock.now_ms(),
                floor=floor,
            )
            if job is not None:
                self._served[job.project] = next(self._turn)
            return job

    def next_due(self, *, floor: int = 0) -> int | None:
        """UTC ms at which a job can next be claimed (past: now); None when nothing waits."""
        with translated():
            return leases.next_due(self.file.db, floor=floor)

    def renew(self, jobs: Sequence[ClaimedJob], *, lease_ms: int = DEFAULT_LEASE_MS) -> set[int]:
        """Extend the leases; returns the tokens of those still held."""
        if not jobs:
            return set()
        with self.file.write(self._durability) as db:
            return set(leases.renew(db, jobs, self.clock.boot_ms() + lease_ms))

    def holds(self, job: ClaimedJob) -> bool:
        """Whether the job's lease still is this one, by the rows."""
        with translated():
            return leases.holds(self.file.db, job)

    def acknowledge(
        self,
        job: ClaimedJob,
        successors: Sequence[JobSpec] = (),
        *,
        note: str = "",
        seen: Activity | None = None,
        following: Sequence[Line] = (),
    ) -> list[str]:
        """End the job as completed and enqueue its successors, in one transaction.

        `seen` moves the sync watermarks of the job's project to those counters.

        Raises:
            LeaseLost: somebody else holds the job; nothing changed.
            Invalid: a successor is refused; nothing changed.
        """
        waiting = (*lines(successors), *following)
        now = self.clock.now_ms()
        with self.file.write(self._durability) as db:
            leases.finish(db, job, JobState.COMPLETED, now, note=note)
            if seen is not None:
                for adapter in activity.RULES:
                    activity.mark(db, job.project, adapter, seen, now)
            ids = put(db, waiting, now)
        if ids:
            ring(self.paths)
        return ids

    def retry(self, job: ClaimedJob, error: str, *, waiting_for: str = "retry") -> int:
        """Put the job back with exponential backoff; returns the UTC ms of its next run.

        Raises:
            LeaseLost: somebody else holds the job; nothing changed.
        """
        now = self.clock.now_ms()
        run_at = now + leases.backoff_ms(job.attempt, self._jitter())
        self._give_back(job, run_at, job.attempt, waiting_for, error)
        return run_at

    def snooze(self, job: ClaimedJob, until_at: int, waiting_for: str, error: str = "") -> None:
        """Put the job back for later without using an attempt.

        Raises:
            LeaseLost: somebody else holds the job; nothing changed.
        """
        self._give_back(job, until_at, job.attempt - 1, waiting_for, error)

    def interrupt(self, job: ClaimedJob) -> None:
        """Put the job back at once, as if it had not been started (a polite stop).

        Raises:
            LeaseLost: somebody else holds the job; nothing changed.
        """
        self._give_back(job, self.clock.now_ms(), job.attempt - 1, "", "")

    release = interrupt

    def _give_back(
        self, job: ClaimedJob, run_at: int, attempt: int, waiting_for: str, error: str
    ) -> None:
        back = Return(
            run_at=run_at,
            attempt=max(0, attempt),
            crashes=job.crashes,
            waiting_for=waiting_for,
            error=error[: leases.MAX_ERROR_CHARS],
        )
        with self.file.write(self._durability) as db:
            leases.give_back(db, job, back, self.clock.now_ms())

    def discard(self, job: ClaimedJob, reason: str) -> None:
        """End the job: its input can never become valid.

        Raises:
            LeaseLost: somebody else holds the job; nothing changed.
        """
        self._end(job, JobState.DISCARDED, reason)

    def bury(self, job: ClaimedJob, reason: str) -> None:
        """End the job as dead: kept with its reason until somebody revives it.

        Raises:
            LeaseLost: somebody else holds the job; nothing changed.
        """
        self._end(job, JobState.DEAD, reason)

    def _end(self, job: ClaimedJob, state: JobState, reason: str) -> None:
        with self.file.write(self._durability) as db:
            leases.finish(db, job, state, self.clock.now_ms(), error=reason)

    def reap(self, *, max_crashes: int = DEFAULT_MAX_CRASHES) -> Reaped:
        """Free the leases of dead owners, lapsed leases, and those of an earlier boot."""
        with translated():
            owners = leases.leased_owners(self.file.db)
        if not owners:
            return Reaped()
        dead = json.dumps(dead_owners(self.paths, owners))
        returned = buried = lapsed = 0
        for _ in range(REAP_BATCHES):
            with translated():
                if not leases.any_lapsed(
                    self.file.db, dead, self.clock.boot_id(), self.clock.boot_ms()
                ):
                    break
            with self.file.write(self._durability) as db:
                found = leases.reap(
                    db,
                    dead_json=dead,
                    boot=self.clock.boot_id(),
                    boot_ms=self.clock.boot_ms(),
                    now=self.clock.now_ms(),
                    max_crashes=max_crashes,
                )
            returned += found.returned
            buried += found.buried
            lapsed += found.lapsed
        if returned:
            ring(self.paths)
        return Reaped(returned=returned, buried=buried, lapsed=lapsed)

    # People

    def pause(self, *, kind: JobKind | None = None, project: str | None = None) -> None:
        """Claim nothing of a kind, of a project, or at all, until resumed."""
        scope = queue_control.pause_scope(kind, project)
        with self.file.write("FULL") as db:
            queue_control.pause(db, scope, self.clock.now_ms())

    def resume(self, *, kind: JobKind | None = None, project: str | None = None) -> bool:
        """Undo a pause; False if there was none."""
        scope = queue_control.pause_scope(kind, project)
        with self.file.write("FULL") as db:
            found = queue_control.resume(db, scope)
        ring(self.paths)
        return found

    def cancel(self, job_id: str) -> bool:
        """End a waiting or running job; a running one loses its lease and can publish nothing."""
        with self.file.write("FULL") as db:
            return queue_control.cancel(db, job_id, self.clock.now_ms())

    def cancel_kind(self, kind: str) -> int:
        """End all waiting jobs of a kind; returns how many."""
        with self.file.write("FULL") as db:
            return queue_control.cancel_kind(db, kind, self.clock.now_ms())

    def revive(self, job_id: str) -> str | None:
        """Put a dead, discarded or cancelled job back with fresh counters; its new id."""
        with self.file.write("FULL") as db:
            found = queue_control.revive(db, job_id, self.clock.now_ms())
        if found is not None:
            ring(self.paths)
        return found

    def release_waiting(self, reason: str, project: str | None = None) -> int:
        """Make the jobs that wait for one reason due now; returns how many."""
        now = self.clock.now_ms()
        with translated():
            if not queue_control.is_held(self.file.db, reason, project, now):
                return 0
        with self.file.write("FULL") as db:
            freed = queue_control.release_held(db, reason, project, now)
        if freed:
            ring(self.paths)
        return freed

    def shift_later(self, delta_ms: int) -> int:
        """The wall clock was set: jobs that wait for a time keep their distance to it.

        Budget waits are left alone: their reset is a time of day, not a distance.
        """
        with self.file.write("NORMAL") as db:
            return queue_control.shift_later(db, delta_ms, self.clock.now_ms())

    def prune(self, retention_days: int) -> int:
        """Delete rows past their limit, a batch at a time; returns how many."""
        with self.file.write("NORMAL") as db:
            return queue_control.prune(db, self.clock.now_ms(), retention_days)

    # Looking

    def jobs(
        self,
        *,
        state: JobState | None = None,
        kind: str | None = None,
        project: str | None = None,
        limit: int = 100,
    ) -> list[JobView]:
        """Jobs, newest first; nothing in them is decoded."""
        return queue_views.list_jobs(
            self.file.db, state=state, kind=kind, project=project, limit=limit
        )

    def job(self, job_id: str) -> JobView | None:
        """One job by its id."""
        return queue_views.one_job(self.file.db, job_id)

    def counts(self) -> dict[JobState, int]:
        """Jobs in each state."""
        return queue_views.counts(self.file.db)

    def oldest_ready_age_ms(self) -> int:
        """How long the longest-due unpaused job has waited."""
        return queue_views.oldest_ready_age_ms(self.file.db, self.clock.now_ms())

    def has_open(self, kind: JobKind, project: str) -> bool:
        """Whether a job of this kind and project waits or runs."""
        return queue_views.has_open(self.file.db, kind, project)

    def drained(self) -> bool:
        """Whether nothing runs and nothing unpaused is due."""
        return queue_views.unsettled(self.file.db, self.clock.now_ms()) == 0

    def activity(self, project: str) -> Activity:
        """The counters of a project."""
        with translated():
            return activity.total(self.file.db, project)

    def close(self) -> None:
        """Close the file; idempotent."""
        self.file.close()


def open_queue(
    paths: HomePaths,
    *,
    clock: Clock,
    durability: Durability = "NORMAL",
    enqueue_durability: Durability = "FULL",
    busy_ms: int = BUSY_TIMEOUT_MS,
) -> JobQueue:
    """The queue of a home, made on first use.

    `durability` is that of claims and endings. `busy_ms` bounds the wait for the write lock.

    Raises:
        Corrupt: the file is damaged or not ours; NewerSchema: a newer memoryd wrote it.
        Unavailable: permissions, links, or a read-only file system.
        Busy: it could not be had in time.
    """
    file = open_queue_file(paths, clock, busy_ms=busy_ms)
    return JobQueue(file, clock, durability=durability, enqueue_durability=enqueue_durability)
