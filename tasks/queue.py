"""Huey on leases: the only module that imports huey.

Stock `huey_consumer worker.huey` runs this unchanged. A job is claimed in `dequeue`, which waits
for the bell instead of polling, and ended in `execute`, by the outcome of its run. Our kinds are
Huey tasks whose body is `tasks.dispatch`; a task that somebody else registers runs under the same
leases, and what it enqueues at its end is in the transaction of its acknowledgement.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

import structlog
from huey.api import Huey, Task
from huey.constants import WORKER_THREAD, EmptyData
from huey.consumer import Consumer, ConsumerStopped, Scheduler, Worker, WorkerRecycle
from huey.exceptions import CancelExecution
from huey.registry import Message
from huey.storage import BaseStorage

from storage import queue_values, queue_views
from storage.clock import Clock
from storage.connection import translated
from storage.errors import ConfigError, MemorydError, Refused, UnknownJob
from storage.jobs import JobKind, JobSpec, Priority
from storage.log import configure, get_logger
from storage.queue import JobQueue
from storage.queue_line import Line
from storage.records import ProjectId
from tasks.engine import AlreadyRunning, Engine
from tasks.interrupts import Interrupts
from tasks.lease import ActiveLease, Done, GaveUp, describe
from tasks.messages import JsonSerializer
from tasks.outbox import Run

FOREIGN: Final = "huey"
"""The kind of tasks that are not ours."""
EXIT_ALREADY_RUNNING: Final = 3
WATCH_S: Final = 2.0
"""How often the main thread looks for runs that hang and threads that died."""
ONCE_S: Final = 0.1


class LeasedStorage(BaseStorage):  # type: ignore[misc]  # huey has no types
    """Huey's storage port over the queue's file."""

    blocking = True
    priority = True

    def __init__(self, name: str, engine: Engine) -> None:
        super().__init__(name)
        self._engine = engine
        self._local = threading.local()

    @property
    def _queue(self) -> JobQueue:
        return self._engine.queue

    def close(self) -> None:
        """Connections belong to threads here; the consumer closes them at its end."""

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        self._put(data, priority, None)

    def add_to_schedule(self, data: bytes, ts: datetime) -> None:
        # Huey passes naive UTC; `.timestamp()` would read it in the zone of the process.
        self._put(data, None, int(ts.replace(tzinfo=UTC).timestamp() * 1000))

    def _put(self, data: bytes, priority: float | None, run_at: int | None) -> None:
        line = Line(
            kind=FOREIGN,
            project="",
            subject=secrets.token_hex(12),
            priority=max(0, min(99, int(Priority.BULK + (priority or 0)))),
            run_at=run_at,
            message=data,
        )
        run = self.current()
        if run is not None and run.executed:
            run.outbox.append(line)
        else:
            self._queue.enqueue_lines([line])

    def current(self) -> Run | None:
        """The run of this thread."""
        run: Run | None = getattr(self._local, "run", None)
        return run

    def enter(self, run: Run | None) -> None:
        """Set the run of this thread."""
        self._local.run = run

    def dequeue(self) -> bytes | None:
        raise NotImplementedError("jobs are leased, not taken out: Huey.dequeue claims them")

    def queue_size(self) -> int:
        return self._count(due=True)

    def schedule_size(self) -> int:
        return self._count(due=False)

    def _count(self, *, due: bool) -> int:
        queue = self._queue
        return queue_views.waiting_count(queue.file.db, due=due, now=queue.clock.now_ms())

    def enqueued_items(self, limit: int | None = None) -> list[bytes]:
        return self._items(limit, due=True)

    def scheduled_items(self, limit: int | None = None) -> list[bytes]:
        return self._items(limit, due=False)

    def _items(self, limit: int | None, *, due: bool) -> list[bytes]:
        return queue_views.messages(
            self._queue.file.db, FOREIGN, due=due, now=self._queue.clock.now_ms(), limit=limit
        )

    def read_schedule(self, ts: datetime) -> list[bytes]:
        # A later job is an available one whose time has not come: nothing has to be moved.
        return []

    def flush_queue(self) -> None:
        self._queue.cancel_kind(FOREIGN)

    flush_schedule = flush_queue

    def put_data(self, key: str, value: bytes, is_result: bool = False) -> None:
        if not is_result:
            with self._queue.file.write("FULL") as db:
                queue_values.put(db, _text(key), value, self._queue.clock.now_ms())

    def peek_data(self, key: str) -> Any:
        with translated():
            value = queue_values.peek(self._queue.file.db, _text(key))
        return EmptyData if value is None else value

    def peek_many(self, keys: list[str]) -> dict[str, bytes]:
        with translated():
            wanted = json.dumps([_text(key) for key in keys])
            return queue_values.peek_many(self._queue.file.db, wanted)

    def pop_data(self, key: str) -> Any:
        if self.peek_data(key) is EmptyData:
            return EmptyData
        with self._queue.file.write("FULL") as db:
            value = queue_values.pop(db, _text(key))
        return EmptyData if value is None else value

    def has_data_for_key(self, key: str) -> bool:
        return self.peek_data(key) is not EmptyData

    def holds_nothing(self) -> bool:
        """Whether nobody has put a value: one cheap read instead of several."""
        with translated():
            return not queue_values.any_value(self._queue.file.db)

    def put_if_empty(self, key: str, value: bytes, ttl: int | None = None) -> bool:
        if ttl is not None:
            raise NotImplementedError("keys with a time to live")
        with self._queue.file.write("FULL") as db:
            return queue_values.put_if_empty(db, _text(key), value, self._queue.clock.now_ms())

    def incr(self, key: str, amount: int = 1) -> int:
        with self._queue.file.write("FULL") as db:
            return queue_values.increment(db, _text(key), amount, self._queue.clock.now_ms())

    delete_counter = pop_data

    def result_store_size(self) -> int:
        return len(self.result_items())

    def result_items(self) -> dict[str, bytes]:
        with translated():
            return queue_values.everything(self._queue.file.db)

    def flush_results(self) -> None:
        with self._queue.file.write("FULL") as db:
            queue_values.clear(db)

    def flush_counters(self) -> None:
        """Counters are values and went with them."""


class KindTask(Task):  # type: ignore[misc]  # huey has no types
    """A job of ours as Huey sees it: its id is the job's, its body is `tasks.dispatch`."""

    job_kind: JobKind
    owner: LeasedHuey

    def execute(self) -> None:
        run = self.owner.storage.current()
        if run is None:
            raise ConfigError("a job of ours runs under a lease only")
        try:
            run.done = self.owner.engine.body_of(run.lease)(run.lease)
        except BaseException as cause:
            # Kept for the lease's own judgement. Huey would log its text, which may quote data.
            run.error = cause
            raise CancelExecution(retry=False) from None


class LeasedHuey(Huey):  # type: ignore[misc]  # huey has no types
    """Huey whose queue is leased, whose messages are JSON, and which keeps no results."""

    storage: LeasedStorage

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        super().__init__(
            "memoryd", results=False, utc=True, serializer=JsonSerializer(cast("Any", Message))
        )
        self._kinds: dict[str, type[KindTask]] = {}
        for kind in JobKind:
            made = type(kind.value, (KindTask,), {"job_kind": kind, "owner": self})
            self._registry.register(made)
            self._kinds[kind.value] = made

    def get_storage(self, **_kwargs: object) -> LeasedStorage:
        return LeasedStorage("memoryd", self.engine)

    def enqueue(self, task: Any) -> Any:
        if isinstance(task, KindTask):
            fields = dict(task.kwargs)
            project = ProjectId(str(fields.pop("project", "")))
            subject = str(fields.pop("subject", ""))
            spec = JobSpec(kind=task.job_kind, project=project, subject=subject, args=fields)
            return self.engine.queue.enqueue([spec])[0]
        if getattr(task, "eta", None) is not None:
            # One row with its time, instead of Huey's hops from queue to schedule and back.
            if task.expires:
                task.resolve_expires(self.utc)
            return self.add_schedule(task)
        return super().enqueue(task)

    def dequeue(self) -> Any:
        lease = self.engine.take()
        if lease is None:
            return None
        try:
            task = self._task_of(lease)
        except Exception as cause:
            # Kept as dead with the reason; never lost, whatever the bytes are.
            refusal = cause if isinstance(cause, MemorydError) else UnknownJob(describe(cause))
            self.engine.refuse(lease, refusal)
            return None
        task.lease = lease
        return task

    def _task_of(self, lease: ActiveLease) -> Any:
        job = lease.job
        if job.kind == FOREIGN:
            task = self.deserialize_task(job.message)
            # The claim has decided that the time has come; Huey would ask its own clock again.
            task.eta = None
            return task
        made = self._kinds.get(job.kind)
        if made is None:
            raise UnknownJob(f"no body is registered for jobs of kind {job.kind!r}")
        return made(id=job.job_id)

    def execute(self, task: Any, timestamp: datetime | None = None) -> Any:
        lease: ActiveLease | None = task.__dict__.pop("lease", None)
        if lease is None:
            return super().execute(task, timestamp)
        revocation = task.revoke_id if isinstance(task, KindTask) else ""
        return self.engine.run(
            lease, lambda held: self._work(Run(held, revocation=revocation), task, timestamp)
        )

    def _work(self, run: Run, task: Any, timestamp: datetime | None) -> Done:
        self.storage.enter(run)
        try:
            super().execute(task, timestamp)
        finally:
            self.storage.enter(None)
        if run.error is not None:
            raise run.error
        if not run.executed:
            raise Refused("revoked, expired or cancelled before it ran")
        return run.done or Done(following=tuple(run.outbox))

    def is_revoked(self, task: Any, timestamp: datetime | None = None, peek: bool = True) -> bool:
        run = self.storage.current()
        # The claim of this run has looked already.
        nothing = self.storage.holds_nothing() if run is None else not run.lease.job.values_exist
        return not nothing and bool(super().is_revoked(task, timestamp, peek))

    def delete(self, key: str) -> bool:
        run = self.storage.current()
        if run is not None and key == run.revocation and not run.lease.job.values_exist:
            # Huey clears a revocation that came during the run; of a job that is started again it
            # should hold, and of one that ended it ages out with the rest.
            return False
        return not self.storage.holds_nothing() and bool(super().delete(key))

    def _get_timestamp(self) -> datetime:
        now = self.engine.queue.clock.now_ms() / 1000
        return datetime.fromtimestamp(now, UTC).replace(tzinfo=None)

    def _run_post_execute(self, task: Any, task_value: Any, exception: Exception | None) -> None:
        run = self.storage.current()
        if run is not None:
            run.executed = True
            # Huey asks for a retry only while retries are left; otherwise this is the end.
            if exception is not None and run.error is None and not task.retries:
                run.error = GaveUp(describe(exception))
        super()._run_post_execute(task, task_value, exception)

    def notify_interrupted_tasks(self) -> None:
        super().notify_interrupted_tasks()
        self.engine.close()

    def create_consumer(self, **options: Any) -> LeasedConsumer:
        if options.get("worker_type", WORKER_THREAD) != WORKER_THREAD:
            raise ConfigError("memoryd's workers are threads: the encoder does not survive a fork")
        try:
            self.engine.guard()
        except AlreadyRunning as cause:
            get_logger().error("worker.refused")
            sys.stderr.write(f"{cause}\n")
            sys.exit(EXIT_ALREADY_RUNNING)
        if not structlog.is_configured():
            # Stock huey_consumer has set up Huey's own logging; ours still goes to our file.
            configure(self.engine.paths, self.engine.queue.clock, libraries=False)
        return LeasedConsumer(self, **options)


class LeasedWorker(Worker):  # type: ignore[misc]  # huey has no types
    """A worker thread; one that was given up as hung ends when its run comes back after all."""

    retired = False

    def initialize(self) -> None:
        super().initialize()
        self.huey.engine.join()

    def shutdown(self) -> None:
        self.huey.engine.leave()
        super().shutdown()

    def loop(self, now: datetime | None = None) -> None:
        super().loop(now)
        if self.retired:
            raise WorkerRecycle


class LeasedScheduler(Scheduler):  # type: ignore[misc]  # huey has no types
    """Our rounds in Huey's scheduler thread."""

    def loop(self, now: datetime | None = None) -> None:
        started = time.monotonic()
        self.huey.engine.tick(periodic=self.periodic)
        self.sleep_for_interval(started, self.interval)


class LeasedConsumer(Consumer):  # type: ignore[misc]  # huey has no types
    """Huey's consumer around our engine."""

    worker_class = LeasedWorker
    scheduler_class = LeasedScheduler
    huey: LeasedHuey

    def __init__(self, huey: LeasedHuey, *, once: bool = False, **options: Any) -> None:
        super().__init__(huey, **options)
        self._once = once
        # Huey looks ten times a second whether a signal came; here the signal says so itself.
        self._stop_flag_timeout = 0
        self._interrupts = Interrupts()

    def start(self) -> None:
        self._interrupts.listen()
        # Huey sets them last: a TERM until then would kill what has just said that it is ready.
        self._set_signal_handlers()
        self.huey.engine.start(self.workers)
        super().start()

    def stop(self, graceful: bool = False) -> None:
        self.stop_flag.set()
        self._interrupts.wake()
        self.huey.engine.stop_taking()
        super().stop(graceful)

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._interrupts.close()

    def loop(self, health_check_ts: float | None = None) -> Any:
        self._replace_hung()
        if self._once and self.huey.engine.drained():
            self.stop(graceful=True)
            raise ConsumerStopped
        self._interrupts.wait(ONCE_S if self._once else WATCH_S)
        return super().loop(health_check_ts)

    def _replace_hung(self) -> None:
        hung = {lease.thread for lease in self.huey.engine.hung()}
        if not hung:
            return
        for place, (worker, thread) in enumerate(self.worker_threads):
            if thread.ident in hung and thread.is_alive():
                worker.retired = True
                self.huey.engine.leave(thread.ident)
                fresh = self._create_worker()
                replacement = self._create_process(fresh, f"{thread.name}+")
                self.worker_threads[place] = (fresh, replacement)
                replacement.start()
                get_logger().error("worker.replaced")


def _text(key: str | bytes) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else key


def build_huey(
    paths: Any, environment: Mapping[str, str], clock: Clock, **engine_options: Any
) -> LeasedHuey:
    """The Huey of a home; opens the queue and starts nothing."""
    return LeasedHuey(Engine(paths, environment, clock, **engine_options))
