"""What the queue's contract is run against, and what its tests share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from storage.jobs import JobKind, JobSpec, JobState, Priority
from storage.leases import ClaimedJob
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.queue_port import Queue
from storage.records import JsonValue, ProjectId
from tests.support import ManualClock

ME = "1-me"
LEASE_MS = 60_000


def on_sqlite(home: Path, clock: ManualClock) -> Queue:
    """The queue on SQLite."""
    return open_queue(HomePaths(home), clock=clock, jitter=lambda: 0.999_999)


BACKENDS: dict[str, Callable[[Path, ManualClock], Queue]] = {"sqlite": on_sqlite}
"""Name -> an empty queue in a folder, on a clock, whose backoff has no jitter."""


def spec(
    subject: str = "",
    *,
    kind: JobKind = JobKind.SYNC,
    project: str = "p1",
    priority: Priority = Priority.BULK,
    run_at: int | None = None,
    args: dict[str, JsonValue] | None = None,
) -> JobSpec:
    """A job spec with defaults for what a test does not care about."""
    return JobSpec(
        kind=kind,
        project=ProjectId(project),
        subject=subject,
        priority=priority,
        run_at=run_at,
        args=args or {},
    )


def claimed(queue: Queue, floor: int = 0) -> ClaimedJob:
    """The next job; fails the test when there is none."""
    job = queue.claim(ME, floor=floor)
    assert job is not None
    return job


def state_of(queue: Queue, job_id: str) -> JobState:
    """Where a job stands."""
    view = queue.job(job_id)
    assert view is not None
    return view.state
