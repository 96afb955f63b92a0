"""Files of every released schema open whole and migrate, and a copy of what they were is kept."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from storage import schema
from storage.authority import copies
from storage.authority import payloads as say
from storage.authority.port import Container
from storage.connection import open_database, open_memory, open_readonly
from storage.errors import Corrupt, NewerSchema
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.schema import Family, Migration, current_version, migrate, migrations
from tests.storage.fixtures.build import fill
from tests.storage.memory_samples import (
    PROJECT,
    a_document,
    dump,
    opened,
    paths_in,
)
from tests.support import ManualClock

FIXTURES = Path(__file__).parent / "fixtures"
MEMORIES = sorted(path.name for path in FIXTURES.glob("memory-*"))
QUEUES = sorted(path.name for path in FIXTURES.glob("queue-*"))


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


def placed(home: Path, name: str, container: Container) -> None:
    target = paths_in(home).memory
    target.parent.mkdir(mode=0o700)
    shutil.copytree(FIXTURES / name / container, target)
    for path in (target, *target.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)


def kept(home: Path) -> list[str]:
    return sorted(path.name for path in (paths_in(home).memory / "backups").glob("*"))


def shape(db: apsw.Connection) -> set[apsw.SQLiteValues]:
    return set(db.execute("SELECT type, name, sql FROM sqlite_master").fetchall())


def test_there_is_a_fixture_of_every_schema_before_this_one() -> None:
    """No schema is released without one."""
    assert {int(name.split("-")[1]) for name in MEMORIES} >= set(
        range(1, current_version("memory") + 1)
    )
    assert {int(name.split("-")[1]) for name in QUEUES} >= set(
        range(1, current_version("queue") + 1)
    )


@pytest.mark.parametrize("name", MEMORIES)
def test_an_older_memory_opens_whole(home: Path, name: str, container: Container) -> None:
    """What it held is there, verify passes, and the next write works."""
    placed(home, name, container)
    fresh = home / "fresh"
    fresh.mkdir(mode=0o700)
    fill(fresh, container)

    store = opened(home, create=False)

    other = opened(fresh, create=False)
    with store.read() as reads, other.read() as wanted:
        assert dump(reads) == dump(wanted)
        assert len(list(reads.vectors(reads.collections()[0]))) == reads.stats().vectors
    other.close()
    assert store.container == container
    assert store.verify().problems == ()
    store.append([say.document_upserted(a_document("New.", name="new"))])
    assert store.verify().problems == ()
    store.close()


@pytest.mark.parametrize("name", [name for name in MEMORIES if name != MEMORIES[-1]])
def test_the_file_as_it_was_is_kept_before_it_changes(
    home: Path, name: str, container: Container
) -> None:
    """One private, proven copy: at opening (indexed) or at the first write (compact)."""
    placed(home, name, container)
    version = int(name.split("-")[1])

    store = opened(home, create=False)
    assert len(kept(home)) == (1 if container == "indexed" else 0), "reading changes no row"
    store.append([say.document_upserted(a_document("New.", name="new"))])
    store.append([say.document_upserted(a_document("Newer.", name="new"))])
    store.close()

    (copy,) = kept(home)
    path = paths_in(home).memory / "backups" / copy
    assert copy.startswith(f"pre-{version + 1}-")
    assert path.stat().st_mode & 0o077 == 0
    assert copies.info(path).project == PROJECT
    with closing(open_readonly(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if container == "indexed":
            assert schema.schema_version(db) == version
    opened(home, create=False).close()
    assert kept(home) == [copy]


@pytest.mark.parametrize("name", [name for name in MEMORIES if name != MEMORIES[-1]])
def test_a_migrated_file_has_the_shape_of_a_fresh_one(home: Path, name: str) -> None:
    """Table by table, statement by statement."""
    placed(home, name, "indexed")
    opened(home, create=False).close()
    fresh = home / "fresh"
    fresh.mkdir(mode=0o700)
    opened(fresh, "indexed").close()

    with (
        closing(open_readonly(paths_in(home).database)) as migrated,
        closing(open_readonly(paths_in(fresh).database)) as made,
    ):
        assert shape(migrated) == shape(made)


def test_without_a_copy_nothing_is_migrated(
    home: Path, container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No room for the copy, or a copy that does not prove itself: the file stays as it is."""
    placed(home, MEMORIES[0], container)
    before = paths_in(home).database.read_bytes()

    def failing(*args: object, **kwargs: object) -> int:
        raise Corrupt("no copy")

    monkeypatch.setattr(copies, "write", failing)

    def change() -> None:
        with closing(opened(home, create=False)) as store:
            store.append([say.document_upserted(a_document("New.", name="new"))])

    with pytest.raises(Corrupt):
        change()

    assert paths_in(home).database.read_bytes() == before


@pytest.mark.parametrize("family", ["memory", "queue"])
def test_a_newer_file_is_refused(family: Family) -> None:
    """An older program does not touch what it cannot know."""
    with closing(open_memory()) as db:
        migrate(db, family)
        db.pragma("user_version", current_version(family) + 1)

        with pytest.raises(NewerSchema):
            migrate(db, family)


def test_a_newer_memory_is_refused_and_not_changed(home: Path, container: Container) -> None:
    """In both forms: the row's image has a version of its own."""
    opened(home, container).close()
    path = paths_in(home).database
    with pytest.MonkeyPatch.context() as patch:
        more = Migration(current_version("memory") + 1, "more", "CREATE TABLE more (x INTEGER)")
        steps = (*migrations("memory"), more)
        real = migrations

        def longer(family: Family) -> tuple[Migration, ...]:
            return steps if family == "memory" else real(family)

        patch.setattr(schema, "migrations", longer)
        with closing(opened(home, create=False)) as store:
            store.append([say.document_upserted(a_document())])
    with closing(open_database(path)) as db:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    before = path.read_bytes()

    def look() -> None:
        with closing(opened(home, create=False)) as store, store.read():
            pass

    with pytest.raises(NewerSchema):
        look()

    assert path.read_bytes() == before


def test_an_older_queue_is_kept_before_it_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private copy of the whole file lies beside it, under its old schema."""
    paths = HomePaths(home)
    queue = open_queue(paths, clock=ManualClock())
    queue.enqueue([JobSpec(kind=JobKind.SYNC, project=PROJECT)])
    queue.close()
    version = current_version("queue")
    more = Migration(version + 1, "more", "CREATE TABLE more (x INTEGER) STRICT")
    steps, real = (*migrations("queue"), more), migrations
    monkeypatch.setattr(
        schema, "migrations", lambda family: steps if family == "queue" else real(family)
    )

    open_queue(paths, clock=ManualClock()).close()

    copy = paths.shared / f"curation.pre-{version + 1}.sqlite"
    assert copy.stat().st_mode & 0o077 == 0
    with closing(open_readonly(copy)) as db:
        assert schema.schema_version(db) == version
        assert db.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    with closing(open_readonly(paths.queue)) as db:
        assert schema.schema_version(db) == version + 1


@pytest.mark.parametrize("name", QUEUES)
def test_an_older_queue_opens_whole(home: Path, name: str) -> None:
    """Its waiting jobs are still waiting."""
    paths = HomePaths(home)
    paths.shared.mkdir(mode=0o700)
    shutil.copy(FIXTURES / name / "curation.sqlite", paths.queue)
    paths.queue.chmod(0o600)

    queue = open_queue(paths, clock=ManualClock())
    queue.close()

    with closing(open_readonly(paths.queue)) as db:
        assert schema.schema_version(db) == current_version("queue")
        assert db.execute("SELECT state, project FROM jobs").fetchall() == [("available", PROJECT)]
