"""The temporal rules: what recording, superseding and resolving do to facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from storage.authority import ProjectAuthority
from storage.authority import payloads as say
from storage.errors import Invalid
from storage.events import EventDraft, EventType
from storage.records import (
    Entity,
    Evidence,
    Fact,
    FactId,
    Provenance,
    RedactedText,
    Standing,
    Trust,
    fact_document_key,
)
from tests.storage.memory_samples import PROJECT, T0, StepClock, a_fact, a_quote, opened

WHY = RedactedText("checked")


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def store(home: Path, clock: StepClock) -> Iterator[ProjectAuthority]:
    authority = opened(home, clock=clock)
    yield authority
    authority.close()


def recorded(
    store: ProjectAuthority, fact: Fact, evidence: Sequence[Evidence] | None = None
) -> Fact:
    store.append([say.fact_recorded(fact, [a_quote()] if evidence is None else evidence)])
    return now(store, fact.fact_id)


def now(store: ProjectAuthority, fact_id: FactId) -> Fact:
    with store.read() as reads:
        found = reads.fact(fact_id)
        assert found is not None
        return found


@pytest.mark.parametrize(
    ("provenance", "given", "expected"),
    [
        (Provenance.NATIVE_OBSERVATION, Standing.SUPPORTED, Standing.SUPPORTED),
        (Provenance.DECLARED, Standing.SUPPORTED, Standing.SUPPORTED),
        (Provenance.AGENT_REPORT, Standing.SUPPORTED, Standing.NEEDS_REVIEW),
        (Provenance.IMPORTED, Standing.SUPPORTED, Standing.NEEDS_REVIEW),
        (Provenance.DECLARED, Standing.CANDIDATE, Standing.CANDIDATE),
        (Provenance.DECLARED, Standing.NEEDS_REVIEW, Standing.NEEDS_REVIEW),
    ],
)
def test_standing_at_record_follows_the_evidence(
    store: ProjectAuthority, provenance: Provenance, given: Standing, expected: Standing
) -> None:
    """Only native or declared evidence supports; a lower standing that was given stays."""
    fact = recorded(store, a_fact(standing=given), [a_quote(provenance=provenance)])

    assert fact.standing is expected


def test_a_fact_without_evidence_needs_review(store: ProjectAuthority) -> None:
    """Nothing behind it, nothing to believe."""
    assert recorded(store, a_fact(), []).standing is Standing.NEEDS_REVIEW


def test_the_event_gives_the_transaction_time(store: ProjectAuthority, clock: StepClock) -> None:
    """`recorded_at` is the journal's time, not the caller's."""
    clock.at = T0 + 77

    assert recorded(store, a_fact(recorded_at=5)).recorded_at == T0 + 77


def test_recording_an_id_again_merges_evidence(store: ProjectAuthority) -> None:
    """The same statement once more corroborates: nothing of the fact is overwritten."""
    first = recorded(store, a_fact(), [a_quote(provenance=Provenance.IMPORTED)])
    again = replace(a_fact(valid_at=T0 + 9), confidence=0.1, tags={"a": "b"})

    merged = recorded(store, again, [a_quote("really pnpm", line=4)])

    assert first.standing is Standing.NEEDS_REVIEW
    assert merged == replace(first, standing=Standing.SUPPORTED)
    with store.read() as reads:
        assert len(reads.evidence(first.fact_id)) == 2
        assert reads.stats().facts == 1
        document = reads.document(fact_document_key(first.fact_id))
        assert document is not None
        assert document.trust is Trust.USER


def test_saying_a_known_thing_again_can_replace_another(store: ProjectAuthority) -> None:
    """The replaced fact ends when this was said, not when the wording was first heard."""
    known = recorded(store, a_fact("Use pnpm.", valid_at=T0), [])
    other = recorded(store, a_fact("Use npm.", valid_at=T0 + 10))

    recorded(store, a_fact("Use pnpm.", valid_at=T0 + 50, supersedes=[other.fact_id]))

    assert now(store, other.fact_id).invalid_at == T0 + 50
    assert now(store, known.fact_id).valid_at == T0


def test_an_id_cannot_take_another_statement(store: ProjectAuthority) -> None:
    """Ids are immutable."""
    recorded(store, a_fact())

    with pytest.raises(Invalid, match="immutable"):
        store.append(
            [say.fact_recorded(replace(a_fact(), statement=RedactedText("The project uses npm.")))]
        )


def test_corroborating_what_is_unknown_is_invalid(store: ProjectAuthority) -> None:
    """There must be a fact to corroborate."""
    with pytest.raises(Invalid, match="no fact"):
        store.append([say.fact_corroborated(a_fact().fact_id, a_quote())])


def test_superseding_closes_the_old_fact_when_the_new_one_starts(
    store: ProjectAuthority, clock: StepClock
) -> None:
    """The old interval ends where the new one begins; both are answered at their time."""
    old = recorded(store, a_fact("Use npm."))
    clock.at = T0 + 500

    recorded(store, a_fact("Use pnpm.", valid_at=T0 + 100, supersedes=[old.fact_id]))
    ended = now(store, old.fact_id)

    assert (ended.standing, ended.invalid_at) == (Standing.SUPERSEDED, T0 + 100)
    assert ended.expired_at == T0 + 500
    with store.read() as reads:
        assert [f.statement for f in reads.facts(as_of=T0 + 99)] == ["Use npm."]
        assert [f.statement for f in reads.facts(as_of=T0 + 100)] == ["Use pnpm."]
        document = reads.document(fact_document_key(old.fact_id))
        assert document is not None
        assert document.valid_to == T0 + 100
        assert document.metadata["standing"] == "superseded"


def test_a_future_replacement_retires_nothing_early(store: ProjectAuthority) -> None:
    """Until it starts, the old fact is the answer."""
    old = recorded(store, a_fact("Use npm."))

    recorded(store, a_fact("Use pnpm.", valid_at=T0 + 10_000, supersedes=[old.fact_id]))

    with store.read() as reads:
        assert [f.statement for f in reads.facts(as_of=T0 + 9_999)] == ["Use npm."]
        assert [f.statement for f in reads.facts(as_of=T0 + 10_000)] == ["Use pnpm."]


def test_a_cut_is_clamped_to_the_old_interval(store: ProjectAuthority) -> None:
    """Never before the start (an empty interval is a cancelled plan), never past the end."""
    plan = recorded(store, a_fact("Move to bun.", valid_at=T0 + 50))
    short = recorded(store, a_fact("Use yarn.", valid_at=T0, invalid_at=T0 + 20))

    recorded(store, a_fact("Stay.", valid_at=T0 + 30, supersedes=[plan.fact_id, short.fact_id]))

    assert now(store, plan.fact_id).invalid_at == T0 + 50
    assert now(store, short.fact_id).invalid_at == T0 + 20
    with store.read() as reads:
        assert plan.fact_id not in {f.fact_id for f in reads.facts(as_of=T0 + 50)}


def test_a_terminal_fact_is_never_reopened(store: ProjectAuthority) -> None:
    """Neither by a resolution nor by being recorded again."""
    fact = recorded(store, a_fact())
    store.append([say.fact_resolved(fact.fact_id, Standing.CONTRADICTED, T0 + 5, WHY)])

    with pytest.raises(Invalid, match="never reopened"):
        store.append([say.fact_resolved(fact.fact_id, Standing.SUPPORTED, T0 + 6, WHY)])
    recorded(store, a_fact(), [a_quote("again", line=9)])

    assert now(store, fact.fact_id).standing is Standing.CONTRADICTED


def test_a_wording_that_ended_gets_the_next_id(store: ProjectAuthority) -> None:
    """Saying an ended thing again is a new fact under a fixed next id, not a reopening."""
    fact = recorded(store, a_fact())
    words = (PROJECT, fact.kind, fact.statement)
    with store.read() as reads:
        assert reads.fact_id_for(*words) == fact.fact_id
    store.append([say.fact_resolved(fact.fact_id, Standing.SUPERSEDED, T0 + 5, WHY)])

    with store.read() as reads:
        fresh = reads.fact_id_for(*words)
    again = recorded(store, replace(a_fact(valid_at=T0 + 9), fact_id=fresh))

    assert fresh != fact.fact_id
    assert again.standing is Standing.SUPPORTED
    with store.read() as reads:
        assert reads.fact_id_for(*words) == fresh


def test_the_first_cut_off_stands(store: ProjectAuthority, clock: StepClock) -> None:
    """Resolving again cannot postpone the end, nor move the transaction time."""
    fact = recorded(store, a_fact())
    clock.at = T0 + 10
    store.append([say.fact_resolved(fact.fact_id, Standing.CONTRADICTED, T0 + 5, WHY)])
    first = now(store, fact.fact_id)
    clock.at = T0 + 90

    store.append([say.fact_resolved(fact.fact_id, Standing.SUPERSEDED, T0 + 80, WHY)])

    assert now(store, fact.fact_id) == first
    assert (first.invalid_at, first.expired_at) == (T0 + 5, T0 + 10)


def test_resolving_with_a_later_replacement_waits_for_it(store: ProjectAuthority) -> None:
    """The replacement's start wins over an earlier cut."""
    old = recorded(store, a_fact("Use npm."))
    new = recorded(store, a_fact("Use pnpm.", valid_at=T0 + 300))

    store.append([say.fact_resolved(old.fact_id, Standing.SUPERSEDED, T0 + 5, WHY, new.fact_id)])

    assert now(store, old.fact_id).invalid_at == T0 + 300
    assert now(store, new.fact_id).supersedes == (old.fact_id,)


def test_review_standings_come_and_go(store: ProjectAuthority) -> None:
    """Standings that are not terminal may change; the interval does not."""
    fact = recorded(store, a_fact())

    store.append([say.fact_resolved(fact.fact_id, Standing.NEEDS_REVIEW, T0, WHY)])
    review = now(store, fact.fact_id)
    store.append([say.fact_corroborated(fact.fact_id, a_quote("yes, pnpm", line=7))])

    assert (review.standing, review.invalid_at) == (Standing.NEEDS_REVIEW, None)
    assert now(store, fact.fact_id).standing is Standing.SUPPORTED


@pytest.mark.parametrize(
    "draft",
    [
        say.fact_recorded(a_fact(valid_at=T0, invalid_at=T0 - 1)),
        say.fact_recorded(a_fact(standing=Standing.SUPERSEDED)),
        say.fact_recorded(a_fact(supersedes=[a_fact().fact_id])),
        say.fact_resolved(FactId("mem_none"), Standing.SUPPORTED, T0, WHY),
        say.fact_recorded(replace(a_fact(), confidence=1.5)),
        EventDraft(EventType.FACT_RECORDED, {"fact": {"id": 3}, "evidence": []}),
        EventDraft(EventType.FACT_RECORDED, {"fact": None, "evidence": []}),
        EventDraft(EventType.RETRIEVAL_FEEDBACK, {"fact": "mem_x", "signal": "liked"}),
        EventDraft(EventType.JOB_APPLIED, {}),
    ],
)
def test_a_draft_that_breaks_a_rule_is_invalid(store: ProjectAuthority, draft: EventDraft) -> None:
    """Malformed or impossible events are refused by name, and nothing is written."""
    with pytest.raises(Invalid):
        store.append([draft])

    with store.read() as reads:
        assert reads.stats().events == 0


def test_native_evidence_comes_from_a_host_only(store: ProjectAuthority) -> None:
    """Native provenance with any other origin is refused."""
    quote = replace(a_quote(), provenance=Provenance.NATIVE_OBSERVATION)

    with pytest.raises(Invalid):
        store.append([say.fact_recorded(a_fact(), [quote])])


def test_entities_are_shared(store: ProjectAuthority) -> None:
    """Two facts that name one thing point at one entity."""
    recorded(store, replace(a_fact("A."), entities=(Entity(name="pnpm"), Entity(name="CI"))))
    fact = recorded(store, replace(a_fact("B."), entities=(Entity(name="PNPM"),)))

    assert fact.entities == (Entity(name="pnpm"),)


def test_feedback_is_counted(store: ProjectAuthority) -> None:
    """Every signal counts by itself."""
    fact = recorded(store, a_fact())

    store.append(
        [say.retrieval_feedback(fact.fact_id, signal) for signal in ("used", "used", "wrong")]
    )

    with store.read() as reads:
        row = reads.db.execute("SELECT used, helpful, wrong, stale FROM usefulness").fetchone()
        assert row == (2, 0, 1, 0)


def test_compaction_takes_the_search_document_and_leaves_the_fact(
    store: ProjectAuthority, clock: StepClock
) -> None:
    """An ended fact leaves the indexes; it and its quotes stay, and verify agrees."""
    fact = recorded(store, a_fact())
    with pytest.raises(Invalid, match="not compacted"):
        store.append([say.gc_compacted(facts=[fact.fact_id])])
    store.append([say.fact_resolved(fact.fact_id, Standing.CONTRADICTED, T0, WHY)])
    clock.at = T0 + 1

    store.append([say.gc_compacted(facts=[fact.fact_id, FactId("mem_gone")])])
    store.append([say.fact_corroborated(fact.fact_id, a_quote("late", line=3))])

    with store.read() as reads:
        assert reads.stats().chunks == 0
        assert reads.document(fact_document_key(fact.fact_id)) is None
        assert len(reads.evidence(fact.fact_id)) == 2
    assert store.verify().sound


def test_a_compacted_document_comes_back_only_for_a_living_fact(
    store: ProjectAuthority,
) -> None:
    """Ending a compacted fact leaves it out of the indexes; a strong quote brings it back."""
    ended = recorded(store, a_fact("Use npm."), [])
    doubted = recorded(store, a_fact("Use bun."), [])
    store.append([say.gc_compacted(facts=[ended.fact_id, doubted.fact_id])])

    store.append([say.fact_resolved(ended.fact_id, Standing.CONTRADICTED, T0 + 1, WHY)])
    store.append([say.fact_corroborated(doubted.fact_id, a_quote("use bun", line=8))])

    with store.read() as reads:
        assert [chunk.text for chunk in reads.chunks()] == ["Use bun."]
    assert store.verify().sound


def test_many_quotes_are_split_over_events(store: ProjectAuthority) -> None:
    """More evidence than one event holds arrives whole, behind the fact."""
    quotes = [a_quote(f"{number} " + "x" * 8_000, line=number) for number in range(20)]

    drafts = say.fact_recorded_in_parts(a_fact(), quotes)
    store.append(drafts)

    assert len(drafts) > 1
    with store.read() as reads:
        assert len(reads.evidence(a_fact().fact_id)) == 20
