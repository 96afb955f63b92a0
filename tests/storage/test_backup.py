"""Backup and restore, export and import: a memory leaves its home and comes back the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import backup, portable
from storage.authority import ProjectAuthority, copies, marker
from storage.authority import payloads as say
from storage.authority.port import Container
from storage.connection import open_database, open_readonly, transaction
from storage.errors import Corrupt, Invalid, WrongOwner
from storage.events import EventDraft
from storage.forget import forget
from storage.paths import HomePaths
from storage.records import (
    DeferredStatement,
    FactId,
    FactKind,
    ProjectId,
    RedactedText,
    Standing,
    fact_document_key,
    fact_id,
)
from storage.usefulness import give_feedback
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
    paths_in,
)

OTHER = ProjectId("p_ffffffffffff")


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


def fill(store: ProjectAuthority) -> None:
    old = a_fact("Use npm.")
    store.append([say.fact_recorded(old, [a_quote("npm", line=1)])])
    new = a_fact("Use pnpm.", supersedes=[old.fact_id], valid_at=T0 + 5)
    store.append([say.fact_recorded(new, [a_quote("pnpm", line=2)])])
    store.append([say.document_upserted(a_document())])
    store.append([say.retrieval_feedback(new.fact_id, "helpful")])
    store.append(
        [
            say.statement_deferred(
                DeferredStatement(
                    statement_id="st_1",
                    kind=FactKind.DECISION,
                    original=RedactedText("nimm pnpm"),
                    lang="de",
                    evidence=a_quote("nimm pnpm", line=3),
                    deferred_at=T0,
                )
            )
        ]
    )


def state(home: Path) -> dict[str, list[object]]:
    with closing(opened(home, create=False)) as store, store.read() as reads:
        return dump(reads)


def back_up(home: Path, target: Path | None = None, at: int = T0 + 9) -> backup.Backup:
    return backup.back_up(paths_in(home), PROJECT, target, clock=StepClock(at), settings=ROOMY)


def restore(home: Path, file: Path, *, force: bool = False) -> backup.Restored:
    return backup.restore(
        paths_in(home), PROJECT, file, clock=StepClock(T0 + 20), settings=ROOMY, force=force
    )


def test_a_backup_is_one_private_proven_file(
    home: Path, container: Container, tmp_path: Path
) -> None:
    """Integrity, owner and history proven; nothing but the one file; progress is told."""
    opened(home, container).close()
    with closing(opened(home, create=False)) as store:
        fill(store)
    steps: list[tuple[int, int]] = []
    target = tmp_path / "out" / "b.sqlite"
    target.parent.mkdir()

    made = backup.back_up(
        paths_in(home),
        PROJECT,
        target,
        clock=StepClock(T0 + 9),
        settings=ROOMY,
        progress=lambda done, total: steps.append((done, total)),
    )

    assert [item.name for item in target.parent.iterdir()] == ["b.sqlite"]
    assert target.stat().st_mode & 0o077 == 0
    assert made.report.sound
    assert made.report.events == 5
    assert steps[-1][0] == steps[-1][1] > 0
    with closing(open_readonly(target)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert copies.info(target).project == PROJECT


def test_a_backup_is_of_one_moment_while_others_write(home: Path) -> None:
    """A writer in between neither blocks it nor gets half into it."""
    store = opened(home, "indexed")
    fill(store)
    before = state(home)
    wrote: list[bool] = []

    def write_meanwhile(done: int, total: int) -> None:
        if not wrote:
            store.append([say.document_upserted(a_document("Meanwhile.", name="m"))])
            wrote.append(True)

    made = backup.back_up(
        paths_in(home),
        PROJECT,
        None,
        clock=StepClock(T0 + 9),
        settings=ROOMY,
        progress=write_meanwhile,
    )
    store.close()
    restore(home, made.file, force=True)

    assert wrote
    assert state(home) == before


def test_a_restored_memory_is_the_one_that_was_backed_up(home: Path, container: Container) -> None:
    """Over a living store only with force, and then what was there is kept."""
    with closing(opened(home, container)) as store:
        fill(store)
    before = state(home)
    file = back_up(home).file
    with closing(opened(home, create=False)) as store:
        store.append([say.document_upserted(a_document("Since then.", name="s"))])
        seen = store.generation()
    since = state(home)

    with pytest.raises(Invalid):
        restore(home, file)
    assert state(home) == since
    done = restore(home, file, force=True)

    assert state(home) == before
    with closing(opened(home, create=False)) as store:
        assert store.verify().problems == ()
        assert store.generation() > seen, "no cache may take it for what was there"
        store.append([say.document_upserted(a_document("And on.", name="o"))])
        assert store.verify().problems == ()
    assert done.kept is not None
    restore(home, done.kept, force=True)
    assert state(home) == since


def test_a_lost_memory_comes_back_without_force(home: Path, container: Container) -> None:
    """Nothing is there, so nothing is replaced."""
    with closing(opened(home, container)) as store:
        fill(store)
    before = state(home)
    file = back_up(home).file
    saved = home / "saved.sqlite"
    shutil.copy(file, saved)
    shutil.rmtree(paths_in(home).root)

    done = restore(home, saved)

    assert done.kept is None
    assert state(home) == before


def test_an_open_handle_follows_a_restore(home: Path) -> None:
    """A compact backup over a memory that grew since: handles stay usable, nothing goes back."""
    with closing(opened(home, "compact")) as store:
        fill(store)
    file = back_up(home).file
    handle = opened(home, create=False)
    handle.promote()
    handle.append([say.document_upserted(a_document("Since then.", name="s"))])

    restore(home, file, force=True)

    assert handle.container == "indexed"
    with handle.read() as reads:
        assert reads.document(a_document(name="s").key) is None
    handle.append([say.document_upserted(a_document("And on.", name="o"))])
    assert handle.verify().problems == ()
    handle.close()


def test_a_damaged_or_foreign_file_is_refused_and_nothing_changes(
    home: Path, container: Container, tmp_path: Path
) -> None:
    """Another project's backup, a damaged one, and no backup at all."""
    with closing(opened(home, container)) as store:
        fill(store)
    before = state(home)
    file = back_up(home).file
    with closing(opened(home, container, project=OTHER)) as other:
        fill(other)
    foreign = backup.back_up(
        paths_in(home, OTHER), OTHER, None, clock=StepClock(), settings=ROOMY
    ).file
    damaged = tmp_path / "damaged.sqlite"
    shutil.copy(file, damaged)
    with closing(open_database(damaged)) as db, transaction(db):
        if container == "compact":
            db.execute("UPDATE compact_authority SET state = randomblob(500)")
        else:
            db.execute("UPDATE backup_journal SET data = randomblob(length(data))")
    text = tmp_path / "text.sqlite"
    text.write_text("not a database at all, whatever its name says" * 40)

    for wrong, error in ((foreign, WrongOwner), (damaged, Corrupt), (text, Corrupt)):
        with pytest.raises(error):
            restore(home, wrong, force=True)

    assert state(home) == before


def test_a_damaged_store_is_not_backed_up(home: Path) -> None:
    """A backup that could not be restored is no backup."""
    with closing(opened(home, "indexed")) as store:
        fill(store)
    stream = next(paths_in(home).events.rglob("*.jsonl"))
    stream.write_bytes(stream.read_bytes()[:-30])

    with pytest.raises(Corrupt):
        back_up(home)

    assert list(backup.folder_of(paths_in(home)).glob("*")) == []


def test_a_damaged_store_that_is_replaced_is_kept_file_by_file(home: Path) -> None:
    """What cannot be copied as a backup lies in the quarantine."""
    with closing(opened(home, "indexed")) as store:
        fill(store)
    file = back_up(home).file
    before = state(home)
    stream = next(paths_in(home).events.rglob("*.jsonl"))
    stream.write_bytes(stream.read_bytes()[:-30])

    done = restore(home, file, force=True)

    assert state(home) == before
    assert done.kept is not None
    assert done.kept.parent.name == "quarantine"
    assert (done.kept / "memory.sqlite").is_file()


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


def test_feedback_counts_and_doubts_ask_for_a_review(home: Path, container: Container) -> None:
    """Wrong and stale make a fact that holds one to be reviewed; used and helpful do not."""
    with closing(opened(home, container)) as store:
        fill(store)
        fact_id = a_fact("Use pnpm.").fact_id

        assert give_feedback(store, fact_id, "used", T0).standing is Standing.SUPPORTED
        assert give_feedback(store, fact_id, "stale", T0).standing is Standing.NEEDS_REVIEW
        ended = give_feedback(store, a_fact("Use npm.").fact_id, "wrong", T0)
        assert ended.standing is Standing.SUPERSEDED
        with store.read() as reads:
            assert reads.counts(fact_id) == (1, 1, 0, 1)
        with pytest.raises(Invalid):
            give_feedback(store, a_fact("Nobody said this.").fact_id, "used", T0)
        assert store.verify().problems == ()


def test_the_owner_of_a_raised_revision_still_proves_itself(home: Path) -> None:
    """A restored row carries a digest over its new revision."""
    with closing(opened(home)) as store:
        fill(store)
    with closing(open_database(paths_in(home).database)) as db, transaction(db):
        marker.raise_revision(db, PROJECT, 900)

    with closing(opened(home, create=False)) as store:
        assert store.generation() == 900
        assert store.verify().problems == ()
