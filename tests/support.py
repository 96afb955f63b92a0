"""What tests of several packages share: a clock they move by hand, and waiting without sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

START_AT = 1_800_000_000_000
"""2027-01-15T08:00:00Z: an instant that no test compares with the machine's clock."""


class ManualClock:
    """A clock that moves only when told to; wall and boot time move apart on purpose."""

    def __init__(self, now_ms: int = START_AT, boot_ms: int = 1_000_000) -> None:
        self._now = now_ms
        self._boot = boot_ms
        self._boot_id = "boot-1"
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._now

    def boot_ms(self) -> int:
        return self._boot

    def boot_id(self) -> str:
        return self._boot_id

    def advance(self, ms: int) -> None:
        """Both clocks go on, as they do in life."""
        with self._lock:
            self._now += ms
            self._boot += ms

    def step_wall(self, ms: int) -> None:
        """Only the wall clock jumps (an administrator, NTP)."""
        with self._lock:
            self._now += ms

    def reboot(self) -> None:
        """Boot time starts over under another boot id."""
        with self._lock:
            self._boot = 0
            self._boot_id = f"boot-{int(self._boot_id.split('-')[1]) + 1}"


def wait_until(condition: Callable[[], bool], *, within_s: float = 20.0, what: str = "") -> None:
    """Return as soon as the condition holds; fail with `what` when it never does."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {within_s} s: {what or condition}")
        pause.wait(0.02)
