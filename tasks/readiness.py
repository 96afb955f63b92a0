"""What a service manager is told: ready, alive, stopping. Does nothing outside of systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from contextlib import suppress


class Readiness:
    """The notification socket of systemd's `Type=notify`, if this process has one."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_us = _number(environment.get("WATCHDOG_USEC", ""))
        owner = environment.get("WATCHDOG_PID", "")
        if owner and owner != str(os.getpid()):
            self._watchdog_us = 0

    @property
    def watchdog_ms(self) -> int:
        """How long the manager waits for a sign of life; 0 = it does not watch."""
        return self._watchdog_us // 1_000

    def ready(self) -> None:
        """Work is being taken."""
        self._tell("READY=1\nSTATUS=taking jobs")

    def alive(self) -> None:
        """A whole round of chores came through."""
        if self._watchdog_us:
            self._tell("WATCHDOG=1")

    def stopping(self) -> None:
        """No new work is taken."""
        self._tell("STOPPING=1\nSTATUS=finishing")

    def _tell(self, state: str) -> None:
        if not self._address:
            return
        # "@" stands for the NUL of Linux's abstract socket names.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.sendto(state.encode("ascii"), address)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
