"""A snapshot with what was written since answers as one built anew."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval import refresh as module
from retrieval.index import IndexSnapshot, build_index
from retrieval.multilingual import COLLECTION as MULTILINGUAL
from retrieval.quantize import packed
from retrieval.refresh import refreshed
from storage.authority import open_authority, tombstones
from storage.authority import payloads as say
from storage.authority.port import Authority, Container
from storage.authority.reads import Reads
from storage.authority.tombstones import Forgetting
from storage.config import StorageSettings
from storage.events import EventType
from storage.paths import HomePaths
from storage.records import (
    TERMINAL_STANDINGS,
    Collection,
    Document,
    FactId,
    RedactedText,
    Standing,
    Trust,
    document_key,
    fact_id,
)
from storage.records import FactKind as Kind
from tests.retrieval.memories import PROJECT, SOME_AT, a_fact, quote
from tests.support import ManualClock

WORDS = ("cache", "deploy", "branch", "tests", "token", "socket", "queue", "Frühling", "数据库")
COLLECTION = Collection(model="test", dims=64, fingerprint="f", scale=400.0)
FACT_RECORDED = EventType.FACT_RECORDED
Op = tuple[str, int, int, int]
operations = st.lists(
    st.tuples(
        st.sampled_from(
            ("fact", "fact", "document", "document", "turn", "resolve", "replace", "withdraw",
             "forget", "compact", "embed", "embed", "translate")
        ),
        st.integers(0, 7), st.integers(0, 7), st.integers(0, 3),
    ),
    min_size=1, max_size=14,
)  # fmt: skip


@dataclass
class Writer:
    """A store, and the acts that change it."""

    store: Authority
    clock: ManualClock
    facts: list[FactId] = field(default_factory=list)

    def act(self, op: Op) -> None:
        """One change; what is not possible changes nothing."""
        self.clock.advance(60_000)
        name, one, two, three = op
        getattr(self, f"_{name}")(one, two, three)

    def _fact(self, one: int, two: int, three: int) -> None:
        standing = Standing.SUPPORTED if three else Standing.CANDIDATE
        self._record(f"{WORDS[one]} needs {WORDS[two]} {three}", standing, ())

    def _replace(self, one: int, two: int, three: int) -> None:
        old = self._open(one)
        if old is not None:
            self._record(f"now {WORDS[two]} {three} instead", Standing.SUPPORTED, (old,))

    def _record(self, said: str, standing: Standing, old: tuple[FactId, ...]) -> None:
        with self.store.read() as reads:
            known = reads.fact(fact_id(PROJECT, Kind.FACT, said))
        if known is not None and (known.standing in TERMINAL_STANDINGS or known.fact_id in old):
            return
        made = a_fact(said, standing=standing)
        evidence = [quote(said)] if standing is Standing.SUPPORTED else []
        drafts = [say.fact_recorded(made, evidence)]
        drafts += [
            say.fact_resolved(
                one, Standing.SUPERSEDED, SOME_AT + 5, RedactedText("x"), made.fact_id
            )
            for one in old
        ]
        self.store.append(drafts)
        self.facts.append(made.fact_id)

    def _resolve(self, one: int, two: int, three: int) -> None:
        found = self._open(one)
        standing = (Standing.CONTRADICTED, Standing.NEEDS_REVIEW)[two % 2]
        if found is not None:
            at = SOME_AT + three
            self.store.append([say.fact_resolved(found, standing, at, RedactedText("why"))])

    def _document(self, one: int, two: int, three: int) -> None:
        self._put(
            one, f"{WORDS[two]} and {WORDS[three % 2]}\n\n" * (1 + 20 * (two == 3)), {}, three
        )

    def _turn(self, one: int, two: int, three: int) -> None:
        asks = "?" if two % 2 else "."
        place = {"session": f"s{three % 2}", "order": one}
        self._put(10 + one, f"about {WORDS[two]} and {WORDS[one]}{asks}", place, 1)

    def _put(self, name: int, text: str, metadata: dict[str, object], sort: int) -> None:
        document = Document(
            namespace="docs" if name < 4 else "talk",
            external_id=f"d{name}",
            source="test",
            kind="instruction" if sort == 3 else "note",
            text=RedactedText(text),
            observed_at=SOME_AT,
            trust=Trust.IMPORTED if sort == 3 and name % 2 else Trust.USER,
            title=RedactedText(WORDS[sort % 2]),
            uri=RedactedText(f"file:{name}" if sort else ""),
            valid_to=SOME_AT + 50 if sort == 2 else None,
            adapter="test",
            metadata=metadata,  # type: ignore[arg-type]
        )
        self.store.append([say.document_upserted(document)])

    def _withdraw(self, one: int, two: int, _: int) -> None:
        name = one + 10 * (two % 2)
        key = document_key("docs" if name < 4 else "talk", f"d{name}")
        self.store.append([say.document_deleted(key, SOME_AT + 9)])

    def _forget(self, one: int, two: int, _: int) -> None:
        known = self.facts[one % len(self.facts) :][:1] if self.facts else []
        key = document_key("docs" if two < 4 else "talk", f"d{two}")
        self.store.append(tombstones.drafts(Forgetting(facts=tuple(known), documents=(key,))))
        self.facts = [fact for fact in self.facts if fact not in known]

    def _compact(self, *_: int) -> None:
        with self.store.read() as reads:
            ended = [fact.fact_id for fact in reads.facts() if fact.invalid_at is not None]
        self.store.append([say.gc_compacted(facts=ended[:1])])

    def _embed(self, one: int, *_: int) -> None:
        self._vectors(COLLECTION, 1 + one)

    def _translate(self, one: int, *_: int) -> None:
        self._vectors(MULTILINGUAL, 1 + one)

    def _vectors(self, collection: Collection, count: int) -> None:
        with self.store.read() as reads:
            missing = reads.chunks_without_vector(collection, limit=count)
        # Not always in order: what is skipped now comes later.
        rows = [(chunk.rowid, vector_of(chunk.rowid, collection)) for chunk in missing[::-2]]
        if rows:
            self.store.store_vectors(collection, rows)

    def _open(self, one: int) -> FactId | None:
        with self.store.read() as reads:
            facts = [reads.fact(name) for name in self.facts]
        still = [f.fact_id for f in facts if f is not None and f.standing not in TERMINAL_STANDINGS]
        return still[one % len(still)] if still else None


def vector_of(rowid: int, collection: Collection) -> bytes:
    """A chunk's vector, the same whenever it is asked for."""
    row = np.random.default_rng(rowid).normal(size=(1, collection.dims)).astype(np.float32) + 0.2
    return packed(row / np.linalg.norm(row), collection.scale)[0]


@contextmanager
def a_writer(container: Container) -> Iterator[tuple[Writer, Path]]:
    """A writer on a new store, and the folder of its journal."""
    home = Path(tempfile.mkdtemp(prefix="md"))
    clock = ManualClock()
    paths = HomePaths(home).project(PROJECT)
    store = open_authority(
        paths,
        PROJECT,
        clock=clock,
        settings=StorageSettings(),
        create=True,
        create_container=container,
    )
    try:
        yield Writer(store, clock), paths.events
    finally:
        store.close()
        shutil.rmtree(home)


def built(store: Authority) -> IndexSnapshot:
    """The index built anew."""
    with store.read() as reads:
        return build_index(reads, generation=store.generation(), collection=COLLECTION)


def followed(store: Authority, index: IndexSnapshot, events: Path) -> IndexSnapshot | None:
    """The index brought up to date."""
    with store.read() as reads:
        return refreshed(index, reads, events, generation=store.generation(), collection=COLLECTION)


def assert_alike(one: IndexSnapshot, other: IndexSnapshot, reads: Reads) -> None:
    """Both find the same texts by every way, with the same scores."""
    live, same = alive(one), alive(other)
    assert one.rowids[live].tolist() == other.rowids[same].tolist()
    assert (one.texts, one.generation) == (other.texts, other.generation)
    assert_same_columns(one, other, live, same)
    assert_same_words(one, other, live, same)
    for left, right in ((one.matrix, other.matrix), (one.foreign, other.foreign)):
        assert (left is None or not (left.row_of >= 0).any()) == (right is None)
        if left is None or right is None:
            continue
        question = np.frombuffer(vector_of(10_000, left.collection), np.int8).astype(np.float32)
        question /= np.linalg.norm(question)
        here = left.at(question, live.astype(np.int32))
        there = right.at(question, same.astype(np.int32))
        assert np.allclose(here, there, atol=1e-6)
        assert np.allclose(left.background.of(question), right.background.of(question), atol=1e-4)
    assert_same_sessions(one, other, live, same)
    for document in reads.documents():
        for name in (document.external_id, document.uri):
            found = one.rowids[[at for at in one.names.get(name) if at in set(live.tolist())]]
            assert found.tolist() == other.rowids[other.names.get(name)].tolist()


def alive(index: IndexSnapshot) -> np.ndarray:
    """Positions that are not gone."""
    return np.setdiff1d(np.arange(index.size), index.postings.gone)


def assert_same_columns(
    one: IndexSnapshot, other: IndexSnapshot, live: np.ndarray, same: np.ndarray
) -> None:
    """Eligibility at every instant that matters, standing, names of sorts."""
    for at in (0, SOME_AT - 1, SOME_AT, SOME_AT + 5, SOME_AT + 50, SOME_AT + 10**9):
        for kinds in (None, {"note"}, {"fact"}):
            mask = one.eligible(at, kinds=kinds)
            assert not mask[one.postings.gone].any()
            assert mask[live].tolist() == other.eligible(at, kinds=kinds)[same].tolist()
    assert one.unconfirmed[live].tolist() == other.unconfirmed[same].tolist()
    space = {"talk"}
    mask = one.eligible(SOME_AT, namespaces=space)[live]
    assert mask.tolist() == other.eligible(SOME_AT, namespaces=space)[same].tolist()


def assert_same_words(
    one: IndexSnapshot, other: IndexSnapshot, live: np.ndarray, same: np.ndarray
) -> None:
    """Frequencies, scores and intersections, to the last bit."""
    words = [word.casefold() for word in WORDS] + ["need", "instead", "数", "fruhling"]
    for word in words:
        assert one.postings.frequency(word) == other.postings.frequency(word)
    weighed = [(word, one.postings.idf(word)) for word in words]
    here, there = one.postings.scores(weighed), other.postings.scores(weighed)
    assert np.array_equal(here[live], there[same])
    pair = ("deploi", "deploy", "cache")
    for wanted in (pair[1:], pair[2:]):
        found = one.rowids[one.postings.having_all(wanted)].tolist()
        assert found == other.rowids[other.postings.having_all(wanted)].tolist()


def assert_same_sessions(
    one: IndexSnapshot, other: IndexSnapshot, live: np.ndarray, same: np.ndarray
) -> None:
    """What neighbours pass on, and who asked whom."""
    assert (one.structure is None) == (other.structure is None)
    if one.structure is None or other.structure is None:
        return
    scores = np.random.default_rng(1).random(len(live)).astype(np.float32)
    here, there = np.zeros(one.size, np.float32), np.zeros(other.size, np.float32)
    here[live], there[same] = scores, scores
    assert np.allclose(one.structure.spread(here)[live], other.structure.spread(there)[same])
    assert askers(one, live) == askers(other, same)


def askers(index: IndexSnapshot, live: np.ndarray) -> list[int]:
    """Rowid of the line that asks, before each text; 0 for none."""
    assert index.structure is not None
    before = index.structure.asked_by[live].tolist()
    return [0 if at < 0 else int(index.rowids[at]) for at in before]


@settings(max_examples=60, deadline=None)
@given(operations, st.sampled_from(("compact", "indexed")), st.integers(1, 4))
def test_snapshot_and_delta_equal_a_rebuild(
    acts: list[Op], container: Container, stride: int
) -> None:
    """Whatever was recorded, replaced, withdrawn, forgotten or embedded, in whatever order."""
    with a_writer(container) as (writer, events):
        index = built(writer.store)
        for number, act in enumerate(acts):
            writer.act(act)
            if number % stride and number < len(acts) - 1:
                continue
            anew = built(writer.store)
            found = followed(writer.store, index, events)
            if found is None:
                index = anew
                continue
            with writer.store.read() as reads:
                assert_alike(found, anew, reads)
            index = found


STEPS: list[Op] = [
    ("fact", 1, 2, 1), ("embed", 0, 0, 0), ("document", 2, 3, 1), ("document", 2, 4, 1),
    ("turn", 1, 1, 0), ("turn", 2, 0, 0), ("replace", 0, 5, 1), ("embed", 7, 0, 0),
    ("withdraw", 2, 0, 0), ("fact", 3, 3, 0), ("resolve", 1, 0, 2), ("translate", 5, 0, 0),
    ("forget", 0, 4, 0), ("turn", 3, 1, 0), ("compact", 0, 0, 0), ("embed", 7, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize("container", ["compact", "indexed"])
def test_every_usual_change_is_added_without_a_rebuild(container: Container) -> None:
    """None of these needs an index built anew, and the end is what a build gives."""
    with a_writer(container) as (writer, events):
        index = built(writer.store)
        for step in STEPS:
            writer.act(step)
            found = followed(writer.store, index, events)
            assert found is not None, step
            index = found

        with writer.store.read() as reads:
            assert_alike(index, built(writer.store), reads)
        assert len(index.postings.gone)
        assert index.foreign is not None


def test_a_promoted_store_goes_on(home: Path) -> None:
    """A store that became indexed in between is followed like any other."""
    with a_writer("compact") as (writer, events):
        writer.act(("fact", 1, 2, 1))
        index = built(writer.store)
        writer.store.promote()
        writer.act(("document", 1, 2, 1))

        found = followed(writer.store, index, events)

        assert found is not None
        with writer.store.read() as reads:
            assert_alike(found, built(writer.store), reads)


def _a_rebuild(writer: Writer) -> None:
    with writer.store.snapshot() as (_, history):
        erased = {event.event_id: None for event in history if event.type is FACT_RECORDED}
    writer.store.append(tombstones.drafts(Forgetting(facts=tuple(writer.facts), erased=erased)))
    writer.act(("fact", 5, 5, 1))
    writer.store.rebuild()


def _a_crowd(writer: Writer) -> None:
    for number in range(4):
        writer.act(("document", number, number, 1))


def _a_change_of_mind(writer: Writer) -> None:
    writer.act(("document", 1, 2, 1))


@pytest.mark.parametrize("happens", [_a_rebuild, _a_crowd, _a_change_of_mind])
def test_what_cannot_be_added_is_told(
    happens: Callable[[Writer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """New numbers for old texts, too much at once, a text that comes back between others."""
    monkeypatch.setattr(module, "MAX_CHUNKS", 3)
    with a_writer("indexed") as (writer, events):
        writer.act(("document", 1, 2, 3))
        writer.act(("fact", 1, 1, 1))
        writer.act(("fact", 2, 2, 1))
        index = built(writer.store)

        happens(writer)

        assert followed(writer.store, index, events) is None


def test_an_erased_payload_means_a_build(home: Path) -> None:
    """Where an event's text is gone, nothing is guessed about what it changed."""
    with a_writer("indexed") as (writer, events):
        index = built(writer.store)
        writer.act(("document", 1, 2, 1))
        key = document_key("docs", "d1")
        with writer.store.snapshot() as (_, history):
            ids = [event.event_id for event in history]
        drafts = tombstones.drafts(Forgetting(documents=(key,), erased=dict.fromkeys(ids)))
        writer.store.append(drafts)
        writer.store.erase(["deploy"])

        assert followed(writer.store, index, events) is None
