"""One consumer's engine room: it takes jobs under leases, runs them, and makes its rounds.

Knows nothing of Huey; `tasks.queue` drives it from Huey's threads. One daemon per home: the guard
is a lock that the kernel frees when the process dies, so nothing stale can keep a new one out.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from storage.atomic import NOFOLLOW
from storage.clock import Clock
from storage.config import load_settings
from storage.connection import Durability, private_directory
from storage.errors import MemorydError, Unavailable
from storage.jobs import CLASSES, JobKind, Priority, class_name
from storage.leases import ClaimedJob
from storage.log import get_logger
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.queue_owner import Owner, sweep
from storage.queue_port import Take
from storage.records import ProjectId
from storage.wakeup import Listener
from tasks.dispatch import ROUTES, Dispatch, Route
from tasks.lease import (
    Acknowledgement,
    ActiveLease,
    Done,
    Heartbeat,
    Limits,
    Outcome,
    Runner,
    Work,
)
from tasks.readiness import Readiness
from tasks.reconcile import Reconciler, bound_projects
from tasks.schedule import Planner, entries
from tasks.tick import Ticker

IDLE_S = 30.0
"""An idle worker looks again this often although nothing rang: a clock may have stepped forward."""
FAULT_S = 0.25
RUNS_PER_TIDY = 32
GUARD_NAME = "worker.lock"


class AlreadyRunning(MemorydError):
    """A worker of this home is running already."""


class Engine:
    """Everything between the queue's file and a thread that wants work."""

    def __init__(
        self,
        paths: HomePaths,
        environment: Mapping[str, str],
        clock: Clock,
        *,
        routes: Mapping[JobKind, Route] = ROUTES,
        projects: Callable[[], Sequence[ProjectId]] | None = None,
        durability: Durability = "NORMAL",
    ) -> None:
        self.paths = paths
        self._clock = clock
        self.settings = load_settings(paths, environment)
        planned = entries(self.settings.schedule)
        self.queue: JobQueue = open_queue(paths, clock=clock, durability=durability)
        self.readiness = Readiness(environment)
        listed = projects or (lambda: bound_projects(paths))
        self._lease_ms = self.settings.queue.lease_ms
        self._heartbeat = Heartbeat(self.queue, clock, lease_ms=self._lease_ms)
        self._runner = Runner(
            self.queue,
            clock,
            self._heartbeat,
            Limits(max_attempts=self.settings.queue.max_attempts),
            self._acknowledge,
        )
        self._dispatch = Dispatch(self.queue, paths, environment, clock, routes=routes)
        self._planner = Planner(self.queue, clock, planned, listed)
        self.ticker = Ticker(
            self.queue,
            clock,
            self._planner,
            Reconciler(self.queue, paths, environment, clock, listed),
            max_crashes=self.settings.queue.max_crashes,
            retention_days=self.settings.queue.retention_days,
        )
        self._guard_fd = -1
        self._owner: Owner | None = None
        self._listener: Listener | None = None
        self._workers = 1
        self._claiming = threading.Lock()
        self._next: dict[int, ActiveLease | None] = {}
        """Threads that come back for more, each with the job it was given with its last ending."""
        self._bell = threading.Condition()
        self._rings = 0
        self._waiting = 0
        self._ended = itertools.count(1)
        self._stopping = False

    # Life

    def guard(self) -> None:
        """Become the one worker of this home.

        Raises:
            AlreadyRunning: another process is.
        """
        if self._guard_fd >= 0:
            return
        path = private_directory(self.paths.shared) / GUARD_NAME
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o600)
        except OSError as cause:
            raise Unavailable(f"{path}: cannot be locked ({cause.strerror})") from cause
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            os.close(fd)
            raise AlreadyRunning(
                f"a worker of this home is running already ({self.paths.home})"
            ) from cause
        self._guard_fd = fd

    def start(self, workers: int) -> None:
        """Take the name that leases are held by, start to listen and to beat."""
        self.guard()
        self._workers = workers
        sweep(self.paths)
        self._owner = Owner(self.paths)
        self._listener = Listener(self.paths, self._owner.name)
        self._planner.register()
        self._heartbeat.start()
        threading.Thread(target=self._listen, name="Bell", daemon=True).start()
        get_logger().info("worker.started", owner=self._owner.name, workers=workers)
        self.readiness.ready()

    def stop_taking(self) -> None:
        """No job is claimed from now on; idle threads wake up and see it."""
        if not self._stopping:
            self.readiness.stopping()
        with self._bell:
            self._stopping = True
            self._bell.notify_all()
        if self._listener is not None:
            self._listener.wake()

    def interrupt(self) -> None:
        """Give back what still runs; those runs can publish nothing more."""
        self._runner.interrupt(self._heartbeat.held())

    def close(self) -> None:
        """Give everything back; idempotent."""
        self.stop_taking()
        self._heartbeat.close()
        self.interrupt()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._owner is not None:
            get_logger().info("worker.stopped", owner=self._owner.name)
            self._owner.close()
            self._owner = None
            with suppress(MemorydError):
                self.queue.file.checkpoint("PASSIVE")
        self.queue.close()
        if self._guard_fd >= 0:
            os.close(self._guard_fd)
            self._guard_fd = -1

    # Work

    def take(self, wait_s: float = IDLE_S) -> ActiveLease | None:
        """A job to run, its lease held; None when none came within the time, or at a stop."""
        given = self._given()
        if given is not None:
            return given
        with self._bell:
            seen = self._rings
        try:
            lease = self._claim()
            if lease is not None or self._stopping:
                return lease
            wait_s = min(wait_s, self._until_due_s())
        except MemorydError as cause:
            # A full disk or a locked file: nothing is claimed, and the queue says so by its age.
            get_logger().warning("tick.failed", problem="claim", error=type(cause).__name__)
            wait_s = FAULT_S
        with self._bell:
            self._waiting += 1
            self._bell.notify_all()
            self._bell.wait_for(lambda: self._rings != seen or self._stopping, wait_s)
            self._waiting -= 1
        return None

    def join(self) -> None:
        """This thread calls `take` after each run: its next job may come with an ending."""
        with self._claiming:
            self._next.setdefault(threading.get_ident(), None)

    def leave(self, thread: int | None = None) -> None:
        """This thread (or that one, which hangs) takes no more; what it was given goes back."""
        with self._claiming:
            given = self._next.pop(threading.get_ident() if thread is None else thread, None)
        if given is not None:
            self._runner.interrupt([given])
            self._heartbeat.drop(given)

    def run(self, lease: ActiveLease, work: Work | None = None) -> Outcome:
        """Run a taken job to its ending; `work` stands in for the body of its kind."""
        outcome = self._runner.run(lease, work or self.body_of(lease))
        if next(self._ended) % RUNS_PER_TIDY == 0:
            with suppress(MemorydError):
                # In a storm the WAL would grow until the next tick, and syncs with it.
                self.queue.file.tidy()
        return outcome

    def refuse(self, lease: ActiveLease, cause: MemorydError) -> Outcome:
        """End a taken job that cannot even be started."""

        def work(_: ActiveLease) -> Done:
            raise cause

        return self._runner.run(lease, work)

    def body_of(self, lease: ActiveLease) -> Work:
        """The work of a job of ours."""

        def work(held: ActiveLease) -> Done:
            return self._dispatch.run(lease.job, held)

        return work

    def tick(self, *, periodic: bool = True) -> None:
        """One round of chores; one without a failure feeds the watchdog."""
        changed = self._saw_change()
        if changed:
            # Whoever committed may not have rung, or its datagram was lost.
            self._ring()
        if self.ticker.tick(periodic=periodic, changed=changed):
            self.readiness.alive()

    def drained(self) -> bool:
        """Whether nothing runs, nothing is due, and nothing was missing just now."""
        busy = any(not lease.overran for lease in self._heartbeat.held())
        if busy or not self.queue.drained():
            return False
        if self.queue.drain_spool() or self.ticker.reconcile():
            return False
        return self.queue.drained()

    def hung(self) -> tuple[ActiveLease, ...]:
        """Runs that overran: their jobs are free again, their threads are not."""
        return tuple(lease for lease in self._heartbeat.held() if lease.overran)

    def _claim(self) -> ActiveLease | None:
        with self._claiming:
            take = self._may_take()
            if take is None:
                return None
            job = self.queue.claim(
                take.owner, lease_ms=take.lease_ms, floor=take.floor, closed=take.closed
            )
            return self._hold(job)

    def _acknowledge(self, lease: ActiveLease, ending: Acknowledgement) -> None:
        # Under the lock that claims have: two threads must not both take the last free place.
        with self._claiming:
            me = threading.get_ident()
            stays = me in self._next and not lease.overran
            take = self._may_take(without=lease) if stays else None
            given = self._hold(ending.write(self.queue, lease.job, take))
            if given is not None:
                self._next[me] = given

    def _given(self) -> ActiveLease | None:
        with self._claiming:
            me = threading.get_ident()
            given = self._next.get(me)
            if given is not None:
                self._next[me] = None
            return given

    def _hold(self, job: ClaimedJob | None) -> ActiveLease | None:
        if job is None:
            return None
        return self._heartbeat.hold(job, self._dispatch.max_runtime_ms(job.kind))

    def _may_take(self, *, without: ActiveLease | None = None) -> Take | None:
        owner = self._owner
        if owner is None or self._stopping:
            return None
        floor, closed = self._places(without)
        return Take(owner=owner.name, lease_ms=self._lease_ms, floor=floor, closed=closed)

    def _places(self, without: ActiveLease | None = None) -> tuple[int, frozenset[int]]:
        """The least priority that may start now, and the classes that are full."""
        running = [
            lease.job.priority
            for lease in self._heartbeat.held()
            if lease is not without and not lease.overran
        ]
        # One thread is kept for people and corrections, or two long analyses would block both.
        slow = sum(priority < Priority.CORRECTION for priority in running)
        kept = self._workers > 1 and slow >= self._workers - 1
        counts = Counter(class_name(priority) for priority in running)
        full = frozenset(
            int(CLASSES[name])
            for name, most in self.settings.queue.concurrency.items()
            if counts[name] >= most
        )
        return int(Priority.CORRECTION) if kept else 0, full

    def _until_due_s(self) -> float:
        floor, closed = self._places()
        due = self.queue.next_due(floor=floor, closed=closed)
        if due is None:
            return IDLE_S
        return max(0.01, (due - self._clock.now_ms()) / 1000)

    def _saw_change(self) -> bool:
        try:
            return self.queue.file.changed()
        except MemorydError:
            # The chores will meet the same fault and say it.
            return True

    def _ring(self) -> None:
        with self._bell:
            self._rings += 1
            self._bell.notify_all()

    def _listen(self) -> None:
        listener = self._listener
        while listener is not None and not self._stopping:
            # While every thread works, nobody needs to hear: the datagrams wait in the socket.
            with self._bell:
                self._bell.wait_for(lambda: self._waiting > 0 or self._stopping)
            with suppress(MemorydError, OSError, ValueError):
                # A closed socket (ValueError, OSError) means that the loop is about to end.
                if listener.wait():
                    self._ring()
