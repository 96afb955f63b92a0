"""Time as a fault: long runs, reboots, sleeps, set clocks, midnights, both clock changes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from storage.budget import BudgetLedger, Reservation, Usage
from storage.clock import SystemClock
from storage.config import BudgetSettings
from storage.errors import LeaseLost
from storage.jobs import JobKind, JobSpec, JobState
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.queue_owner import Owner
from storage.records import ProjectId
from storage.schedules import views
from tasks.lease import BEATS_PER_LEASE, Heartbeat
from tasks.schedule import MissedRuns, Planner, ScheduleEntry
from tests.conftest import ROOT
from tests.faults.stub import stub_home
from tests.support import ManualClock, wait_until

P = ProjectId("p")
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
LEASE_MS = 30_000
BERLIN = ZoneInfo("Europe/Berlin")
SCHEDULER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.clock import SystemClock
from storage.jobs import JobKind
from storage.paths import HomePaths
from storage.queue import open_queue
from tasks.schedule import Planner, ScheduleEntry

class Clock(SystemClock):
    def now_ms(self):
        return int(sys.argv[3])

clock = Clock()
queue = open_queue(HomePaths(Path(sys.argv[1])), clock=clock)
entry = ScheduleEntry(
    name="checkpoint", kind=JobKind.CHECKPOINT, expression="* * * * *", per_project=False
)
planner = Planner(queue, clock, [entry], tuple)
planner.register()
print("ready", flush=True)
sys.stdin.readline()
print(planner.tick(), flush=True)
"""


LEASED_BY_NOBODY = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
INSERT INTO jobs (nonce, kind, project, subject, state, priority, run_at, enqueued_at, runs,
  attempt, owner, token, lease_until, boot, started_at, message)
SELECT i, 'embed', 'p', CAST(i AS TEXT), 'leased', 20, 1, 1, 1, 1, '1-gone', i, 1, 'another-boot',
  1, CAST('{"v":1,"args":{}}' AS BLOB) FROM n
"""


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves by hand; it starts at 08:00:00 UTC."""
    return ManualClock()


@pytest.fixture
def queue(home: Path, clock: ManualClock) -> Iterator[JobQueue]:
    """An empty queue."""
    made = open_queue(HomePaths(home), clock=clock)
    yield made
    made.close()


@pytest.fixture
def owner(home: Path) -> Iterator[Owner]:
    """A living consumer."""
    made = Owner(HomePaths(home))
    yield made
    made.close()


def at(text: str) -> int:
    """UTC ms of a wall time in Berlin."""
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000)


def planner(queue: JobQueue, clock: ManualClock, entry: ScheduleEntry) -> Planner:
    """A registered planner of one entry."""
    made = Planner(queue, clock, [entry], tuple)
    made.register()
    return made


def checkpoint(
    expression: str, missed_runs: MissedRuns = MissedRuns.LATEST, zone: str = "UTC"
) -> ScheduleEntry:
    """An entry that makes one job a slot."""
    return ScheduleEntry(
        name="checkpoint",
        kind=JobKind.CHECKPOINT,
        expression=expression,
        per_project=False,
        missed_runs=missed_runs,
        zone=zone,
    )


def test_i4_a_reboot_frees_every_lease_at_once_and_blames_no_job(
    queue: JobQueue, clock: ManualClock, owner: Owner
) -> None:
    """Boot time of another boot says nothing, so nobody waits for it to pass."""
    queue.enqueue([JobSpec(kind=JobKind.SYNC, project=P, subject=str(n)) for n in range(5)])
    jobs = [queue.claim(owner.name, lease_ms=HOUR_MS) for _ in range(5)]
    clock.reboot()

    found = queue.reap()

    assert (found.returned, found.lapsed) == (5, 0)
    assert {view.crashes for view in queue.jobs()} == {0}
    assert all(job is not None and not queue.holds(job) for job in jobs)


def test_i4_a_hundred_thousand_expired_leases_do_not_delay_the_start(home: Path) -> None:
    """Ready within two seconds; the rest comes back in bounded transactions, round by round."""
    with stub_home(home) as stub:
        _lease_out(stub.queue, 100_000)
        first = stub.queue.reap()
        started = time.monotonic()
        stub.start("--workers", "1")
        ready_s = time.monotonic() - started
        wait_until(lambda: len(stub.effects()) > 10, within_s=30, what="it works already")

    assert first.returned <= 20_000
    assert ready_s < 2


def _lease_out(queue: JobQueue, count: int) -> None:
    with queue.file.write("OFF") as db:
        db.execute(LEASED_BY_NOBODY, (count,))


def test_i5_a_two_hour_run_under_a_thirty_second_lease_runs_once(
    queue: JobQueue, clock: ManualClock, owner: Owner
) -> None:
    """The heartbeat renews it every third of the lease; no reaper between takes it."""
    heartbeat = Heartbeat(queue, clock, lease_ms=LEASE_MS)
    queue.enqueue([JobSpec(kind=JobKind.EMBED, project=P)])
    job = queue.claim(owner.name, lease_ms=LEASE_MS)
    assert job is not None
    lease = heartbeat.hold(job, 3 * HOUR_MS)
    freed = 0
    for _ in range(2 * HOUR_MS // (LEASE_MS // BEATS_PER_LEASE)):
        clock.advance(LEASE_MS // BEATS_PER_LEASE)
        heartbeat.beat()
        found = queue.reap()
        freed += found.returned + found.buried
        lease.check()

    queue.acknowledge(job)

    assert freed == 0
    assert queue.counts()[JobState.COMPLETED] == 1


@pytest.mark.parametrize("hours", [-26, -1, 1, 26])
def test_i5_a_wall_clock_that_is_set_neither_ends_nor_extends_a_lease(
    queue: JobQueue, clock: ManualClock, owner: Owner, hours: int
) -> None:
    """Leases live in boot time."""
    queue.enqueue([JobSpec(kind=JobKind.EMBED, project=P)])
    job = queue.claim(owner.name, lease_ms=LEASE_MS)
    assert job is not None
    clock.step_wall(hours * HOUR_MS)
    kept = queue.reap().returned
    clock.advance(LEASE_MS)

    lapsed = queue.reap().returned

    assert (kept, lapsed) == (0, 1)


def test_i10_eight_schedulers_fire_one_slot_once(home: Path) -> None:
    """Eight processes that look in the same moment: one row."""
    now = SystemClock().now_ms()
    queue = open_queue(HomePaths(home), clock=SystemClock())
    argv = [sys.executable, "-c", SCHEDULER, str(home), str(ROOT)]
    (first,) = _schedulers([*argv, str(now)], 1)
    first.communicate("go\n", timeout=30)
    crowd = _schedulers([*argv, str(now + 60_000)], 8)
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    fired = sorted(process.communicate(timeout=30)[0].strip() for process in crowd)

    assert fired == ["0"] * 7 + ["1"]
    assert len(queue.jobs(kind="checkpoint")) == 1
    queue.close()


def _schedulers(argv: list[str], count: int) -> list[subprocess.Popen[str]]:
    crowd = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    for process in crowd:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return crowd


def test_i10_restarts_around_a_slot_neither_double_nor_miss_it(
    queue: JobQueue, clock: ManualClock
) -> None:
    """A new planner every 100 ms across three minute edges: three slots."""
    clock.advance(58_500)
    for _ in range(1_300):
        planner(queue, clock, checkpoint("* * * * *", MissedRuns.ALL)).tick()
        clock.advance(100)

    fired = queue.file.db.execute("SELECT count(*) FROM fired").fetchall()

    assert fired == [(3,)]
    assert views(queue.file.db)[0].missed == 0


@pytest.mark.parametrize(
    ("policy", "jobs", "missed"),
    [(MissedRuns.SKIP, 1, 11), (MissedRuns.LATEST, 1, 11), (MissedRuns.ALL, 12, 0)],
)
def test_i10_a_sleep_of_three_hours_is_made_up_for_as_the_policy_says(
    queue: JobQueue, clock: ManualClock, policy: MissedRuns, jobs: int, missed: int
) -> None:
    """Boot time counts the suspend; the slots in it are skipped, joined or run each."""
    made = planner(queue, clock, checkpoint("*/15 * * * *", policy))
    clock.advance(3 * HOUR_MS)

    made.tick()

    assert len(queue.jobs(kind="checkpoint")) == jobs
    assert views(queue.file.db)[0].missed == missed


@pytest.mark.parametrize(
    ("expression", "day", "runs"),
    [
        ("30 2 * * *", "2026-03-29", 1),
        ("30 2 * * *", "2026-10-25", 1),
        ("0 * * * *", "2026-03-29", 23),
        ("0 * * * *", "2026-10-25", 25),
        ("0 9 * * *", "2026-10-25", 1),
    ],
)
def test_i10_both_clock_changes_run_each_slot_once(
    queue: JobQueue, clock: ManualClock, expression: str, day: str, runs: int
) -> None:
    """A fixed hour runs once on the day of 23 and of 25 hours; every hour runs 23 or 25 times."""
    start = at(f"{day}T00:00") - 1
    clock.step_wall(start - clock.now_ms())
    entry = checkpoint(expression, MissedRuns.ALL, zone="Europe/Berlin")
    made = planner(queue, clock, entry)
    end = at(f"{day}T23:59")
    while clock.now_ms() < end:
        clock.advance(600_000)
        made.tick()

    fired = queue.file.db.execute("SELECT count(*) FROM fired").fetchall()

    assert fired == [(runs,)]


@pytest.mark.parametrize("days", [-1, 1])
def test_i10_a_clock_set_by_a_day_repeats_no_slot(
    queue: JobQueue, clock: ManualClock, days: int
) -> None:
    """And silences no entry: the next minute fires as always."""
    made = planner(queue, clock, checkpoint("* * * * *"))
    clock.advance(60_000)
    made.tick()
    clock.step_wall(days * DAY_MS)
    made.tick()
    before = len(queue.file.db.execute("SELECT slot FROM fired").fetchall())
    for _ in range(3):
        clock.advance(60_000)
        made.tick()

    slots = [row[0] for row in queue.file.db.execute("SELECT slot FROM fired").fetchall()]

    assert len(slots) == len(set(slots))
    assert len(slots) - before == 3


def test_i12_a_settlement_books_the_day_that_reserved_and_only_once(
    queue: JobQueue, clock: ManualClock
) -> None:
    """Midnight, a clock set back, a second settlement, usage of zero and usage that is missing."""
    ledger = BudgetLedger(
        queue.file, clock, BudgetSettings(calls_per_day=10, tokens_per_day=1_000, shares={})
    )
    clock.advance(ledger.today().reset_at - clock.now_ms() - 1)
    late = _hold(ledger, 400)
    clock.advance(1)
    early = _hold(ledger, 300)
    clock.step_wall(-HOUR_MS)
    for usage in (
        Usage(input_tokens=0, output_tokens=0),
        None,
        Usage(input_tokens=9, output_tokens=9),
    ):
        ledger.settle(late, usage)
    ledger.settle(early, None)
    ledger.settle(early, Usage(input_tokens=1, output_tokens=1))

    days = queue.file.db.execute(
        "SELECT calls_used, tokens_used, calls_held, tokens_held FROM budget_windows"
        " WHERE scope = 'all' ORDER BY window"
    ).fetchall()

    assert late.window != early.window
    assert days == [(1, 0, 0, 0), (1, 300, 0, 0)]


def _hold(ledger: BudgetLedger, tokens: int) -> Reservation:
    return ledger.reserve(tokens=tokens, kind="analyze", project="p", model="m", job_id="1-a")


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
def test_i12_a_day_of_another_length_is_one_budget(
    queue: JobQueue, clock: ManualClock, day: str, hours: int
) -> None:
    """Booked whole, and over at its own midnight."""
    clock.step_wall(at(f"{day}T00:00") - clock.now_ms())
    settings = BudgetSettings(
        calls_per_day=hours, tokens_per_day=10**6, shares={}, zone="Europe/Berlin"
    )
    ledger = BudgetLedger(queue.file, clock, settings)
    windows = set()
    for _ in range(hours):
        windows.add(_hold(ledger, 1).window)
        clock.advance(HOUR_MS)
    next_day = _hold(ledger, 1).window

    assert windows == {at(f"{day}T00:00")}
    assert next_day not in windows


def test_i3_of_two_that_hold_one_job_one_is_told(
    queue: JobQueue, clock: ManualClock, owner: Owner
) -> None:
    """At every ending: the lease lapsed, somebody else took it, the first one comes back."""
    accepted = 0
    queue.enqueue([JobSpec(kind=JobKind.EMBED, project=P)])
    first = queue.claim(owner.name, lease_ms=LEASE_MS)
    clock.advance(LEASE_MS)
    queue.reap()
    second = queue.claim(owner.name, lease_ms=LEASE_MS)
    for job in (first, second, first, second):
        assert job is not None
        with suppress(LeaseLost):
            queue.acknowledge(job)
            accepted += 1

    assert accepted == 1
