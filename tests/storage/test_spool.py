"""The spool: accepted once on disk, taken in exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import spool
from storage.activity import Activity
from storage.errors import Invalid, Unavailable
from storage.jobs import JobKind, JobSpec, JobState, Priority
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import ProjectId
from storage.spool import Entry
from tests.support import ManualClock

PROJECT = ProjectId("p1")


@pytest.fixture
def queue(home: Path) -> Iterator[JobQueue]:
    """An empty queue."""
    made = open_queue(HomePaths(home), clock=ManualClock())
    yield made
    made.close()


def _spec(subject: str = "") -> JobSpec:
    return JobSpec(
        kind=JobKind.ANALYZE,
        project=PROJECT,
        subject=subject,
        args={"revision": "r1"},
        priority=Priority.CORRECTION,
        run_at=5,
    )


def test_an_entry_comes_out_as_it_went_in(queue: JobQueue) -> None:
    """Specs and counts survive the file."""
    spool.append(queue.paths, Entry(project=PROJECT, specs=(_spec(),)), 1)
    spool.append(queue.paths, Entry(project=PROJECT, counted=Activity(turns=3, tokens=7)), 2)

    jobs = queue.drain_spool()

    views = {view.kind: view for view in queue.jobs()}
    assert jobs == 2
    assert (views["analyze"].priority, views["analyze"].run_at) == (30, 5)
    assert views["sync"].state is JobState.AVAILABLE
    assert queue.activity(PROJECT) == Activity(turns=3, tokens=7)
    assert list(queue.paths.spool.iterdir()) == []


def test_a_crash_between_commit_and_unlink_counts_nothing_twice(queue: JobQueue) -> None:
    """The file's name is recorded with its effect."""
    path = spool.append(queue.paths, Entry(project=PROJECT, counted=Activity(turns=1)), 1)
    data = path.read_bytes()
    queue.drain_spool()
    path.write_bytes(data)

    queue.drain_spool()

    assert queue.activity(PROJECT).turns == 1
    assert not path.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"v":2}',
        b'{"v":1,"project":"p","counted":null,"specs":[{"kind":"no such"}]}',
        b'{"v":1,"project":"p","counted":{"nonsense":1},"specs":[]}',
        b'{"v":1,"project":"p","counted":null,"specs":[{"kind":"sync","project":"p","subject":"",'
        b'"args":[],"priority":20,"run_at":null}]}',
    ],
)
def test_a_file_that_is_no_entry_is_set_aside_and_stops_nobody(
    queue: JobQueue, data: bytes
) -> None:
    """People can look at it; the entries beside it are taken in."""
    spool.append(queue.paths, Entry(project=PROJECT, specs=(_spec(),)), 1)
    (queue.paths.spool / "000000000000000-bad.json").write_bytes(data)

    jobs = queue.drain_spool()

    assert jobs == 1
    assert [path.suffix for path in queue.paths.spool.iterdir()] == [".refused"]
    assert queue.drain_spool() == 0


def test_entries_are_taken_in_oldest_first_and_in_batches(
    queue: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long outage is worked off without one huge transaction."""
    paths = [
        spool.append(queue.paths, Entry(project=PROJECT, specs=(_spec(str(n)),)), n)
        for n in range(6)
    ]

    assert spool.waiting(queue.paths, limit=4) == paths[:4]


def test_a_spool_that_is_no_folder_is_named(queue: JobQueue) -> None:
    """The round that drains it goes on with its other chores."""
    queue.paths.spool.write_bytes(b"")

    with pytest.raises(Unavailable, match="spool"):
        queue.drain_spool()


def test_an_entry_that_is_too_large_is_refused(queue: JobQueue) -> None:
    """Before it is on disk."""
    huge = Entry(
        project=PROJECT,
        specs=(JobSpec(kind=JobKind.SYNC, project=PROJECT, args={"x": "x" * 2_000_000}),),
    )

    with pytest.raises(Invalid):
        spool.append(queue.paths, huge, 1)

    assert spool.waiting(queue.paths) == []
