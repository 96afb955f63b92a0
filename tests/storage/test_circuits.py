"""Circuits: open on trouble, one probe at a time, closed by a success, durable, clock-proof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.circuits import (
    FAILURES_TO_OPEN,
    FIRST_PAUSE_MS,
    FORGET_MS,
    LONGEST_PAUSE_MS,
    Breaker,
    Trouble,
    views,
)
from storage.errors import ProviderPaused
from storage.paths import HomePaths
from storage.queue_file import QueueFile, open_queue_file
from tests.support import ManualClock

HOST = "models.example"
PROBE_MS = 5_000


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves by hand."""
    return ManualClock()


@pytest.fixture
def file(home: Path, clock: ManualClock) -> Iterator[QueueFile]:
    """An empty queue's file."""
    made = open_queue_file(HomePaths(home), clock)
    yield made
    made.close()


@pytest.fixture
def breaker(file: QueueFile, clock: ManualClock) -> Breaker:
    """The circuits of that file."""
    return Breaker(file, clock)


def admits(breaker: Breaker, provider: str = HOST) -> bool:
    """Whether a call may go out."""
    try:
        breaker.admit(provider, probe_ms=PROBE_MS)
    except ProviderPaused:
        return False
    return True


@pytest.mark.parametrize("trouble", [Trouble.AUTH, Trouble.QUOTA])
def test_a_refused_key_or_a_spent_quota_opens_at_once(
    breaker: Breaker, file: QueueFile, clock: ManualClock, trouble: Trouble
) -> None:
    """With its reason, for that provider only."""
    opened = breaker.failed(HOST, trouble)

    with pytest.raises(ProviderPaused) as paused:
        breaker.admit(HOST, probe_ms=PROBE_MS)

    assert opened
    assert paused.value.until_at == clock.now_ms() + FIRST_PAUSE_MS
    assert admits(breaker, "other.example")
    (view,) = views(file.db)
    assert (view.provider, view.is_open, view.reason) == (HOST, True, trouble.value)


def test_errors_open_only_in_a_row(breaker: Breaker, clock: ManualClock) -> None:
    """A success between them, or a long time, starts the count again."""
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.failed(HOST, Trouble.ERRORS)
    breaker.succeeded(HOST)
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.failed(HOST, Trouble.ERRORS)
    clock.advance(FORGET_MS + 1)
    opened = [breaker.failed(HOST, Trouble.ERRORS) for _ in range(FAILURES_TO_OPEN)]

    assert opened == [False] * (FAILURES_TO_OPEN - 1) + [True]
    assert not admits(breaker)


def test_one_probe_at_a_time_closes_or_doubles_the_pause(
    breaker: Breaker, file: QueueFile, clock: ManualClock
) -> None:
    """Half open: everybody else goes on waiting for what the probe finds."""
    breaker.failed(HOST, Trouble.QUOTA)
    clock.advance(FIRST_PAUSE_MS)
    other = Breaker(file, clock)
    first = [admits(breaker), admits(other), admits(breaker)]
    breaker.failed(HOST, Trouble.QUOTA)
    clock.advance(FIRST_PAUSE_MS)
    too_early = admits(breaker)
    clock.advance(FIRST_PAUSE_MS)
    second = admits(other)
    closed = other.succeeded(HOST)

    assert first == [True, False, False]
    assert not too_early
    assert second
    assert closed
    assert admits(breaker)
    assert views(file.db) == []


def test_a_probe_whose_process_died_is_not_the_last(breaker: Breaker, clock: ManualClock) -> None:
    """Its right ends with the time that a call may take; one that was not made ends at once."""
    breaker.failed(HOST, Trouble.AUTH)
    clock.advance(FIRST_PAUSE_MS)
    assert admits(breaker)
    clock.advance(PROBE_MS - 1)
    waiting = admits(breaker)
    clock.advance(1)
    after_death = admits(breaker)
    breaker.withdraw(HOST)

    assert (waiting, after_death) == (False, True)
    assert admits(breaker)


def test_the_pause_has_a_limit_and_a_clock_set_back_does_not_lengthen_it(
    breaker: Breaker, file: QueueFile, clock: ManualClock
) -> None:
    """At most an hour, whatever happened to the clock."""
    for _ in range(40):
        breaker.failed(HOST, Trouble.ERRORS)
    (view,) = views(file.db)
    assert view.probe_at == clock.now_ms() + LONGEST_PAUSE_MS
    clock.step_wall(-86_400_000)

    assert admits(breaker)


def test_circuits_outlive_their_process(breaker: Breaker, home: Path, clock: ManualClock) -> None:
    """Durable: a restart does not hammer a provider that refuses us."""
    breaker.failed(HOST, Trouble.AUTH)
    again = open_queue_file(HomePaths(home), clock)

    refused = not admits(Breaker(again, clock))
    again.close()

    assert refused
