"""A statement in another language waits for its translation and becomes one English fact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from storage.config import EncoderSettings
from storage.errors import MissingModel, ModelUnavailable
from storage.jobs import JobKind
from storage.records import fact_id
from tasks import translate
from tasks.sources import pi
from tests.learning import ScriptedModel, World, lines, pi_header, pi_said

SAID = "Nunca subas nada directamente a `main`; abre siempre un pull request."
ENGLISH = "Never push anything directly to `main`; always open a pull request."


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A project that heard one Spanish correction in two sessions."""
    world = World(tmp_path)
    for name, number in (("a", 1), ("b", 9)):
        path = world.pi_sessions / pi.folder_name(str(world.checkout)) / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines([pi_header(world.checkout), pi_said(number, SAID)]))
    world.drain()
    return world


def _waiting(world: World) -> list[str]:
    with world.authority.read() as reads:
        return [item.original for item in reads.deferred()]


def test_without_a_model_the_statement_waits_and_is_never_stored_as_it_is(world: World) -> None:
    """No fact in another language; the job says it waits for a model."""
    (job, *_) = translate.run(world.context(), {}).successors

    with pytest.raises(MissingModel):
        translate.run(world.context(), job.args)

    assert world.facts() == []
    assert _waiting(world) == [SAID, SAID]


def test_one_answer_serves_everybody_who_said_it(world: World) -> None:
    """One job and one call for equal statements; their quotes stay in the original words."""
    model = world.with_model(ENGLISH)
    jobs = translate.run(world.context(), {}).successors
    for job in jobs:
        translate.run(world.context(), job.args)

    assert world.current() == {ENGLISH}
    assert world.evidence(ENGLISH) == [("pi", SAID), ("pi", SAID)]
    assert _waiting(world) == []
    assert len(jobs) == len(model.asked) == 1
    (fact,) = world.facts()
    assert fact.fact_id == fact_id(world.project, fact.kind, SAID)
    assert fact.tags["lang"] == "es"


def test_a_repeated_translation_asks_for_its_vectors_and_for_no_second_answer(
    world: World,
) -> None:
    """Killed between its commit and its acknowledgement, it still owes the vectors."""
    model = world.with_model(ENGLISH)
    world.settings = replace(world.settings, encoder=EncoderSettings(provider="hash"))
    (job,) = translate.run(world.context(), {}).successors

    first = translate.run(world.context("same"), job.args)
    again = translate.run(world.context("same"), job.args)

    assert again.successors == first.successors
    assert [spec.kind for spec in again.successors] == [JobKind.EMBED]
    assert len(model.asked) == 1


def test_a_translated_statement_that_is_said_again_is_only_quoted_again(world: World) -> None:
    """Identity is the original wording: no second call, no second fact."""
    model = world.with_model(ENGLISH)
    world.drain(JobKind.ANALYZE, JobKind.TRANSLATE)
    for job in translate.run(world.context(), {}).successors:
        translate.run(world.context(), job.args)
    path = world.pi_sessions / pi.folder_name(str(world.checkout)) / "c.jsonl"
    path.write_bytes(lines([pi_header(world.checkout), pi_said(70, SAID)]))
    model.answers.append('{"facts": []}')

    world.drain(JobKind.ANALYZE, JobKind.TRANSLATE)

    assert len(world.evidence(ENGLISH)) == 3
    assert _waiting(world) == []


@pytest.mark.parametrize(
    "answer",
    [
        "   ",
        "Nunca subas nada directamente a `main`; abre siempre un pull request.",
        "Never push anything directly to the default branch; always open a pull request.",
        "Sure! Here is the translation of `main`: " + "very long " * 60,
        "Never push ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8 to `main`.",
    ],
    ids=["empty", "not English", "lost the name", "too long", "a credential"],
)
def test_an_answer_that_is_no_translation_changes_nothing(world: World, answer: str) -> None:
    """What a weak model makes up is refused; the statement goes on waiting."""
    (job, *_) = translate.run(world.context(), {}).successors
    world.with_model(answer)

    with pytest.raises(ModelUnavailable):
        translate.run(world.context(), job.args)

    assert world.facts() == []
    assert len(_waiting(world)) == 2


def test_quotation_marks_around_an_answer_are_not_kept() -> None:
    """Models like to quote what they translate."""
    model = ScriptedModel([f'"{ENGLISH}"'])

    assert translate.translation(model, SAID, limit=2_048) == ENGLISH


def test_a_statement_that_no_longer_waits_ends_its_job(world: World) -> None:
    """Another job was faster: nothing to do, and no call."""
    model = world.with_model()

    assert translate.run(world.context(), {"statement": "st_gone"}).note == "not waiting any more"
    assert model.asked == []


def test_a_translated_rule_ends_what_it_replaces(world: World) -> None:
    """Supersession works on the English statement."""
    path = world.pi_sessions / pi.folder_name(str(world.checkout)) / "d.jsonl"
    texts = [
        "Always use npm for installs.",
        "En este repositorio usamos pnpm, nunca npm, para todo.",
    ]
    said = [pi_said(number, text) for number, text in enumerate(texts, 1)]
    path.write_bytes(lines([pi_header(world.checkout), *said]))
    world.drain()
    with world.authority.read() as reads:
        originals = {item.statement_id: item.original for item in reads.deferred()}
    rule = "In this repository we use pnpm, never npm, for everything."
    model = world.with_model()

    for job in translate.run(world.context(), {}).successors:
        model.answers = [ENGLISH if originals[job.subject] == SAID else rule]
        translate.run(world.context(), job.args)

    assert "Always use npm for installs." not in world.current()
    assert len(world.current()) == 2


def test_a_statement_that_fails_for_long_is_asked_about_less_often(world: World) -> None:
    """Fresh ones run at once; an old one waits, or it would spend every day's budget."""
    (fresh,) = translate.run(world.context(), {}).successors
    world.clock.advance(3_600_000)
    (older,) = translate.run(world.context(), {}).successors
    world.clock.advance(30 * 86_400_000)
    (oldest,) = translate.run(world.context(), {}).successors

    assert fresh.run_at is None
    assert older.run_at == world.clock.now_ms() - 30 * 86_400_000 + 1_800_000
    assert oldest.run_at == world.clock.now_ms() + translate.MAX_DELAY_MS
