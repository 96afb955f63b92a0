"""A wait that a signal ends: the main thread sleeps instead of looking for signals.

Python's signal module writes a byte to a pipe when a signal comes; whoever waits on the pipe wakes.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress


class Interrupts:
    """The pipe. `wait` belongs to one thread; `wake` may be called from any."""

    def __init__(self) -> None:
        self._heard, self._told = os.pipe()
        for end in (self._heard, self._told):
            os.set_blocking(end, False)
        self._listens = False

    def listen(self) -> None:
        """Let signals end the wait; outside the main thread none comes, and nothing is done."""
        with suppress(ValueError):
            signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)
            self._listens = True

    def wait(self, seconds: float) -> bool:
        """Whether a signal or `wake` came within the time; several count once."""
        poll = select.poll()
        poll.register(self._heard, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
        with suppress(BlockingIOError):
            while os.read(self._heard, 64):
                pass
        return True

    def wake(self) -> None:
        """End a wait of another thread, or the next one."""
        # A full pipe wakes as well.
        with suppress(OSError):
            os.write(self._told, b"!")

    def close(self) -> None:
        """Give the pipe back; nobody may wait any more. Idempotent."""
        if self._listens:
            self._listens = False
            with suppress(ValueError):
                signal.set_wakeup_fd(-1)
        heard, told, self._heard, self._told = self._heard, self._told, -1, -1
        for end in (heard, told):
            if end >= 0:
                os.close(end)
