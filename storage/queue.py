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

import apsw

from storage import activity, leases, spool
from storage.activity import Activity
from storage.clock import Clock
from storage.connection import Durability, translated
from storage.jobs import JobSpec, JobState
from storage.leases import ClaimedJob, Reaped
from storage.paths import HomePaths
from storage.queue_desk import QueueDesk
from storage.queue_file import QUEUE_BUSY_MS, QueueFile, open_queue_file
from storage.queue_line import Line, Return, lines, put
from storage.queue_owner import dead_owners
from storage.queue_port import DEFAULT_LEASE_MS, DEFAULT_MAX_CRASHES, Take
from storage.spool import Entry
from storage.wakeup import ring

REAP_BATCHES = 20


class JobQueue(QueueDesk):
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
        super().__init__(file, clock)
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
        self,
        owner: str,
        *,
        lease_ms: int = DEFAULT_LEASE_MS,
        floor: int = 0,
        closed: frozenset[int] = frozenset(),
    ) -> ClaimedJob | None:
        """The best due job that may be taken, leased to the owner; None without one."""
        take = Take(owner=owner, lease_ms=lease_ms, floor=floor, closed=closed)
        with self._claiming, translated():
            return self._served_now(self._claim(self.file.settle(self._durability), take))

    def _claim(self, db: apsw.Connection, take: Take) -> ClaimedJob | None:
        return leases.claim(
            db,
            owner=take.owner,
            until=self.clock.boot_ms() + take.lease_ms,
            boot=self.clock.boot_id(),
            now=self.clock.now_ms(),
            floor=take.floor,
            closed=take.closed,
        )

    def _served_now(self, job: ClaimedJob | None) -> ClaimedJob | None:
        if job is not None:
            self._served[job.project] = next(self._turn)
        return job

    def next_due(self, *, floor: int = 0, closed: frozenset[int] = frozenset()) -> int | None:
        """UTC ms at which a job can next be claimed (past: now); None when nothing waits."""
        with translated():
            return leases.next_due(self.file.db, floor=floor, closed=closed)

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
        with self.file.write(self._durability) as db:
            ids = self._complete(db, job, waiting, note, seen)
        if ids:
            ring(self.paths)
        return ids

    def acknowledge_and_claim(
        self,
        job: ClaimedJob,
        take: Take,
        successors: Sequence[JobSpec] = (),
        *,
        note: str = "",
        seen: Activity | None = None,
        following: Sequence[Line] = (),
    ) -> ClaimedJob | None:
        """As `acknowledge`, and the worker's next job with the same commit.

        One synced commit a job instead of two. The next job is claimed after the end of this one
        and after its successors, so it may be one of them.

        Raises:
            LeaseLost, Invalid: as `acknowledge`; nothing was claimed either.
        """
        waiting = (*lines(successors), *following)
        with self._claiming:
            with self.file.write(self._durability) as db:
                ids = self._complete(db, job, waiting, note, seen)
                found = self._claim(db, take)
            self._served_now(found)
        if ids:
            ring(self.paths)
        return found

    def _complete(
        self,
        db: apsw.Connection,
        job: ClaimedJob,
        waiting: Sequence[Line],
        note: str,
        seen: Activity | None,
    ) -> list[str]:
        now = self.clock.now_ms()
        leases.finish(db, job, JobState.COMPLETED, now, note=note)
        if seen is not None:
            for adapter in activity.RULES:
                activity.mark(db, job.project, adapter, seen, now)
        return put(db, waiting, now)

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
        return Reaped(returned=returned, buried=buried, lapsed=lapsed, watched=len(owners))

    def close(self) -> None:
        """Close the file; idempotent."""
        self.file.close()


def open_queue(
    paths: HomePaths,
    *,
    clock: Clock,
    durability: Durability = "NORMAL",
    enqueue_durability: Durability = "FULL",
    busy_ms: int = QUEUE_BUSY_MS,
    jitter: Callable[[], float] = random.random,
) -> JobQueue:
    """The queue of a home, made on first use.

    `durability` is that of claims and endings. `busy_ms` bounds the wait for the write lock.

    Raises:
        Corrupt: the file is damaged or not ours; NewerSchema: a newer memoryd wrote it.
        Unavailable: permissions, links, or a read-only file system.
        Busy: it could not be had in time.
    """
    file = open_queue_file(paths, clock, busy_ms=busy_ms)
    return JobQueue(
        file,
        clock,
        durability=durability,
        enqueue_durability=enqueue_durability,
        jitter=jitter,
    )
