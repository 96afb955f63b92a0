"""The model reads beside the rules, with its own cursor; it can be late, wrong or spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.errors import BudgetExhausted, Invalid, MemorydError
from storage.jobs import JobKind
from storage.records import Provenance, Standing
from tasks import analyze, sync
from tasks.llm import Completion
from tasks.sources import pi
from tests.learning import World, lines, pi_header, pi_said

TALK = (
    "Never push to main.",
    "The tide tables come from the port authority every Monday at six in the morning.",
)
FACT = {
    "kind": "fact",
    "statement": "The port authority delivers the tide tables every Monday.",
    "line": 3,
    "excerpt": "The tide tables come from the port authority every Monday",
    "confidence": 0.7,
}


class BrokenModel:
    """A model that fails the same way every time."""

    name = "broken-1"

    def __init__(self, error: MemorydError) -> None:
        self.error = error

    def complete(self, system: str, user: str, *, max_output_tokens: int) -> Completion:
        raise self.error


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A project with one session."""
    world = World(tmp_path)
    path = world.pi_sessions / pi.folder_name(str(world.checkout)) / "a.jsonl"
    path.parent.mkdir(parents=True)
    said = [pi_said(number, text) for number, text in enumerate(TALK, 1)]
    path.write_bytes(lines([pi_header(world.checkout), *said]))
    return world


def test_a_models_fact_waits_for_review_with_its_literal_quote(world: World) -> None:
    """Imported knowledge: quoted, attributed to the model, never supported by itself."""
    world.with_model(json.dumps({"facts": [FACT]}))

    world.drain()

    (fact,) = [fact for fact in world.facts() if fact.analyst == "scripted-1"]
    with world.authority.read() as reads:
        (quote,) = reads.evidence(fact.fact_id)
    assert fact.standing is Standing.NEEDS_REVIEW
    assert quote.provenance is Provenance.IMPORTED
    assert quote.excerpt in TALK[1]
    assert quote.source.line == 3
    assert "Never push to main." in world.current()


def test_the_model_reads_each_line_once(world: World) -> None:
    """Its cursor is its own: a second sync asks nothing, a new line asks once."""
    model = world.with_model('{"facts": []}')
    world.drain()
    world.drain()

    assert len(model.asked) == 1
    with world.authority.read() as reads:
        assert {cursor.adapter for cursor in reads.cursors()} == {"pi", "pi+model"}


def test_a_spent_budget_holds_back_the_model_and_not_the_rules(world: World) -> None:
    """What the rules can learn is there; the model's job waits where it was."""
    world.with_model()
    world.language_model = BrokenModel(BudgetExhausted())
    jobs = sync.run(world.context(), {}).successors
    rules, model = sorted(jobs, key=lambda job: str(job.args["reader"]), reverse=True)

    analyze.run(world.context(), rules.args)
    with pytest.raises(BudgetExhausted):
        analyze.run(world.context(), model.args)

    assert world.current() == {"Never push to main."}
    with world.authority.read() as reads:
        assert [cursor.adapter for cursor in reads.cursors()] == ["pi"]


def test_a_request_refused_for_good_passes_its_window_by(world: World) -> None:
    """Otherwise every sync would pay for the same refusal again."""
    world.with_model()
    world.language_model = BrokenModel(Invalid())

    notes = world.drain(JobKind.ANALYZE)

    assert any("dropped request_refused" in note for note in notes)
    assert sync.run(world.context(), {}).successors == ()


def test_our_own_log_is_not_shown_to_the_model(world: World) -> None:
    """What the hooks recognised needs no second opinion, and costs none."""
    from hooks.record import remember

    remember(world.paths, world.project, "The staging database uses port 6543.", clock=world.clock)
    world.with_model('{"facts": []}')

    jobs = sync.run(world.context(), {}).successors

    assert [job.args["reader"] for job in jobs if job.args["adapter"] == "pi-session"] == ["rules"]
