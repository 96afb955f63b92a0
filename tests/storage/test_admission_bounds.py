"""Every bound of admission, from both sides: what just fits is kept, one more is refused."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.admission import (
    admit_declaration,
    admit_document,
    admit_evidence,
    admit_fact,
    admit_statement,
    admit_tool_result,
)
from storage.clock import MAX_AT
from storage.errors import Refused
from storage.records import (
    Entity,
    Evidence,
    FactId,
    FactKind,
    Origin,
    SourceRef,
    Standing,
    Trust,
)
from tests.conftest import ROOT

AT = 1_700_000_000_000
SOURCE = SourceRef(adapter="pi", locator="/sessions/a.jsonl", line=3, session_id="s1")
WIDE = "é"
PASSWORD = "v7Kq2x" + "Rw9mTz4L"


def statement(text: str) -> object:
    return admit_statement(text)


def excerpt(text: str) -> object:
    return admit_evidence(text, origin=Origin.AGENT_REPORT, source=SOURCE, observed_at=AT)


def declared(text: str) -> object:
    return admit_declaration(text, f"I say: {text}", source=SOURCE, observed_at=AT)


def quoted(**changes: object) -> object:
    given: dict[str, object] = {"source": SOURCE, "tool_call_id": "c1", "observed_at": AT}
    return admit_tool_result("boom went the build", **{**given, **changes})  # type: ignore[arg-type]


def fact(**changes: object) -> object:
    given: dict[str, object] = {
        "fact_id": FactId("mem_" + "0" * 32),
        "kind": FactKind.DECISION,
        "statement": "Use pnpm.",
        "evidence": (),
        "valid_at": AT,
        "recorded_at": AT,
    }
    return admit_fact(**{**given, **changes})  # type: ignore[arg-type]


def document(**changes: object) -> object:
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


def quote(number: int) -> Evidence:
    return admit_evidence(
        f"quote {number}", origin=Origin.AGENT_REPORT, source=SOURCE, observed_at=AT
    )


def source(**changes: object) -> SourceRef:
    given: dict[str, object] = {"adapter": "pi", "locator": "/a", "line": 1, "session_id": "s"}
    return SourceRef(**{**given, **changes})  # type: ignore[arg-type]


def ids(count: int) -> list[FactId]:
    return [FactId(f"mem_{number:04d}") for number in range(count)]


def named(count: int) -> list[Entity]:
    return [Entity(name=f"e{number}") for number in range(count)]


@pytest.mark.parametrize(
    ("door", "letter", "limit"),
    [
        (statement, WIDE, 8_192),
        (excerpt, WIDE, 8_192),
        (declared, WIDE, 8_192),
        (lambda text: document(text=text), "e", 1_000_000),
    ],
    ids=["a statement", "an excerpt", "a declaration", "a document"],
)
def test_a_text_is_bounded_in_bytes(door: Callable[[str], object], letter: str, limit: int) -> None:
    """Letters of two bytes count as two; blank is refused as well as too long."""
    word = letter * 3 + " "
    words = word * (limit // len(word.encode()))
    fits = words + "x" * (limit - len(words.encode()))
    assert len(fits.encode()) == limit

    assert door(fits)
    with pytest.raises(Refused):
        door(fits + "x")
    for blank in ("", " \n\t"):
        with pytest.raises(Refused):
            door(blank)


FACT_BOUNDS: list[tuple[str, object, object]] = [
    ("fact_id", "mem_" + "a" * 60, "mem_" + "a" * 61),
    ("fact_id", "mem_aaaa", "mem_aaa"),
    ("fact_id", "mem_a-_Z", "mem_a b c"),
    ("fact_id", "mem_0000", "fact_0000"),
    ("evidence", [quote(n) for n in range(32)], [quote(n) for n in range(33)]),
    ("supersedes", ids(32), ids(33)),
    ("supersedes", ids(1), [FactId("mem_" + "0" * 32)]),
    ("supersedes", [], [FactId("../x")]),
    ("entities", named(24), named(25)),
    ("entities", [Entity(name="e" * 512)], [Entity(name="e" * 513)]),
    ("entities", [Entity(name="e", type="t" * 512)], [Entity(name="e", type="t" * 513)]),
    ("tags", {f"k{n}": "v" for n in range(64)}, {f"k{n}": "v" for n in range(65)}),
    ("tags", {"k" * 64: "v"}, {"k" * 65: "v"}),
    ("tags", {"k": "v" * 512}, {"k": "v" * 513}),
    ("subject", "s" * 512, "s" * 513),
    ("predicate", "p" * 512, "p" * 513),
    ("object", "o" * 512, "o" * 513),
    ("analyst", "a" * 512, "a" * 513),
    ("confidence", 0.0, -0.001),
    ("confidence", 1.0, 1.001),
    ("confidence", 0.5, float("nan")),
    ("confidence", 0.5, float("inf")),
    ("valid_at", 0, -1),
    ("valid_at", MAX_AT, MAX_AT + 1),
    ("recorded_at", 0, -1),
    ("recorded_at", MAX_AT, MAX_AT + 1),
    ("invalid_at", AT, AT - 1),
    ("invalid_at", MAX_AT, MAX_AT + 1),
    ("standing", Standing.CANDIDATE, Standing.SUPERSEDED),
    ("standing", Standing.NEEDS_REVIEW, Standing.CONTRADICTED),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fits", "beyond"), FACT_BOUNDS)
def test_a_fact_is_bounded(name: str, fits: object, beyond: object) -> None:
    """Ids, counts, lengths, ranges and times; the refusal is a sentence."""
    assert fact(**{name: fits})

    with pytest.raises(Refused, match=r"\w+ \w+"):
        fact(**{name: beyond})


DOCUMENT_BOUNDS: list[tuple[str, object, object]] = [
    ("namespace", "n" + "a" * 63, "n" + "a" * 64),
    ("namespace", "a.b_c-9", "9a"),
    ("namespace", "notes", "Notes"),
    ("namespace", "n", ""),
    ("external_id", "x" * 512, "x" * 513),
    ("external_id", "x", ""),
    ("external_id", "a\u2028b", "a\0b"),
    ("external_id", "a", "a\ud800"),
    ("external_id", "wiki/page", "wiki?password=" + PASSWORD),
    ("source", "s" * 512, "s" * 513),
    ("kind", "k" * 512, "k" * 513),
    ("title", "t" * 1_024, "t" * 1_025),
    ("uri", "u" * 4_096, "u" * 4_097),
    ("version", "v" * 512, "v" * 513),
    ("adapter", "a" * 256, "a" * 257),
    ("revision", "r" * 512, "r" * 513),
    ("metadata", {f"k{n}": n for n in range(64)}, {f"k{n}": n for n in range(65)}),
    ("metadata", {"x": 1.5}, {"x": float("nan")}),
    ("metadata", {"x": None}, {"x": object()}),
    ("metadata", {"x": [{}]}, {"x": {1, 2}}),
    ("observed_at", 0, -1),
    ("observed_at", MAX_AT, MAX_AT + 1),
    ("valid_from", 0, -1),
    ("valid_to", MAX_AT, MAX_AT + 1),
    ("text", "\x01" * 330_000, "\x01" * 334_000),
]


@pytest.mark.parametrize(("name", "fits", "beyond"), DOCUMENT_BOUNDS)
def test_a_document_is_bounded(name: str, fits: object, beyond: object) -> None:
    """Every field, and its size in the journal, where a control character takes six bytes."""
    assert document(**{name: fits})

    with pytest.raises(Refused, match=r"\w+ \w+"):
        document(**{name: beyond})


def test_a_document_does_not_end_before_it_begins() -> None:
    """An empty interval is a cancelled plan; an inverted one is a mistake."""
    assert document(valid_from=AT, valid_to=AT)

    with pytest.raises(Refused):
        document(valid_from=AT, valid_to=AT - 1)


QUOTE_BOUNDS: list[tuple[str, object, object]] = [
    ("source", source(adapter="a" * 256), source(adapter="a" * 257)),
    ("source", source(locator="l" * 4_096), source(locator="l" * 4_097)),
    ("source", source(session_id="s" * 512), source(session_id="s" * 513)),
    ("source", source(line=0), source(line=-1)),
    ("tool_call_id", "c" * 512, "c" * 513),
    ("tool_call_id", "c", " "),
    ("observed_at", 0, -1),
    ("observed_at", MAX_AT, MAX_AT + 1),
]


@pytest.mark.parametrize(("name", "fits", "beyond"), QUOTE_BOUNDS)
def test_a_quote_is_bounded(name: str, fits: object, beyond: object) -> None:
    """Where it stands, when, and which call it is of."""
    assert quoted(**{name: fits})

    with pytest.raises(Refused, match=r"\w+ \w+"):
        quoted(**{name: beyond})


def test_parts_that_are_harmless_apart_are_judged_together() -> None:
    """A name in one field and its value in the next, a tag and its value."""
    with pytest.raises(Refused, match="together"):
        fact(subject="the password", predicate="is", object=PASSWORD)

    tagged = fact(tags={"db_password": PASSWORD, "env": "staging"})
    assert PASSWORD not in repr(tagged)
    assert "staging" in repr(tagged)
    for uri in (
        f"https://wiki.example/?q=the password is {PASSWORD}",
        f"https://wiki.example/a#--password {PASSWORD}",
        f"https://me:{PASSWORD}@wiki.example/a",
    ):
        assert PASSWORD not in repr(document(uri=uri))


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for package in ("storage", "retrieval", "tasks", "hooks", "ops"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if not {"bench", "chaos"} & set(path.relative_to(ROOT).parts):
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))
    yield "worker.py", ast.parse(Path(ROOT / "worker.py").read_text("utf-8"))


def _given(name: str) -> set[tuple[str, str]]:
    """(file, function) where a member of `Provenance` is handed to a call."""
    found = set()
    for file, tree in _sources():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                handed = [*call.args, *(word.value for word in call.keywords)]
                for part in handed:
                    if isinstance(part, ast.Attribute) and part.attr == name:
                        found.add((file, function.name))
    return found


def _called(name: str) -> set[tuple[str, str]]:
    """(file, function) that call something of this name."""
    found = set()
    for file, tree in _sources():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
                if getattr(call.func, "id", getattr(call.func, "attr", "")) == name:
                    found.add((file, function.name))
    return found


def test_one_door_builds_each_strong_provenance() -> None:
    """Native by the tool-result door, declared by the declaration door, and nowhere else.

    Benchmarks and storms are let off: they fill stores of their own, in folders of their own.
    """
    assert _given("NATIVE_OBSERVATION") == {("storage/admission.py", "admit_tool_result")}
    assert _given("DECLARED") == {("storage/admission.py", "admit_declaration")}


def test_evidence_is_built_by_admission_or_read_back() -> None:
    """No other module makes a quote, nor a provenance out of a string."""
    readers = {("storage/authority/payloads.py", "evidence_from")}
    made = _called("Evidence") - {("storage/admission.py", "_evidence")}
    named = _called("Provenance")

    assert {file for file, _ in made | named} <= {
        "storage/authority/payloads.py",
        "storage/authority/reads.py",
    }
    assert readers <= made


def test_only_the_reader_of_tool_results_opens_the_native_door() -> None:
    """One caller, which sends declared statements through the other door."""
    assert _called("admit_tool_result") == {("tasks/analyst_facts.py", "_admitted")}
    assert _called("admit_declaration") == {("tasks/analyst_facts.py", "_admitted")}
