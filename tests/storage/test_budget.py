"""The budget: never overspent, booked where it was reserved, charged when in doubt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from storage.budget import BudgetLedger, BudgetReader, Reservation, Usage
from storage.clock import SystemClock
from storage.config import BudgetSettings
from storage.errors import BudgetExhausted, Busy, ConfigError, Invalid
from storage.paths import HomePaths
from storage.queue_file import QueueFile, open_queue_file, open_queue_reader
from tests.conftest import ROOT
from tests.support import ManualClock, wait_until

DAY_MS = 86_400_000
SPENDER = """
import os, random, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.budget import BudgetLedger, Usage
from storage.clock import SystemClock
from storage.config import BudgetSettings
from storage.errors import BudgetExhausted
from storage.paths import HomePaths
from storage.queue_file import open_queue_file
clock = SystemClock()
limits = BudgetSettings(
    calls_per_day=int(sys.argv[4]), tokens_per_day=int(sys.argv[5]), shares={}
)
ledger = BudgetLedger(open_queue_file(HomePaths(Path(sys.argv[1])), clock), clock, limits)
provider = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
while True:
    try:
        held = ledger.reserve(tokens=100, kind="analyze", project="p", model="m", job_id="1-a")
    except BudgetExhausted:
        break
    used = random.randint(1, 100)
    os.write(provider, f"{used}\\n".encode())
    ledger.settle(held, Usage(input_tokens=used, output_tokens=0))
"""


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves by hand."""
    return ManualClock()


@pytest.fixture
def file(home: Path, clock: ManualClock) -> Iterator[QueueFile]:
    """An empty queue file."""
    made = open_queue_file(HomePaths(home), clock)
    yield made
    made.close()


@pytest.fixture
def ledger(file: QueueFile, clock: ManualClock) -> BudgetLedger:
    """Ten calls and a thousand tokens a day."""
    return BudgetLedger(
        file, clock, BudgetSettings(calls_per_day=10, tokens_per_day=1_000, shares={})
    )


def hold(ledger: BudgetLedger, tokens: int = 100, project: str = "p") -> Reservation:
    """A reservation of one call."""
    return ledger.reserve(tokens=tokens, kind="analyze", project=project, model="m", job_id="1-a")


def test_a_hold_is_the_upper_bound_until_it_is_settled(ledger: BudgetLedger) -> None:
    """The real usage replaces it; cached and reasoning tokens are parts, not extra."""
    held = hold(ledger, 400)
    before = ledger.today()
    ledger.settle(
        held, Usage(input_tokens=100, cached_tokens=60, output_tokens=50, reasoning_tokens=20)
    )

    after = ledger.today()

    assert (before.calls_held, before.tokens_held, before.tokens_left) == (1, 400, 600)
    assert (after.calls_used, after.calls_held) == (1, 0)
    assert (after.tokens_used, after.tokens_held, after.tokens_left) == (150, 0, 850)
    assert (after.cached_tokens, after.reasoning_tokens) == (60, 20)


def test_looking_needs_no_connection_that_could_write(
    ledger: BudgetLedger, file: QueueFile, clock: ManualClock
) -> None:
    """People see what the ledger sees, through a connection that refuses every write."""
    hold(ledger, 400)
    limits = BudgetSettings(calls_per_day=10, tokens_per_day=1_000, shares={})

    with closing(open_queue_reader(file.paths)) as db:
        seen = BudgetReader(lambda: db, clock, limits).today()

    assert seen == ledger.today()


def test_missing_usage_costs_the_whole_hold_and_zero_usage_costs_zero(
    ledger: BudgetLedger,
) -> None:
    """Absent is not zero."""
    ledger.settle(hold(ledger, 300), None)
    ledger.settle(hold(ledger, 300), Usage(input_tokens=0, output_tokens=0))

    view = ledger.today()

    assert (view.calls_used, view.tokens_used, view.tokens_held) == (2, 300, 0)


def test_a_second_settlement_changes_nothing(ledger: BudgetLedger) -> None:
    """Whatever it says, and in whatever order."""
    held = hold(ledger)
    ledger.settle(held, Usage(input_tokens=10, output_tokens=0))
    first = ledger.today()
    ledger.settle(held, None)
    ledger.settle(held, Usage(input_tokens=99, output_tokens=0))
    ledger.release(held)

    assert ledger.today() == first


def test_a_call_that_never_left_gives_its_hold_back(ledger: BudgetLedger) -> None:
    """Only certainty releases; a crash does not."""
    ledger.release(hold(ledger, 1_000))
    hold(ledger, 1_000)

    view = ledger.today()

    assert (view.calls_used, view.calls_held, view.tokens_held) == (0, 1, 1_000)


@pytest.mark.parametrize(("tokens", "fits"), [(900, True), (901, False)])
def test_what_does_not_fit_is_refused_whole(ledger: BudgetLedger, tokens: int, fits: bool) -> None:
    """A hold is never shrunk to what is left, and a refusal holds nothing."""
    hold(ledger, 100)

    if fits:
        hold(ledger, tokens)
    else:
        with pytest.raises(BudgetExhausted) as refusal:
            hold(ledger, tokens)
        assert refusal.value.until_at == ledger.today().reset_at

    assert ledger.today().calls_held == (2 if fits else 1)


def test_calls_run_out_as_tokens_do(ledger: BudgetLedger) -> None:
    """Two claimants never take the last call."""
    for _ in range(10):
        hold(ledger, 1)

    with pytest.raises(BudgetExhausted):
        hold(ledger, 1)


def test_a_scope_with_its_own_limit_binds_only_itself(file: QueueFile, clock: ManualClock) -> None:
    """A project's limit stops that project; the refusal leaves the global book alone."""
    ledger = BudgetLedger(
        file,
        clock,
        BudgetSettings(
            calls_per_day=10,
            tokens_per_day=1_000,
            shares={},
            limits={"project:small": {"calls": 1, "tokens": 1_000}},
        ),
    )
    hold(ledger, project="small")
    with pytest.raises(BudgetExhausted, match="project:small"):
        hold(ledger, project="small")
    hold(ledger, project="large")

    assert ledger.today().calls_held == 2
    assert ledger.today("project:small").calls_left == 0
    assert ledger.today("model:m").calls_held == 2


def test_a_guaranteed_share_is_kept_for_its_kind(file: QueueFile, clock: ManualClock) -> None:
    """Bulk analysis cannot starve translation, which may use more than its share while it lasts."""
    ledger = BudgetLedger(
        file,
        clock,
        BudgetSettings(calls_per_day=10, tokens_per_day=1_000, shares={"kind:translate": 0.2}),
    )

    def take(kind: str) -> Reservation:
        return ledger.reserve(tokens=100, kind=kind, project="p", model="m", job_id="1-a")

    for _ in range(8):
        take("analyze")
    with pytest.raises(BudgetExhausted):
        take("analyze")
    take("translate")
    with pytest.raises(BudgetExhausted):
        take("analyze")
    take("translate")
    with pytest.raises(BudgetExhausted):
        take("translate")

    assert ledger.today().calls_held == 10
    with pytest.raises(ConfigError):
        BudgetLedger(file, clock, BudgetSettings(shares={"kind:sync": 0.7, "kind:embed": 0.7}))


def test_bulk_work_cannot_spend_what_corrections_are_guaranteed(
    file: QueueFile, clock: ManualClock
) -> None:
    """By default a tenth of the day is for corrections and a twentieth for people."""
    ledger = BudgetLedger(file, clock, BudgetSettings(calls_per_day=20, tokens_per_day=2_000))

    def take(work_class: str) -> bool:
        try:
            ledger.reserve(
                tokens=100, kind="analyze", project="p", model="m", job_id="1-a",
                work_class=work_class,
            )  # fmt: skip
        except BudgetExhausted:
            return False
        return True

    order = ["bulk"] * 18 + ["interactive"] * 2 + ["correction"] * 3
    taken = [name for name in order if take(name)]

    assert taken == ["bulk"] * 17 + ["interactive"] + ["correction"] * 2


def test_a_new_day_is_a_new_window_and_late_usage_books_the_old_one(
    ledger: BudgetLedger, clock: ManualClock
) -> None:
    """No reset job: the window is found by the clock; a hold belongs to the day that made it."""
    late = hold(ledger, 1_000)
    reset = ledger.today().reset_at
    clock.advance(reset - clock.now_ms())
    fresh = ledger.today()
    ledger.settle(late, Usage(input_tokens=700, output_tokens=0))

    assert (fresh.calls_held, fresh.tokens_left) == (0, 1_000)
    assert ledger.today().tokens_used == 0
    clock.step_wall(-1)
    hold(ledger, 1)


def test_a_clock_set_back_buys_nothing(ledger: BudgetLedger, clock: ManualClock) -> None:
    """The newer window stays in force until its own reset."""
    clock.advance(ledger.today().reset_at - clock.now_ms())
    hold(ledger, 1_000)
    clock.step_wall(-3 * 3_600_000)

    with pytest.raises(BudgetExhausted):
        hold(ledger, 1)


def test_a_wild_clock_does_not_close_the_book_for_years(
    ledger: BudgetLedger, clock: ManualClock
) -> None:
    """A window far ahead of the clock is a fault that was put right."""
    clock.step_wall(5 * 365 * DAY_MS)
    hold(ledger, 1_000)
    clock.step_wall(-5 * 365 * DAY_MS)

    assert ledger.today().calls_held == 0
    hold(ledger, 1_000)


@pytest.mark.parametrize(
    ("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)]
)
def test_days_of_a_zone_have_the_length_that_they_have(
    file: QueueFile, clock: ManualClock, day: str, hours: int
) -> None:
    """Both clock changes: one window a day, from midnight to midnight of the zone."""
    zone = ZoneInfo("Europe/Berlin")
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=zone)
    clock.step_wall(int(noon.timestamp() * 1000) - clock.now_ms())
    ledger = BudgetLedger(file, clock, BudgetSettings(zone="Europe/Berlin"))

    view = ledger.today()

    assert view.reset_at - view.started_at == hours * 3_600_000
    assert datetime.fromtimestamp(view.started_at / 1000, zone).strftime("%H:%M") == "00:00"


def test_the_default_day_is_utc(ledger: BudgetLedger) -> None:
    """Whatever the zone of the process."""
    started = datetime.fromtimestamp(ledger.today().started_at / 1000, UTC)

    assert started.strftime("%H:%M:%S") == "00:00:00"


def test_a_zone_that_does_not_exist_is_refused(file: QueueFile, clock: ManualClock) -> None:
    """At the start, not at midnight."""
    with pytest.raises(ConfigError, match="Mars"):
        BudgetLedger(file, clock, BudgetSettings(zone="Mars/Olympus"))


def test_negative_amounts_are_refused(ledger: BudgetLedger) -> None:
    """They would mint budget."""
    with pytest.raises(Invalid):
        hold(ledger, -1)


def test_a_ledger_that_cannot_be_written_allows_nothing(home: Path, clock: ManualClock) -> None:
    """Fail closed."""
    paths = HomePaths(home)
    holder = open_queue_file(paths, clock)
    waiting = BudgetLedger(open_queue_file(paths, clock, busy_ms=20), clock, BudgetSettings())

    with holder.write("FULL"), pytest.raises(Busy):
        hold(waiting)
    holder.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, 600)),
        st.tuples(st.just("settle"), st.integers(-1, 600)),
        st.tuples(st.just("release"), st.just(0)),
        st.tuples(st.just("pass"), st.sampled_from([3_600_000, DAY_MS // 2, -7_200_000])),
    ),
    max_size=40,
)


@given(steps=STEPS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_holds_and_usage_never_pass_the_limit(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Against a reference of one addition: admitted holds of a window never exceed its limits."""
    clock = ManualClock()
    file = open_queue_file(HomePaths(tmp_path_factory.mktemp("b") / "home"), clock)
    ledger = BudgetLedger(
        file, clock, BudgetSettings(calls_per_day=4, tokens_per_day=1_000, shares={})
    )
    open_holds: list[Reservation] = []
    used: dict[int, list[int]] = {}
    act: dict[str, Callable[[int], None]] = {}

    def take(tokens: int) -> None:
        with suppress(BudgetExhausted):
            held = hold(ledger, tokens)
            open_holds.append(held)
            book = used.setdefault(held.window, [0, 0])
            book[0] += 1
            book[1] += tokens
            assert book[0] <= 4
            assert book[1] <= 1_000

    def settle(tokens: int) -> None:
        if open_holds:
            held = open_holds.pop(0)
            spent = held.tokens if tokens < 0 else min(tokens, held.tokens)
            usage = None if tokens < 0 else Usage(input_tokens=spent, output_tokens=0)
            ledger.settle(held, usage)
            used[held.window][1] -= held.tokens - spent

    def release(_: int) -> None:
        if open_holds:
            held = open_holds.pop()
            ledger.release(held)
            used[held.window][0] -= 1
            used[held.window][1] -= held.tokens

    act.update(hold=take, settle=settle, release=release, **{"pass": clock.step_wall})
    for name, amount in steps:
        act[name](amount)
        view = ledger.today()
        calls, tokens = used.get(view.started_at, [0, 0])
        assert (view.calls_used + view.calls_held, view.tokens_used + view.tokens_held) == (
            calls,
            tokens,
        )
    file.close()


def _served_at_least(served: Path, least: int) -> bool:
    return served.exists() and served.read_bytes().count(b"\n") >= least


def test_killed_spenders_never_pass_what_the_provider_may_serve(home: Path, tmp_path: Path) -> None:
    """kill -9 anywhere between reserve, call and settle: the provider's own count stays below."""
    paths = HomePaths(home)
    served = tmp_path / "provider"
    calls, tokens = 150, 100_000

    def spender() -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", SPENDER, str(home), str(ROOT), str(served), str(calls)]
        return subprocess.Popen([*argv, str(tokens)])

    open_queue_file(paths, SystemClock()).close()
    crowd = [spender() for _ in range(4)]
    for least in (1, 40, 80):
        wait_until(partial(_served_at_least, served, least), what="the spenders spend")
        victim = crowd.pop(0)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(10)
        crowd.append(spender())
    for process in crowd:
        process.wait(30)

    counted = [int(line) for line in served.read_text().split()]
    clock = SystemClock()
    file = open_queue_file(paths, clock)
    ledger = BudgetLedger(
        file, clock, BudgetSettings(calls_per_day=calls, tokens_per_day=tokens, shares={})
    )
    view = ledger.today()
    file.close()
    assert len(counted) <= calls
    assert view.calls_used + view.calls_held == calls
    assert len(counted) >= calls - 3
    assert sum(counted) <= view.tokens_used + view.tokens_held
