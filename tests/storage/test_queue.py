"""What the queue on SQLite keeps, and for how long; its contract is in tests/contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import queue_control
from storage.jobs import JobKind, JobSpec, JobState
from storage.leases import ClaimedJob
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import ProjectId
from tests.support import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves by hand."""
    return ManualClock()


@pytest.fixture
def queue(home: Path, clock: ManualClock) -> Iterator[JobQueue]:
    """An empty queue."""
    made = open_queue(HomePaths(home), clock=clock)
    yield made
    made.close()


def spec(subject: str) -> JobSpec:
    """A job spec."""
    return JobSpec(kind=JobKind.SYNC, project=ProjectId("p1"), subject=subject)


def claimed(queue: JobQueue) -> ClaimedJob:
    """The next job; fails the test when there is none."""
    job = queue.claim("1-me")
    assert job is not None
    return job


def test_finished_rows_have_a_limit_and_open_ones_do_not(
    queue: JobQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Past the retention, finished rows go except the newest few; waiting and dead ones stay."""
    monkeypatch.setattr(queue_control, "KEPT_FINISHED", 2)
    queue.enqueue([spec(str(n)) for n in range(10)])
    for _ in range(8):
        queue.acknowledge(claimed(queue))
        clock.advance(1)
    queue.bury(claimed(queue), "broken")
    clock.advance(8 * 86_400_000)

    pruned = queue.prune(retention_days=7)

    counts = queue.counts()
    assert pruned == 8 + 1 - 3
    assert (counts[JobState.AVAILABLE], counts[JobState.DEAD]) == (1, 1)


def test_the_cap_on_finished_rows_holds_without_waiting(
    queue: JobQueue, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy day must not grow the file without end."""
    monkeypatch.setattr(queue_control, "MOST_FINISHED", 5)
    queue.enqueue([spec(str(n)) for n in range(20)])
    for _ in range(20):
        queue.acknowledge(claimed(queue))
        clock.advance(1)

    queue.prune(retention_days=7)

    assert queue.counts()[JobState.COMPLETED] == 6
