"""What events do to documents and their chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.authority import ProjectAuthority, documents
from storage.authority import payloads as say
from storage.errors import Invalid
from storage.records import Document, JsonValue, RedactedText, Trust, fact_document_key
from tests.storage.memory_samples import COLLECTION, T0, a_document, a_fact, a_quote, opened


@pytest.fixture
def store(home: Path) -> Iterator[ProjectAuthority]:
    authority = opened(home)
    yield authority
    authority.close()


def chunk_rows(store: ProjectAuthority) -> dict[int, str]:
    with store.read() as reads:
        return {chunk.rowid: chunk.text for chunk in reads.chunks()}


def test_only_the_latest_revision_is_kept(store: ProjectAuthority) -> None:
    """A second upsert replaces every field."""
    second = replace(a_document("New text."), version="2", metadata={"a": [1, None]})

    store.append([say.document_upserted(a_document()), say.document_upserted(second)])

    with store.read() as reads:
        assert reads.document(second.key) == second
        assert list(reads.documents()) == [second]
    assert list(chunk_rows(store).values()) == ["New text."]


def test_an_unchanged_text_keeps_its_chunk_rows(store: ProjectAuthority) -> None:
    """A new revision with the same words leaves the index and the vectors alone."""
    store.append([say.document_upserted(a_document())])
    before = chunk_rows(store)

    store.append([say.document_upserted(replace(a_document(), revision="2", observed_at=T0 + 1))])

    assert chunk_rows(store) == before


def test_an_edit_changes_only_the_chunks_it_touched(store: ProjectAuthority) -> None:
    """Chunks before the edit keep their numbers."""
    head, tail = "h" * 1_000, "t" * 1_000
    store.append([say.document_upserted(a_document(f"{head}\n\n{tail}"))])
    before = chunk_rows(store)

    store.append([say.document_upserted(a_document(f"{head}\n\nnew {tail}"))])
    after = chunk_rows(store)

    assert before.items() & after.items() == {(1, head)}
    assert set(after.values()) == {head, f"new {tail}"}


def test_a_new_title_is_a_new_chunk(store: ProjectAuthority) -> None:
    """The title is part of what is indexed."""
    store.append([say.document_upserted(a_document(title="Old"))])

    store.append([say.document_upserted(a_document(title="New"))])

    with store.read() as reads:
        assert [chunk.title for chunk in reads.chunks()] == ["New"]


def test_a_deleted_document_leaves_a_tombstone_without_text(store: ProjectAuthority) -> None:
    """The row stays, its words go, and deleting again changes nothing."""
    store.append([say.document_upserted(a_document())])

    store.append([say.document_deleted(a_document().key, T0 + 5)])
    store.append([say.document_deleted(a_document().key, T0 + 9)])

    with store.read() as reads:
        assert reads.document(a_document().key) is None
        row = reads.db.execute("SELECT text, title, deleted_at FROM documents").fetchone()
        assert row == ("", "", T0 + 5)
    assert chunk_rows(store) == {}
    assert store.verify().sound


def test_a_tombstone_can_be_collected_and_a_document_can_come_back(
    store: ProjectAuthority,
) -> None:
    """Compaction removes tombstones only; a later upsert starts anew."""
    store.append([say.document_upserted(a_document())])
    store.append([say.gc_compacted(documents=[a_document().key])])
    assert len(chunk_rows(store)) == 1
    store.append([say.document_deleted(a_document().key, T0)])

    store.append([say.gc_compacted(documents=[a_document().key])])
    with store.read() as reads:
        assert reads.db.execute("SELECT count(*) FROM documents").fetchone() == (0,)
    store.append([say.document_upserted(a_document())])

    assert len(chunk_rows(store)) == 1
    assert store.verify().sound


def test_another_adapters_document_is_not_overwritten(store: ProjectAuthority) -> None:
    """Ownership is by adapter; after a deletion the place is free."""
    store.append([say.document_upserted(a_document(adapter="notes"))])

    with pytest.raises(Invalid, match="adapter notes"):
        store.append([say.document_upserted(a_document(adapter="other"))])
    store.append([say.document_deleted(a_document().key, T0)])
    store.append([say.document_upserted(a_document(adapter="other"))])

    with store.read() as reads:
        found = reads.document(a_document().key)
        assert found is not None
        assert found.adapter == "other"


def test_the_namespace_of_facts_is_closed(store: ProjectAuthority) -> None:
    """Nobody writes or deletes a fact's document directly."""
    store.append([say.fact_recorded(a_fact(), [a_quote()])])
    forged = replace(a_document(), namespace="memory", external_id=a_fact().fact_id)

    with pytest.raises(Invalid):
        store.append([say.document_upserted(forged)])
    with pytest.raises(Invalid):
        store.append([say.document_deleted(fact_document_key(a_fact().fact_id), T0)])


@pytest.mark.parametrize(
    "document",
    [
        replace(a_document(), text=RedactedText("  \n")),
        replace(a_document(), valid_from=T0, valid_to=T0 - 1),
        replace(a_document(), text=RedactedText("\ud800")),
    ],
)
def test_an_impossible_document_is_invalid(store: ProjectAuthority, document: object) -> None:
    """No text, inverted time or unstorable characters: refused, nothing written."""
    assert isinstance(document, type(a_document()))

    with pytest.raises(Invalid):
        store.append([say.document_upserted(document)])

    with store.read() as reads:
        assert reads.stats().events == 0


def test_collections_can_be_dropped(store: ProjectAuthority) -> None:
    """Compaction removes the vectors of a stale model."""

    store.append([say.document_upserted(a_document())])
    store.store_vectors(COLLECTION, [(1, bytes(8))])

    store.append([say.gc_compacted(collections=[COLLECTION.name])])

    with store.read() as reads:
        assert reads.collections() == []
        assert reads.stats().vectors == 0
    assert store.verify().sound


@given(
    texts=st.lists(st.text(max_size=12), min_size=10, max_size=10),
    times=st.tuples(*[st.one_of(st.none(), st.integers(0, 10**13))] * 2),
    trust=st.sampled_from(Trust),
    metadata=st.dictionaries(st.text(max_size=4), st.one_of(st.integers(), st.text(max_size=4))),
)
def test_a_payload_gives_the_row_that_its_document_gives(
    texts: list[str],
    times: tuple[int | None, int | None],
    trust: Trust,
    metadata: dict[str, JsonValue],
) -> None:
    """The short way from a payload to the table is the long one."""
    namespace, name, source, kind, text, title, uri, version, adapter, revision = texts
    document = Document(
        namespace=namespace,
        external_id=name,
        source=source,
        kind=kind,
        text=RedactedText(text),
        observed_at=T0,
        trust=trust,
        title=RedactedText(title),
        uri=RedactedText(uri),
        version=version,
        valid_from=times[0],
        valid_to=times[1],
        adapter=adapter,
        revision=revision,
        metadata=metadata,
    )
    payload = say.document_json(document)

    assert documents.row_from(payload, T0 + 1) == documents.row_of(document, T0 + 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("text", 1), ("text", None), ("observed_at", True), ("valid_from", "now"), ("metadata", [])],
)
def test_a_part_of_the_wrong_type_is_refused(name: str, value: JsonValue) -> None:
    """Whichever way a payload takes."""
    payload = {**say.document_json(a_document()), name: value}

    with pytest.raises(Invalid):
        documents.row_from(payload, T0)
    del payload[name]
    if name not in {"valid_from", "valid_to"}:
        with pytest.raises(Invalid):
            documents.row_from(payload, T0)


def test_a_trust_that_nobody_has_is_refused() -> None:
    """By the enum that knows them."""
    with pytest.raises(ValueError, match="nobody"):
        documents.row_from({**say.document_json(a_document()), "trust": "nobody"}, T0)
