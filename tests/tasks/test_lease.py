"""Outcomes: the exception's class decides, the heartbeat keeps, a lost lease ends nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.activity import Activity
from storage.errors import (
    AlreadyApplied,
    BudgetExhausted,
    Busy,
    ConfigError,
    Corrupt,
    Invalid,
    LeaseLost,
    MissingModel,
    SourceUnavailable,
    Stale,
    Unavailable,
    UnknownJob,
)
from storage.jobs import MAX_MESSAGE_BYTES, JobKind, JobSpec, JobState, JobView
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.queue_owner import Owner
from storage.records import ProjectId
from tasks.lease import ActiveLease, Done, Heartbeat, Limits, Outcome, Runner, describe
from tests.support import ManualClock, wait_until

LEASE_MS = 30_000
P1 = ProjectId("p1")


class Bench:
    """A queue with one job, a heartbeat without a thread, a runner."""

    def __init__(self, home: Path) -> None:
        self.clock = ManualClock()
        self.queue = open_queue(HomePaths(home), clock=self.clock)
        self.owner = Owner(HomePaths(home))
        self.heartbeat = Heartbeat(self.queue, self.clock, lease_ms=LEASE_MS)
        self.runner = Runner(self.queue, self.clock, self.heartbeat, Limits(max_attempts=2))

    def close(self) -> None:
        """Give everything back."""
        self.owner.close()
        self.queue.close()

    def add(self, kind: JobKind = JobKind.SYNC) -> str:
        """Enqueue a job."""
        return self.queue.enqueue([JobSpec(kind=kind, project=P1)])[0]

    def take(self, max_runtime_ms: int = 600_000) -> ActiveLease:
        """Claim and hold the next job."""
        job = self.queue.claim(self.owner.name, lease_ms=LEASE_MS)
        assert job is not None
        return self.heartbeat.hold(job, max_runtime_ms)

    def run(self, work: Callable[[ActiveLease], Done]) -> tuple[Outcome, JobView]:
        """Run the next job."""
        lease = self.take()
        outcome = self.runner.run(lease, work)
        view = self.queue.job(lease.job.job_id)
        assert view is not None
        return outcome, view


@pytest.fixture
def bench(home: Path) -> Iterator[Bench]:
    """Everything a run needs."""
    made = Bench(home)
    yield made
    made.close()


def raising(cause: BaseException) -> Callable[[ActiveLease], Done]:
    """Work that fails."""

    def work(_: ActiveLease) -> Done:
        raise cause

    return work


@pytest.mark.parametrize(
    ("cause", "outcome", "state", "waiting_for"),
    [
        (Stale(), Outcome.RETRIED, JobState.AVAILABLE, "retry"),
        (SourceUnavailable(), Outcome.RETRIED, JobState.AVAILABLE, "source"),
        (Unavailable("no disk"), Outcome.RETRIED, JobState.AVAILABLE, "retry"),
        (KeyError("text"), Outcome.RETRIED, JobState.AVAILABLE, "retry"),
        (MissingModel(), Outcome.SNOOZED, JobState.AVAILABLE, "model"),
        (BudgetExhausted(until_at=None), Outcome.SNOOZED, JobState.AVAILABLE, "budget"),
        (ConfigError("bad key"), Outcome.SNOOZED, JobState.AVAILABLE, "settings"),
        (Invalid("no"), Outcome.DISCARDED, JobState.DISCARDED, ""),
        (UnknownJob("newer"), Outcome.DIED, JobState.DEAD, ""),
        (Corrupt("broken"), Outcome.DIED, JobState.DEAD, ""),
        (AlreadyApplied(), Outcome.ALREADY_APPLIED, JobState.COMPLETED, ""),
    ],
)
def test_the_class_of_the_exception_decides(
    bench: Bench, cause: Exception, outcome: Outcome, state: JobState, waiting_for: str
) -> None:
    """Retry, snooze, discard, dead, acknowledge: nobody but the lease maps them."""
    bench.add()

    found, view = bench.run(raising(cause))

    assert (found, view.state, view.waiting_for) == (outcome, state, waiting_for)
    used = 1 if outcome in (Outcome.RETRIED, Outcome.DIED, Outcome.DISCARDED) else 0
    if state is not JobState.COMPLETED:
        assert view.attempt == used
        assert type(cause).__name__ in view.error
    assert bench.heartbeat.held() == ()


def test_success_acknowledges_with_its_successors(bench: Bench) -> None:
    """And moves the sync watermark to what was seen at the start."""
    bench.add()
    with bench.queue.file.write("OFF") as db:
        db.execute("INSERT INTO activity VALUES ('p1', 5, 500, 2)")

    def work(_: ActiveLease) -> Done:
        with bench.queue.file.write("OFF") as db:
            db.execute("UPDATE activity SET turns = 9")
        return Done(successors=(JobSpec(kind=JobKind.EMBED, project=P1),))

    outcome, view = bench.run(work)

    marks = bench.queue.file.db.execute("SELECT DISTINCT turns, tokens FROM watermarks").fetchall()
    assert (outcome, view.state) == (Outcome.COMPLETED, JobState.COMPLETED)
    assert [job.kind for job in bench.queue.jobs(state=JobState.AVAILABLE)] == ["embed"]
    assert marks == [(5, 500)]
    assert bench.queue.activity("p1") == Activity(turns=9, tokens=500, inserts=2)


def test_failures_end_as_dead_with_the_last_reason(bench: Bench) -> None:
    """After the allowed attempts."""
    bench.add()
    outcomes = []
    for _ in range(2):
        outcome, view = bench.run(raising(Stale("moved")))
        outcomes.append(outcome)
        bench.clock.advance(900_000)

    assert outcomes == [Outcome.RETRIED, Outcome.DIED]
    assert view.error == "attempts exhausted; last: Stale: moved"


def test_a_spent_budget_waits_for_the_reset_with_jitter(bench: Bench) -> None:
    """All that waited must not start in one millisecond."""
    bench.add()
    reset = bench.clock.now_ms() + 3_600_000

    _, view = bench.run(raising(BudgetExhausted(until_at=reset)))

    assert reset <= view.run_at < reset + 60_000


def test_a_lost_lease_changes_nothing(bench: Bench) -> None:
    """A run that was overtaken is told at its check, and its ending is refused either way."""
    name = bench.add()

    def work(lease: ActiveLease) -> Done:
        lease.check()
        bench.clock.advance(LEASE_MS)
        with pytest.raises(LeaseLost):
            lease.check()
        bench.queue.reap()
        return Done()

    outcome, view = bench.run(work)

    assert (outcome, view.state) == (Outcome.LEASE_LOST, JobState.AVAILABLE)
    assert (view.job_id, view.attempt, view.crashes) == (name, 0, 1)


def test_a_cancelled_run_is_told_at_its_next_check(bench: Bench) -> None:
    """By the rows, at once: no heartbeat in between."""
    bench.add()

    def work(lease: ActiveLease) -> Done:
        bench.queue.cancel(lease.job.job_id)
        lease.check()
        return Done()

    outcome, view = bench.run(work)

    assert (outcome, view.state) == (Outcome.LEASE_LOST, JobState.CANCELLED)


def test_the_heartbeat_keeps_a_long_run_alive(bench: Bench) -> None:
    """Two hours under a lease of thirty seconds run once."""
    bench.add()

    def work(lease: ActiveLease) -> Done:
        for _ in range(720):
            bench.clock.advance(10_000)
            bench.heartbeat.beat()
            lease.check()
            assert bench.queue.reap().returned == 0
        return Done()

    lease = bench.take(max_runtime_ms=3 * 3_600_000)

    assert bench.runner.run(lease, work) is Outcome.COMPLETED


def test_a_hung_run_loses_its_job_after_its_longest_time(bench: Bench) -> None:
    """The heartbeat stops at max_runtime; the reaper gives the job to somebody else."""
    bench.add()
    lease = bench.take(max_runtime_ms=60_000)
    for _ in range(9):
        bench.clock.advance(10_000)
        bench.heartbeat.beat()
    found = bench.queue.reap()

    assert lease.overran
    assert lease.lost
    assert (found.returned, found.lapsed) == (1, 1)


def test_a_beat_without_the_lock_loses_nothing(bench: Bench, home: Path) -> None:
    """A foreign writer delays renewal; the lease stands until its time is over."""
    bench.add()
    impatient = open_queue(HomePaths(home), clock=bench.clock, busy_ms=20)
    job = bench.queue.claim(bench.owner.name, lease_ms=LEASE_MS)
    assert job is not None
    heartbeat = Heartbeat(impatient, bench.clock, lease_ms=LEASE_MS)
    lease = heartbeat.hold(job, 600_000)
    with bench.queue.file.write("OFF"), pytest.raises(Busy):
        heartbeat.beat()
    impatient_beat_later = heartbeat.beat

    impatient_beat_later()

    lease.check()
    impatient.close()


def test_an_ending_waits_for_a_busy_file(bench: Bench, home: Path) -> None:
    """A whole run must not be lost to a lock that is held for a moment."""
    bench.add()
    impatient = open_queue(HomePaths(home), clock=bench.clock, busy_ms=400)
    runner = Runner(impatient, bench.clock, bench.heartbeat)
    lease = bench.take()
    release = threading.Event()
    held = threading.Event()

    def hold() -> None:
        with bench.queue.file.write("OFF"):
            held.set()
            release.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    timer = threading.Timer(0.5, release.set)
    timer.start()
    outcome = runner.run(lease, lambda _: Done())

    holder.join()
    impatient.close()
    assert outcome is Outcome.COMPLETED


def test_a_successor_that_is_refused_discards_the_job(bench: Bench) -> None:
    """The job would produce it again and again."""
    bench.add()
    huge = JobSpec(kind=JobKind.EMBED, project=P1, args={"x": "x" * MAX_MESSAGE_BYTES})

    outcome, view = bench.run(lambda _: Done(successors=(huge,)))

    assert (outcome, view.state) == (Outcome.DISCARDED, JobState.DISCARDED)


def test_an_interpreter_that_leaves_gives_the_job_back(bench: Bench) -> None:
    """KeyboardInterrupt is not a failure of the job."""
    bench.add()
    lease = bench.take()

    with pytest.raises(KeyboardInterrupt):
        bench.runner.run(lease, raising(KeyboardInterrupt()))

    view = bench.queue.job(lease.job.job_id)
    assert view is not None
    assert (view.state, view.attempt, view.crashes) == (JobState.AVAILABLE, 0, 0)


def test_interrupting_gives_running_jobs_back_and_fences_their_runs(bench: Bench) -> None:
    """A stop that cannot wait refunds the attempt; the run can publish nothing more."""
    bench.add()

    def work(lease: ActiveLease) -> Done:
        bench.runner.interrupt(bench.heartbeat.held())
        with pytest.raises(LeaseLost):
            lease.check()
        return Done()

    outcome, view = bench.run(work)

    assert (outcome, view.state) == (Outcome.LEASE_LOST, JobState.AVAILABLE)
    assert (view.attempt, view.crashes) == (0, 0)


def test_the_beat_has_a_thread_of_its_own(home: Path) -> None:
    """It renews without anybody's help, and ends with close."""
    bench = Bench(home)
    bench.add()
    job = bench.queue.claim(bench.owner.name, lease_ms=60)
    assert job is not None
    heartbeat = Heartbeat(bench.queue, bench.clock, lease_ms=60)
    lease = heartbeat.hold(job, 600_000)
    bench.clock.advance(50)
    heartbeat.start()

    wait_until(lambda: lease.until == bench.clock.boot_ms() + 60, what="renewed")

    heartbeat.close()
    bench.close()


def test_only_our_own_errors_may_speak() -> None:
    """Others quote what they were fed."""
    try:
        raise ValueError("the user's secret")
    except ValueError as cause:
        text = describe(cause)

    assert text.startswith("ValueError at test_lease.py:")
    assert "secret" not in text
    assert describe(Invalid("no owner")) == "Invalid: no owner"
