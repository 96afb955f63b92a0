"""Backup and restore: a memory leaves its home and comes back the same."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from storage import backup
from storage.authority import copies, marker
from storage.authority import payloads as say
from storage.authority.port import Container
from storage.connection import open_database, open_readonly, transaction
from storage.errors import Corrupt, Invalid, WrongOwner
from storage.records import (
    Standing,
)
from storage.usefulness import give_feedback
from tests.storage.carrying import OTHER, fill, state
from tests.storage.memory_samples import (
    PROJECT,
    ROOMY,
    T0,
    StepClock,
    a_document,
    a_fact,
    opened,
    paths_in,
)


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


def back_up(home: Path, target: Path | None = None, at: int = T0 + 9) -> backup.Backup:
    return backup.back_up(paths_in(home), PROJECT, target, clock=StepClock(at), settings=ROOMY)


def restore(home: Path, file: Path, *, force: bool = False) -> backup.Restored:
    return backup.restore(
        paths_in(home), PROJECT, file, clock=StepClock(T0 + 20), settings=ROOMY, force=force
    )


def test_a_backup_is_one_private_proven_file(
    home: Path, container: Container, tmp_path: Path
) -> None:
    """Integrity, owner and history proven; nothing but the one file; progress is told."""
    opened(home, container).close()
    with closing(opened(home, create=False)) as store:
        fill(store)
    steps: list[tuple[int, int]] = []
    target = tmp_path / "out" / "b.sqlite"
    target.parent.mkdir()

    made = backup.back_up(
        paths_in(home),
        PROJECT,
        target,
        clock=StepClock(T0 + 9),
        settings=ROOMY,
        progress=lambda done, total: steps.append((done, total)),
    )

    assert [item.name for item in target.parent.iterdir()] == ["b.sqlite"]
    assert target.stat().st_mode & 0o077 == 0
    assert made.report.sound
    assert made.report.events == 5
    assert steps[-1][0] == steps[-1][1] > 0
    with closing(open_readonly(target)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert copies.info(target).project == PROJECT


def test_a_backup_is_of_one_moment_while_others_write(home: Path) -> None:
    """A writer in between neither blocks it nor gets half into it."""
    store = opened(home, "indexed")
    fill(store)
    before = state(home)
    wrote: list[bool] = []

    def write_meanwhile(done: int, total: int) -> None:
        if not wrote:
            store.append([say.document_upserted(a_document("Meanwhile.", name="m"))])
            wrote.append(True)

    made = backup.back_up(
        paths_in(home),
        PROJECT,
        None,
        clock=StepClock(T0 + 9),
        settings=ROOMY,
        progress=write_meanwhile,
    )
    store.close()
    restore(home, made.file, force=True)

    assert wrote
    assert state(home) == before


def test_a_restored_memory_is_the_one_that_was_backed_up(home: Path, container: Container) -> None:
    """Over a living store only with force, and then what was there is kept."""
    with closing(opened(home, container)) as store:
        fill(store)
    before = state(home)
    file = back_up(home).file
    with closing(opened(home, create=False)) as store:
        store.append([say.document_upserted(a_document("Since then.", name="s"))])
        seen = store.generation()
    since = state(home)

    with pytest.raises(Invalid):
        restore(home, file)
    assert state(home) == since
    done = restore(home, file, force=True)

    assert state(home) == before
    with closing(opened(home, create=False)) as store:
        assert store.verify().problems == ()
        assert store.generation() > seen, "no cache may take it for what was there"
        store.append([say.document_upserted(a_document("And on.", name="o"))])
        assert store.verify().problems == ()
    assert done.kept is not None
    restore(home, done.kept, force=True)
    assert state(home) == since


def test_a_lost_memory_comes_back_without_force(home: Path, container: Container) -> None:
    """Nothing is there, so nothing is replaced."""
    with closing(opened(home, container)) as store:
        fill(store)
    before = state(home)
    file = back_up(home).file
    saved = home / "saved.sqlite"
    shutil.copy(file, saved)
    shutil.rmtree(paths_in(home).root)

    done = restore(home, saved)

    assert done.kept is None
    assert state(home) == before


def test_an_open_handle_follows_a_restore(home: Path) -> None:
    """A compact backup over a memory that grew since: handles stay usable, nothing goes back."""
    with closing(opened(home, "compact")) as store:
        fill(store)
    file = back_up(home).file
    handle = opened(home, create=False)
    handle.promote()
    handle.append([say.document_upserted(a_document("Since then.", name="s"))])

    restore(home, file, force=True)

    assert handle.container == "indexed"
    with handle.read() as reads:
        assert reads.document(a_document(name="s").key) is None
    handle.append([say.document_upserted(a_document("And on.", name="o"))])
    assert handle.verify().problems == ()
    handle.close()


def test_a_damaged_or_foreign_file_is_refused_and_nothing_changes(
    home: Path, container: Container, tmp_path: Path
) -> None:
    """Another project's backup, a damaged one, and no backup at all."""
    with closing(opened(home, container)) as store:
        fill(store)
    before = state(home)
    file = back_up(home).file
    with closing(opened(home, container, project=OTHER)) as other:
        fill(other)
    foreign = backup.back_up(
        paths_in(home, OTHER), OTHER, None, clock=StepClock(), settings=ROOMY
    ).file
    damaged = tmp_path / "damaged.sqlite"
    shutil.copy(file, damaged)
    with closing(open_database(damaged)) as db, transaction(db):
        if container == "compact":
            db.execute("UPDATE compact_authority SET state = randomblob(500)")
        else:
            db.execute("UPDATE backup_journal SET data = randomblob(length(data))")
    text = tmp_path / "text.sqlite"
    text.write_text("not a database at all, whatever its name says" * 40)

    for wrong, error in ((foreign, WrongOwner), (damaged, Corrupt), (text, Corrupt)):
        with pytest.raises(error):
            restore(home, wrong, force=True)

    assert state(home) == before


def test_a_damaged_store_is_not_backed_up(home: Path) -> None:
    """A backup that could not be restored is no backup."""
    with closing(opened(home, "indexed")) as store:
        fill(store)
    stream = next(paths_in(home).events.rglob("*.jsonl"))
    stream.write_bytes(stream.read_bytes()[:-30])

    with pytest.raises(Corrupt):
        back_up(home)

    assert list(backup.folder_of(paths_in(home)).glob("*")) == []


def test_a_damaged_store_that_is_replaced_is_kept_file_by_file(home: Path) -> None:
    """What cannot be copied as a backup lies in the quarantine."""
    with closing(opened(home, "indexed")) as store:
        fill(store)
    file = back_up(home).file
    before = state(home)
    stream = next(paths_in(home).events.rglob("*.jsonl"))
    stream.write_bytes(stream.read_bytes()[:-30])

    done = restore(home, file, force=True)

    assert state(home) == before
    assert done.kept is not None
    assert done.kept.parent.name == "quarantine"
    assert (done.kept / "memory.sqlite").is_file()


def test_feedback_counts_and_doubts_ask_for_a_review(home: Path, container: Container) -> None:
    """Wrong and stale make a fact that holds one to be reviewed; used and helpful do not."""
    with closing(opened(home, container)) as store:
        fill(store)
        fact_id = a_fact("Use pnpm.").fact_id

        assert give_feedback(store, fact_id, "used", T0).standing is Standing.SUPPORTED
        assert give_feedback(store, fact_id, "stale", T0).standing is Standing.NEEDS_REVIEW
        ended = give_feedback(store, a_fact("Use npm.").fact_id, "wrong", T0)
        assert ended.standing is Standing.SUPERSEDED
        with store.read() as reads:
            assert reads.counts(fact_id) == (1, 1, 0, 1)
        with pytest.raises(Invalid):
            give_feedback(store, a_fact("Nobody said this.").fact_id, "used", T0)
        assert store.verify().problems == ()


def test_the_owner_of_a_raised_revision_still_proves_itself(home: Path) -> None:
    """A restored row carries a digest over its new revision."""
    with closing(opened(home)) as store:
        fill(store)
    with closing(open_database(paths_in(home).database)) as db, transaction(db):
        marker.raise_revision(db, PROJECT, 900)

    with closing(opened(home, create=False)) as store:
        assert store.generation() == 900
        assert store.verify().problems == ()
