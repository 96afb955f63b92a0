"""An idle consumer does next to nothing, and misses nothing for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import schedules, spool
from storage.config import ScheduleSettings
from storage.jobs import JobKind, JobSpec, JobState
from storage.leases import Reaped
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.queue_owner import Owner
from storage.records import ProjectId
from storage.spool import Entry
from tasks.reconcile import Reconciler
from tasks.schedule import Planner, entries
from tasks.tick import QUIET_MS, Ticker
from tests.support import ManualClock

P1 = ProjectId("p1")
EVERY_MINUTE = ScheduleSettings(sync="* * * * *", consolidate="", gc="", checkpoint="")


class Rounds:
    """A ticker over an empty queue that counts its whole rounds."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.queue = open_queue(HomePaths(home), clock=self.clock)
        self.planner = Planner(self.queue, self.clock, entries(EVERY_MINUTE), lambda: (P1,))
        self.planner.register()
        self.whole = 0
        reap: Callable[..., Reaped] = JobQueue.reap

        def counted(queue: JobQueue, *, max_crashes: int) -> Reaped:
            self.whole += 1
            return reap(queue, max_crashes=max_crashes)

        monkeypatch.setattr(JobQueue, "reap", counted)
        reconciler = Reconciler(self.queue, self.queue.paths, {}, self.clock, tuple)
        self.ticker = Ticker(
            self.queue, self.clock, self.planner, reconciler, max_crashes=3, retention_days=7
        )

    def settle(self) -> None:
        """Tick until a round found nothing."""
        for _ in range(3):
            self.round()
        self.whole = 0

    def round(self, *, changed: bool = False) -> None:
        """One second later."""
        self.clock.advance(1_000)
        assert self.ticker.tick(changed=changed)

    def last_run_at(self) -> int | None:
        """Of the only schedule."""
        return schedules.views(self.queue.file.db)[0].last_run_at

    def kinds(self) -> list[str]:
        """Kinds that wait."""
        return sorted(view.kind for view in self.queue.jobs(state=JobState.AVAILABLE))


@pytest.fixture
def rounds(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rounds]:
    """A quarter past a minute, so that no schedule is due for a while."""
    made = Rounds(home, monkeypatch)
    made.clock.advance(60_000 - made.clock.now_ms() % 60_000 + 15_000)
    made.settle()
    yield made
    made.queue.close()


def test_a_quiet_queue_is_not_looked_through_every_second(rounds: Rounds) -> None:
    """One whole round in QUIET_MS, and the watchdog is fed all the same."""
    for _ in range(QUIET_MS // 1_000):
        rounds.round()

    assert rounds.whole == 1
    assert rounds.ticker.progressed_at == rounds.clock.boot_ms()


def test_a_commit_of_somebody_ends_the_quiet(rounds: Rounds) -> None:
    """What another process wrote is looked at in the next round."""
    rounds.round(changed=True)

    assert rounds.whole == 1


def test_a_spooled_entry_comes_in_at_once(rounds: Rounds) -> None:
    """A hook that met a locked file waits a second, not a quarter of a minute."""
    entry = Entry(project=P1, specs=(JobSpec(kind=JobKind.GC, project=P1),))
    spool.append(rounds.queue.paths, entry, 1)
    rounds.round()

    assert "gc" in rounds.kinds()


def test_a_schedule_fires_in_its_second(rounds: Rounds) -> None:
    """Quiet or not: the minute's slot is there within a second of the minute."""
    last = rounds.last_run_at()
    while rounds.last_run_at() == last:
        rounds.round()

    assert rounds.clock.now_ms() % 60_000 < 1_000


def test_a_clock_that_is_set_ends_the_quiet(rounds: Rounds) -> None:
    """A step back of an hour is followed in the next round."""
    rounds.clock.step_wall(-3_600_000)
    rounds.round()

    assert rounds.whole == 1


def test_while_a_lease_is_out_every_round_is_whole(rounds: Rounds) -> None:
    """A killed worker commits nothing: only looking finds it."""
    owner = Owner(rounds.queue.paths)
    rounds.queue.enqueue([JobSpec(kind=JobKind.GC, project=P1)])
    assert rounds.queue.claim(owner.name, floor=0) is not None
    rounds.round(changed=True)
    held = len(rounds.queue.jobs(state=JobState.LEASED))
    owner.close()
    rounds.round()

    assert rounds.whole == 2
    assert (held, len(rounds.queue.jobs(state=JobState.LEASED))) == (1, 0)
