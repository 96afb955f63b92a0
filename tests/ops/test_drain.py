"""Waiting for background work: what counts as done, what is not waited for, and when to give up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.drain import Progress, look, wait_drained
from storage.errors import Unavailable
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import ProjectId
from tests.support import ManualClock

OURS = ProjectId("p_0123456789ab")
OTHER = ProjectId("p_ba9876543210")


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


def _now(queue: JobQueue, clock: ManualClock) -> Progress:
    return look(queue.file.db, OURS, clock.now_ms())


def test_a_due_job_is_pending_until_it_is_acknowledged_with_its_successors(
    queue: JobQueue, clock: ManualClock
) -> None:
    """A chain of jobs is one piece of work: there is no moment between two of them."""
    queue.enqueue([JobSpec(kind=JobKind.SYNC, project=OURS)])
    queue.enqueue([JobSpec(kind=JobKind.SYNC, project=OTHER)])
    waiting = _now(queue, clock)
    first = queue.claim("me")
    assert first is not None
    queue.acknowledge(first, [JobSpec(kind=JobKind.ANALYZE, project=ProjectId(first.project))])
    second = _now(queue, clock)

    assert [job.kind for job in waiting.pending] == ["sync"]
    assert [(job.kind, second.finished) for job in second.pending] == [("analyze", 1)]


def test_work_that_waits_for_a_model_is_not_waited_for(queue: JobQueue, clock: ManualClock) -> None:
    """It may wait for days; the first run says so and ends."""
    queue.enqueue([JobSpec(kind=JobKind.TRANSLATE, project=OURS)])
    job = queue.claim("me")
    assert job is not None
    queue.snooze(job, clock.now_ms() + 3_600_000, "model", "no model is configured")

    progress = _now(queue, clock)

    assert progress.pending == ()
    assert [job.kind for job in progress.held] == ["translate"]


def test_a_failure_that_will_be_tried_again_is_waited_for_and_named(
    queue: JobQueue, clock: ManualClock
) -> None:
    """The reason is shown while it waits: people should not have to guess."""
    queue.enqueue([JobSpec(kind=JobKind.SYNC, project=OURS)])
    job = queue.claim("me")
    assert job is not None
    queue.retry(job, "the source was locked")

    progress = _now(queue, clock)

    assert len(progress.pending) == 1
    assert "again soon: the source was locked" in progress.line


def test_a_dead_job_is_lost_work(queue: JobQueue, clock: ManualClock) -> None:
    """It is not waited for, and it is reported."""
    queue.enqueue([JobSpec(kind=JobKind.ANALYZE, project=OURS)])
    job = queue.claim("me")
    assert job is not None
    queue.bury(job, "the store is damaged")

    progress = _now(queue, clock)

    assert progress.pending == ()
    assert [job.error for job in progress.lost] == ["the store is damaged"]


def test_waiting_ends_when_another_process_finishes_the_work(
    queue: JobQueue, clock: ManualClock, home: Path
) -> None:
    """The end is seen through the database alone; nobody tells the one who waits."""
    queue.enqueue([JobSpec(kind=JobKind.SYNC, project=OURS)])
    heard: list[str] = []
    looking = threading.Event()

    def between(progress: Progress) -> None:
        heard.append(progress.line)
        looking.set()

    def consume() -> None:
        looking.wait(10)
        job = queue.claim("me")
        assert job is not None
        queue.acknowledge(job)

    consumer = threading.Thread(target=consume)
    consumer.start()
    progress = wait_drained(HomePaths(home), OURS, clock, between=between)
    consumer.join()

    assert (progress.pending, progress.finished) == ((), 1)
    assert heard[0] == "0 done, 1 to do"


def test_waiting_gives_up_when_nothing_moves(
    queue: JobQueue, clock: ManualClock, home: Path
) -> None:
    """A queue without a consumer is an error with the state of things, not an endless wait."""
    queue.enqueue([JobSpec(kind=JobKind.SYNC, project=OURS)])

    with pytest.raises(Unavailable, match="does not go on: 0 done, 1 to do"):
        wait_drained(HomePaths(home), OURS, clock, between=lambda _: None, patience_s=0.2)
