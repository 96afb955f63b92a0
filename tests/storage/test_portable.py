"""Export and import: a memory comes elsewhere the same, once, and without what was forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import portable
from storage.authority import payloads as say
from storage.authority.port import Container
from storage.errors import Invalid
from storage.events import EventDraft
from storage.forget import forget
from storage.paths import HomePaths
from storage.records import (
    FactId,
    FactKind,
    ProjectId,
    RedactedText,
    Standing,
    fact_document_key,
    fact_id,
)
from tests.storage.carrying import OTHER, fill
from tests.storage.memory_samples import (
    PROJECT,
    ROOMY,
    T0,
    StepClock,
    a_document,
    a_fact,
    a_quote,
    dump,
    opened,
)


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


def carried(
    home: Path, target: Path, project: ProjectId, container: Container
) -> tuple[portable.Imported, list[bytes]]:
    with closing(opened(home, create=False)) as store:
        lines = list(portable.lines_of(portable.export(store, now=T0)))
    with closing(opened(target, container, project=project, clock=StepClock(T0 + 777))) as fresh:
        done = portable.take_in(fresh, portable.parse(lines))
        assert fresh.verify().problems == ()
    return done, lines


def essence(home: Path, project: ProjectId) -> dict[str, list[object]]:
    tables = (
        "documents",
        "facts",
        "evidence",
        "fact_evidence",
        "entities",
        "fact_entities",
        "fact_links",
        "usefulness",
        "deferred_statements",
    )
    with closing(opened(home, create=False, project=project)) as store, store.read() as reads:
        found = dump(reads)
        found["documents"] = list(reads.documents())
        known = {fact.fact_id for fact in reads.facts()}
        found["usefulness"] = [row for row in found["usefulness"] if row[0] in known]  # type: ignore[index]
        return {name: found[name] for name in tables}


kinds = st.sampled_from(["fact", "end", "quote", "document", "delete", "feedback", "forget"])


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    trace=st.lists(st.tuples(kinds, st.integers(0, 5), st.text(max_size=12)), max_size=14),
    project=st.sampled_from([PROJECT, OTHER]),
)
def test_what_is_exported_and_imported_is_the_same(
    tmp_path_factory: pytest.TempPathFactory,
    container: Container,
    trace: list[tuple[str, int, str]],
    project: ProjectId,
) -> None:
    """Facts, quotes, links, counts, documents: with all their times, into any project."""
    home = tmp_path_factory.mktemp("from")
    target = tmp_path_factory.mktemp("to")
    clock = StepClock()
    store = opened(home, container, clock=clock)
    for number, (what, which, words) in enumerate(trace):
        clock.at = T0 + number
        draft = step(what, which, words)
        if what == "forget":
            store.close()
            with pytest.MonkeyPatch.context():
                forget_quietly(home, a_fact(f"Statement {which}.").fact_id, clock)
            store = opened(home, create=False, clock=clock)
        elif draft is not None:
            try:
                store.append([draft])
            except Invalid:
                continue
    store.close()

    done, _ = carried(home, target, project, container)

    assert under_ids_of(home, project, essence(target, project)) == under_ids_of(
        home, project, essence(home, PROJECT)
    )
    assert done.known == done.forgotten == 0


def under_ids_of(
    home: Path, project: ProjectId, found: dict[str, list[object]]
) -> dict[str, list[str]]:
    """The rows as text, every fact of the first store under the id that the project gives it."""
    with closing(opened(home, create=False)) as store, store.read() as reads:
        found_ids = {f.fact_id: fact_id(project, f.kind, f.statement) for f in reads.facts()}
    ids: dict[str, str] = {}
    for old_id, new_id in found_ids.items():
        ids |= {old_id: new_id, fact_document_key(old_id): fact_document_key(new_id)}

    def said(row: object) -> str:
        text = repr(row)
        for old, new in ids.items():
            text = text.replace(old, new)
        return text

    return {name: sorted(map(said, rows)) for name, rows in found.items()}


def test_a_fact_from_another_project_is_learned_here_only_once(
    home: Path, tmp_path: Path, container: Container
) -> None:
    """It has the id that this project gives its wording: translated, replaced, or said again."""
    old, new = a_fact("The first way."), a_fact("The second way.", valid_at=T0 + 5)
    again = replace(a_fact("The first way."), fact_id=_id("The first way.\n2"), valid_at=T0 + 9)
    foreign = replace(a_fact("Translated."), fact_id=_id("auf Deutsch gesagt"))
    with closing(opened(home, container)) as store:
        store.append([say.fact_recorded(old, [a_quote("one", line=1)])])
        store.append([say.fact_recorded(replace(new, supersedes=(old.fact_id,)), [a_quote("two")])])
        store.append([say.fact_recorded(again, [a_quote("one again", line=3)])])
        store.append([say.fact_recorded(foreign, [a_quote("auf Deutsch gesagt", line=4)])])
    carried(home, tmp_path, OTHER, container)

    with closing(opened(tmp_path, create=False, project=OTHER)) as store:
        with store.read() as reads:
            found = {fact.fact_id for fact in reads.facts()}
            (replaced,) = [f.supersedes for f in reads.facts() if f.supersedes]
        assert found == {
            fact_id(OTHER, FactKind.DECISION, wording)
            for wording in (
                "The first way.", "The second way.", "The first way.\n2", "auf Deutsch gesagt",
            )
        }  # fmt: skip
        assert replaced == (fact_id(OTHER, FactKind.DECISION, "The first way."),)
    twice, _ = carried(home, tmp_path, OTHER, container)
    assert (twice.facts, twice.known) == (0, 4)


def _id(wording: str) -> FactId:
    return fact_id(PROJECT, FactKind.DECISION, wording)


def forget_quietly(home: Path, target: str, clock: StepClock) -> None:
    try:
        forget(HomePaths(home), PROJECT, target, clock=clock, settings=ROOMY)
    except Invalid:
        return


def step(what: str, which: int, words: str) -> EventDraft | None:
    fact = a_fact(f"Statement {which}.", valid_at=T0 + which)
    match what:
        case "fact":
            older = a_fact(f"Statement {which - 1}.").fact_id
            supersedes = [older] if which % 2 else []
            said = replace(fact, supersedes=tuple(supersedes), tags={"w": words})
            return say.fact_recorded(said, [a_quote(f"say {which} {words}", line=which)])
        case "end":
            return say.fact_resolved(
                fact.fact_id, Standing.CONTRADICTED, T0 + 9, RedactedText("no")
            )
        case "quote":
            return say.fact_corroborated(fact.fact_id, a_quote(f"q {words}", line=which + 20))
        case "document":
            return say.document_upserted(a_document(f"Text {words}.", name=str(which)))
        case "delete":
            return say.document_deleted(a_document(name=str(which)).key, T0 + 5)
        case "feedback":
            return say.retrieval_feedback(fact.fact_id, "used")
    return None


def test_an_export_says_what_it_is_and_holds_history(home: Path, container: Container) -> None:
    """A header with the version and counts, then one object a line."""
    with closing(opened(home, container)) as store:
        fill(store)
        lines = [json.loads(line) for line in portable.lines_of(portable.export(store, now=T0))]

    assert lines[0]["format"] == "memoryd-export"
    assert lines[0]["version"] == 1
    assert [line["type"] for line in lines[1:]] == [
        "fact", "fact", "document", "deferred", "event", "event", "event", "event", "event",
    ]  # fmt: skip
    assert lines[5]["payload"]["fact"]["statement"] == "Use npm."


def test_importing_twice_changes_nothing_and_forgotten_stays_forgotten(
    home: Path, container: Container, tmp_path: Path
) -> None:
    """What is known stays; what this project forgot is not taken back."""
    with closing(opened(home, container)) as store:
        fill(store)
    target = tmp_path / "to"
    target.mkdir(mode=0o700)
    _, lines = carried(home, target, PROJECT, container)
    before = essence(target, PROJECT)

    with closing(opened(target, create=False)) as store:
        again = portable.take_in(store, portable.parse(lines))
    assert (again.facts, again.documents, again.known) == (0, 0, 4)
    assert essence(target, PROJECT) == before
    forget(
        HomePaths(target), PROJECT, a_fact("Use pnpm.").fact_id, clock=StepClock(), settings=ROOMY
    )
    with closing(opened(target, create=False)) as store:
        last = portable.take_in(store, portable.parse(lines))

    assert (last.facts, last.forgotten) == (0, 1)


def _cut(lines: list[bytes]) -> list[bytes]:
    return lines[:-7]


def _newer(lines: list[bytes]) -> list[bytes]:
    return [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]]


def _strange(lines: list[bytes]) -> list[bytes]:
    return [*lines, b'{"type":"wish"}\n']


def _broken(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[1][:-9] + b"\n", *lines[2:]]


def _empty(lines: list[bytes]) -> list[bytes]:
    return lines[:0]


def _secret(lines: list[bytes]) -> list[bytes]:
    token = b"ghp_" + b"Zq3vT8xL2mN7pR4sW9yB" + b"1cD6fG5hJ0kAe7Uq"
    return [line.replace(b'"Use npm."', b'"The token is ' + token + b'"') for line in lines]


@pytest.mark.parametrize("damage", [_cut, _newer, _strange, _broken, _empty, _secret])
def test_a_file_that_is_no_whole_export_brings_nothing(
    home: Path, tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    """Read and checked whole before anything is written."""
    with closing(opened(home)) as store:
        fill(store)
        lines = list(portable.lines_of(portable.export(store, now=T0)))

    with pytest.raises(Invalid):
        portable.parse(damage(lines))
