"""The daily budget: an upper bound is reserved before a call and settled to what was used after it.

A reservation is durable before the request leaves. What is never settled (the process died) stays
charged for its day. A day is a window keyed by its first instant; usage is booked in the window
that reserved it, and a window is never left for an earlier one: a clock set back buys nothing.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import apsw

from storage.clock import Clock
from storage.config import BudgetSettings
from storage.connection import translated
from storage.errors import BudgetExhausted, ConfigError, Invalid
from storage.queue_file import QueueFile

GLOBAL_SCOPE = "all"
MAX_AHEAD_MS = 48 * 3_600_000
"""A stored window further ahead was a clock fault and does not bind the days before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the provider says it used. Cached is a part of input, reasoning a part of output."""

    input_tokens: int
    cached_tokens: int = 0
    output_tokens: int
    reasoning_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The most one scope may spend in a window."""

    calls: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The right to spend: at most these calls and tokens, in this window."""

    row: int
    nonce: int
    calls: int
    tokens: int
    window: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """One scope's window as people see it."""

    scope: str
    calls_limit: int
    calls_used: int
    calls_held: int
    tokens_limit: int
    tokens_used: int
    tokens_held: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    started_at: int
    reset_at: int

    @property
    def calls_left(self) -> int:
        return max(0, self.calls_limit - self.calls_used - self.calls_held)

    @property
    def tokens_left(self) -> int:
        return max(0, self.tokens_limit - self.tokens_used - self.tokens_held)


NEWEST_WINDOW: Final = """
SELECT max(window) FROM budget_windows WHERE scope = 'all' AND window <= ?
"""
HOLD: Final = """
INSERT INTO budget_windows (scope, window, calls_held, tokens_held)
SELECT :scope, :window, :calls, :tokens WHERE :calls <= :max_calls AND :tokens <= :max_tokens
ON CONFLICT (scope, window) DO UPDATE SET
  calls_held = calls_held + excluded.calls_held, tokens_held = tokens_held + excluded.tokens_held
WHERE calls_used + calls_held + excluded.calls_held <= :max_calls
  AND tokens_used + tokens_held + excluded.tokens_held <= :max_tokens
RETURNING scope
"""
RESERVE: Final = """
INSERT INTO reservations (nonce, window, state, calls, tokens, scopes, kind, project, model, job_id,
  reserved_at)
VALUES (:nonce, :window, 'held', :calls, :tokens, :scopes, :kind, :project, :model, :job_id, :now)
RETURNING id
"""
END: Final = """
UPDATE reservations SET state = :state, settled_at = :now, used_tokens = :used
WHERE id = :row AND nonce = :nonce AND state = 'held' RETURNING scopes, window, calls, tokens
"""
BOOK: Final = """
UPDATE budget_windows SET
  calls_held = calls_held - :calls, tokens_held = tokens_held - :tokens,
  calls_used = calls_used + :calls_used, tokens_used = tokens_used + :tokens_used,
  input_tokens = input_tokens + :input, cached_tokens = cached_tokens + :cached,
  output_tokens = output_tokens + :output, reasoning_tokens = reasoning_tokens + :reasoning
WHERE scope IN (SELECT value FROM json_each(:scopes)) AND window = :window
"""
WINDOW_ROW: Final = """
SELECT calls_used, calls_held, tokens_used, tokens_held, input_tokens, cached_tokens,
  output_tokens, reasoning_tokens
FROM budget_windows WHERE scope = ? AND window = ?
"""
UNLIMITED: Final = Limit(calls=2**53, tokens=2**53)


class BudgetReader:
    """The book as people look at it: it writes nothing."""

    def __init__(
        self,
        connection: Callable[[], apsw.Connection],
        clock: Clock,
        settings: BudgetSettings,
    ) -> None:
        shares = settings.shares
        if any(share < 0 for share in shares.values()) or sum(shares.values()) > 1:
            raise ConfigError("budget: guaranteed shares must be positive and at most 1 together")
        try:
            self._zone = ZoneInfo(settings.zone)
        except (ZoneInfoNotFoundError, ValueError) as cause:
            raise ConfigError(f"budget: no such time zone: {settings.zone!r}") from cause
        self._connection = connection
        self._clock = clock
        self._shares = shares
        self._limits = {
            **{scope: _limit(amounts) for scope, amounts in settings.limits.items()},
            GLOBAL_SCOPE: Limit(calls=settings.calls_per_day, tokens=settings.tokens_per_day),
        }

    def today(self, scope: str = GLOBAL_SCOPE) -> BudgetView:
        """The running window of one scope: limits, used, held, left, reset."""
        db = self._connection()
        with translated():
            window = self._window(db, self._clock.now_ms())
            rows = db.execute(WINDOW_ROW, (scope, window)).fetchall()
        values = cast("tuple[int, ...]", rows[0]) if rows else (0,) * 8
        limit = self._limits.get(scope, UNLIMITED)
        return BudgetView(
            scope=scope,
            calls_limit=limit.calls,
            calls_used=values[0],
            calls_held=values[1],
            tokens_limit=limit.tokens,
            tokens_used=values[2],
            tokens_held=values[3],
            input_tokens=values[4],
            cached_tokens=values[5],
            output_tokens=values[6],
            reasoning_tokens=values[7],
            started_at=window,
            reset_at=self._next_window(window),
        )

    def _window(self, db: apsw.Connection, now: int) -> int:
        local = datetime.fromtimestamp(now / 1000, self._zone)
        wanted = _first_instant(local, self._zone)
        newest = cast(
            "int | None", db.execute(NEWEST_WINDOW, (now + MAX_AHEAD_MS,)).fetchall()[0][0]
        )
        return wanted if newest is None else max(wanted, newest)

    def _next_window(self, window: int) -> int:
        local = datetime.fromtimestamp(window / 1000, self._zone)
        return _first_instant(local + timedelta(days=1), self._zone)


class BudgetLedger(BudgetReader):
    """The one book of calls and tokens. All its writes are FULL, and it fails closed."""

    def __init__(self, file: QueueFile, clock: Clock, settings: BudgetSettings) -> None:
        super().__init__(lambda: file.db, clock, settings)
        self._file = file

    def reserve(
        self,
        *,
        tokens: int,
        kind: str,
        project: str,
        model: str,
        job_id: str,
        calls: int = 1,
        work_class: str = "bulk",
    ) -> Reservation:
        """Hold an upper bound in every scope, or in none; durable when this returns.

        Raises:
            BudgetExhausted: a scope has not that much left; `until_at` is the reset.
            Busy: the ledger could not be written, so nothing may be spent.
            Invalid: a negative amount.
        """
        if calls < 0 or tokens < 0:
            raise Invalid("a reservation cannot be negative")
        now = self._clock.now_ms()
        scopes = (
            GLOBAL_SCOPE,
            f"class:{work_class}",
            f"kind:{kind}",
            f"project:{project}",
            f"model:{model}",
        )
        with self._file.write("FULL") as db:
            window = self._window(db, now)
            self._hold(db, GLOBAL_SCOPE, self._limit_for(db, scopes, window), window, calls, tokens)
            for scope in scopes[1:]:
                limit = self._limits.get(scope, UNLIMITED)
                self._hold(db, scope, limit, window, calls, tokens)
            nonce = secrets.randbits(62)
            rows = db.execute(
                RESERVE,
                {
                    "nonce": nonce,
                    "window": window,
                    "calls": calls,
                    "tokens": tokens,
                    "scopes": json.dumps(scopes),
                    "kind": kind,
                    "project": project,
                    "model": model,
                    "job_id": job_id,
                    "now": now,
                },
            ).fetchall()
        row = cast("int", rows[0][0])
        return Reservation(row=row, nonce=nonce, calls=calls, tokens=tokens, window=window)

    def _limit_for(self, db: apsw.Connection, scopes: Sequence[str], window: int) -> Limit:
        # What others are guaranteed and have not spent yet is not there for this work.
        whole = self._limits[GLOBAL_SCOPE]
        calls, tokens = whole.calls, whole.tokens
        for other, share in self._shares.items():
            if other not in scopes:
                spent = _spent(db, other, window)
                calls -= max(0, int(whole.calls * share) - spent.calls)
                tokens -= max(0, int(whole.tokens * share) - spent.tokens)
        return Limit(calls=calls, tokens=tokens)

    def _hold(
        self, db: apsw.Connection, scope: str, limit: Limit, window: int, calls: int, tokens: int
    ) -> None:
        held = db.execute(
            HOLD,
            {
                "scope": scope,
                "window": window,
                "calls": calls,
                "tokens": tokens,
                "max_calls": limit.calls,
                "max_tokens": limit.tokens,
            },
        ).fetchall()
        if not held:
            raise BudgetExhausted(
                f"the daily budget ({scope}) is spent", until_at=self._next_window(window)
            )

    def settle(self, reservation: Reservation, usage: Usage | None) -> None:
        """Replace the hold by what was used, once; unknown usage costs the whole hold.

        A second settlement changes nothing.
        """
        if usage is None:
            self._end(reservation, "estimated", reservation.calls, reservation.tokens, None)
        else:
            self._end(reservation, "settled", reservation.calls, usage.total, usage)

    def release(self, reservation: Reservation) -> None:
        """Give a hold back whose request certainly never left this machine."""
        self._end(reservation, "released", 0, 0, None)

    def _end(
        self, reservation: Reservation, state: str, calls: int, used: int, usage: Usage | None
    ) -> None:
        with self._file.write("FULL") as db:
            rows = db.execute(
                END,
                {
                    "state": state,
                    "now": self._clock.now_ms(),
                    "used": used,
                    "row": reservation.row,
                    "nonce": reservation.nonce,
                },
            ).fetchall()
            if not rows:
                return
            scopes, window, held_calls, held_tokens = rows[0]
            db.execute(
                BOOK,
                {
                    "scopes": scopes,
                    "window": window,
                    "calls": held_calls,
                    "tokens": held_tokens,
                    "calls_used": calls,
                    "tokens_used": used,
                    "input": usage.input_tokens if usage else 0,
                    "cached": usage.cached_tokens if usage else 0,
                    "output": usage.output_tokens if usage else 0,
                    "reasoning": usage.reasoning_tokens if usage else 0,
                },
            )


def _limit(amounts: Mapping[str, int]) -> Limit:
    return Limit(
        calls=amounts.get("calls", UNLIMITED.calls), tokens=amounts.get("tokens", UNLIMITED.tokens)
    )


def _spent(db: apsw.Connection, scope: str, window: int) -> Limit:
    rows = db.execute(WINDOW_ROW, (scope, window)).fetchall()
    if not rows:
        return Limit(calls=0, tokens=0)
    used, held, tokens_used, tokens_held = cast("tuple[int, int, int, int]", rows[0][:4])
    return Limit(calls=used + held, tokens=tokens_used + tokens_held)


def _first_instant(local: datetime, zone: ZoneInfo) -> int:
    # Midnight may not exist (a zone that changes at 00:00): the round trip through UTC lands on the
    # first instant that does.
    midnight = datetime(local.year, local.month, local.day, tzinfo=zone)
    return int(midnight.astimezone(UTC).timestamp() * 1000)
