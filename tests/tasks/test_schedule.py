"""Schedules: one run per slot, missed runs by policy, both clock changes, refused expressions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from storage import schedules
from storage.config import ScheduleSettings
from storage.errors import ConfigError
from storage.jobs import JobKind, JobState
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import ProjectId
from tasks.schedule import MissedRuns, Planner, ScheduleEntry, describe, entries, plan
from tests.support import ManualClock

HOUR_MS = 3_600_000
BERLIN = "Europe/Berlin"


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves by hand; it starts at 08:00:00 UTC."""
    return ManualClock()


@pytest.fixture
def queue(home: Path, clock: ManualClock) -> Iterator[JobQueue]:
    """An empty queue."""
    made = open_queue(HomePaths(home), clock=clock, durability="OFF")
    yield made
    made.close()


def entry(
    expression: str,
    *,
    zone: str = "UTC",
    missed_runs: MissedRuns = MissedRuns.LATEST,
    per_project: bool = False,
    catch_up_ms: int = 24 * HOUR_MS,
) -> ScheduleEntry:
    """A checkpoint entry."""
    return ScheduleEntry(
        name="checkpoint",
        kind=JobKind.CHECKPOINT,
        expression=expression,
        zone=zone,
        missed_runs=missed_runs,
        per_project=per_project,
        catch_up_ms=catch_up_ms,
    )


def planner(queue: JobQueue, clock: ManualClock, item: ScheduleEntry) -> Planner:
    """A registered planner of one entry and two projects."""
    made = Planner(queue, clock, [item], lambda: (ProjectId("p1"), ProjectId("p2")))
    made.register()
    return made


def at(text: str, zone: str = "UTC") -> int:
    """UTC ms of a wall time."""
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


def run_days(queue: JobQueue, clock: ManualClock, item: ScheduleEntry, until: int) -> list[str]:
    """Tick every ten minutes; the UTC minutes at which a slot fired."""
    made = planner(queue, clock, item)
    fired = []
    while clock.now_ms() < until:
        clock.advance(10 * 60_000)
        if made.tick():
            moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
            fired.append(moment.strftime("%m-%d %H:%M"))
    return fired


def test_a_slot_fires_once_however_many_planners_look(queue: JobQueue, clock: ManualClock) -> None:
    """Eight consumers and a restart inside the minute: one job."""
    item = entry("*/15 * * * *")
    planners = [planner(queue, clock, item) for _ in range(8)]
    clock.advance(15 * 60_000)

    fired = [made.tick() for made in planners]
    again = planner(queue, clock, item).tick()

    assert sum(fired) == 1
    assert again == 0
    assert queue.counts()[JobState.AVAILABLE] == 1


def test_nothing_fires_before_its_time_or_at_a_restart(queue: JobQueue, clock: ManualClock) -> None:
    """Starting is not a reason to run."""
    made = planner(queue, clock, entry("0 9 * * *"))
    clock.advance(HOUR_MS - 1)
    early = made.tick()
    clock.advance(1)

    assert early == 0
    assert made.tick() == 1


def test_a_project_entry_makes_a_job_in_every_project(queue: JobQueue, clock: ManualClock) -> None:
    """Projects are asked for when the slot comes."""
    made = planner(queue, clock, entry("0 9 * * *", per_project=True))
    clock.advance(HOUR_MS)

    made.tick()

    assert {view.project for view in queue.jobs()} == {"p1", "p2"}


@pytest.mark.parametrize(
    ("policy", "fired", "missed"),
    [(MissedRuns.SKIP, 0, 3), (MissedRuns.LATEST, 1, 2), (MissedRuns.ALL, 3, 0)],
)
def test_slots_missed_in_a_sleep_follow_the_policy(
    queue: JobQueue, clock: ManualClock, policy: MissedRuns, fired: int, missed: int
) -> None:
    """Three hourly slots passed and half an hour more."""
    made = planner(queue, clock, entry("0 * * * *", missed_runs=policy))
    clock.advance(3 * HOUR_MS + HOUR_MS // 2)

    count = made.tick()

    (view,) = schedules.views(queue.file.db)
    assert (count, view.missed) == (fired, missed)
    assert queue.counts()[JobState.AVAILABLE] == fired
    assert view.next_run_at == clock.now_ms() + HOUR_MS // 2
    assert made.tick() == 0


def test_slots_older_than_the_catch_up_window_stay_missed() -> None:
    """And waking after a year costs no more than after a day."""
    item = entry("* * * * *", missed_runs=MissedRuns.ALL, catch_up_ms=10 * 60_000)
    now = at("2027-01-01T00:00:30")

    due, missed, upcoming = plan(item, at("2026-01-01T00:00"), now)

    assert len(due) == 10
    assert due[-1] == at("2027-01-01T00:00")
    assert missed == 1
    assert upcoming == at("2027-01-01T00:01")


def test_a_clock_set_back_silences_no_entry_and_repeats_no_slot(
    queue: JobQueue, clock: ManualClock
) -> None:
    """The next run is pulled back; slots that ran stay run."""
    made = planner(queue, clock, entry("0 * * * *"))
    clock.advance(HOUR_MS)
    first = made.tick()
    clock.step_wall(-24 * HOUR_MS)
    made.tick()
    clock.advance(HOUR_MS)
    earlier_day = made.tick()
    clock.step_wall(24 * HOUR_MS - HOUR_MS)
    repeated = made.tick()

    assert (first, earlier_day) == (1, 1)
    assert repeated <= 1
    assert len(queue.file.db.execute("SELECT slot FROM fired").fetchall()) == 2 + repeated


@pytest.mark.parametrize(
    ("start", "expression", "expected"),
    [
        ("2026-10-24T12:00", "30 2 * * *", ["10-25 00:30", "10-26 01:30"]),
        ("2026-03-28T12:00", "30 2 * * *", ["03-29 01:00", "03-30 00:30"]),
        ("2026-10-24T12:00", "0 9 * * *", ["10-25 08:00", "10-26 08:00"]),
        ("2026-03-28T12:00", "0 9 * * *", ["03-29 07:00", "03-30 07:00"]),
    ],
    ids=["autumn night once", "spring night once", "autumn morning", "spring morning"],
)
def test_fixed_hours_run_once_on_both_clock_changes(
    queue: JobQueue, clock: ManualClock, start: str, expression: str, expected: list[str]
) -> None:
    """Berlin, both nights of the year: never twice, never not at all, mornings at nine."""
    clock.step_wall(at(start, BERLIN) - clock.now_ms())

    fired = run_days(queue, clock, entry(expression, zone=BERLIN), clock.now_ms() + 46 * HOUR_MS)

    assert fired == expected


def test_hourly_entries_run_in_both_hours_that_have_one_name(
    queue: JobQueue, clock: ManualClock
) -> None:
    """A day of 25 hours has 25 runs."""
    clock.step_wall(at("2026-10-25T00:00", BERLIN) - clock.now_ms() - 1_000)
    end = at("2026-10-26T00:00", BERLIN)

    fired = run_days(queue, clock, entry("0 * * * *", zone=BERLIN), end - 600_000)

    assert len(fired) == 25


def test_every_minute_of_a_day_fires_once_whatever_the_phase_of_the_ticks() -> None:
    """Ticks at minute edges, early or late by jitter: 1440 of 1440."""
    item = entry("* * * * *", missed_runs=MissedRuns.ALL)
    next_run_at = start = at("2026-06-01T00:00") + 60_000
    seen: list[int] = []
    now = start - 7
    while len(seen) < 1440:
        if now >= next_run_at:
            due, _, next_run_at = plan(item, next_run_at, now)
            seen += due
        now += 997 if len(seen) % 2 else 1003

    assert seen == [start + n * 60_000 for n in range(1440)]


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("0 0 30 2 *", "find next date"),
        ("61 * * * *", "61"),
        ("* * * *", "5 fields"),
        ("* * * * * *", "5 fields"),
        ("@daily", "5 fields"),
        ("*/90 * * * *", "step of 90"),
        ("0 */24 * * *", "step of 24"),
        ("R * * * *", "'R'"),
        ("hello * * * *", "hello"),
    ],
)
def test_an_expression_that_is_wrong_or_lies_is_refused_with_the_reason(
    expression: str, reason: str
) -> None:
    """At the start of the worker, not at the first slot."""
    with pytest.raises(ConfigError, match=reason):
        entries(ScheduleSettings(gc=expression))


def test_a_zone_that_does_not_exist_is_refused() -> None:
    """As a bad expression is."""
    with pytest.raises(ConfigError, match="Nowhere"):
        entry("0 0 * * *", zone="Nowhere/Land").check()


def test_the_defaults_are_sound_and_an_empty_expression_switches_off() -> None:
    """Names of days and months are fine."""
    names = [item.name for item in entries(ScheduleSettings(sync=""))]
    entry("0 3 * jan mon-fri").check()

    assert names == [
        "consolidate",
        "gc",
        "checkpoint",
        "backup",
        "verify",
        "rollup",
        "maintenance",
    ]


def test_a_changed_expression_gets_a_new_next_run_and_a_dropped_entry_goes(
    queue: JobQueue, clock: ManualClock
) -> None:
    """An unchanged one keeps its next run over a restart, even when it is overdue."""
    planner(queue, clock, entry("0 9 * * *"))
    clock.advance(2 * HOUR_MS)
    planner(queue, clock, entry("0 9 * * *"))
    (kept,) = schedules.views(queue.file.db)
    planner(queue, clock, entry("0 12 * * *"))
    (changed,) = schedules.views(queue.file.db)
    Planner(queue, clock, [], lambda: ()).register()

    assert kept.next_run_at < clock.now_ms()
    assert changed.next_run_at == clock.now_ms() + 2 * HOUR_MS
    assert "next 2027-01-15T12:00" in describe(changed)
    assert schedules.views(queue.file.db) == []


def test_occurrences_are_strictly_later_and_ascending() -> None:
    """Over both changes of a year."""
    slots = list(islice(entry("*/30 * * * *", zone=BERLIN).occurrences(at("2026-10-24T22:00")), 12))

    assert [later - earlier for earlier, later in pairwise(slots)] == [1_800_000] * 11
