"""A batch is committed against the snapshot it was built from, or built again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from storage.authority import payloads
from storage.authority.reads import Reads
from storage.errors import Invalid, Stale
from storage.events import EventDraft, EventType
from storage.records import FactKind, SourceRef
from tasks.analyst import Proposal
from tasks.analyst_facts import Intake
from tasks.commit import ATTEMPTS, commit
from tests.learning import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty project."""
    return World(tmp_path)


def _proposal(statement: str, *, at: int) -> Proposal:
    return Proposal(
        kind=FactKind.CORRECTION,
        statement=statement,
        excerpt=statement,
        source=SourceRef(adapter="pi", locator=f"/{at}", line=1),
        at=at,
        declared=True,
    )


def _learn(world: World, statement: str, *, at: int) -> None:
    def build(reads: Reads) -> tuple[None, Sequence[EventDraft]]:
        intake = Intake(reads, world.project, world.clock.now_ms())
        intake.add(_proposal(statement, at=at))
        return None, intake.drafts

    commit(world.context(), world.authority, build)


@pytest.mark.parametrize(
    ("meanwhile", "facts"),
    [("never push to MAIN", 1), ("Use pnpm, not npm.", 2), ("Tests must be quick here now.", 2)],
)
def test_what_another_job_learnt_meanwhile_is_taken_into_account(
    world: World, meanwhile: str, facts: int
) -> None:
    """Two jobs at once: the second to commit decides again, knowing what the first found."""
    calls: list[int] = []

    def build(reads: Reads) -> tuple[None, Sequence[EventDraft]]:
        intake = Intake(reads, world.project, world.clock.now_ms())
        intake.add(_proposal("Never push to main", at=5))
        calls.append(len(intake.drafts))
        if len(calls) == 1:
            _learn(world, meanwhile, at=9)
        return None, intake.drafts

    commit(world.context(), world.authority, build)

    assert len(calls) == 2
    assert len(world.facts()) == facts
    assert world.authority.verify().sound


def test_a_rule_learnt_meanwhile_ends_the_older_statement(world: World) -> None:
    """Neither job alone saw both sides; the commit does."""
    first = True

    def build(reads: Reads) -> tuple[None, Sequence[EventDraft]]:
        nonlocal first
        intake = Intake(reads, world.project, world.clock.now_ms())
        intake.add(_proposal("Always use npm for installs.", at=5))
        if first:
            first = False
            _learn(world, "Use pnpm, not npm.", at=9)
        return None, intake.drafts

    commit(world.context(), world.authority, build)

    assert world.current() == {"Use pnpm, not npm."}


def test_a_job_that_committed_before_commits_nothing_more(world: World) -> None:
    """Run again after a lost acknowledgement, whatever it would now decide: None, no effect."""
    context = world.context("same")

    def build(statement: str, at: int) -> Callable[[Reads], tuple[str, Sequence[EventDraft]]]:
        def built(reads: Reads) -> tuple[str, Sequence[EventDraft]]:
            intake = Intake(reads, world.project, world.clock.now_ms())
            intake.add(_proposal(statement, at=at))
            return statement, intake.drafts

        return built

    first = commit(context, world.authority, build("Never push to main", 5))
    again = commit(context, world.authority, build("Use pnpm, not npm.", 6))

    assert (first, again) == ("Never push to main", None)
    assert world.current() == {"Never push to main"}


def test_what_a_twin_committed_between_look_and_commit_is_no_result_of_ours(world: World) -> None:
    """The stamp decides under the write lock: a batch that was not applied is not reported."""
    context = world.context("same")

    def build(reads: Reads) -> tuple[str, Sequence[EventDraft]]:
        intake = Intake(reads, world.project, world.clock.now_ms())
        intake.add(_proposal("Never push to main", at=5))
        if not reads.facts():
            world.authority.append(intake.drafts, stamp=context.lease.stamp)
        return "ours", intake.drafts

    assert commit(context, world.authority, build) is None
    assert len(world.facts()) == 1


def test_an_authority_that_never_rests_is_stale(world: World) -> None:
    """After so many attempts the job goes back to the queue, with nothing half done."""
    calls: list[int] = []

    def build(reads: Reads) -> tuple[None, Sequence[EventDraft]]:
        calls.append(1)
        world.authority.append([payloads.job_applied(f"noise {len(calls)}")])
        return None, [payloads.job_applied("mine")]

    with pytest.raises(Stale):
        commit(world.context(), world.authority, build)

    assert len(calls) == ATTEMPTS


def test_a_draft_that_breaks_a_rule_is_not_tried_again(world: World) -> None:
    """Invalid against an authority that did not move stays invalid."""
    calls: list[int] = []

    def build(reads: Reads) -> tuple[None, Sequence[EventDraft]]:
        calls.append(1)
        return None, [payloads.gc_compacted(facts=[]), EventDraft(EventType.FACT_RECORDED, {})]

    with pytest.raises(Invalid):
        commit(world.context(), world.authority, build)

    assert len(calls) == 1
