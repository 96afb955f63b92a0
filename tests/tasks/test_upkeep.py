"""Scheduled upkeep: backups that are proven and rotated, proofs, closed windows, a tidy home."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from storage import receipt_log
from storage.admission import admit_evidence, admit_fact
from storage.authority import payloads
from storage.backup import back_up, folder_of, prove
from storage.clock import DAY_MS
from storage.errors import Corrupt, Snooze
from storage.jobs import HOME_KINDS, JobKind
from storage.paths import ProjectPaths
from storage.queue import JobQueue, open_queue
from storage.queue_owner import Owner
from storage.records import FactId, FactKind, Origin, SourceRef, Standing
from tasks import backup, maintenance, rollup, verify
from tests.learning import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A project with one fact."""
    made = World(tmp_path)
    _remember(made, "use pnpm, never npm")
    return made


def _remember(world: World, statement: str) -> None:
    at = world.clock.now_ms()
    source = SourceRef(adapter="pi", locator="/s.jsonl", line=1)
    evidence = admit_evidence(
        statement, origin=Origin.IMPORTED_SOURCE, source=source, observed_at=at
    )
    fact = admit_fact(
        fact_id=FactId(f"mem_{len(world.facts()):04}"),
        kind=FactKind.CORRECTION,
        statement=statement,
        evidence=[evidence],
        valid_at=at,
        recorded_at=at,
        standing=Standing.SUPPORTED,
    )
    world.authority.append([payloads.fact_recorded(fact, [evidence])])


def _paths(world: World) -> ProjectPaths:
    return world.paths.project(world.project)


def _copies(world: World) -> list[str]:
    return sorted(path.name for path in folder_of(_paths(world)).glob("*.sqlite"))


def test_a_backup_is_proven_and_an_unchanged_memory_makes_none(world: World) -> None:
    """One file for one generation, however often the clock asks."""
    backup.run(world.context(), {})
    world.clock.advance(DAY_MS)
    again = backup.run(world.context(), {})

    (name,) = _copies(world)
    report = prove(
        folder_of(_paths(world)) / name,
        world.project,
        folder_of(_paths(world)),
        clock=world.clock,
        settings=world.settings.storage,
    )
    assert again.note == "unchanged since the last backup"
    assert report.sound


def test_only_the_newest_of_its_own_copies_stay(world: World) -> None:
    """A copy that a person made is never rotated away."""
    paths = _paths(world)
    back_up(
        paths,
        world.project,
        None,
        clock=world.clock,
        settings=world.settings.storage,
    )
    (theirs,) = _copies(world)
    seen = set()
    for day in range(backup.KEPT + 2):
        _remember(world, f"day {day} belongs to the release")
        world.clock.advance(DAY_MS)
        backup.run(world.context(), {})
        seen |= set(_copies(world))

    kept = set(_copies(world))
    assert theirs in kept
    assert kept - {theirs} == set(sorted(seen - {theirs})[-backup.KEPT :])


def test_a_damaged_copy_is_no_backup_and_stays_for_a_person(world: World) -> None:
    """Rotation counts what could be restored."""
    backup.run(world.context(), {})
    (damaged,) = _copies(world)
    (folder_of(_paths(world)) / damaged).write_bytes(b"not a database any more")
    for day in range(backup.KEPT + 1):
        _remember(world, f"day {day} belongs to the release")
        world.clock.advance(DAY_MS)
        backup.run(world.context(), {})

    assert damaged in _copies(world)
    assert len(_copies(world)) == backup.KEPT + 1


def test_a_backup_without_room_waits(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never fills the disk that the memory needs."""
    monkeypatch.setattr("tasks.backup.free_bytes", lambda _: 1_000)

    with pytest.raises(Snooze, match="room"):
        backup.run(world.context(), {})

    assert _copies(world) == []


def test_a_sound_store_is_proven(world: World) -> None:
    """The note says what was looked at."""
    assert verify.run(world.context(), {}).note.endswith("sound")


def test_an_unsound_store_is_named(world: World) -> None:
    """The job dies with the first problem as its reason."""
    world.authority.promote()
    with closing(apsw.Connection(str(_paths(world).database))) as db:
        db.execute("UPDATE facts SET statement = 'use npm, never pnpm'")

    with pytest.raises(Corrupt):
        verify.run(world.context(), {})


def test_closing_windows_reports_the_last_finished_one(world: World) -> None:
    """Yesterday's calls and tokens; an old hold becomes unknown and stays counted."""
    queue = open_queue(world.paths, clock=world.clock)
    _spend(queue, world, day=0, calls=3, tokens=30)
    _spend(queue, world, day=1, calls=1, tokens=5)

    done = rollup.run(world.context(), {})

    assert done.note.endswith("the last finished one: 3 calls, 30 tokens")
    queue.close()


def _spend(queue: JobQueue, world: World, *, day: int, calls: int, tokens: int) -> None:
    with queue.file.write("FULL") as db:
        db.execute(
            "INSERT INTO budget_windows (scope, window, calls_used, tokens_used)"
            " VALUES ('all', ?, ?, ?)",
            (world.clock.now_ms() + day * DAY_MS, calls, tokens),
        )


def test_maintenance_removes_what_the_dead_left_and_spares_the_living(world: World) -> None:
    """A lock file of a process that is gone goes; that of one that runs stays."""
    paths = world.paths
    owner = Owner(paths)
    left = paths.workers / "1-dead.lock"
    left.touch()

    done = maintenance.run(world.context(), {})

    assert done.note.startswith("0 bytes given back")
    assert [path.name for path in paths.workers.glob("*.lock")] == [f"{owner.name}.lock"]
    owner.close()


def test_maintenance_removes_old_receipts_of_a_silent_project(world: World) -> None:
    """The last receipt of a project that is asked nothing any more ages out, too."""
    receipt_log.append(_paths(world), {"at": 1}, now=world.clock.now_ms(), keep_days=14)
    world.clock.advance(13 * DAY_MS)
    early = maintenance.run(world.context(), {}).note
    world.clock.advance(3 * DAY_MS)
    late = maintenance.run(world.context(), {}).note

    assert early.endswith(" 0 receipt files removed")
    assert late.endswith(" 1 receipt files removed")
    assert list(_paths(world).receipts.iterdir()) == []


def test_maintenance_gives_back_a_queue_that_is_mostly_free(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storm of last week must not keep its space for ever."""
    monkeypatch.setattr("tasks.maintenance.WORTH_BYTES", 100_000)
    queue = open_queue(world.paths, clock=world.clock)
    with queue.file.write("FULL") as db:
        db.execute("CREATE TABLE room AS SELECT zeroblob(4000000) AS bytes")
    with queue.file.write("FULL") as db:
        db.execute("DROP TABLE room")
    queue.close()
    before = _free_pages(world)

    maintenance.run(world.context(), {})

    assert before > 1_000
    assert _free_pages(world) == 0


def _free_pages(world: World) -> int:
    queue = open_queue(world.paths, clock=world.clock)
    free = queue.file.db.pragma("freelist_count")
    queue.close()
    assert isinstance(free, int)
    return free


def test_upkeep_of_the_whole_home_belongs_to_no_project() -> None:
    """Once a home, not once a project."""
    assert {JobKind.CHECKPOINT, JobKind.ROLLUP, JobKind.MAINTENANCE} == HOME_KINDS
