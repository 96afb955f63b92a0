"""A damaged queue: named, set aside, begun again, and never a second budget."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from storage.budget import BudgetLedger, Usage
from storage.config import BudgetSettings
from storage.errors import BudgetExhausted, Busy, Invalid, NewerSchema, Unavailable
from storage.jobs import JobKind, JobSpec, JobState
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.queue_owner import Owner
from storage.queue_repair import damage_of, repair_queue
from storage.records import ProjectId
from tests.support import ManualClock

BUDGET = BudgetSettings(calls_per_day=10, tokens_per_day=1_000, shares={})
PROJECTS = (ProjectId("p1"), ProjectId("p2"))


def _used(home: Path, clock: ManualClock) -> HomePaths:
    """A queue with a job, a pause, and a tenth of the budget spent."""
    paths = HomePaths(home)
    queue = open_queue(paths, clock=clock)
    queue.enqueue(
        [JobSpec(kind=JobKind.EMBED, project=PROJECTS[0], subject=str(n)) for n in range(99)]
    )
    queue.pause(kind=JobKind.GC)
    ledger = BudgetLedger(queue.file, clock, BUDGET)
    held = ledger.reserve(tokens=200, kind="embed", project="p1", model="m", job_id="1-a")
    ledger.settle(held, Usage(input_tokens=100, output_tokens=0))
    queue.file.checkpoint("TRUNCATE")
    queue.close()
    return paths


def test_a_sound_queue_is_left_as_it_is(home: Path) -> None:
    """Asking for a repair is harmless, before there is a queue too."""
    clock = ManualClock()
    before_any = repair_queue(HomePaths(home), clock, BUDGET, PROJECTS)
    paths = _used(home, clock)
    content = paths.queue.read_bytes()

    done = repair_queue(paths, clock, BUDGET, PROJECTS)

    assert (before_any.damage, done.damage, done.kept_in) == ("", "", None)
    assert paths.queue.read_bytes() == content


def test_a_file_that_is_no_database_is_set_aside_and_the_day_is_closed(home: Path) -> None:
    """Every project is read again; what was spent is unknown, so nothing more is spent today."""
    clock = ManualClock()
    paths = _used(home, clock)
    paths.queue.write_bytes(b"garbage" * 900)

    done = repair_queue(paths, clock, BUDGET, PROJECTS)

    queue = open_queue(paths, clock=clock)
    waiting = queue.jobs(state=JobState.AVAILABLE)
    ledger = BudgetLedger(queue.file, clock, BUDGET)
    assert "not a sound SQLite database" in done.damage
    assert done.kept_in is not None
    assert (done.kept_in / paths.queue.name).read_bytes() == b"garbage" * 900
    assert {(view.kind, view.project) for view in waiting} == {("sync", "p1"), ("sync", "p2")}
    assert done.budget_closed
    with pytest.raises(BudgetExhausted):
        ledger.reserve(tokens=1, kind="embed", project="p1", model="m", job_id="1-a")
    queue.close()


def test_what_can_be_read_of_a_damaged_file_is_taken_over(home: Path) -> None:
    """A broken jobs table costs jobs; pauses and what was spent stay."""
    clock = ManualClock()
    paths = _used(home, clock)
    _break_table(paths.queue, "jobs")
    damage = damage_of(paths)

    done = repair_queue(paths, clock, BUDGET, PROJECTS)

    queue = open_queue(paths, clock=clock)
    today = BudgetLedger(queue.file, clock, BUDGET).today()
    assert damage
    assert not done.budget_closed
    assert done.tables_lost == ()
    assert (today.calls_used, today.tokens_used) == (1, 100)
    assert queue.file.db.execute("SELECT scope FROM pauses").fetchall() == [("kind:gc",)]
    assert damage_of(paths) == ""
    queue.close()


def _break_table(path: Path, table: str) -> None:
    db = apsw.Connection(str(path))
    (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchall()[
        0
    ]
    size = int(db.pragma("page_size"))
    db.close()
    with path.open("r+b") as file:
        file.seek((int(str(root)) - 1) * size)
        file.write(b"\xff" * size)


def test_a_queue_of_a_newer_memoryd_is_not_damaged(home: Path) -> None:
    """It is refused, and left alone."""
    paths = _used(home, ManualClock())
    db = apsw.Connection(str(paths.queue))
    db.pragma("user_version", 99)
    db.close()

    with pytest.raises(NewerSchema):
        repair_queue(paths, ManualClock(), BUDGET, PROJECTS)

    assert paths.queue.exists()


def test_nothing_is_moved_from_under_a_running_consumer(home: Path) -> None:
    """It would go on writing into the quarantine."""
    paths = _used(home, ManualClock())
    paths.queue.write_bytes(b"garbage" * 900)
    owner = Owner(paths)

    with pytest.raises(Busy, match="ops stop"):
        repair_queue(paths, ManualClock(), BUDGET, PROJECTS)
    owner.close()

    assert paths.queue.read_bytes() == b"garbage" * 900


def test_a_message_of_ten_megabytes_is_refused_at_the_door(home: Path) -> None:
    """With its size and the limit; nothing of it is stored."""
    queue = open_queue(HomePaths(home), clock=ManualClock())
    spec = JobSpec(kind=JobKind.EMBED, project=PROJECTS[0], args={"text": "x" * 10_000_000})

    with pytest.raises(Invalid, match="at most 262144"):
        queue.enqueue([spec])

    assert queue.jobs() == []
    queue.close()


def test_a_home_that_moved_goes_on_where_it_is(home: Path, tmp_path: Path) -> None:
    """Nothing in the file names its place."""
    clock = ManualClock()
    _used(home, clock)
    moved = tmp_path / "elsewhere"
    home.rename(moved)

    queue = open_queue(HomePaths(moved), clock=clock)

    assert queue.counts()[JobState.AVAILABLE] == 99
    assert queue.claim("1-me") is not None
    queue.close()


@pytest.mark.parametrize("harm", ["folder is a file", "file is a folder"])
def test_a_home_that_cannot_be_used_is_named(home: Path, harm: str) -> None:
    """One sentence with the path, never an error of the library."""
    paths = HomePaths(home)
    if harm == "folder is a file":
        paths.shared.write_bytes(b"")
    else:
        paths.shared.mkdir(mode=0o700)
        paths.queue.mkdir()

    with pytest.raises(Unavailable, match=str(paths.shared)):
        open_queue(paths, clock=ManualClock())
