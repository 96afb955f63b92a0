"""Triggers: one durable write, a spool file when the database is busy, nothing heavy to import."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.activity import Activity
from storage.jobs import JobState, Priority
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import ProjectId
from storage.spool import Entry, waiting
from tasks import triggers
from tests.conftest import ROOT
from tests.support import ManualClock

P1 = ProjectId("p1")
HEAVY = ("huey", "structlog", "croniter", "numpy", "onnxruntime", "tokenizers", "asyncio", "http")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves by hand."""
    return ManualClock()


@pytest.fixture
def queue(home: Path, clock: ManualClock) -> Iterator[JobQueue]:
    """The queue as a hook opens it."""
    made = triggers.open_for_hook(HomePaths(home), clock)
    yield made
    made.close()


def _sync_once(queue: JobQueue) -> None:
    job = queue.claim("1-me")
    assert job is not None
    queue.acknowledge(job, seen=queue.activity("p1"))


def test_the_first_sign_of_a_project_asks_for_a_sync(queue: JobQueue) -> None:
    """And the next ones join it."""
    asked = [triggers.turn_ended(queue, P1, 10), triggers.observed(queue, P1, 2)]

    assert asked == [1, 1]
    assert [view.kind for view in queue.jobs()] == ["sync"]
    assert queue.activity(P1) == Activity(turns=1, tokens=10, inserts=2)


def test_after_a_sync_turns_add_up_to_the_next(queue: JobQueue, clock: ManualClock) -> None:
    """Eight turns, and not sooner than a minute after the last run."""
    triggers.turn_ended(queue, P1, 10)
    _sync_once(queue)
    clock.advance(20_000)

    asked = [triggers.turn_ended(queue, P1, 10) for _ in range(8)]

    assert asked == [0] * 7 + [1]
    (view,) = queue.jobs(state=JobState.AVAILABLE)
    assert view.run_at == clock.now_ms() + 40_000


def test_the_end_of_a_session_does_not_wait(queue: JobQueue, clock: ManualClock) -> None:
    """Nothing more will come to wait for."""
    triggers.turn_ended(queue, P1, 10)
    _sync_once(queue)

    triggers.session_ended(queue, P1)

    (view,) = queue.jobs(state=JobState.AVAILABLE)
    assert view.run_at == clock.now_ms()


def test_a_request_goes_before_other_work(queue: JobQueue) -> None:
    """A person waits for it."""
    triggers.session_ended(queue, P1)

    triggers.requested(queue, P1)

    (view,) = queue.jobs()
    assert view.priority == Priority.INTERACTIVE


def test_a_busy_database_costs_fifty_milliseconds_and_loses_nothing(
    queue: JobQueue, home: Path, clock: ManualClock
) -> None:
    """The entry is a synced file until the worker takes it in."""
    holder = open_queue(HomePaths(home), clock=clock)
    with holder.file.write("OFF"):
        started = time.monotonic()
        asked = triggers.turn_ended(queue, P1, 10)
        took = time.monotonic() - started
    spooled = len(waiting(HomePaths(home)))

    jobs = holder.drain_spool()

    holder.close()
    assert (asked, spooled, jobs) == (0, 1, 1)
    assert took < 2
    assert queue.activity(P1) == Activity(turns=1, tokens=10)


def test_an_entry_can_be_accepted_without_the_database(home: Path, clock: ManualClock) -> None:
    """When it cannot even be opened."""
    paths = HomePaths(home)
    triggers.spooled(paths, clock, Entry(project=P1, counted=Activity(turns=1)))

    queue = open_queue(paths, clock=clock)

    assert queue.drain_spool() == 1
    queue.close()


def test_hooks_import_nothing_heavy_with_the_triggers() -> None:
    """A hook is a fresh process: every import is paid on every prompt."""
    code = f"import sys, tasks.triggers\nprint([name for name in {HEAVY!r} if name in sys.modules])"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
