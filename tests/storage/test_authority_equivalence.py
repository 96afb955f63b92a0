"""Compact and indexed are each other's oracle: one trace of events, one set of rows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.authority import ProjectAuthority
from storage.authority import payloads as say
from storage.errors import Invalid
from storage.events import EventDraft
from storage.records import (
    Entity,
    Fact,
    FactId,
    FactKind,
    JobStamp,
    Provenance,
    RedactedText,
    SourceCursor,
    Standing,
    fact_id,
)
from tests.storage.memory_samples import (
    COLLECTION,
    PROJECT,
    T0,
    StepClock,
    a_document,
    a_quote,
    dump,
    opened,
)

WORDS = ("use pnpm", "use npm", "日本語で書く", "deploy on friday", "never force-push")
IDS = tuple(fact_id(PROJECT, FactKind.FACT, words) for words in WORDS)
TIMES = st.integers(T0 - 50, T0 + 50)

quotes = st.builds(
    lambda text, provenance, line: a_quote(text, provenance=provenance, line=line),
    st.sampled_from(WORDS),
    st.sampled_from(Provenance),
    st.integers(1, 4),
)


def make_fact(
    index: int, start: int, length: int | None, old: Sequence[FactId], standing: Standing
) -> Fact:
    return Fact(
        fact_id=IDS[index],
        kind=FactKind.FACT,
        statement=RedactedText(WORDS[index]),
        standing=standing,
        confidence=0.5,
        valid_at=start,
        invalid_at=None if length is None else start + length,
        recorded_at=0,
        entities=(Entity(name=WORDS[index].split()[0]),),
        supersedes=tuple(old),
    )


facts = st.builds(
    make_fact,
    st.integers(0, len(WORDS) - 1),
    TIMES,
    st.none() | st.integers(0, 40),
    st.lists(st.sampled_from(IDS), max_size=2),
    st.sampled_from([Standing.SUPPORTED, Standing.NEEDS_REVIEW, Standing.CANDIDATE]),
)
documents = st.builds(
    lambda text, name, adapter, title: a_document(text, name=name, adapter=adapter, title=title),
    st.text(alphabet="ab \n語", min_size=1, max_size=40).filter(lambda text: bool(text.strip())),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["x", "x", "y"]),
    st.sampled_from(["", "Title"]),
)
drafts: st.SearchStrategy[EventDraft] = st.one_of(
    st.builds(say.fact_recorded, facts, st.lists(quotes, max_size=2)),
    st.builds(say.fact_corroborated, st.sampled_from(IDS), quotes),
    st.builds(
        say.fact_resolved,
        st.sampled_from(IDS),
        st.sampled_from(Standing),
        TIMES,
        st.just(RedactedText("why")),
        st.none() | st.sampled_from(IDS),
    ),
    st.builds(say.document_upserted, documents),
    st.builds(say.document_deleted, st.sampled_from([a_document(name=n).key for n in "ab"]), TIMES),
    st.builds(say.retrieval_feedback, st.sampled_from(IDS), st.sampled_from(say.SIGNALS)),
    st.builds(
        say.source_advanced,
        st.builds(
            SourceCursor,
            adapter=st.just("pi"),
            locator=st.sampled_from(["/a", "/b"]),
            offset=st.integers(0, 99),
            line=st.integers(0, 9),
        ),
    ),
    st.builds(
        lambda chosen, keys: say.gc_compacted(facts=chosen, documents=keys),
        st.lists(st.sampled_from(IDS), max_size=2),
        st.lists(st.sampled_from([a_document(name=n).key for n in "ab"]), max_size=1),
    ),
)
batches = st.lists(st.lists(drafts, min_size=1, max_size=3), max_size=12)


def append(store: ProjectAuthority, batch: list[EventDraft], job: str) -> str:
    try:
        done = store.append(batch, stamp=JobStamp(job_id=job, token=1))
    except Invalid as refusal:
        return str(refusal)
    return f"{done.events} {done.applied}"


def state(store: ProjectAuthority) -> object:
    with store.read() as reads:
        return (
            dump(reads),
            reads.stats(),
            [[fact.fact_id for fact in reads.facts(as_of=T0 + at)] for at in (-60, -1, 0, 30)],
            list(reads.vectors(COLLECTION)),
        )


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batches, st.integers(0, 12))
def test_one_trace_gives_one_state_in_both_containers(
    trace: list[list[EventDraft]], promoted_after: int
) -> None:
    """Same answers, same refusals, same rows: compact, indexed, and promoted half-way."""
    with tempfile.TemporaryDirectory() as folder:
        clocks = [StepClock() for _ in range(3)]
        homes = [Path(folder) / name for name in ("compact", "indexed", "promoted")]
        for home in homes:
            home.mkdir(mode=0o700)
        stores = [
            opened(homes[0], "compact", clock=clocks[0]),
            opened(homes[1], "indexed", clock=clocks[1]),
            opened(homes[2], "compact", clock=clocks[2]),
        ]
        for number, batch in enumerate(trace):
            if number == promoted_after:
                stores[2].promote()
            for clock in clocks:
                clock.at += 7
            answers = {append(store, batch, f"job-{number // 2 * 2}") for store in stores}
            assert len(answers) == 1, answers
            if number == 2:
                for store in stores:
                    with store.read() as reads:
                        missing = reads.chunks_without_vector(COLLECTION, limit=3)
                    rows = [(chunk.rowid, bytes(8)) for chunk in missing]
                    store.store_vectors(COLLECTION, rows)

        expected = state(stores[0])
        for store in stores:
            assert state(store) == expected
            assert store.verify().problems == ()
            store.rebuild()
            assert state(store) == expected
            store.close()
        for home, container in zip(homes, ("compact", "indexed", "compact"), strict=True):
            again = opened(home, container, create=False)  # type: ignore[arg-type]
            assert state(again) == expected
            again.close()
