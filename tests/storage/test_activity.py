"""Activity: counters that only grow, and when a sync is due."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import activity
from storage.activity import Activity
from storage.paths import HomePaths
from storage.queue_file import QueueFile, open_queue_file
from tests.support import ManualClock

PROJECT = "p1"
NOW = 1_800_000_000_000


@pytest.fixture
def file(home: Path) -> Iterator[QueueFile]:
    """An empty queue file."""
    made = open_queue_file(HomePaths(home), ManualClock())
    yield made
    made.close()


def _count(file: QueueFile, delta: Activity) -> None:
    with file.write("OFF") as db:
        activity.add(db, PROJECT, delta)


def _mark(file: QueueFile, seen: Activity, at: int, adapter: str = "pi-session") -> None:
    with file.write("OFF") as db:
        activity.mark(db, PROJECT, adapter, seen, at)


def test_counters_never_go_back(file: QueueFile) -> None:
    """Negative deltas are ignored and absurd ones bounded."""
    _count(file, Activity(turns=2, tokens=100, inserts=1))
    _count(file, Activity(turns=-5, tokens=-5, inserts=-5))
    _count(file, Activity(tokens=10**18))

    assert activity.total(file.db, PROJECT) == Activity(turns=2, tokens=10**9 + 100, inserts=1)
    assert activity.total(file.db, "unknown") == Activity()


def test_a_project_that_was_never_read_is_due(file: QueueFile) -> None:
    """Whatever happened in it."""
    assert activity.due_at(file.db, PROJECT, "pi-session", NOW) == NOW


@pytest.mark.parametrize(
    ("delta", "due"),
    [
        (Activity(turns=7, tokens=15_999, inserts=3), False),
        (Activity(turns=8), True),
        (Activity(tokens=16_000), True),
        (Activity(inserts=4), True),
    ],
)
def test_any_one_threshold_is_enough(file: QueueFile, delta: Activity, due: bool) -> None:
    """8 turns, 16,000 tokens or 4 inserts since the watermark."""
    _mark(file, Activity(), NOW - 60_000)
    _count(file, delta)

    assert (activity.due_at(file.db, PROJECT, "pi-session", NOW) is not None) == due


@pytest.mark.parametrize(
    ("ran_ago", "expected"),
    [(60_000, NOW), (59_999, NOW + 1), (0, NOW + 60_000), (-(10**9), NOW + 60_000)],
    ids=["long ago", "almost", "just now", "clock set back"],
)
def test_the_interval_holds_even_when_much_happened(
    file: QueueFile, ran_ago: int, expected: int
) -> None:
    """Never more often than once a minute, never later than a minute from now."""
    _mark(file, Activity(), NOW - ran_ago)
    _count(file, Activity(turns=100))

    assert activity.due_at(file.db, PROJECT, "pi-session", NOW) == expected


def test_other_adapters_wait_for_more(file: QueueFile) -> None:
    """20 turns, 40,000 tokens, 10 inserts, five minutes."""
    _mark(file, Activity(), NOW - 300_000, adapter="claude")
    _count(file, Activity(turns=19, tokens=39_999, inserts=9))
    before = activity.due_at(file.db, PROJECT, "claude", NOW)
    _count(file, Activity(turns=1))

    assert before is None
    assert activity.due_at(file.db, PROJECT, "claude", NOW) == NOW


def test_what_happens_during_a_sync_counts_for_the_next(file: QueueFile) -> None:
    """The watermark is what the sync saw at its start, and it never goes back."""
    _count(file, Activity(turns=8))
    seen = activity.total(file.db, PROJECT)
    _count(file, Activity(turns=8))
    _mark(file, seen, NOW)
    _mark(file, Activity(turns=1), NOW)

    assert activity.due_at(file.db, PROJECT, "pi-session", NOW + 60_000) == NOW + 60_000
