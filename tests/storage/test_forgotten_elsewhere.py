"""A copy from before a forgetting lies elsewhere: put back, it forgets the same again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from storage import backup, forget, portable
from storage.authority import ProjectAuthority, journal
from storage.authority import payloads as say
from storage.authority.image import Image
from storage.authority.marker import load
from storage.authority.needles import in_bytes
from storage.authority.port import Container
from storage.connection import open_readonly
from storage.paths import HomePaths
from storage.records import DeferredStatement, FactKind, RedactedText
from storage.repair import repair
from tests.storage.memory_samples import (
    PROJECT,
    ROOMY,
    T0,
    StepClock,
    a_document,
    a_fact,
    a_quote,
    opened,
    paths_in,
)

SECRET = "The quokka rack stands in cellar nine."
QUOTE = "put the quokka rack into cellar nine"
FOREIGN = "stell das quokka rack in keller neun"
CLOCK = StepClock(T0 + 50)


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


@pytest.fixture
def store(home: Path, container: Container) -> Iterator[ProjectAuthority]:
    made = opened(home, container)
    made.append([say.fact_recorded(a_fact("It stays."), [a_quote("it stays", line=3)])])
    yield made
    made.close()


def remember(store: ProjectAuthority) -> None:
    store.append([say.fact_recorded(a_fact(SECRET), [a_quote(QUOTE)])])


def waiting() -> DeferredStatement:
    return DeferredStatement(
        statement_id="st_1",
        kind=FactKind.DECISION,
        original=RedactedText(FOREIGN),
        lang="de",
        evidence=a_quote(FOREIGN, line=9),
        deferred_at=T0,
    )


def forget_it(home: Path) -> None:
    target = a_fact(SECRET).fact_id
    forget.forget(HomePaths(home), PROJECT, target, clock=CLOCK, settings=ROOMY)


def copy_of(home: Path, target: Path) -> Path:
    return backup.back_up(paths_in(home), PROJECT, target, clock=StepClock(), settings=ROOMY).file


def put_back(home: Path, file: Path) -> backup.Restored:
    return backup.restore(paths_in(home), PROJECT, file, clock=CLOCK, settings=ROOMY, force=True)


def holds(home: Path, words: str = "quokka") -> bool:
    """Whether any file has the words, packed or not."""
    paths = paths_in(home)
    found = [file.read_bytes() for file in paths.root.rglob("*") if file.is_file()]
    for stream in journal.streams(paths.events):
        with journal.opened(paths.events, stream) as file:
            found.append(file.read())
    with closing(open_readonly(paths.database)) as db:
        stored = load(db, PROJECT)[1]
    if stored is not None:
        found.append(Image.unpack(stored).db.serialize("main"))
    return any(in_bytes(data, [words]) for data in found)


def test_a_restored_backup_forgets_what_was_forgotten_since(
    home: Path, tmp_path: Path, store: ProjectAuthority
) -> None:
    """In tables, history and bytes; the line is not learned again, and the rest is there."""
    remember(store)
    file = copy_of(home, tmp_path / "elsewhere.sqlite")
    forget_it(home)
    assert not holds(home)

    done = put_back(home, file)

    assert (done.forgotten, done.report.problems) == (2, ())
    assert not holds(home)
    with closing(opened(home, create=False)) as again:
        again.append([say.fact_recorded(a_fact(SECRET), [a_quote(QUOTE)])])
        with again.read() as reads:
            assert [fact.statement for fact in reads.facts()] == ["It stays."]
        assert again.verify().problems == ()
    assert not holds(home)


def test_a_restored_backup_knows_what_it_never_held(
    home: Path, tmp_path: Path, store: ProjectAuthority
) -> None:
    """Its sources are read again from an older place: the forgotten line is still not learned."""
    file = copy_of(home, tmp_path / "elsewhere.sqlite")
    remember(store)
    forget_it(home)

    assert put_back(home, file).forgotten == 2

    with closing(opened(home, create=False)) as again:
        remember(again)
        with again.read() as reads:
            assert reads.fact(a_fact(SECRET).fact_id) is None
            assert reads.is_forgotten(a_quote(QUOTE).evidence_id)
        assert again.verify().problems == ()
    assert not holds(home)


def test_a_statement_that_waited_in_the_backup_goes_with_its_quote(
    home: Path, tmp_path: Path, store: ProjectAuthority
) -> None:
    """What became a fact later, and was forgotten, is still a waiting statement there."""
    store.append([say.statement_deferred(waiting())])
    file = copy_of(home, tmp_path / "elsewhere.sqlite")
    kept = copy_of(home, paths_in(home).memory / "backups" / "ours.sqlite")
    released = say.statement_released("st_1", "translated")
    store.append([say.fact_recorded(a_fact(SECRET), [waiting().evidence]), released])
    forget_it(home)
    assert kept.exists()

    put_back(home, file)

    assert not holds(home, "keller")
    with closing(opened(home, create=False)) as again, again.read() as reads:
        assert reads.deferred() == []
    assert put_back(home, kept).report.problems == ()
    assert not holds(home, "keller")


def test_an_import_brings_no_forgotten_quote_back(store: ProjectAuthority, home: Path) -> None:
    """Neither by itself, nor behind another fact, nor as a waiting statement."""
    remember(store)
    other = a_fact("The cellar is dry.")
    whole = list(portable.lines_of(portable.export(store, now=T0)))
    store.append([say.fact_recorded(other, [a_quote("it is dry", line=20)])])
    later = portable.parse(portable.lines_of(portable.export(store, now=T0)))
    forget_it(home)
    parcel = portable.parse(whole)
    (behind,) = [item for item in later.facts if item.fact.fact_id == other.fact_id]
    elsewhere = replace(behind.fact, fact_id=a_fact("Another of the kind.").fact_id)
    parcel.facts.append(replace(behind, fact=elsewhere, evidence=(a_quote(QUOTE),)))
    parcel.deferred.append(replace(waiting(), evidence=a_quote(QUOTE)))

    done = portable.take_in(store, parcel)

    assert (done.facts, done.deferred, done.forgotten) == (1, 0, 2)
    with store.read() as reads:
        assert reads.evidence(elsewhere.fact_id) == []
    assert store.verify().problems == ()
    assert not holds(home)


def test_a_store_that_cannot_be_read_is_said_to_be_unknown(
    home: Path, tmp_path: Path, store: ProjectAuthority
) -> None:
    """Nobody can say what it had forgotten; the backup takes its place as it is."""
    file = copy_of(home, tmp_path / "elsewhere.sqlite")
    store.close()
    paths_in(home).database.write_bytes(b"no database at all")

    assert put_back(home, file).forgotten is None


def test_a_document_forgotten_since_does_not_come_back(
    home: Path, tmp_path: Path, store: ProjectAuthority
) -> None:
    """Its text is out of the restored store's bytes too."""
    store.append([say.document_upserted(a_document("A quokka text.", name="q.md"))])
    file = copy_of(home, tmp_path / "elsewhere.sqlite")
    key = a_document(name="q.md").key
    forget.forget(HomePaths(home), PROJECT, key, clock=CLOCK, settings=ROOMY)

    put_back(home, file)

    assert not holds(home)
    with closing(opened(home, create=False)) as again, again.read() as reads:
        assert reads.document(key) is None


def test_a_repair_from_a_backup_forgets_along(home: Path, store: ProjectAuthority) -> None:
    """Our own backups were rewritten, and the repaired store proves."""
    remember(store)
    copy_of(home, paths_in(home).memory / "backups" / "ours.sqlite")
    forget_it(home)
    store.close()
    paths_in(home).database.write_bytes(b"no database at all")

    repair(paths_in(home), PROJECT, clock=CLOCK, settings=ROOMY)

    assert not holds(home)
    with closing(opened(home, create=False)) as again:
        assert again.verify().problems == ()
