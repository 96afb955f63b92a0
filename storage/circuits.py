"""Circuit breakers: a provider that refuses us is left alone until one probe finds it well again.

A circuit opens at once for a refused key or a spent quota, and after some failures in a row for
errors and timeouts. Open, it lets one call through at a time, after a pause that doubles. Rows are
durable and shared by all workers of a home. Leaves to the caller what counts as a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

import apsw

from storage.clock import Clock
from storage.connection import translated
from storage.errors import ProviderPaused
from storage.queue_file import QueueFile

FAILURES_TO_OPEN: Final = 3
FORGET_MS: Final = 900_000
"""Failures further apart than this are not in a row."""
FIRST_PAUSE_MS: Final = 60_000
LONGEST_PAUSE_MS: Final = 3_600_000


class Trouble(StrEnum):
    """Why a circuit opens."""

    AUTH = "auth"
    QUOTA = "quota"
    ERRORS = "errors"


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitView:
    """A provider's circuit as people see it."""

    provider: str
    is_open: bool
    reason: str
    """auth | quota | errors: the last trouble."""
    failures: int
    opened_at: int | None
    probe_at: int | None
    """UTC ms of the earliest next probe; None when closed."""


ROW: Final = """
SELECT failures, openings, failed_at, opened_at, probe_at, probing_until FROM circuits
WHERE provider = ?
"""
LIST: Final = """
SELECT provider, reason, failures, opened_at, probe_at FROM circuits ORDER BY provider
"""
START_PROBE: Final = "UPDATE circuits SET probing_until = ? WHERE provider = ?"
END_PROBE: Final = "UPDATE circuits SET probing_until = NULL WHERE provider = ?"
FAIL: Final = """
INSERT INTO circuits (provider, failures, reason, openings, failed_at, opened_at, probe_at)
VALUES (:provider, :failures, :reason, :openings, :now, :opened_at, :probe_at)
ON CONFLICT (provider) DO UPDATE SET failures = excluded.failures, reason = excluded.reason,
  openings = excluded.openings, failed_at = excluded.failed_at, opened_at = excluded.opened_at,
  probe_at = excluded.probe_at, probing_until = NULL
"""
CLOSE: Final = "DELETE FROM circuits WHERE provider = ? RETURNING opened_at"


@dataclass(frozen=True, slots=True)
class _Row:
    failures: int
    openings: int
    failed_at: int
    opened_at: int | None
    probe_at: int | None
    probing_until: int | None


class Breaker:
    """The circuits of a home's providers. Fails closed: without its file nothing is admitted."""

    def __init__(self, file: QueueFile, clock: Clock) -> None:
        self._file = file
        self._clock = clock

    def admit(self, provider: str, *, probe_ms: int) -> None:
        """Return if a call may go out now. Of an open circuit, one call at a time is its probe.

        `probe_ms` is how long that call may take; a probe whose process died ends then.

        Raises:
            ProviderPaused: the circuit is open; `until_at` is when to ask again.
        """
        now = self._clock.now_ms()
        with translated():
            if not _refuses(_row(self._file.db, provider)):
                return
        with self._file.write("FULL") as db:
            row = _row(db, provider)
            if row is None or row.probe_at is None:
                return
            busy_until = row.probing_until or 0
            # An instant further ahead than any pause was written by a clock that was wrong.
            probe_at = row.probe_at if row.probe_at - now <= LONGEST_PAUSE_MS else now
            if now < probe_at or now < busy_until <= now + probe_ms:
                raise ProviderPaused(
                    f"{provider} is left alone until it is probed",
                    until_at=max(probe_at, busy_until if now < busy_until <= now + probe_ms else 0),
                )
            db.execute(START_PROBE, (now + probe_ms, provider))

    def withdraw(self, provider: str) -> None:
        """The admitted call was not made after all."""
        with translated():
            if not _refuses(_row(self._file.db, provider)):
                return
        with self._file.write("FULL") as db:
            db.execute(END_PROBE, (provider,))

    def succeeded(self, provider: str) -> bool:
        """The provider answered as agreed; True if that closed its circuit."""
        with translated():
            if _row(self._file.db, provider) is None:
                return False
        with self._file.write("FULL") as db:
            rows = db.execute(CLOSE, (provider,)).fetchall()
        return bool(rows) and rows[0][0] is not None

    def failed(self, provider: str, trouble: Trouble) -> bool:
        """Count a failure; True if that opened the circuit."""
        now = self._clock.now_ms()
        with self._file.write("FULL") as db:
            row = _row(db, provider)
            recent = row is not None and (
                row.opened_at is not None or 0 <= now - row.failed_at <= FORGET_MS
            )
            failures = (row.failures if row is not None and recent else 0) + 1
            openings = row.openings if row is not None and recent else 0
            was_open = row is not None and row.opened_at is not None
            opens = was_open or trouble is not Trouble.ERRORS or failures >= FAILURES_TO_OPEN
            openings += opens
            pause = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(max(openings - 1, 0), 30))
            opened_at = row.opened_at if row is not None and was_open else now
            db.execute(
                FAIL,
                {
                    "provider": provider,
                    "failures": failures,
                    "reason": trouble.value,
                    "openings": openings,
                    "now": now,
                    "opened_at": opened_at if opens else None,
                    "probe_at": now + pause if opens else None,
                },
            )
        return opens and not was_open


def _row(db: apsw.Connection, provider: str) -> _Row | None:
    rows = db.execute(ROW, (provider,)).fetchall()
    return _Row(*cast("tuple[int, int, int, int, int, int]", rows[0])) if rows else None


def _refuses(row: _Row | None) -> bool:
    return row is not None and row.opened_at is not None


def views(db: apsw.Connection) -> list[CircuitView]:
    """Providers that failed lately; those of whom nothing is known are well."""
    with translated():
        rows = db.execute(LIST).fetchall()
    return [
        CircuitView(
            provider=provider,
            is_open=opened_at is not None,
            reason=reason,
            failures=failures,
            opened_at=opened_at,
            probe_at=probe_at,
        )
        for provider, reason, failures, opened_at, probe_at in cast(
            "list[tuple[str, str, int, int | None, int | None]]", rows
        )
    ]
