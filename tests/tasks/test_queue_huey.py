"""Huey on leases: what we rely on in stock Huey, and what ours does where stock loses work."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from huey.api import Huey
from huey.consumer import Consumer, Worker
from huey.registry import Message

from storage.clock import SystemClock
from storage.errors import ConfigError, Invalid, Stale, UnknownJob
from storage.jobs import MAX_MESSAGE_BYTES, JobKind, JobSpec, JobState, Priority
from storage.paths import HomePaths
from storage.records import JsonValue, ProjectId
from tasks.context import Context, Finished
from tasks.dispatch import Route
from tasks.messages import JsonSerializer
from tasks.queue import EXIT_ALREADY_RUNNING, LeasedHuey, build_huey
from tests.support import ManualClock

P1 = ProjectId("p1")
Body = Callable[[Context, Mapping[str, JsonValue]], Finished]


class Bench:
    """A started engine without consumer threads: the test is the worker."""

    def __init__(self, home: Path) -> None:
        # Huey computes delays with the machine's clock: ours must start at the same time.
        self.clock = ManualClock(now_ms=SystemClock().now_ms())
        self.ran: list[Mapping[str, JsonValue]] = []
        self.fails: list[Exception] = []
        routes = {kind: Route(self.body, 60_000) for kind in JobKind}
        self.huey: LeasedHuey = build_huey(
            HomePaths(home), {}, self.clock, routes=routes, projects=tuple
        )
        self.engine = self.huey.engine
        self.queue = self.engine.queue
        self.engine.start(workers=1)

    def body(self, _: Context, args: Mapping[str, JsonValue]) -> Finished:
        """Fails as told, or records its arguments."""
        if self.fails:
            raise self.fails.pop(0)
        self.ran.append(args)
        return Finished(note="done")

    def work(self) -> int:
        """Run what is due; how many runs."""
        runs = 0
        while (due := self.queue.next_due()) is not None and due <= self.clock.now_ms():
            task = self.huey.dequeue()
            if task is not None:
                self.huey.execute(task)
                runs += 1
        return runs

    def states(self) -> dict[str, int]:
        """Jobs by state, without empty states."""
        return {state.value: count for state, count in self.queue.counts().items() if count}


@pytest.fixture
def bench(home: Path) -> Iterator[Bench]:
    """A queue that the test works off."""
    made = Bench(home)
    yield made
    made.engine.close()


def test_our_kinds_run_through_huey(bench: Bench) -> None:
    """Claimed in dequeue, ended in execute; Huey's signals see them."""
    seen: list[str] = []
    bench.huey.signal()(lambda signal, task, *rest: seen.append(f"{signal} {task.name}"))
    bench.queue.enqueue([JobSpec(kind=JobKind.SYNC, project=P1, args={"a": 1})])

    runs = bench.work()

    assert (runs, bench.ran) == (1, [{"a": 1}])
    assert bench.states() == {"completed": 1}
    assert seen == ["executing sync", "complete sync"]


def test_a_kind_can_be_enqueued_as_a_huey_task(bench: Bench) -> None:
    """It becomes a job of ours, joined by key."""
    task = bench.huey._kinds["embed"](kwargs={"project": "p1", "subject": "s", "x": 2})

    first, second = bench.huey.enqueue(task), bench.huey.enqueue(task)
    bench.work()

    assert first == second
    assert bench.ran == [{"x": 2}]


def test_a_failing_body_is_judged_by_its_exception(bench: Bench) -> None:
    """Huey's own retry machinery stays out of it, and its log hears no text."""
    bench.fails = [Stale("moved")]
    bench.queue.enqueue([JobSpec(kind=JobKind.SYNC, project=P1)])

    bench.work()

    (view,) = bench.queue.jobs()
    assert (view.state, view.error) == (JobState.AVAILABLE, "Stale: moved")
    bench.clock.advance(2_000)
    bench.work()
    assert bench.states() == {"completed": 1}


def test_a_revoked_job_does_not_run(bench: Bench) -> None:
    """Huey's own revocation works on our jobs."""
    (name,) = bench.queue.enqueue([JobSpec(kind=JobKind.SYNC, project=P1)])
    bench.huey.revoke_by_id(name)

    bench.work()

    assert bench.ran == []
    assert bench.states() == {"discarded": 1}


def test_a_task_of_somebody_else_runs_under_a_lease(bench: Bench) -> None:
    """Registered the usual way, called the usual way."""
    got: list[tuple[Any, ...]] = []

    @bench.huey.task()  # type: ignore[untyped-decorator]
    def add(a: int, b: int = 0) -> int:
        got.append((a, b))
        return a + b

    add(1, b=2)
    pending = len(bench.huey.pending())
    bench.work()

    assert (pending, got) == (1, [(1, 2)])
    assert bench.states() == {"completed": 1}
    assert bench.huey.result_count() == 0


def test_a_pipeline_is_in_the_acknowledgement(bench: Bench) -> None:
    """The next step exists exactly when this one is done."""
    got: list[int] = []

    @bench.huey.task()  # type: ignore[untyped-decorator]
    def double(n: int) -> int:
        got.append(n)
        return n * 2

    bench.huey.enqueue(double.s(3).then(double))
    first = bench.huey.dequeue()
    bench.huey.execute(first)
    between = bench.states()
    bench.work()

    assert between == {"completed": 1, "available": 1}
    assert got == [3, 6]


def test_a_retry_of_a_foreign_task_waits_its_delay_and_then_it_dies(bench: Bench) -> None:
    """Huey counts the retries; the last failure is kept as dead, with no text of its own."""
    calls: list[int] = []

    @bench.huey.task(retries=1, retry_delay=60)  # type: ignore[untyped-decorator]
    def broken() -> None:
        calls.append(1)
        raise ValueError("private words")

    broken()
    bench.work()
    waits = bench.states()
    bench.clock.advance(59_000)
    early = bench.work()
    bench.clock.advance(2_000)
    bench.work()

    assert waits == {"available": 1, "completed": 1}
    assert (early, len(calls)) == (0, 2)
    (dead,) = bench.queue.jobs(state=JobState.DEAD)
    assert "ValueError" in dead.error
    assert "private" not in dead.error


def test_a_delayed_task_is_not_claimed_before_its_time(bench: Bench) -> None:
    """One row from the beginning: no hop from queue to schedule and back."""

    @bench.huey.task()  # type: ignore[untyped-decorator]
    def later() -> None:
        """Nothing."""

    later.schedule(delay=3_600)

    assert (bench.huey.pending_count(), bench.huey.scheduled_count()) == (0, 1)
    assert bench.huey.read_schedule(datetime(9999, 1, 1)) == []  # noqa: DTZ001
    assert bench.work() == 0


def test_a_foreign_task_that_nobody_registered_is_kept_as_dead(bench: Bench) -> None:
    """Stock Huey deletes it and logs."""

    @bench.huey.task(name="gone")  # type: ignore[untyped-decorator]
    def gone() -> None:
        """Nothing."""

    gone()
    gone.unregister()
    bench.work()

    assert bench.states() == {"dead": 1}


def test_huey_values_live_in_the_queue(bench: Bench) -> None:
    """Locks and counters; nothing expires by itself."""
    with bench.huey.lock_task("one"):
        assert bench.huey.is_locked("one")
    counts = [bench.huey.storage.incr("n"), bench.huey.storage.incr("n", 5)]
    bench.huey.put("k", {"a": [1]})

    assert not bench.huey.is_locked("one")
    assert counts == [1, 6]
    assert bench.huey.get("k", peek=True) == {"a": [1]}
    assert bench.huey.get("k") == {"a": [1]}
    assert bench.huey.get("k") is None
    bench.huey.flush()
    assert bench.huey.all_results() == {}


def test_flushing_leaves_our_jobs_alone(bench: Bench) -> None:
    """`huey.flush()` is about tasks that people gave to Huey."""

    @bench.huey.task()  # type: ignore[untyped-decorator]
    def task() -> None:
        """Nothing."""

    task()
    bench.queue.enqueue([JobSpec(kind=JobKind.SYNC, project=P1)])
    bench.huey.flush()

    assert bench.states() == {"available": 1, "cancelled": 1}


def test_messages_are_json_and_come_back_as_they_went() -> None:
    """Nested tasks and instants included; pickle bytes are refused, not loaded."""
    serializer = JsonSerializer(Message)
    inner = Message("2", "b", args=(1,), kwargs={})
    instant = datetime(2030, 1, 2, 3, 4, 5)  # noqa: DTZ001 -- Huey's instants are naive UTC
    message = Message(
        "1", "a", eta=instant, args=(1, "x"), kwargs={"k": [1]}, on_complete=inner,
        chord_config=("c", 2, 0, inner), expires=timedelta(seconds=5),
    )  # fmt: skip

    data = serializer.serialize(message)

    assert data.startswith(b"{")
    assert serializer.deserialize(data) == message._replace(expires=5.0)
    for bad in (b"\x80\x04N.", b"cos\nsystem\n.", b"{}", b"[]", b'{"huey":2}'):
        with pytest.raises(UnknownJob):
            serializer.deserialize(bad)
    for refused in ({1, 2}, "x" * MAX_MESSAGE_BYTES, float("inf")):
        with pytest.raises(Invalid):
            serializer.serialize(refused)


def test_one_thread_is_kept_for_people_and_corrections(home: Path) -> None:
    """With two workers, bulk work runs in one of them."""
    bench = Bench(home)
    bench.engine._workers = 2
    bench.queue.enqueue([JobSpec(kind=JobKind.ANALYZE, project=P1, subject=s) for s in "ab"])
    first = bench.engine.take(0)
    second = bench.engine.take(0)
    assert first is not None
    bench.engine.run(first)

    third = bench.engine.take(0)

    assert second is None
    assert third is not None
    bench.engine.close()


def test_a_thread_that_comes_back_is_given_its_next_job_with_the_ending(bench: Bench) -> None:
    """One commit a job: the second is leased when the first has ended, before anybody asks."""
    bench.engine.join()
    bench.queue.enqueue([JobSpec(kind=JobKind.EMBED, project=P1, subject=s) for s in "ab"])
    first = bench.engine.take(0)
    assert first is not None
    bench.engine.run(first)
    between = bench.states()

    second = bench.engine.take(0)

    assert between == {"completed": 1, "leased": 1}
    assert second is not None
    assert second.job.subject == "b"
    bench.engine.run(second)
    assert bench.states() == {"completed": 2}
    assert bench.engine.drained()


@pytest.mark.parametrize("manner", ["leave", "close"])
def test_what_a_leaving_thread_was_given_goes_back(bench: Bench, manner: str) -> None:
    """Without an attempt: it was never started."""
    bench.engine.join()
    bench.queue.enqueue([JobSpec(kind=JobKind.EMBED, project=P1, subject=s) for s in "ab"])
    first = bench.engine.take(0)
    assert first is not None
    bench.engine.run(first)
    if manner == "leave":
        bench.engine.leave()
    else:
        bench.engine.stop_taking()
        bench.engine.interrupt()

    (view,) = bench.queue.jobs(state=JobState.AVAILABLE)

    assert (view.subject, view.attempt) == ("b", 0)


def test_no_job_comes_with_an_ending_at_a_stop_or_after_an_overrun(bench: Bench) -> None:
    """Nobody would run it."""
    bench.engine.join()
    bench.queue.enqueue([JobSpec(kind=JobKind.EMBED, project=P1, subject=s) for s in "abc"])
    first = bench.engine.take(0)
    assert first is not None
    bench.clock.advance(first.stop_at - bench.clock.boot_ms())
    bench.engine.run(first)
    after_overrun = bench.states()
    second = bench.engine.take(0)
    assert second is not None
    bench.engine.stop_taking()
    bench.engine.run(second)

    assert after_overrun == {"completed": 1, "available": 2}
    assert bench.states() == {"completed": 2, "available": 1}


def test_a_class_runs_no_more_jobs_than_its_setting_says(home: Path) -> None:
    """`queue.concurrency`: one bulk job at a time, others beside it."""
    paths = HomePaths(home)
    paths.shared.mkdir(mode=0o700)
    paths.config.write_text("[queue.concurrency]\nbulk = 1\n")
    bench = Bench(home)
    bench.engine._workers = 4
    bench.queue.enqueue([JobSpec(kind=JobKind.EMBED, project=P1, subject=s) for s in "ab"])
    bench.queue.enqueue([JobSpec(kind=JobKind.GC, project=P1, priority=Priority.MAINTENANCE)])

    taken = [bench.engine.take(0) for _ in range(3)]

    assert [lease.job.kind for lease in taken if lease is not None] == ["embed", "gc"]
    first = taken[0]
    assert first is not None
    bench.engine.run(first)
    assert bench.engine.take(0) is not None
    bench.engine.close()


def test_a_waiting_worker_is_woken_by_an_enqueue(bench: Bench) -> None:
    """No poll in between: the bell."""
    took: list[Any] = []
    waiting = threading.Thread(target=lambda: took.append(bench.engine.take(30)))
    waiting.start()
    bench.queue.enqueue([JobSpec(kind=JobKind.SYNC, project=P1)])
    waiting.join(10)
    if took == [None]:
        took[0] = bench.engine.take(0)

    assert took[0] is not None
    bench.engine.run(took[0])


def test_the_worker_type_must_be_threads(bench: Bench) -> None:
    """The encoder's threads do not survive a fork."""
    with pytest.raises(ConfigError, match="threads"):
        bench.huey.create_consumer(workers=1, worker_type="process")


def test_a_second_consumer_of_a_home_is_refused(
    bench: Bench, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stock huey_consumer too: the guard is in create_consumer."""
    other = build_huey(HomePaths(home), {}, bench.clock, projects=tuple)

    with pytest.raises(SystemExit) as left:
        other.create_consumer(workers=1)

    assert left.value.code == EXIT_ALREADY_RUNNING
    assert "running already" in capsys.readouterr().err
    other.engine.close()


def test_a_bad_schedule_stops_the_worker_at_its_start(home: Path) -> None:
    """With the reason, not at midnight."""
    paths = HomePaths(home)
    paths.shared.mkdir(mode=0o700)
    paths.config.write_text('[schedule]\ngc = "0 0 30 2 *"\n')

    with pytest.raises(ConfigError, match=r"schedule\.gc"):
        build_huey(paths, {}, ManualClock())


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (Huey, "execute", ["self", "task", "timestamp"]),
        (Huey, "_run_post_execute", ["self", "task", "task_value", "exception"]),
        (Huey, "notify_interrupted_tasks", ["self"]),
        (Consumer, "stop", ["self", "graceful"]),
        (Consumer, "loop", ["self", "health_check_ts"]),
        (Consumer, "_create_worker", ["self"]),
        (Consumer, "_create_process", ["self", "process", "name"]),
        (Worker, "loop", ["self", "now"]),
    ],
)
def test_the_parts_of_huey_that_we_override_are_there(
    owner: type, name: str, parameters: list[str]
) -> None:
    """Some of them are private: an update of Huey must fail here, not in the field."""
    assert list(inspect.signature(getattr(owner, name)).parameters) == parameters


def test_huey_calls_post_execute_before_it_enqueues_what_follows() -> None:
    """The outbox opens there: another order would put successors outside the acknowledgement."""
    source = inspect.getsource(Huey._execute)

    success, failure = source.split("if exception is None:")[1].split("        else:", 1)
    for branch in (success, failure):
        post = branch.index("self._run_post_execute")
        assert "self.enqueue" not in branch[:post]
        assert "self._requeue_task" not in branch[:post]


def test_a_blocking_storage_is_never_slept_on() -> None:
    """Stock workers back off up to ten seconds unless the storage says that it waits itself."""
    assert "elif not self.huey.storage.blocking:" in inspect.getsource(Worker.loop)
    assert LeasedHuey.dequeue is not Huey.dequeue


def test_the_engines_rounds_go_on_after_a_failed_chore(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only a whole round counts as progress for the watchdog."""
    before = bench.engine.ticker.progressed_at

    def broken() -> int:
        raise Stale("moved")

    bench.clock.advance(1_000)
    monkeypatch.setattr(bench.queue, "drain_spool", broken)
    bench.engine.tick()
    failed = bench.engine.ticker.progressed_at
    monkeypatch.undo()
    bench.engine.tick()

    assert failed == before
    assert bench.engine.ticker.progressed_at == before + 1_000
