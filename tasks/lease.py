"""From a claimed job to its end: heartbeat, body, and the outcome that an exception's class is.

One thread renews every lease of the process each third of its length and stops at the kind's
`max_runtime`, so a hung run loses its job. A body that lost its lease is told at its next check,
and whatever it still does, the queue and the authority refuse its token.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from storage.activity import Activity
from storage.clock import Clock
from storage.errors import (
    AlreadyApplied,
    BudgetExhausted,
    Busy,
    ConfigError,
    Corrupt,
    Invalid,
    LeaseLost,
    MemorydError,
    MissingModel,
    ProviderPaused,
    Snooze,
    SourceUnavailable,
    UnknownJob,
)
from storage.jobs import JobKind, JobSpec
from storage.leases import ClaimedJob
from storage.log import get_logger, logged_about
from storage.queue import JobQueue
from storage.queue_line import Line, lines
from storage.queue_port import Take
from storage.records import JobStamp
from storage.redaction import redact

SNOOZE_MS: Final = 900_000
"""When the body does not say how long: long enough to be cheap, short enough to be noticed."""
SETTINGS_SNOOZE_MS: Final = 300_000
JITTER_MS: Final = 60_000
BEATS_PER_LEASE: Final = 3


BUSY_TRIES: Final = 2


class Outcome(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    ALREADY_APPLIED = "already_applied"
    RETRIED = "retried"
    SNOOZED = "snoozed"
    DISCARDED = "discarded"
    DIED = "died"
    LEASE_LOST = "lease_lost"
    INTERRUPTED = "interrupted"


@dataclass(slots=True)
class ActiveLease:
    """The right of this process to run one job: `tasks.context.Lease`."""

    queue: JobQueue
    job: ClaimedJob
    clock: Clock
    stop_at: int
    """Boot ms after which the heartbeat leaves it alone."""
    until: int
    thread: int | None = None
    """Ident of the thread that runs it."""
    lost: bool = False
    """Set by any thread, never unset."""

    @property
    def stamp(self) -> JobStamp:
        """Job id and fencing token, for the authority."""
        return self.job.stamp

    @property
    def overran(self) -> bool:
        """Whether the run is longer than its kind may take."""
        return self.clock.boot_ms() >= self.stop_at

    def check(self) -> None:
        """Ask before each irreversible step.

        Raises:
            LeaseLost: the lease ended, or somebody else holds it.
        """
        # The clock is asked first: a process that was frozen must not trust what it knew before.
        if self.lost or self.clock.boot_ms() >= self.until or not self._holds():
            self.lost = True
            raise LeaseLost(f"job {self.job.job_id}: the lease ended")

    def _holds(self) -> bool:
        return self.queue.holds(self.job)


class Heartbeat:
    """Renews every lease that this process holds."""

    def __init__(self, queue: JobQueue, clock: Clock, *, lease_ms: int) -> None:
        self._queue = queue
        self._clock = clock
        self._lease_ms = lease_ms
        self._active: dict[int, ActiveLease] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Beat in a thread of its own until `close`."""
        self._thread = threading.Thread(target=self._run, name="Heartbeat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop beating; leases are left to end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def hold(self, job: ClaimedJob, max_runtime_ms: int) -> ActiveLease:
        """Renew this lease from now on."""
        lease = ActiveLease(
            self._queue,
            job,
            self._clock,
            stop_at=self._clock.boot_ms() + max_runtime_ms,
            until=job.lease_until,
        )
        with self._lock:
            self._active[job.token] = lease
        return lease

    def drop(self, lease: ActiveLease) -> None:
        """Renew it no more."""
        with self._lock:
            self._active.pop(lease.job.token, None)

    def held(self) -> tuple[ActiveLease, ...]:
        """The leases of this process, hung runs included."""
        with self._lock:
            return tuple(self._active.values())

    def beat(self) -> None:
        """Renew once.

        Raises:
            Busy: the write lock was not had; the leases stand until they lapse.
        """
        renewable = []
        for lease in self.held():
            if lease.lost:
                continue
            if not lease.overran:
                renewable.append(lease)
            else:
                lease.lost = True
                get_logger().error("job.overran", job_id=lease.job.job_id, kind=lease.job.kind)
        until = self._clock.boot_ms() + self._lease_ms
        still = self._queue.renew([lease.job for lease in renewable], lease_ms=self._lease_ms)
        for lease in renewable:
            if lease.job.token in still:
                lease.until = until
            else:
                lease.lost = True

    def _run(self) -> None:
        pause = self._lease_ms / 1000 / BEATS_PER_LEASE
        wait = pause
        while not self._stop.wait(wait):
            try:
                self.beat()
                wait = pause
            except MemorydError as cause:
                get_logger().warning("lease.renewal_failed", error=type(cause).__name__)
                wait = pause / 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What the work of a job came to."""

    successors: tuple[JobSpec, ...] = ()
    following: tuple[Line, ...] = ()
    """Successors whose kind is not ours."""
    note: str = ""


Work = Callable[[ActiveLease], Done]


class GaveUp(MemorydError):
    """The work failed and says itself that there is no point in trying again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A good ending, not written yet."""

    note: str = ""
    seen: Activity | None = None
    following: tuple[Line, ...] = ()

    def write(self, queue: JobQueue, job: ClaimedJob, take: Take | None) -> ClaimedJob | None:
        """End the job; with `take`, claim the worker's next one in the same transaction.

        Raises:
            LeaseLost: somebody else holds the job; nothing changed, nothing was claimed.
        """
        if take is None:
            queue.acknowledge(job, note=self.note, seen=self.seen, following=self.following)
            return None
        return queue.acknowledge_and_claim(
            job, take, note=self.note, seen=self.seen, following=self.following
        )


Acknowledge = Callable[[ActiveLease, Acknowledgement], None]


@dataclass(frozen=True, slots=True)
class _Ending:
    outcome: Outcome
    write: Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How often a job may fail."""

    max_attempts: int = 5


class Runner:
    """Runs claimed jobs, each to exactly one ending."""

    def __init__(
        self,
        queue: JobQueue,
        clock: Clock,
        heartbeat: Heartbeat,
        limits: Limits | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        """`acknowledge` may take the next job along with a good ending."""
        self._queue = queue
        self._acknowledge = acknowledge or self._acknowledge_only
        self._clock = clock
        self._heartbeat = heartbeat
        self._limits = limits or Limits()

    def run(self, lease: ActiveLease, work: Work) -> Outcome:
        """Run the job under its held lease and end it as the exception's class says."""
        job = lease.job
        lease.thread = threading.get_ident()
        with logged_about(
            job_id=job.job_id, kind=job.kind, project=job.project, attempt=job.attempt
        ):
            started = self._clock.boot_ms()
            waited = max(0, self._clock.now_ms() - job.run_at)
            try:
                outcome = self._write(self._judge(job, lease, work))
            except LeaseLost:
                outcome = Outcome.LEASE_LOST
            finally:
                self._heartbeat.drop(lease)
            took = self._clock.boot_ms() - started
            get_logger().info(f"job.{outcome.value}", queue_ms=waited, duration_ms=took)
            return outcome

    def _judge(self, job: ClaimedJob, lease: ActiveLease, work: Work) -> _Ending:
        queue = self._queue
        seen = queue.activity(job.project) if job.kind == JobKind.SYNC else None
        try:
            done = work(lease)
            following = (*lines(done.successors), *done.following)
            good = Acknowledgement(note=done.note, seen=seen, following=following)
            return _Ending(Outcome.COMPLETED, lambda: self._acknowledge(lease, good))
        except LeaseLost:
            raise
        except AlreadyApplied:
            good = Acknowledgement(seen=seen)
            return _Ending(Outcome.ALREADY_APPLIED, lambda: self._acknowledge(lease, good))
        except (Snooze, ConfigError) as cause:
            return self._later(job, cause)
        except (UnknownJob, GaveUp) as cause:
            return self._dead(job, describe(cause))
        except Invalid as cause:
            reason = describe(cause)
            return _Ending(Outcome.DISCARDED, lambda: queue.discard(job, reason))
        except Corrupt as cause:
            get_logger().error("store.corrupt", error=type(cause).__name__)
            return self._dead(job, describe(cause))
        except Exception as cause:
            # A body may fail in any way; it never kills the worker.
            return self._failed(job, cause)
        except BaseException:
            # The interpreter is leaving: as if the job had not been started.
            with suppress(MemorydError):
                queue.interrupt(job)
            raise

    def _write(self, ending: _Ending) -> Outcome:
        # Losing an ending to a busy file would cost a whole run: wait as long as a lease lasts.
        for _ in range(BUSY_TRIES):
            try:
                ending.write()
            except Busy:
                get_logger().warning("lease.renewal_failed", error="Busy")
            else:
                return ending.outcome
        raise LeaseLost

    def _acknowledge_only(self, lease: ActiveLease, good: Acknowledgement) -> None:
        good.write(self._queue, lease.job, None)

    def _dead(self, job: ClaimedJob, reason: str) -> _Ending:
        return _Ending(Outcome.DIED, lambda: self._queue.bury(job, reason))

    def _later(self, job: ClaimedJob, cause: Snooze | ConfigError) -> _Ending:
        now = self._clock.now_ms()
        until = cause.until_at if isinstance(cause, Snooze) else now + SETTINGS_SNOOZE_MS
        if until is None:
            until = now + SNOOZE_MS
        if isinstance(cause, BudgetExhausted):
            get_logger().warning("budget.exhausted", wait_ms=max(0, until - now))
        # At a reset, all that waited would start in the same millisecond.
        spread = job.token % JITTER_MS if isinstance(cause, BudgetExhausted) else 0
        at, reason, text = max(until, now) + spread, _reason(cause), describe(cause)
        return _Ending(Outcome.SNOOZED, lambda: self._queue.snooze(job, at, reason, text))

    def _failed(self, job: ClaimedJob, cause: Exception) -> _Ending:
        text, reason = describe(cause), _reason(cause)
        if job.attempt >= self._limits.max_attempts:
            return self._dead(job, f"attempts exhausted; last: {text}")
        get_logger().warning("job.failed", error=type(cause).__name__)
        return _Ending(Outcome.RETRIED, lambda: self._queue.retry(job, text, waiting_for=reason))

    def interrupt(self, leases: Sequence[ActiveLease]) -> None:
        """Give running jobs back at a stop that cannot wait; their runs publish nothing more."""
        for lease in leases:
            lease.lost = True
            with suppress(LeaseLost, Busy):
                self._queue.interrupt(lease.job)
                get_logger().info("job.interrupted", job_id=lease.job.job_id, kind=lease.job.kind)


def _reason(cause: Exception) -> str:
    match cause:
        case BudgetExhausted():
            return "budget"
        case MissingModel():
            return "model"
        case ProviderPaused():
            return "provider"
        case ConfigError():
            return "settings"
        case SourceUnavailable():
            return "source"
        case Snooze():
            return "later"
        case _:
            return "retry"


def describe(cause: Exception) -> str:
    """What failed, for people. Only our own errors may speak: others quote what they were fed."""
    name = type(cause).__name__
    if isinstance(cause, MemorydError):
        return redact(f"{name}: {cause}")
    frames = traceback.extract_tb(cause.__traceback__)
    where = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    return f"{name}{where}"
