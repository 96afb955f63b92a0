"""The once-a-second look around: everything that must happen although nobody asked for it.

Each chore fails alone: a broken schedule must not keep the reaper from its round. `progressed_at`
moves only when a whole round came through, and it is what the service manager's watchdog is fed by.

A round that found nothing is not repeated until something moved: a commit, a file in the spool, a
schedule's time, the clock. An idle consumer costs one look a second, not six chores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from storage.clock import Clock
from storage.errors import MemorydError
from storage.log import get_logger
from storage.queue import JobQueue
from storage.queue_owner import sweep
from storage.spool import folder_changed_at
from tasks.reconcile import Reconciler
from tasks.schedule import Planner

SLOW_MS: Final = 5_000
CLOCK_STEP_MS: Final = 5_000
"""A smaller step back is not worth a write."""
RECONCILE_MS: Final = 60_000
HOUSEKEEPING_MS: Final = 60_000
QUIET_MS: Final = 15_000
"""However quiet it is, the chores are done this often."""


class Ticker:
    """The chores of one consumer."""

    def __init__(
        self,
        queue: JobQueue,
        clock: Clock,
        planner: Planner,
        reconciler: Reconciler,
        *,
        max_crashes: int,
        retention_days: int,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._planner = planner
        self._reconciler = reconciler
        self._max_crashes = max_crashes
        self._retention_days = retention_days
        self._reconciled_at: int | None = None
        self._kept_at: int | None = None
        self._offset: int | None = None
        self._quiet_until = 0
        self._spool_changed_at: int | None = None
        self.progressed_at = clock.boot_ms()
        """Boot ms of the last round in which no chore failed."""

    def tick(self, *, periodic: bool = True, changed: bool = True) -> bool:
        """One round; False if a chore failed. `periodic` fires schedules too.

        `changed` says that somebody else may have committed to the queue since the last round.
        """
        if not changed and self._is_quiet(periodic=periodic):
            self.progressed_at = self._clock.boot_ms()
            return True
        # Taken before the folder is read: a file that comes in between shows in the next round.
        self._spool_changed_at = folder_changed_at(self._queue.paths)
        chores: tuple[tuple[str, Callable[[], object]], ...] = (
            ("clock", self._follow_clock),
            ("reap", self._reap),
            ("spool", self._spool),
            ("schedule", self._planner.tick if periodic else _nothing),
            ("reconcile", self._reconcile),
            ("housekeeping", self._keep_house),
        )
        sound, found, started = True, False, self._clock.boot_ms()
        for name, chore in chores:
            try:
                found = bool(chore()) or found
            except MemorydError as cause:
                sound = False
                get_logger().warning("tick.failed", problem=name, error=type(cause).__name__)
        took = self._clock.boot_ms() - started
        if took > SLOW_MS:
            get_logger().warning("tick.slow", duration_ms=took)
        self._quiet_until = 0
        if sound:
            self.progressed_at = self._clock.boot_ms()
            if not found:
                self._quiet_until = self._next_chore_at()
        return sound

    def _is_quiet(self, *, periodic: bool) -> bool:
        boot, now = self._clock.boot_ms(), self._clock.now_ms()
        return (
            boot < self._quiet_until
            and self._offset is not None
            and abs(now - boot - self._offset) <= CLOCK_STEP_MS
            and not (periodic and self._planner.is_due(now))
            and folder_changed_at(self._queue.paths) == self._spool_changed_at
        )

    def _next_chore_at(self) -> int:
        regular = ((self._reconciled_at, RECONCILE_MS), (self._kept_at, HOUSEKEEPING_MS))
        due = [last + every for last, every in regular if last is not None]
        return min(self.progressed_at + QUIET_MS, *due)

    def reconcile(self) -> int:
        """Compare stores with jobs now; returns the jobs asked for."""
        self._reconciled_at = self._clock.boot_ms()
        return self._reconciler.run()

    def _follow_clock(self) -> None:
        # Boot time does not step, so the difference shows that somebody set the clock. A step
        # forward only makes work early; one back would keep a retry of a second waiting for a day.
        offset = self._clock.now_ms() - self._clock.boot_ms()
        known = self._offset
        # At first: it may have been set while no worker ran.
        delta = self._queue.clock_stepped_ms() if known is None else offset - known
        if known is None or abs(delta) > CLOCK_STEP_MS:
            if delta < -CLOCK_STEP_MS:
                moved = self._queue.shift_later(delta)
                get_logger().warning("clock.stepped", ms=delta, jobs=moved)
            self._queue.mark_clock()
        self._offset = offset

    def _reap(self) -> bool:
        found = self._queue.reap(max_crashes=self._max_crashes)
        if found.returned or found.buried:
            get_logger().warning(
                "lease.reaped", returned=found.returned, buried=found.buried, lapsed=found.lapsed
            )
        # A worker that dies leaves no trace in the file: while leases are out, look every second.
        return found.watched > 0

    def _spool(self) -> int:
        jobs = self._queue.drain_spool()
        if jobs:
            get_logger().info("spool.drained", jobs=jobs)
        return jobs

    def _reconcile(self) -> int:
        return self.reconcile() if self._due(self._reconciled_at, RECONCILE_MS) else 0

    def _keep_house(self) -> int:
        frames = self._queue.file.tidy()
        if frames:
            get_logger().info("queue.checkpointed", frames=frames)
        if self._due(self._kept_at, HOUSEKEEPING_MS):
            self._kept_at = self._clock.boot_ms()
            self._queue.mark_clock()
            self._queue.file.checkpoint("PASSIVE")
            pruned = self._queue.prune(self._retention_days)
            if pruned:
                get_logger().info("queue.pruned", rows=pruned)
            sweep(self._queue.paths)
        return frames

    def _due(self, last: int | None, every_ms: int) -> bool:
        return last is None or self._clock.boot_ms() - last >= every_ms


def _nothing() -> None:
    return None
