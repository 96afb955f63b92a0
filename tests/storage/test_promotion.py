"""Promotion: whole or not at all, at any step, for every open handle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from storage.authority import ProjectAuthority, journal, marker, promote
from storage.authority import payloads as say
from storage.authority.backlog import Backlog
from storage.errors import Corrupt, Unavailable
from tests.storage.memory_samples import (
    COLLECTION,
    ROOMY,
    StepClock,
    a_document,
    a_fact,
    a_quote,
    dump,
    opened,
    paths_in,
)

STEPS = [
    (promote, "write_journal"),
    (promote, "make_tables"),
    (promote, "copy_rows"),
    (promote, "prove_copy"),
    (marker, "mark_indexed"),
    (journal, "append_bytes"),
    (Backlog, "anchor"),
]


def filled(home: Path) -> ProjectAuthority:
    store = opened(home, "compact")
    old = a_fact("Use npm.")
    store.append([say.fact_recorded(old, [a_quote()]), say.document_upserted(a_document())])
    store.append([say.fact_recorded(a_fact(supersedes=[old.fact_id]), [a_quote("b", line=2)])])
    store.append([say.document_upserted(a_document("x", name="gone"))])
    store.append([say.document_deleted(a_document(name="gone").key, 5)])
    store.store_vectors(COLLECTION, [(1, bytes(range(8))), (2, bytes(8))])
    return store


def container_of(store: ProjectAuthority) -> str:
    """As a plain text: it changes under the type checker's feet."""
    return store.container


def state(store: ProjectAuthority) -> object:
    with store.read() as reads:
        stats = reads.stats()
        return dump(reads), list(reads.vectors(COLLECTION)), stats, reads.collections()


def test_everything_is_there_afterwards(home: Path) -> None:
    """Rows, vectors, history and numbers are the same, and the journal holds the payloads."""
    store = filled(home)
    before = state(store)
    generation = store.generation()

    store.promote()
    store.promote()

    assert container_of(store) == "indexed"
    assert state(store) == before
    assert store.generation() > generation
    assert store.verify().problems == ()
    store.append([say.document_upserted(a_document("y", name="next"))])
    with store.read() as reads:
        assert max(chunk.rowid for chunk in reads.chunks()) == 5
    store.close()


@pytest.mark.parametrize(("owner", "name"), STEPS, ids=[name for _, name in STEPS])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_failure_at_any_step_leaves_compact_whole(
    home: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, moment: str
) -> None:
    """Nothing leaks into the file, a later event is kept, and the retry succeeds."""
    store = filled(home)
    before = state(store)
    real = getattr(owner, name)

    def failing(*args: object, **kwargs: object) -> object:
        if moment == "after":
            real(*args, **kwargs)
        raise Unavailable("injected")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        with pytest.raises(Unavailable):
            store.promote()

    assert container_of(store) == "compact"
    assert state(store) == before
    raw = apsw.Connection(str(paths_in(home).database))
    tables = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert tables == [("compact_authority",)]
    raw.close()
    store.append([say.document_upserted(a_document("late", name="late"))])
    store.promote()
    assert container_of(store) == "indexed"
    assert store.verify().problems == ()
    with store.read() as reads:
        assert reads.document(a_document(name="late").key) is not None
    store.close()


def test_a_journal_file_of_another_history_stops_it(home: Path) -> None:
    """An existing file must be a prefix of what is written."""
    store = filled(home)
    with store.read() as reads:
        row = reads.db.execute("SELECT writer FROM events LIMIT 1").fetchone()
        assert row is not None
    stream = journal.Stream("2023-11-14", str(row[0]))
    journal.append(paths_in(home).events, stream, [b"{}"])

    with pytest.raises(Corrupt, match="another history"):
        store.promote()

    assert container_of(store) == "compact"
    store.close()


@pytest.mark.parametrize(
    "limits",
    [
        replace(ROOMY, compact_max_chunks=3),
        replace(ROOMY, compact_max_raw_bytes=60_000),
        replace(ROOMY, compact_max_stored_bytes=6_000),
    ],
    ids=["chunks", "raw", "stored"],
)
def test_a_full_compact_store_promotes_by_itself(home: Path, limits: object) -> None:
    """The batch that does not fit is applied by the indexed container; none is lost."""
    assert isinstance(limits, type(ROOMY))
    store = opened(home, "compact", settings=limits)
    count = 0

    while store.container == "compact":
        drafts = [say.document_upserted(a_document(f"Text {count}.", name=str(count)))]
        assert store.append(drafts).applied
        count += 1
        assert count < 200

    assert count > 1
    with store.read() as reads:
        assert reads.stats().documents == count
    assert store.verify().problems == ()
    store.close()


def test_open_handles_follow_at_their_next_access(home: Path) -> None:
    """A reader keeps its snapshot; its next read, write and counter use the new container."""
    first, second, third = filled(home), opened(home), opened(home)
    with second.read() as reads:
        before = reads.stats()
        first.promote()
        assert reads.stats() == before

    with second.read() as reads:
        assert reads.stats() == before
    assert container_of(second) == "indexed"
    assert third.generation() == first.generation()
    third.append([say.document_upserted(a_document("z", name="z"))])

    assert first.verify().problems == ()
    for store in (first, second, third):
        store.close()


def test_vectors_can_fill_the_compact_store_too(home: Path) -> None:
    """Storing vectors beyond the bound promotes as well."""
    store = opened(home, "compact", clock=StepClock(), settings=ROOMY)
    store.append([say.document_upserted(a_document())])
    store.close()
    tight = opened(home, settings=replace(ROOMY, compact_max_stored_bytes=1_000))

    assert tight.store_vectors(COLLECTION, [(1, bytes(8))]) == 1

    assert container_of(tight) == "indexed"
    assert tight.verify().problems == ()
    tight.close()
