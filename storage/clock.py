"""Time as an argument.

Wall time is UTC integer milliseconds and may step; leases use boot time, which never steps and
counts suspend, together with a boot id (after a reboot every older reading is void).
"""

from __future__ import annotations

import math
import re
import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Protocol

from storage.errors import Invalid

DAY_MS = 86_400_000
MAX_AT = 253_402_300_799_999
"""Last millisecond of the year 9999: later instants are refused, not wrapped."""


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """UTC milliseconds since 1970."""
        ...

    def boot_ms(self) -> int:
        """Milliseconds since boot, suspend included; never steps."""
        ...

    def boot_id(self) -> str:
        """Identity of the running boot; readings of `boot_ms` compare only within one."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        # CLOCK_BOOTTIME is Linux; on macOS CLOCK_MONOTONIC counts suspend (mach_continuous_time).
        source = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return time.clock_gettime_ns(source) // 1_000_000

    def boot_id(self) -> str:
        return _system_boot_id()


@cache
def _system_boot_id() -> str:
    linux = Path("/proc/sys/kernel/random/boot_id")
    if linux.exists():
        return linux.read_text(encoding="ascii").strip()
    if sys.platform == "darwin":
        # Here, not above: a hook on Linux has no time for an import it does not use.
        import subprocess

        argv = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=5)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip().lower()
    return "unknown-boot"


_EPOCH_SECONDS_BELOW = 100_000_000_000
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}")


def parse_instant(value: object) -> int:
    """UTC milliseconds of an ISO 8601 text, epoch seconds or epoch milliseconds.

    Numbers below 1e11 in magnitude are seconds. An ISO text without an offset is UTC.

    Raises:
        Invalid: not a date, an impossible date, or outside years 1970 to 9999.
    """
    if isinstance(value, bool) or value is None:
        raise Invalid(f"not a date: {value!r}")
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise Invalid("not a date: not a finite number")
        at = int(value * 1000) if abs(value) < _EPOCH_SECONDS_BELOW else int(value)
        return _bounded(at)
    if isinstance(value, str) and _ISO.match(value):
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError as cause:
            raise Invalid(f"not a date: {value[:40]!r}") from cause
        if parsed.tzinfo is None:
            parsed = parsed.replace(tzinfo=UTC)
        return _bounded(round(parsed.timestamp() * 1000))
    raise Invalid(f"not a date: {str(value)[:40]!r}")


def _bounded(at: int) -> int:
    if not 0 <= at <= MAX_AT:
        raise Invalid(f"a date outside 1970 to 9999: {at}")
    return at


def iso(at: int) -> str:
    """ISO 8601 text (UTC, milliseconds, `Z`) of an instant in UTC ms."""
    seconds, rest = divmod(at, 1000)
    # Several times faster than `strftime`, and every line of the log has one.
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:19]}.{rest:03d}Z"


def utc_day(at: int) -> str:
    """`YYYY-MM-DD` of an instant in UTC ms."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat()[:10]
