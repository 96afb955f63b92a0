"""The one door for text: redaction, bounds, and who may claim what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import admission
from storage.admission import (
    MAX_STATEMENT_BYTES,
    admit_declaration,
    admit_document,
    admit_evidence,
    admit_fact,
    admit_statement,
    admit_tool_result,
    quotes,
)
from storage.clock import MAX_AT
from storage.errors import Refused
from storage.records import (
    Entity,
    Fact,
    FactId,
    FactKind,
    JsonValue,
    Origin,
    Provenance,
    SourceRef,
    Standing,
    Trust,
)

SOURCE = SourceRef(adapter="pi", locator="/sessions/a.jsonl", line=3, session_id="s1")
AT = 1_700_000_000_000
SECRET = "ghp_" + "R4nd0mQz8LmWv2TtXc7Yb1Ns5Kd9Pf3Gh6Jj"


def a_fact(**changes: object) -> Fact:
    given: dict[str, object] = {
        "fact_id": FactId("mem_" + "0" * 32),
        "kind": FactKind.DECISION,
        "statement": "Use pnpm.",
        "evidence": (),
        "valid_at": AT,
        "recorded_at": AT,
    }
    return admit_fact(**{**given, **changes})  # type: ignore[arg-type]


def a_document(**changes: object) -> object:
    given: dict[str, object] = {
        "namespace": "notes",
        "external_id": "a.md",
        "source": "notes",
        "kind": "note",
        "text": "Text.",
        "observed_at": AT,
        "trust": Trust.USER,
    }
    return admit_document(**{**given, **changes})  # type: ignore[arg-type]


def test_secrets_are_redacted_at_every_door() -> None:
    """Nothing that comes out holds the credential."""
    said = f"deploy with token {SECRET} please"
    metadata: dict[str, JsonValue] = {"token": SECRET, "nested": [{"x": said}]}
    admitted: list[object] = [
        admit_statement(said),
        admit_evidence(said, origin=Origin.AGENT_REPORT, source=SOURCE, observed_at=AT),
        admit_tool_result(said, source=SOURCE, tool_call_id="c1", observed_at=AT),
        a_fact(statement=said, subject=said, tags={"k": said}, entities=[Entity(name=said)]),
        a_document(text=said, title=said, uri=f"https://x.example/?token={SECRET}"),
        a_document(metadata=metadata),
    ]

    assert SECRET not in repr(admitted)


def test_only_a_tool_result_is_a_native_observation() -> None:
    """The door for tool results, and no other, builds native provenance."""
    native = admit_tool_result("boom", source=SOURCE, tool_call_id="c1", observed_at=AT)

    assert (native.origin, native.provenance) == (
        Origin.HOST_OBSERVATION,
        Provenance.NATIVE_OBSERVATION,
    )
    with pytest.raises(Refused):
        admit_tool_result("boom", source=SOURCE, tool_call_id=" ", observed_at=AT)
    for origin in (Origin.HOST_OBSERVATION, Origin.USER_STATEMENT):
        with pytest.raises(Refused):
            admit_evidence("boom", origin=origin, source=SOURCE, observed_at=AT)


def test_a_long_tool_output_keeps_both_ends() -> None:
    """The middle goes, with a mark, and the bound is kept in bytes."""
    output = "first line\n" + "語" * 20_000 + "\nlast line"

    kept = admit_tool_result(output, source=SOURCE, tool_call_id="c1", observed_at=AT).excerpt

    assert kept.startswith("first line")
    assert kept.endswith("last line")
    assert "[...]" in kept
    assert len(kept.encode()) <= admission.MAX_EXCERPT_BYTES


@pytest.mark.parametrize(
    ("statement", "prompt"),
    [
        ("Always use pnpm", "Hey. Always use pnpm, never npm."),
        ("Always use pnpm", "“always   use\npnpm”!"),
        ("use `pnpm`", "please use pnpm"),
        ("siempre usa pnpm", "Recuerda: siempre usa pnpm."),
        ("用中文写注释", "请用中文写注释。"),
    ],
)
def test_a_declaration_quotes_the_prompt(statement: str, prompt: str) -> None:
    """White space, quote marks and case aside, the words stand there."""
    admitted = admit_declaration(statement, prompt, source=SOURCE, observed_at=AT)

    assert admitted.statement == statement
    assert admitted.evidence.provenance is Provenance.DECLARED
    assert admitted.evidence.excerpt == statement


@pytest.mark.parametrize(
    ("statement", "prompt"),
    [
        ("Always use npm", "Always use pnpm"),
        ("use npm", "reuse npm"),
        ("use np", "use npm"),
        ("", "anything"),
        ("“”", "anything “”"),
        ("x" * (MAX_STATEMENT_BYTES + 1), "x" * (MAX_STATEMENT_BYTES + 1)),
        (f"our token is {SECRET}", f"our token is {SECRET}"),
    ],
)
def test_a_declaration_that_is_not_the_persons_words_is_refused(
    statement: str, prompt: str
) -> None:
    """Not in the prompt, part of a word, empty, too long, or holding a credential."""
    with pytest.raises(Refused) as refusal:
        admit_declaration(statement, prompt, source=SOURCE, observed_at=AT)

    assert SECRET not in str(refusal.value)


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_a_text_quotes_itself_between_other_text(before: str, words: str, after: str) -> None:
    """Parted by white space, the words are always found (unless nothing of them is left)."""
    alone = quotes(words, words)

    assert quotes(words, f"{before} {words} {after}") == alone


def test_the_standing_follows_the_evidence() -> None:
    """Imported evidence makes `needs_review`, a declaration `supported`; no evidence none."""
    imported = admit_evidence("q", origin=Origin.IMPORTED_SOURCE, source=SOURCE, observed_at=AT)
    declared = admit_declaration("q r s", "q r s", source=SOURCE, observed_at=AT).evidence

    assert a_fact(evidence=[imported]).standing is Standing.NEEDS_REVIEW
    assert a_fact(evidence=[imported, declared]).standing is Standing.SUPPORTED
    assert a_fact(standing=Standing.CANDIDATE, evidence=[declared]).standing is Standing.CANDIDATE
    assert (a_fact().standing, a_fact().confidence) == (Standing.NEEDS_REVIEW, 0.5)
    assert a_fact(evidence=[imported]).confidence == 0.85


@pytest.mark.parametrize(
    "changes",
    [
        {"statement": " "},
        {"statement": "語" * 3_000},
        {"invalid_at": AT - 1},
        {"valid_at": -1},
        {"recorded_at": MAX_AT + 1},
        {"confidence": 1.1},
        {"confidence": float("nan")},
        {"standing": Standing.SUPERSEDED},
        {"entities": [Entity(name=f"e{n}") for n in range(25)]},
        {"supersedes": [FactId(f"mem_{n}") for n in range(33)]},
        {"tags": {f"k{n}": "" for n in range(65)}},
        {"tags": {"k" * 65: ""}},
        {"tags": {"k": "v" * 513}},
        {"subject": "s" * 513},
    ],
)
def test_a_fact_out_of_bounds_is_refused(changes: dict[str, object]) -> None:
    """Every bound of the contract, by name."""
    with pytest.raises(Refused):
        a_fact(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"namespace": "Notes"},
        {"namespace": "n" * 65},
        {"namespace": ""},
        {"external_id": ""},
        {"external_id": "x" * 513},
        {"external_id": "a\0b"},
        {"text": ""},
        {"text": "x " * 500_001},
        {"text": "\x01" * 400_000},
        {"title": "t" * 1_025},
        {"adapter": "a" * 257},
        {"valid_from": AT, "valid_to": AT - 1},
        {"valid_to": -5},
        {"observed_at": -1},
        {"metadata": {f"k{n}": n for n in range(65)}},
        {"metadata": {"x": float("inf")}},
        {"metadata": {"x": object()}},
    ],
)
def test_a_document_out_of_bounds_is_refused(changes: dict[str, object]) -> None:
    """Every bound of the contract, by name."""
    with pytest.raises(Refused):
        a_document(**changes)


def test_unstorable_characters_are_replaced() -> None:
    """Lone surrogates and NUL become U+FFFD: SQLite and UTF-8 can hold the rest."""
    assert admit_statement("a\ud800b\0c") == "a\ufffdb\ufffdc"
