"""The rounds and the reconciler: what must happen although nobody asked for it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import spool
from storage.config import Settings
from storage.errors import Corrupt
from storage.jobs import JobKind, JobSpec, JobState
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import ProjectId
from storage.spool import Entry
from tasks.readiness import Readiness
from tasks.reconcile import Missing, Reconciler
from tasks.schedule import Planner
from tasks.tick import Ticker
from tests.support import ManualClock

P1, P2 = ProjectId("p1"), ProjectId("p2")
MODEL = {"PI_MEMORY_ANALYSIS_PROVIDER": "openai"}


class Bench:
    """A queue, two projects with stores, a reconciler that is told what it finds."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.clock = ManualClock()
        self.queue = open_queue(HomePaths(home), clock=self.clock)
        self.missing = {P1: Missing(vectors=False, translations=False)}
        self.looked: list[ProjectId] = []
        for project in (P1, P2):
            self.store(project).parent.mkdir(parents=True)
            self.store(project).write_bytes(b"1")
        self.reconciler = Reconciler(
            self.queue,
            self.queue.paths,
            environment,
            self.clock,
            lambda: (P1, P2),
            inspect=self.inspect,
        )
        self.ticker = Ticker(
            self.queue,
            self.clock,
            Planner(self.queue, self.clock, [], tuple),
            self.reconciler,
            max_crashes=3,
            retention_days=7,
        )

    def store(self, project: ProjectId) -> Path:
        """A project's store file."""
        return self.queue.paths.project(project).database

    def inspect(self, project: ProjectId, _: Settings) -> Missing:
        """What the test says; P2 is broken."""
        self.looked.append(project)
        if project == P2:
            raise Corrupt("broken")
        return self.missing[project]

    def kinds(self) -> list[str]:
        """Kinds that wait."""
        return sorted(view.kind for view in self.queue.jobs(state=JobState.AVAILABLE))


@pytest.fixture
def bench(home: Path) -> Iterator[Bench]:
    """Without a model."""
    made = Bench(home, {})
    yield made
    made.queue.close()


@pytest.fixture
def with_model(home: Path) -> Iterator[Bench]:
    """With a model."""
    made = Bench(home, MODEL)
    yield made
    made.queue.close()


def test_missing_vectors_and_translations_become_jobs(with_model: Bench) -> None:
    """One broken store does not stop the others, and what waits is not asked for twice."""
    with_model.missing[P1] = Missing(vectors=True, translations=True)

    asked = [with_model.reconciler.run() for _ in range(2)]

    assert asked == [2, 0]
    assert with_model.kinds() == ["embed", "translate"]


def test_translations_wait_for_a_model_to_be_configured(bench: Bench) -> None:
    """No model, no jobs that would only snooze."""
    bench.missing[P1] = Missing(vectors=True, translations=True)

    bench.reconciler.run()

    assert bench.kinds() == ["embed"]


def test_a_store_that_lacks_nothing_is_not_opened_again_until_it_changes(bench: Bench) -> None:
    """Level-triggered and cheap."""
    bench.reconciler.run()
    bench.reconciler.run()
    looked = bench.looked.count(P1)
    bench.store(P1).write_bytes(b"longer")
    bench.reconciler.run()

    assert looked == 1
    assert bench.looked.count(P1) == 2


def test_a_configured_model_lets_go_what_waited_for_one(with_model: Bench) -> None:
    """Without a restart and without a person."""
    with_model.queue.enqueue([JobSpec(kind=JobKind.ANALYZE, project=P1)])
    job = with_model.queue.claim("1-me")
    assert job is not None
    with_model.queue.snooze(job, with_model.clock.now_ms() + 10**9, "model")

    with_model.reconciler.run()

    assert with_model.queue.next_due() == with_model.clock.now_ms()


def test_a_round_reaps_drains_and_keeps_house(bench: Bench) -> None:
    """Dead owners' jobs return, spooled entries come in, the WAL is moved."""
    bench.queue.enqueue([JobSpec(kind=JobKind.GC, project=P1)])
    lost = bench.queue.claim("1-dead")
    assert lost is not None
    spool.append(
        bench.queue.paths, Entry(project=P1, specs=(JobSpec(kind=JobKind.SYNC, project=P1),)), 1
    )

    sound = bench.ticker.tick()

    assert sound
    assert bench.kinds() == ["gc", "sync"]
    assert bench.queue.file.checkpoint() == 0


def test_reconciling_happens_once_a_minute(bench: Bench) -> None:
    """Not in every round."""
    for _ in range(61):
        bench.ticker.tick()
        bench.store(P1).write_bytes(b"x" * (len(bench.looked) + 2))
        bench.clock.advance(1_000)

    assert bench.looked.count(P1) == 2


def test_a_clock_set_back_keeps_nothing_waiting_for_a_day(bench: Bench) -> None:
    """Jobs keep their distance to the time; a budget's reset is a time of day and stays."""
    for reason in ("retry", "budget"):
        bench.queue.enqueue([JobSpec(kind=JobKind.GC, project=P1, subject=reason)])
        job = bench.queue.claim("1-me")
        assert job is not None
        bench.queue.snooze(job, bench.clock.now_ms() + 4_000, reason)
    bench.ticker.tick()
    bench.clock.step_wall(-86_400_000)
    bench.ticker.tick()

    waits = {
        view.subject: view.run_at - bench.clock.now_ms()
        for view in bench.queue.jobs(kind="gc", state=JobState.AVAILABLE)
    }

    assert waits == {"retry": 4_000, "budget": 86_404_000}


@pytest.mark.parametrize("reboots", [False, True])
def test_a_clock_set_back_while_no_worker_ran_is_noticed(bench: Bench, reboots: bool) -> None:
    """A dead clock battery must not keep jobs waiting for the wrong year that it made up."""
    bench.clock.step_wall(30 * 86_400_000)
    bench.ticker.tick()
    bench.queue.enqueue([JobSpec(kind=JobKind.GC, project=P1)])
    if reboots:
        bench.clock.reboot()
    bench.clock.step_wall(-30 * 86_400_000)
    after = Ticker(
        bench.queue,
        bench.clock,
        Planner(bench.queue, bench.clock, [], tuple),
        bench.reconciler,
        max_crashes=3,
        retention_days=7,
    )
    hidden = bench.queue.claim("1-me")
    after.tick()

    found = bench.queue.claim("1-me")

    assert hidden is None
    assert found is not None


def test_systemd_hears_ready_alive_and_stopping(tmp_path: Path) -> None:
    """On its socket; the watchdog only if it asked, and only from this process."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(5)
        watched = Readiness({"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "60000000"})
        watched.ready()
        watched.alive()
        watched.stopping()
        Readiness({"NOTIFY_SOCKET": str(path)}).alive()
        Readiness(
            {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}
        ).alive()
        manager.setblocking(False)
        heard = [manager.recv(100) for _ in range(3)]
        with pytest.raises(BlockingIOError):
            manager.recv(100)

    assert watched.watchdog_ms == 60_000
    assert [line.split(b"\n")[0] for line in heard] == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]
    Readiness({}).ready()
    Readiness({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready()
