"""The compact container: one checksummed row, judged before it changes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from storage.authority import ProjectAuthority, compact, marker, open_authority
from storage.authority import payloads as say
from storage.authority.image import Image
from storage.config import StorageSettings
from storage.connection import open_readonly
from storage.errors import Busy, Corrupt, NewerSchema, NotInitialized, Unavailable, WrongOwner
from storage.records import ProjectId
from tests.storage.memory_samples import (
    COLLECTION,
    PROJECT,
    StepClock,
    a_document,
    a_fact,
    a_quote,
    opened,
    paths_in,
)


def damaged(home: Path, sql: str) -> bytes:
    """A store with one fact, changed behind our back; returns the file's bytes after it."""
    store = opened(home)
    store.append([say.fact_recorded(a_fact(), [a_quote()])])
    store.append([say.document_upserted(a_document())])
    with store.read() as reads:
        rows = [(chunk.rowid, bytes(8)) for chunk in reads.chunks()]
    store.store_vectors(COLLECTION, rows)
    store.close()
    raw = apsw.Connection(str(paths_in(home).database))
    raw.execute(sql)
    raw.pragma("wal_checkpoint(TRUNCATE)")
    raw.close()
    return paths_in(home).database.read_bytes()


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("UPDATE compact_authority SET state = zeroblob(9)", Corrupt),
        ("UPDATE compact_authority SET vectors = zeroblob(length(vectors))", Corrupt),
        ("UPDATE compact_authority SET vectors = NULL", Corrupt),
        ("UPDATE compact_authority SET digest = 'x'", Corrupt),
        ("UPDATE compact_authority SET revision = revision + 1", Corrupt),
        ("UPDATE compact_authority SET format = 9", NewerSchema),
        ("UPDATE compact_authority SET owner = 'p_other'", WrongOwner),
        ("DELETE FROM compact_authority", NotInitialized),
    ],
)
def test_a_row_that_fails_its_checks_is_refused_and_left_alone(
    home: Path, sql: str, error: type[Exception]
) -> None:
    """Bytes, digest, revision, format and owner: any mismatch stops reads and writes."""
    before = damaged(home, sql)

    with pytest.raises(error):
        use(opened(home, create=False))

    assert paths_in(home).database.read_bytes() == before


def use(store: ProjectAuthority) -> None:
    try:
        with store.read() as reads:
            reads.stats()
    finally:
        store.close()


def test_a_flipped_byte_is_found_before_a_write_too(home: Path) -> None:
    """A handle with nothing cached refuses to write over a damaged row."""
    before = damaged(home, "UPDATE compact_authority SET state = zeroblob(length(state))")
    store = opened(home, create=False)

    with pytest.raises(Corrupt):
        store.append([say.document_upserted(a_document())])
    with pytest.raises(Corrupt):
        store.verify()

    store.close()
    assert paths_in(home).database.read_bytes() == before


def test_a_state_that_is_no_database_is_corrupt(home: Path) -> None:
    """A digest that matches does not make nonsense a store."""
    opened(home).close()
    raw = apsw.Connection(str(paths_in(home).database))
    stored = marker.Stored(b"nonsense", None)
    raw.execute("DELETE FROM compact_authority")
    marker.insert_compact(raw, PROJECT, stored)
    raw.close()

    with pytest.raises(Corrupt):
        use(opened(home, create=False))


def test_an_image_of_a_newer_schema_is_refused(home: Path) -> None:
    """The image's own schema version counts, not only the row's format."""
    image = Image.empty()
    image.db.pragma("query_only", False)
    image.db.pragma("user_version", 99)
    opened(home).close()
    raw = apsw.Connection(str(paths_in(home).database))
    raw.execute("DELETE FROM compact_authority")
    marker.insert_compact(raw, PROJECT, image.pack())
    raw.close()

    with pytest.raises(NewerSchema):
        use(opened(home, create=False))


@pytest.mark.parametrize(
    ("sql", "check"),
    [
        ("UPDATE events SET payload = CAST(replace(payload, 'pnpm', 'yarn') AS BLOB)", "history"),
        ("UPDATE events SET previous_hash = 'x' WHERE seq = 2", "history"),
        ("UPDATE heads SET hash = 'x'", "history"),
        ("DELETE FROM heads", "history"),
        ("UPDATE facts SET statement = 'Forged.'", "tables"),
        ("DELETE FROM fact_evidence", "tables"),
        ("UPDATE slices SET document_key = 'nowhere' WHERE rowid = 1", "references"),
    ],
)
def test_a_forged_row_with_a_right_digest_is_found_by_verify(
    home: Path, sql: str, check: str
) -> None:
    """The digest guards against damage, history against a change that recomputed it."""
    store = opened(home)
    store.append([say.fact_recorded(a_fact(), [a_quote()])])
    store.append([say.document_upserted(a_document())])
    raw = apsw.Connection(str(paths_in(home).database))
    header, stored = marker.load(raw, PROJECT)
    assert stored is not None
    image = Image.unpack(stored)
    image.db.pragma("foreign_keys", False)
    image.change(lambda db: db.execute(sql).fetchall())

    marker.swap(raw, PROJECT, header.revision, image.pack())

    raw.close()
    assert check in {problem.check for problem in store.verify().problems}
    store.close()


def test_a_foreign_file_is_not_an_authority(home: Path) -> None:
    """A SQLite file of somebody else has no marker; one that is no database is corrupt."""
    paths = paths_in(home)
    paths.memory.mkdir(parents=True, mode=0o700)
    raw = apsw.Connection(str(paths.database))
    raw.execute("CREATE TABLE notes (text)")
    raw.close()
    with pytest.raises(NotInitialized):
        opened(home, create=False)
    paths.database.write_bytes(b"not a database at all" * 60)

    with pytest.raises((Corrupt, Unavailable)):
        opened(home, create=False)


def test_there_is_one_table_and_no_side_file(home: Path) -> None:
    """Everything stands in one row; the journal folder does not exist."""
    store = opened(home)
    store.append([say.fact_recorded(a_fact(), [a_quote()])])
    store.close()

    raw = apsw.Connection(str(paths_in(home).database))
    tables = raw.execute("SELECT name FROM sqlite_master").fetchall()
    rows = raw.execute("SELECT id, mode, revision FROM compact_authority").fetchall()
    raw.close()

    assert tables == [("compact_authority",)]
    assert rows == [(1, 0, 2)]
    assert [path.name for path in paths_in(home).memory.iterdir()] == ["memory.sqlite"]


def test_reads_do_not_change_the_image(home: Path) -> None:
    """What a reader gets cannot be written through."""
    store = opened(home)

    with store.read() as reads, pytest.raises(apsw.ReadOnlyError):
        reads.db.execute("DELETE FROM facts")

    store.close()


def test_the_cache_is_keyed_on_the_revision(home: Path) -> None:
    """A handle sees the commits of another at its next read, and writes on top of them."""
    first, second = opened(home), opened(home)
    first.append([say.document_upserted(a_document("one", name="1"))])
    second.append([say.document_upserted(a_document("two", name="2"))])
    first.append([say.document_upserted(a_document("three", name="3"))])

    with second.read() as reads:
        assert {document.external_id for document in reads.documents()} == {"1", "2", "3"}
    assert second.verify().problems == ()
    assert second.verify().writers == 2
    first.close()
    second.close()


def test_an_oversize_batch_is_refused_before_the_row_changes(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When promotion is not possible either, the compact row is as it was."""
    store = opened(home, settings=StorageSettings(compact_max_chunks=1))
    store.append([say.document_upserted(a_document("one", name="1"))])
    before = store.generation()

    def cannot(self: ProjectAuthority) -> None:
        raise Unavailable("no room to promote")

    with monkeypatch.context() as patch:
        patch.setattr(ProjectAuthority, "promote", cannot)
        with pytest.raises(Unavailable):
            store.append([say.document_upserted(a_document("two", name="2"))])

    assert store.generation() == before
    with store.read() as reads:
        assert reads.stats().documents == 1
    store.close()


def test_an_authority_opens_for_its_own_project_only(home: Path) -> None:
    """The id that is asked for must be the one in the row."""
    opened(home).close()

    with pytest.raises(WrongOwner):
        open_authority(
            paths_in(home),
            ProjectId("p_other0000000"),
            clock=StepClock(),
            settings=StorageSettings(),
        )


def test_a_reader_that_pins_the_log_holds_writers_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing is refused as busy while the log cannot be folded back, and goes on afterwards."""
    monkeypatch.setattr(compact, "MAX_WAL_BYTES", 20_000)
    store = opened(home)
    store.append([say.document_upserted(a_document())])
    pin = apsw.Connection(str(paths_in(home).database))
    pin.execute("BEGIN; SELECT revision FROM compact_authority").fetchall()
    written: list[int] = []

    def write_on() -> None:
        for number in range(200):
            store.append([say.document_upserted(a_document(f"Text {number}."))])
            written.append(number)

    with pytest.raises(Busy, match="write-ahead log"):
        write_on()

    assert 0 < len(written) < 100
    pin.execute("ROLLBACK")
    pin.close()
    store.append([say.document_upserted(a_document("free again"))])
    assert store.verify().problems == ()
    store.close()


def test_the_size_that_is_judged_is_that_of_the_serialised_store(home: Path) -> None:
    """Capacity is admitted by counting pages; no copy of the store is made for that."""
    store = opened(home, "compact")
    store.append([say.document_upserted(a_document("Some text. " * 400))])
    for vectors in (False, True):
        if vectors:
            store.store_vectors(COLLECTION, [(1, bytes(8))])
        with closing(open_readonly(paths_in(home).database)) as db:
            stored = marker.load(db, PROJECT)[1]
        assert stored is not None
        image = Image.unpack(stored)
        main, vec = image.db.serialize("main"), image.db.serialize("vec")
        assert image.sizes()[0] == len(main) + (len(vec) if vectors else 0)
        image.close()
    store.close()
