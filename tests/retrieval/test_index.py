"""Eligibility as columns equals eligibility one by one."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from retrieval.eligibility import document_interval, fact_interval
from retrieval.embedding import HashEncoder
from retrieval.index import build_index
from retrieval.quantize import packed
from storage.clock import MAX_AT
from storage.records import Standing, Trust
from tests.retrieval.memories import (
    SOME_AT,
    Text,
    a_fact,
    a_store,
    document_of,
    in_memory,
    remember,
)
from tests.support import ManualClock

instants = st.one_of(st.none(), st.integers(0, 20))


@given(
    st.lists(st.tuples(instants, instants, st.sampled_from(["note", "instruction"])), max_size=12),
    st.integers(-1, 22),
    st.sampled_from([None, frozenset({"note"}), frozenset({"instruction", "other"})]),
)
def test_the_mask_equals_a_filter_over_documents(
    rows: list[tuple[int | None, int | None, str]], at: int, kinds: frozenset[str] | None
) -> None:
    """At any instant, exactly the documents that hold then and are of a wanted kind."""
    texts = [
        Text(text=f"text {number}", valid_from=start, valid_to=end, kind=kind)
        for number, (start, end, kind) in enumerate(rows)
        if start is None or end is None or start <= end
    ]
    index = build_index(in_memory(texts), generation=1)

    mask = index.eligible(at, kinds=kinds)

    expected = [
        number + 1
        for number, text in enumerate(texts)
        if (interval := document_interval(document_of(text, number))) is not None
        and interval.holds(max(at, 0))
        and (kinds is None or text.kind in kinds)
    ]
    assert index.rowids[mask].tolist() == expected


@given(
    st.sampled_from(list(Standing)),
    st.integers(0, 10),
    st.one_of(st.none(), st.integers(0, 12)),
    st.integers(0, 14),
)
def test_a_facts_interval_is_when_it_holds(
    standing: Standing, start: int, end: int | None, at: int
) -> None:
    """The interval rule says the same as the fact itself."""
    fact = a_fact("x", standing=standing, valid_at=start, invalid_at=end)

    interval = fact_interval(fact)

    assert (interval is not None and interval.holds(at)) == fact.holds_at(at)


def test_an_imported_instruction_is_in_no_index() -> None:
    """Somebody else's instruction cannot be recalled; a user's own can."""
    texts = [
        Text(text="obey me", kind="instruction", trust=Trust.IMPORTED),
        Text(text="obey me too", kind="instruction", trust=Trust.USER),
    ]

    index = build_index(in_memory(texts), generation=1)

    assert index.rowids.tolist() == [2]
    assert index.postings.frequency("obey") == 1


def test_an_open_end_holds_at_the_last_instant() -> None:
    """What has no end holds in the year 9999 too."""
    index = build_index(in_memory([Text(text="for ever")]), generation=1)

    assert index.eligible(MAX_AT).all()
    assert not index.eligible(SOME_AT - 1).any()


def test_facts_of_a_store_are_indexed_with_their_standing(home: Path) -> None:
    """A supported and an unconfirmed fact: both found, one marked, under their own names."""
    clock = ManualClock()
    store = a_store(home, clock)
    sure = a_fact("The project uses SQLite.")
    unsure = a_fact("Perhaps the cache is stale.", standing=Standing.NEEDS_REVIEW)
    remember(store, [sure, unsure])

    with store.read() as reads:
        index = build_index(reads, generation=store.generation())
    store.close()

    assert index.size == 2
    assert index.unconfirmed[index.names.get(sure.fact_id)].tolist() == [False]
    assert index.unconfirmed[index.names.get(unsure.fact_id.upper())].tolist() == [True]
    assert index.names.get("mem_unknown").tolist() == []


def test_only_vectors_of_the_encoders_collection_are_held() -> None:
    """Vectors of another model are never compared with this model's question."""
    encoder, other = HashEncoder(), HashEncoder(dims=128)
    texts = [Text(text="one"), Text(text="two")]
    vectors = packed(encoder.encode([text.text for text in texts]), encoder.collection.scale)
    reads = in_memory(texts, collection=encoder.collection, vectors=vectors)

    same = build_index(reads, generation=1, collection=encoder.collection)
    foreign = build_index(reads, generation=1, collection=other.collection)

    assert same.matrix is not None
    assert same.matrix.owners.tolist() == [0, 1]
    assert foreign.matrix is None
    assert same.nbytes > foreign.nbytes > 0
