"""The wait that a signal ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from tasks.interrupts import Interrupts


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    found = Interrupts()
    yield found
    found.close()


def test_a_signal_ends_the_wait(interrupts: Interrupts) -> None:
    """A signal that comes during the wait ends it long before its time."""
    known = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        interrupts.listen()
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert interrupts.wait(30)
    finally:
        signal.signal(signal.SIGUSR1, known)


def test_a_wake_before_the_wait_counts(interrupts: Interrupts) -> None:
    """A wake that came first is not lost, and several count once."""
    for _ in range(3):
        interrupts.wake()
    assert interrupts.wait(30)
    assert not interrupts.wait(0)


def test_a_flood_of_wakes_blocks_nobody(interrupts: Interrupts) -> None:
    """More wakes than the pipe holds are dropped, not waited for."""
    for _ in range(100_000):
        interrupts.wake()
    assert interrupts.wait(0)
    assert not interrupts.wait(0)


def test_closing_gives_the_signals_back(interrupts: Interrupts) -> None:
    """After a close the process has no wake-up descriptor, and a second close is nothing."""
    interrupts.listen()
    interrupts.close()
    interrupts.close()
    assert signal.set_wakeup_fd(-1) == -1
