"""The port: what a queue promises, whichever SQL database carries it.

`storage.queue` is the one on SQLite. Another backend implements this and passes
the tests of `tests/contract` unchanged: the contract is that suite. Times come from the
backend's clock; every change is one transaction; nothing acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from storage.jobs import JobKind, JobSpec, JobState, JobView
from storage.leases import ClaimedJob, Reaped

DEFAULT_LEASE_MS = 60_000
DEFAULT_MAX_CRASHES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """What a worker may claim now."""

    owner: str
    lease_ms: int = DEFAULT_LEASE_MS
    floor: int = 0
    """No job below this priority."""
    closed: frozenset[int] = frozenset()
    """Classes that run as many jobs as they may."""


class Queue(Protocol):
    """A leased queue. Endings raise LeaseLost when somebody else holds the job."""

    def enqueue(self, specs: Sequence[JobSpec]) -> list[str]:
        """Ids of the jobs that will do this, durable when this returns."""
        ...

    def claim(
        self, owner: str, *, lease_ms: int = ..., floor: int = ..., closed: frozenset[int] = ...
    ) -> ClaimedJob | None:
        """The best due job that may be taken, leased to the owner."""
        ...

    def next_due(self, *, floor: int = ..., closed: frozenset[int] = ...) -> int | None:
        """UTC ms at which a job can next be claimed."""
        ...

    def renew(self, jobs: Sequence[ClaimedJob], *, lease_ms: int = ...) -> set[int]:
        """Extend the leases; the tokens of those still held."""
        ...

    def holds(self, job: ClaimedJob) -> bool:
        """Whether the job's lease still is this one."""
        ...

    def acknowledge(self, job: ClaimedJob, successors: Sequence[JobSpec] = ...) -> list[str]:
        """End the job as completed and enqueue its successors, in one transaction."""
        ...

    def acknowledge_and_claim(
        self, job: ClaimedJob, take: Take, successors: Sequence[JobSpec] = ...
    ) -> ClaimedJob | None:
        """As `acknowledge`, and the worker's next job in the same transaction."""
        ...

    def retry(self, job: ClaimedJob, error: str, *, waiting_for: str = ...) -> int:
        """Put the job back with backoff; the UTC ms of its next run."""
        ...

    def snooze(self, job: ClaimedJob, until_at: int, waiting_for: str, error: str = ...) -> None:
        """Put the job back for later without using an attempt."""
        ...

    def interrupt(self, job: ClaimedJob) -> None:
        """Put the job back at once, as if it had not been started."""
        ...

    def discard(self, job: ClaimedJob, reason: str) -> None:
        """End the job: its input can never become valid."""
        ...

    def bury(self, job: ClaimedJob, reason: str) -> None:
        """End the job as dead, kept with its reason."""
        ...

    def reap(self, *, max_crashes: int = ...) -> Reaped:
        """Free the leases of dead owners, lapsed leases, and those of an earlier boot."""
        ...

    def pause(self, *, kind: JobKind | None = ..., project: str | None = ...) -> None:
        """Claim nothing of a kind, of a project, or at all."""
        ...

    def resume(self, *, kind: JobKind | None = ..., project: str | None = ...) -> bool:
        """Undo a pause."""
        ...

    def cancel(self, job_id: str) -> bool:
        """End a waiting or running job, or dismiss a dead one; False for any other."""
        ...

    def revive(self, job_id: str) -> str | None:
        """Put an ended job back with fresh counters; its new id."""
        ...

    def release_waiting(self, reason: str, project: str | None = ...) -> int:
        """Make the jobs that wait for one reason due now."""
        ...

    def job(self, job_id: str) -> JobView | None:
        """One job by its id."""
        ...

    def jobs(
        self,
        *,
        state: JobState | None = ...,
        kind: str | None = ...,
        project: str | None = ...,
        limit: int = ...,
    ) -> list[JobView]:
        """Jobs, newest first."""
        ...

    def counts(self) -> dict[JobState, int]:
        """Jobs in each state."""
        ...

    def oldest_ready_age_ms(self) -> int:
        """How long the longest-due unpaused job has waited."""
        ...

    def drained(self) -> bool:
        """Whether nothing runs and nothing unpaused is due."""
        ...

    def close(self) -> None:
        """Give everything back; idempotent."""
        ...
