"""Forgetting for good: gone from every table, index, file and backup, and provably so."""

from __future__ import annotations

import importlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import brotli  # type: ignore[import-untyped]  # to look into a compact row
import pytest

from storage import forget as forgetting
from storage import session_log
from storage.authority import ProjectAuthority, copies, marker, open_authority
from storage.authority import payloads as say
from storage.authority.needles import in_bytes
from storage.authority.port import Container
from storage.connection import open_database, open_readonly, transaction
from storage.errors import Busy, Invalid
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import (
    DeferredStatement,
    Entity,
    FactKind,
    RedactedText,
    SourceCursor,
    Standing,
    fact_document_key,
)
from tests.storage.memory_samples import (
    COLLECTION,
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
from tests.support import ManualClock

SECRET = 'The “Zürich” rack is named "quokka-seventeen" (北京).'
QUOTE = "call the rack quokka-seventeen, please: wombat talk"
PLAIN = "quokka-seventeen"
OTHER = "The project uses pnpm."


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


@pytest.fixture
def store(home: Path, container: Container) -> Iterator[ProjectAuthority]:
    made = opened(home, container, clock=StepClock())
    fill(made)
    yield made
    made.close()


def fill(store: ProjectAuthority) -> None:
    old = a_fact("The rack has no name.")
    fact = replace(
        a_fact(SECRET, supersedes=[old.fact_id], valid_at=T0 + 9),
        entities=(Entity(name="Quokka-Seventeen"),),
        tags={"remedy": QUOTE},
    )
    store.append([say.fact_recorded(old, [a_quote("no name yet", line=2)])])
    store.append([say.fact_recorded(fact, [a_quote(QUOTE, line=7)])])
    store.append([say.fact_corroborated(fact.fact_id, a_quote(QUOTE + " again", line=8))])
    store.append([say.retrieval_feedback(fact.fact_id, "helpful")])
    store.append(
        [
            say.fact_resolved(fact.fact_id, Standing.NEEDS_REVIEW, T0, RedactedText(f"as {QUOTE}")),
            say.job_applied(f"learned {QUOTE}"),
            say.source_advanced(
                SourceCursor(
                    adapter="pi",
                    locator="/s.jsonl",
                    offset=10,
                    line=1,
                    state=json.dumps({"open": SECRET}),
                )
            ),
            say.statement_deferred(
                DeferredStatement(
                    statement_id="st_1",
                    kind=FactKind.DECISION,
                    original=RedactedText(f"merke: {QUOTE}"),
                    lang="de",
                    evidence=a_quote(f"merke: {QUOTE}", line=9),
                    deferred_at=T0,
                )
            ),
        ]
    )
    store.append([say.document_upserted(a_document(f"Racks.\n\n{SECRET}\n", name="racks.md"))])
    store.append([say.fact_recorded(a_fact(OTHER), [a_quote("we use pnpm", line=30)])])
    with store.read() as reads:
        rows = [(chunk.rowid, bytes([chunk.rowid] * 8)) for chunk in reads.chunks()]
    store.store_vectors(COLLECTION, rows)


def secret_id() -> str:
    return a_fact(SECRET).fact_id


def run(home: Path, target: str | None) -> forgetting.Forgotten:
    return forgetting.forget(
        HomePaths(home), PROJECT, target, clock=StepClock(T0 + 99), settings=ROOMY
    )


def everything_in(home: Path) -> Iterator[tuple[str, bytes]]:
    """Every file, and what compressed rows hold."""
    for file in sorted(home.rglob("*")):
        if file.is_file():
            yield file.name, file.read_bytes()
            if file.suffix == ".sqlite" and b"compact_authority" in file.read_bytes():
                with closing(open_readonly(file)) as db:
                    stored = marker.load(db, PROJECT)[1]
                if stored is not None:
                    yield f"{file.name} (unpacked)", brotli.decompress(stored.state)


def found(home: Path) -> list[str]:
    """Where a byte search finds the forgotten words, in any spelling."""
    spellings = set()
    for text in (SECRET, QUOTE, PLAIN, "Quokka-Seventeen", "wombat"):
        spellings |= {
            text.encode(),
            json.dumps(text)[1:-1].encode(),
            json.dumps(text, ensure_ascii=False)[1:-1].encode(),
        }
    return [name for name, data in everything_in(home) if any(s in data for s in spellings)]


def test_forgotten_words_are_found_nowhere(home: Path, store: ProjectAuthority) -> None:
    """Tables, indexes, journal, WAL, free pages: UTF-8, escaped JSON and the unpacked image."""
    assert found(home)

    done = run(home, secret_id()[:20])

    assert found(home) == []
    assert done.plan is not None
    assert done.left == ()
    assert done.plan.facts == (secret_id(),)
    assert done.plan.documents == (a_document(name="racks.md").key,)
    assert store.verify().problems == ()


def test_what_is_not_forgotten_stays_as_it_was(home: Path, store: ProjectAuthority) -> None:
    """Other facts, their vectors and even the end of a fact that the forgotten one replaced."""
    with store.read() as reads:
        old = reads.fact(a_fact("The rack has no name.").fact_id)
        other = reads.fact(a_fact(OTHER).fact_id)

    run(home, secret_id())

    with store.read() as reads:
        assert reads.fact(a_fact("The rack has no name.").fact_id) == old
        assert old is not None
        assert old.standing is Standing.SUPERSEDED
        assert reads.fact(a_fact(OTHER).fact_id) == other
        assert reads.document(fact_document_key(a_fact(OTHER).fact_id)) is not None
        assert len(list(reads.vectors(COLLECTION))) == 2
        assert reads.deferred() == []
        assert reads.stats().facts == 2
        cursor = reads.cursor("pi", "/s.jsonl")
        assert cursor is not None
        assert (cursor.offset, cursor.state) == (10, "")


def test_a_rebuild_gives_the_same_tables(home: Path, store: ProjectAuthority) -> None:
    """History without the text derives exactly what stands, again and again."""
    run(home, secret_id())
    with store.read() as reads:
        before = {name: rows for name, rows in dump(reads).items() if name != "slices"}

    store.rebuild()

    with store.read() as reads:
        assert {name: rows for name, rows in dump(reads).items() if name != "slices"} == before
    assert store.verify().problems == ()
    assert found(home) == []


def test_a_forgotten_memory_survives_promotion(home: Path) -> None:
    """The tombstone keeps its skeletons in the indexed form too."""
    store = opened(home, "compact")
    fill(store)
    run(home, secret_id())

    store.promote()

    assert store.container == "indexed"
    assert store.verify().problems == ()
    assert found(home) == []
    store.close()


def test_the_same_lines_are_not_learned_again(home: Path, store: ProjectAuthority) -> None:
    """Re-analysis of an old line changes nothing; the same words said anew are a new memory."""
    run(home, secret_id())
    again = say.fact_recorded(a_fact(SECRET), [a_quote(QUOTE, line=7)])
    copied = say.fact_recorded(a_fact(SECRET), [a_quote(QUOTE, line=70)])
    quoted = say.fact_recorded(a_fact("Another."), [a_quote(QUOTE + " again", line=8)])
    statement = say.statement_deferred(
        DeferredStatement(
            statement_id="st_2",
            kind=FactKind.DECISION,
            original=RedactedText(f"merke: {QUOTE}"),
            lang="de",
            evidence=a_quote(f"merke: {QUOTE}", line=9),
            deferred_at=T0,
        )
    )
    document = say.document_upserted(a_document(f"Racks.\n\n{SECRET}\n", name="racks.md"))
    spoken = say.retrieval_feedback(a_fact(SECRET).fact_id, "used")

    store.append([again, copied, quoted, statement, document, spoken])

    assert found(home) == []
    with store.read() as reads:
        assert reads.fact(a_fact(SECRET).fact_id) is None
        assert reads.deferred() == []
    anew = replace(a_quote(QUOTE, line=99), observed_at=T0 + 100)
    store.append([say.fact_recorded(a_fact(SECRET), [anew])])
    with store.read() as reads:
        assert reads.fact(a_fact(SECRET).fact_id) is not None
    assert store.verify().problems == ()
    run(home, secret_id())
    assert found(home) == []
    assert store.verify().problems == ()


def test_a_quote_that_another_fact_needs_stays(home: Path, container: Container) -> None:
    """Its words stay with that fact, in history too, and go when that fact is forgotten."""
    store = opened(home, container)
    shared = a_quote("use bun, never yarn", line=4)
    first, second = a_fact("Use bun here."), a_fact("Never use yarn.", kind=FactKind.CONSTRAINT)
    store.append([say.fact_recorded(first, [shared]), say.fact_recorded(second, [shared])])

    done = run(home, first.fact_id)

    assert done.plan is not None
    assert done.plan.shared == ((shared.evidence_id, second.fact_id),)
    with store.read() as reads:
        assert reads.evidence(second.fact_id) == [shared]
    assert store.verify().problems == ()
    store.rebuild()
    with store.read() as reads:
        assert reads.evidence(second.fact_id) == [shared]
    run(home, second.fact_id)
    assert [name for name, data in everything_in(home) if b"never yarn" in data] == []
    assert store.verify().problems == ()
    store.close()


def test_a_shared_quote_said_only_by_the_forgotten_fact_is_said_again(
    home: Path, container: Container
) -> None:
    """No later event holds its words, so one is appended before the old one is erased."""
    store = opened(home, container)
    shared = a_quote("use bun, never yarn", line=4)
    first, second = a_fact("Use bun here."), a_fact("Use bun here too.", kind=FactKind.CONSTRAINT)
    store.append([say.fact_recorded(first, [shared]), say.fact_recorded(second, [shared])])
    run(home, second.fact_id)
    store.append([say.fact_recorded(a_fact("Bun it is."), [shared])])

    run(home, first.fact_id)

    with store.read() as reads:
        assert reads.evidence(a_fact("Bun it is.").fact_id) == [shared]
    store.rebuild()
    assert store.verify().problems == ()
    store.close()


def test_a_document_is_forgotten_with_all_its_revisions(
    home: Path, store: ProjectAuthority
) -> None:
    """By key or by its source's name; earlier texts of it go too."""
    store.append([say.document_upserted(a_document("First wombat words.", name="w.md"))])
    store.append([say.document_upserted(a_document("Second words.", name="w.md"))])

    done = run(home, "w.md")

    assert done.plan is not None
    assert done.plan.documents == (a_document(name="w.md").key,)
    assert [name for name, data in everything_in(home) if b"First wombat words" in data] == []
    assert store.verify().problems == ()


def test_session_logs_staging_and_copies_are_blanked_in_place(
    home: Path, store: ProjectAuthority
) -> None:
    """Lines keep their numbers and lengths; lines of others stay whole."""
    paths = paths_in(home)
    said = session_log.Said(
        kind=FactKind.DECISION,
        statement=SECRET,
        sentence=SECRET,
        session_id="s",
        host="pi",
        at=T0,
    )
    session_log.append(paths, [replace(said, statement="Else.", sentence="Else."), said], T0)
    log = next(paths.session_log.glob("*.jsonl"))
    before = log.read_bytes()
    given = paths.root / "given"
    given.mkdir(mode=0o700)
    (given / "a.jsonl").write_text(json.dumps({"text": f"x {QUOTE} y"}) + "\n")
    staging = HomePaths(home).shared / "staging"
    staging.mkdir(parents=True, mode=0o700)
    head = {"t": "head", "project": PROJECT, "host": "pi", "session": "s", "carried": SECRET}
    lines = [head, {"t": "said", "text": QUOTE}, {"t": "tool", "text": "fine"}]
    (staging / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    foreign = json.dumps({**head, "project": "p_ffffffffffff"}) + "\n"
    (staging / "b.jsonl").write_text(foreign)

    done = run(home, secret_id())

    after = log.read_bytes()
    assert len(after) == len(before)
    assert after.split(b"\n")[0] == before.split(b"\n")[0]
    assert json.loads(after.split(b"\n")[1]) == {"v": 0}
    kept = [json.loads(line) for line in (staging / "a.jsonl").read_text().splitlines()]
    assert kept == [{**head, "carried": None}, {"v": 0}, {"t": "tool", "text": "fine"}]
    assert (staging / "b.jsonl").read_text() == foreign, "another project's"
    (staging / "b.jsonl").unlink()
    assert found(home) == []
    assert len(done.cleaned) == 3


def test_queue_rows_lose_the_words(home: Path, store: ProjectAuthority) -> None:
    """Notes and errors are blanked, a message that holds the words goes, and no page keeps them."""
    paths = HomePaths(home)
    queue = open_queue(paths, clock=ManualClock())
    queue.enqueue([JobSpec(kind=JobKind.SYNC, project=PROJECT, subject="kept")])
    queue.enqueue(
        [JobSpec(kind=JobKind.ANALYZE, project=PROJECT, subject="x", args={"text": QUOTE})]
    )
    queue.close()
    with closing(open_database(paths.queue)) as db, transaction(db):
        db.execute("UPDATE jobs SET note = ?, error = ? WHERE subject = 'kept'", (SECRET, QUOTE))

    run(home, secret_id())

    assert found(home) == []
    with closing(open_readonly(paths.queue)) as db:
        rows = db.execute("SELECT subject, note, error FROM jobs").fetchall()
    assert rows == [("kept", "", "")]


def test_our_backups_forget_too(home: Path, store: ProjectAuthority) -> None:
    """Each is rewritten, still belongs to the project, and proves sound."""
    folder = paths_in(home).memory / "backups"
    folder.mkdir(mode=0o700)
    file = folder / "a.sqlite"
    copies.write(paths_in(home), PROJECT, file, made_at=5, check=lambda _: None)
    plain = folder / "broken.sqlite"
    plain.write_bytes(b"not a database")

    done = run(home, secret_id())

    assert done.backups == ("a.sqlite",)
    assert [line.split(":")[0] for line in done.left] == ["backups/broken.sqlite"]
    assert found(home) == []
    assert copies.info(file).made_at == 5
    assert [p.check for p in store.verify().problems] == ["erasure"], "the broken one is open"
    plain.unlink()
    run(home, None)
    assert store.verify().problems == ()


STEPS = [
    ("storage.erasure", "clean_project"),
    ("storage.forget", "_clean_backup"),
    ("storage.authority.copies", "write"),
    ("storage.authority.journal", "replace_file"),
    ("storage.authority.indexed", "reclaim"),
    ("storage.authority.compact", "reclaim"),
    ("storage.authority.ProjectAuthority", "erased"),
]
NOT_IN = {("compact", "journal"), ("compact", "indexed"), ("indexed", "compact")}


@pytest.mark.parametrize(("where", "name"), STEPS, ids=[step[1] for step in STEPS])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_forgetting_that_stops_at_any_step_is_finished_by_the_next_run(
    home: Path,
    store: ProjectAuthority,
    container: Container,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    name: str,
    after: bool,
) -> None:
    """Until then verify says so; the memory itself is gone for every reader at once."""
    if (container, where.rpartition(".")[2]) in NOT_IN:
        return
    folder = paths_in(home).memory / "backups"
    folder.mkdir(mode=0o700)
    copies.write(paths_in(home), PROJECT, folder / "a.sqlite", made_at=5, check=lambda _: None)

    class Stop(BaseException):
        pass

    def stopping(real: Callable[..., Any]) -> Callable[..., Any]:  # Any: wraps whatever it gets
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if after:
                real(*args, **kwargs)
            raise Stop

        return wrapped

    holder: object = (
        ProjectAuthority if where.endswith("ProjectAuthority") else importlib.import_module(where)
    )
    with monkeypatch.context() as patch:
        patch.setattr(holder, name, stopping(getattr(holder, name)))
        with pytest.raises(Stop):
            run(home, secret_id())

    with store.read() as reads:
        assert reads.fact(a_fact(SECRET).fact_id) is None
    problems = store.verify().problems
    assert {problem.check for problem in problems} <= {"erasure"}
    if not (name == "erased" and after):
        assert problems
    run(home, None)
    assert store.verify().problems == ()
    assert found(home) == []
    assert list(folder.glob(".work-*")) == []


def test_what_is_not_there_cannot_be_forgotten(home: Path, store: ProjectAuthority) -> None:
    """A wrong id, an ambiguous start, nothing at all: refused, and nothing changes."""
    before = store.generation()

    for target in ("mem_nothing", "mem_", ""):
        with pytest.raises(Invalid):
            run(home, target)

    assert store.generation() == before
    assert run(home, None).plan is None


def test_a_reader_that_pins_old_pages_is_named_and_the_next_run_ends_it(home: Path) -> None:
    """The log cannot be emptied under a reader: Busy, and nothing that was done is undone."""
    store = opened(home, "indexed", busy_ms=50)
    fill(store)

    with store.read(), pytest.raises(Busy):
        run_quickly(home)
    assert {problem.check for problem in store.verify().problems} == {"erasure"}
    run(home, None)

    assert found(home) == []
    assert store.verify().problems == ()
    store.close()


def run_quickly(home: Path) -> None:
    def impatient(*args: Any, **kwargs: Any) -> ProjectAuthority:
        return open_authority(*args, **kwargs, busy_ms=50)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forgetting, "open_authority", impatient)
        run(home, secret_id())


def test_a_failed_promotions_journal_is_forgotten_too(home: Path) -> None:
    """History that a promotion wrote before it failed lies beside the row: it goes."""
    store = opened(home, "compact")
    fill(store)
    scratch = home / "scratch"
    scratch.mkdir(mode=0o700)
    other = opened(scratch, "compact")
    fill(other)
    other.promote()
    other.close()
    shutil.copytree(paths_in(scratch).events, paths_in(home).events)
    shutil.rmtree(scratch)

    run(home, secret_id())

    assert found(home) == []
    store.promote()
    assert store.verify().problems == ()
    store.close()


def test_only_whole_words_are_the_forgotten_text(home: Path, container: Container) -> None:
    """`quote 77` is not in `quote 770`: what merely begins alike stays."""
    store = opened(home, container)
    store.append([say.fact_recorded(a_fact("Take route seven."), [a_quote("quote 77", line=1)])])
    store.append([say.fact_recorded(a_fact("Take route sevenths."), [a_quote("quote 770")])])
    said = session_log.Said(
        kind=FactKind.DECISION,
        statement="It is quote 770.",
        sentence="It is quote 770.",
        session_id="s",
        host="pi",
        at=T0,
    )
    session_log.append(paths_in(home), [said], T0)

    done = run(home, a_fact("Take route seven.").fact_id)

    assert (done.cleaned, done.left) == ((), ())
    with store.read() as reads:
        assert [fact.statement for fact in reads.facts()] == ["Take route sevenths."]
    store.close()


@pytest.mark.parametrize(
    ("data", "there"),
    [
        (b'{"t":"a\\nuse pnpm\\nb"}', True),
        (b"re-use pnpm", True),
        (b"reuse pnpm", False),
        (b"use pnpmx", False),
        ("北use pnpm京".encode(), True),
    ],
)
def test_a_text_is_found_by_its_words(data: bytes, there: bool) -> None:
    """The letter of a JSON escape and letters of scripts without spaces part words."""
    assert in_bytes(data, ["use pnpm"]) is there
    assert in_bytes(json.dumps({"t": "é “use”"}).encode(), ["é “use”"])
