"""Consolidation only folds, collection only forgets what is searchable; both come to rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.admission import admit_declaration, admit_evidence, admit_fact
from storage.authority import payloads
from storage.clock import DAY_MS
from storage.records import (
    Evidence,
    FactId,
    FactKind,
    Origin,
    RedactedText,
    SourceRef,
    Standing,
    fact_document_key,
)
from tasks import consolidate, gc
from tests.learning import World

K = FactKind


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty project."""
    return World(tmp_path)


def _record(
    world: World,
    name: str,
    statement: str,
    *,
    declared: bool = True,
    kind: FactKind = K.CORRECTION,
    standing: Standing = Standing.SUPPORTED,
) -> FactId:
    source = SourceRef(adapter="pi", locator=f"/{name}", line=1)
    at = world.clock.now_ms()
    evidence: Evidence = (
        admit_declaration(statement, statement, source=source, observed_at=at).evidence
        if declared
        else admit_evidence(statement, origin=Origin.IMPORTED_SOURCE, source=source, observed_at=at)
    )
    fact = admit_fact(
        fact_id=FactId(f"mem_{name:0>4}"),
        kind=kind,
        statement=statement,
        evidence=[evidence],
        valid_at=at,
        recorded_at=at,
        standing=standing,
    )
    world.authority.append([payloads.fact_recorded(fact, [evidence])])
    return fact.fact_id


def _standing(world: World, fact_id: FactId) -> Standing:
    with world.authority.read() as reads:
        fact = reads.fact(fact_id)
    assert fact is not None
    return fact.standing


def _is_searchable(world: World, fact_id: FactId) -> bool:
    with world.authority.read() as reads:
        return reads.document(fact_document_key(fact_id)) is not None


def test_equal_statements_fold_into_the_best_supported_with_all_evidence(world: World) -> None:
    """Fifty rows of one statement become one active fact with fifty quotes."""
    ids = [
        _record(world, f"{n:02d}", "Never push to main" + "." * (n % 2), declared=n == 7)
        for n in range(50)
    ]

    consolidate.run(world.context(), {})

    active = [fact for fact in ids if _standing(world, fact) is not Standing.SUPERSEDED]
    assert active == [ids[7]]
    with world.authority.read() as reads:
        assert len(reads.evidence(ids[7])) == 50
    assert world.authority.verify().sound


def test_near_duplicates_are_proposed_and_declared_ones_untouched(world: World) -> None:
    """A candidate that nearly repeats another is marked for review; a person's word stays."""
    rule = "Run the integration tests against the berth database before each release"
    first = _record(world, "a", rule)
    declared = _record(world, "b", rule + " day")
    candidate = _record(world, "c", rule + " please", declared=False, standing=Standing.CANDIDATE)
    other = _record(
        world, "d", rule + " too", kind=K.FACT, declared=False, standing=Standing.CANDIDATE
    )

    consolidate.run(world.context(), {})

    standings = [_standing(world, fact) for fact in (first, declared, candidate, other)]
    assert standings == [
        Standing.SUPPORTED,
        Standing.SUPPORTED,
        Standing.NEEDS_REVIEW,
        Standing.CANDIDATE,
    ]


def test_consolidating_again_changes_nothing(world: World) -> None:
    """Thirty nights on one corpus: the second finds nothing to do, and so does the thirtieth."""
    for number in range(12):
        _record(world, f"{number:02d}", f"Never push to main number {number % 3}.", declared=False)
    consolidate.run(world.context(), {})
    generation = world.authority.generation()

    notes = {consolidate.run(world.context(), {}).note for _ in range(30)}

    assert world.authority.generation() == generation
    assert len(notes) == 1


def test_different_kinds_and_different_words_do_not_fold(world: World) -> None:
    """The same words as a decision and as a fact are two things; so are two numbers."""
    _record(world, "a", "The gateway timeout is 30 seconds", kind=K.FACT)
    _record(world, "b", "The gateway timeout is 30 seconds", kind=K.DECISION)
    _record(world, "c", "The gateway timeout is 60 seconds", kind=K.FACT)

    assert "nothing to fold" in consolidate.run(world.context(), {}).note


def test_an_ended_fact_leaves_the_search_index_after_a_week(world: World) -> None:
    """The hot copy goes, fact and evidence stay, and a current fact is not touched."""
    old, new = _record(world, "old", "Use npm for installs"), _record(world, "new", "Use pnpm here")
    rationale = RedactedText("replaced")
    now = world.clock.now_ms()
    world.authority.append([payloads.fact_resolved(old, Standing.SUPERSEDED, now, rationale, new)])

    gc.run(world.context(), {})
    assert _is_searchable(world, old)
    world.clock.advance(gc.KEEP_DAYS * DAY_MS)
    gc.run(world.context(), {})

    assert (_is_searchable(world, old), _is_searchable(world, new)) == (False, True)
    with world.authority.read() as reads:
        assert reads.fact(old) is not None
        assert reads.evidence(old)
    generation = world.authority.generation()
    assert gc.run(world.context(), {}).note == "nothing to forget"
    assert world.authority.generation() == generation


def test_collection_works_in_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full batch asks for a successor; a commit is never unbounded."""
    monkeypatch.setattr(gc, "BATCH", 2)
    rationale = RedactedText("wrong")
    for number in range(3):
        fact = _record(world, str(number), f"Berth number {number} is closed")
        world.authority.append(
            [payloads.fact_resolved(fact, Standing.CONTRADICTED, world.clock.now_ms(), rationale)]
        )
    world.clock.advance(gc.KEEP_DAYS * DAY_MS)

    first, again = gc.run(world.context("same"), {}), gc.run(world.context("same"), {})
    second = gc.run(world.context(), {})

    assert [len(done.successors) for done in (first, again, second)] == [1, 1, 0]
    assert again.note == "was applied"


def test_the_last_batch_packs_the_history_of_days_that_are_over(world: World) -> None:
    """A promoted store's journal shrinks by itself, and still proves."""
    for number in range(20):
        _record(world, str(number), f"Berth number {number} is closed in winter")
    world.authority.promote()
    assert gc.run(world.context(), {}).note == "nothing to forget"
    world.clock.advance(DAY_MS)

    done = gc.run(world.context(), {})

    events = world.paths.project(world.project).events
    assert done.note == "nothing to forget, 1 journal files packed"
    assert [file.suffix for file in events.rglob("writer_*")] == [".br"]
    assert world.authority.verify().problems == ()


def test_a_repeated_consolidation_still_asks_for_the_rest(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its commit and its acknowledgement, a job must not end the chain."""
    monkeypatch.setattr(consolidate, "BATCH", 1)
    for number in range(4):
        _record(world, str(number), "Berth seven is closed in winter" + "." * number)

    first = consolidate.run(world.context("same"), {})
    again = consolidate.run(world.context("same"), {})

    assert [len(first.successors), len(again.successors)] == [1, 1]
    assert again.note == "was applied"
