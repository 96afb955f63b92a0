"""Damage: verify names it, nothing is served from it silently, and repair keeps the rest.

What is promised for one wrong byte, and tested here for sampled bytes of every file:
compact: the row is refused as a whole, or every read is exactly what it was (the byte lay in space
that SQLite does not use); indexed: the damage is reported by verify or refused on reading, or
every read is exactly what it was. Vectors of an indexed store are outside of this: they hold no
words, order candidates only, and can be computed again.
"""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage import backup, repair_journal
from storage.authority import ProjectAuthority
from storage.authority import payloads as say
from storage.authority.port import Container
from storage.connection import open_database, open_readonly, transaction
from storage.errors import Busy, Corrupt, Invalid, MemorydError, NotInitialized, WrongOwner
from storage.events import EventType
from storage.paths import ProjectPaths
from storage.records import ProjectId, SourceCursor
from storage.repair import NothingToKeep, Repaired, repair
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

Dump = dict[str, list[object]]


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


def fill(store: ProjectAuthority) -> None:
    for number in range(4):
        fact = a_fact(f"Statement number {number} about deployment.")
        store.append([say.fact_recorded(fact, [a_quote(f"quote {number}", line=number)])])
    store.append([say.document_upserted(a_document("Runs of words.\n\nMore of them."))])
    store.append([say.source_advanced(SourceCursor(adapter="pi", locator="/s", offset=4, line=1))])
    with store.read() as reads:
        rows = [(chunk.rowid, bytes([chunk.rowid] * 8)) for chunk in reads.chunks()]
    store.store_vectors(COLLECTION, rows)


def made(home: Path, container: Container) -> ProjectPaths:
    store = opened(home, container)
    fill(store)
    store.close()
    return paths_in(home)


def served(home: Path) -> Dump:
    """Everything that reading gives: tables, and what the full-text index finds."""
    with closing(opened(home, create=False)) as store, store.read() as reads:
        found = dump(reads)
        if store.container == "indexed":
            match = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rowid"
            for word in ("deployment", "words", "deploying"):
                found[word] = list(reads.db.execute(match, (word,)).fetchall())
        return found


def problems(home: Path) -> list[str]:
    with closing(opened(home, create=False)) as store:
        return [f"{problem.check}: {problem.detail}" for problem in store.verify().problems]


def mend(home: Path) -> Repaired:
    return repair(paths_in(home), PROJECT, clock=StepClock(T0 + 50), settings=ROOMY)


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 1 << bit
    path.write_bytes(bytes(data))


def stream_of(paths: ProjectPaths) -> Path:
    return next(paths.events.rglob("*.jsonl"))


def back_up(home: Path) -> Path:
    return backup.back_up(
        paths_in(home), PROJECT, None, clock=StepClock(T0 + 9), settings=ROOMY
    ).file


def history_of(home: Path, kind: EventType) -> list[dict[str, object]]:
    with closing(opened(home, create=False)) as store, store.snapshot() as (_, events):
        return [dict(event.payload or {}) for event in events if event.type is kind]


def test_a_sound_store_is_left_alone(home: Path, container: Container) -> None:
    """Nothing to repair: nothing changes."""
    paths = made(home, container)
    before = paths.database.read_bytes()

    assert not mend(home).changed
    assert paths.database.read_bytes() == before


def test_a_torn_tail_is_set_aside_and_written_down(home: Path) -> None:
    """Offset, length and hash of what was cut stand in history; every whole event stays."""
    paths = made(home, "indexed")
    before = served(home)
    path = stream_of(paths)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"v":1,"torn')
    assert problems(home) == [
        f"journal tail: {path.parent.name}/{path.stem}: 12 bytes beyond what was committed"
    ]

    done = mend(home)

    assert problems(home) == []
    assert served(home) == before
    (cut,) = done.cuts
    assert (cut.offset, cut.bytes) == (size, 12)
    assert (paths.memory / cut.kept_in).read_bytes() == b'{"v":1,"torn'
    (noted,) = history_of(home, EventType.CHAIN_REPAIRED)
    assert (noted["file"], noted["offset"], noted["bytes"]) == (cut.file, size, 12)
    assert noted["sha256"] == cut.sha256
    assert noted["lost"] == []


@pytest.mark.parametrize("damage", ["middle line", "cut short", "deleted", "first line"])
@pytest.mark.parametrize("with_backup", [False, True])
def test_lost_lines_come_from_a_backup_or_are_said_again(
    home: Path, damage: str, with_backup: bool
) -> None:
    """No fact is lost with the line that told it: tables and backups know what it said."""
    paths = made(home, "indexed")
    if with_backup:
        back_up(home)
    before = served(home)
    path = stream_of(paths)
    lines = path.read_bytes().splitlines(keepends=True)
    match damage:
        case "middle line":
            lines[2] = lines[2].replace(b"quote", b"quota")
        case "first line":
            lines[0] = b"garbage\n"
        case "cut short":
            lines = [*lines[:2], lines[2][:40]]
        case _:
            lines = []
    path.write_bytes(b"".join(lines))
    if damage == "deleted":
        path.unlink()
    assert problems(home) != []

    done = mend(home)

    assert problems(home) == []
    after = served(home)
    for table in ("facts", "evidence", "documents", "source_cursors", "deployment", "words"):
        unnumbered = table in {"deployment", "words"}
        one, other = (len(d[table]) if unnumbered else d[table] for d in (before, after))
        if table in {"source_cursors", "documents"}:
            continue
        assert one == other, table
    assert [row[:2] for row in after["source_cursors"]] == [("pi", "/s")]  # type: ignore[index]
    assert (done.recovered > 0) is with_backup
    assert (done.lost > 0) is not with_backup
    with closing(opened(home, create=False)) as store:
        store.rebuild()
        store.append([say.document_upserted(a_document("Later.", name="l"))])
    assert problems(home) == []


def test_a_broken_database_is_made_anew_from_its_journal(home: Path) -> None:
    """Every event counts; the damaged file lies in the quarantine, byte for byte."""
    paths = made(home, "indexed")
    before = served(home)
    data = bytearray(paths.database.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    paths.database.write_bytes(bytes(data))
    with pytest.raises(Corrupt):
        problems(home)

    done = mend(home)

    assert problems(home) == []
    assert served(home) == before
    (cut,) = done.cuts
    assert (paths.memory / cut.kept_in / "memory.sqlite").read_bytes() == bytes(data)


def test_a_file_that_is_no_database_is_made_anew_too(home: Path) -> None:
    """Even its header may be gone."""
    paths = made(home, "indexed")
    before = served(home)
    paths.database.write_bytes(b"\0" * 8192)

    mend(home)

    assert problems(home) == []
    assert served(home) == before


def test_an_open_handle_sees_the_repaired_store(home: Path) -> None:
    """Another process keeps its connection: the new database came through SQLite, not a rename."""
    made(home, "indexed")
    handle = opened(home, create=False)
    seen = handle.generation()
    with closing(open_database(paths_in(home).database)) as db, transaction(db):
        db.execute("UPDATE events SET recorded_at = recorded_at + 1 WHERE seq = 2")
    assert problems(home) != []

    mend(home)

    assert handle.generation() > seen
    assert handle.verify().problems == ()
    handle.append([say.document_upserted(a_document("Later.", name="l"))])
    assert handle.verify().problems == ()
    handle.close()


def test_a_compact_row_with_a_wrong_digest_keeps_its_content(home: Path) -> None:
    """History proves itself by its own hashes, so the wrapping can be made anew."""
    paths = made(home, "compact")
    before = served(home)
    with closing(open_database(paths.database)) as db, transaction(db):
        db.execute("UPDATE compact_authority SET digest = 'x'")
    with pytest.raises(Corrupt):
        served(home)

    done = mend(home)

    assert served(home) == before
    assert problems(home) == []
    assert done.cuts[0].kept_in.startswith("quarantine/")


def break_row(paths: ProjectPaths) -> None:
    with closing(open_database(paths.database)) as db, transaction(db):
        db.execute("UPDATE compact_authority SET state = randomblob(length(state))")


def test_an_unreadable_row_is_replaced_by_the_newest_sound_backup(home: Path) -> None:
    """A newer backup that is itself damaged is passed over."""
    paths = made(home, "compact")
    file = back_up(home)
    before = served(home)
    with closing(opened(home, create=False)) as store:
        store.append([say.document_upserted(a_document("Since then.", name="x"))])
    newer = file.with_name("newer.sqlite")
    shutil.copy(file, newer)
    flip(newer, newer.stat().st_size // 2, 3)
    break_row(paths)
    damaged = paths.database.read_bytes()

    done = mend(home)

    assert done.restored_from in {file.name, newer.name}
    assert served(home) == before
    assert problems(home) == []
    assert (paths.memory / done.cuts[0].kept_in / "memory.sqlite").read_bytes() == damaged


def test_without_a_backup_it_says_that_nothing_can_be_kept(home: Path) -> None:
    """And leaves the damaged file exactly as it is."""
    paths = made(home, "compact")
    break_row(paths)
    damaged = paths.database.read_bytes()

    with pytest.raises(NothingToKeep):
        mend(home)

    assert paths.database.read_bytes() == damaged


def test_what_is_not_ours_is_not_repaired(home: Path) -> None:
    """Another project's store, and a store that never was."""
    made(home, "compact")
    other = ProjectId("p_ffffffffffff")
    paths_in(home).root.rename(paths_in(home, other).root)

    with pytest.raises(WrongOwner):
        repair(paths_in(home, other), other, clock=StepClock(), settings=ROOMY)
    with pytest.raises(NotInitialized):
        mend(home)


@pytest.fixture(scope="module")
def sound_stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One filled store a container, copied before each wrong byte."""
    homes: dict[str, Path] = {}
    chosen: Container
    for chosen in ("compact", "indexed"):
        home = tmp_path_factory.mktemp(chosen)
        made(home, chosen)
        homes[chosen] = home
    return homes


def assert_not_silent(original: Path, work: Path, path: Path, at: int, bit: int) -> str:
    """The outcome of one wrong byte: refused, reported, or without any effect."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original, work)
    target = work / path.relative_to(original)
    flip(target, at, bit)
    try:
        found = problems(work)
    except MemorydError:
        return "refused"
    if found:
        return "reported"
    try:
        assert served(work) == served(original), f"{path.name} byte {at} bit {bit}"
    except MemorydError:
        return "refused"
    return "harmless"


def files_of(home: Path) -> list[Path]:
    root = paths_in(home).root
    return sorted(p for p in root.rglob("*") if p.suffix in {".sqlite", ".jsonl"})


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.integers(0, 1 << 24), bit=st.integers(0, 7), which=st.integers(0, 9))
def test_no_wrong_byte_is_served_silently(
    sound_stores: dict[str, Path],
    tmp_path: Path,
    container: Container,
    where: int,
    bit: int,
    which: int,
) -> None:
    """Refused, reported by verify, or every read is what it was."""
    original = sound_stores[container]
    files = files_of(original)
    path = files[which % len(files)]

    outcome = assert_not_silent(original, tmp_path / "w", path, where, bit)

    if path.suffix == ".jsonl":
        assert outcome in {"refused", "reported"}, "every byte of the journal is covered"


def test_repair_after_a_wrong_byte_keeps_the_facts(
    sound_stores: dict[str, Path], tmp_path: Path
) -> None:
    """Sampled over every file of the indexed form: the store verifies, and has its facts."""
    original = sound_stores["indexed"]
    chance = random.Random(7)
    wanted = served(original)["facts"]
    mended = 0
    for path in files_of(original) * 8:
        work = tmp_path / "w"
        at, bit = chance.randrange(path.stat().st_size), chance.randrange(8)
        outcome = assert_not_silent(original, work, path, at, bit)
        if outcome == "harmless":
            continue
        mend(work)
        assert problems(work) == []
        assert served(work)["facts"] == wanted, f"{path.name} byte {at} bit {bit}"
        mended += 1

    assert mended >= 8


def test_a_read_of_a_damaged_table_names_the_damage(home: Path) -> None:
    """A missing table is damage, said in our own words."""
    paths = made(home, "indexed")
    with closing(apsw.Connection(str(paths.database))) as db:
        db.execute("DROP TABLE fact_links")

    with pytest.raises(Corrupt):
        served(home)
    with pytest.raises(Corrupt):
        problems(home)
    mend(home)
    assert problems(home) == []


def test_a_words_byte_in_the_full_text_index_is_reported(home: Path) -> None:
    """The index holds the chunks' words and no other: verify compares them."""
    paths = made(home, "indexed")
    with closing(open_database(paths.database)) as db, transaction(db):
        rows = db.execute("SELECT id, block FROM chunks_fts_data WHERE id > 10").fetchall()
        for number, block in rows:
            assert isinstance(block, bytes)
            changed = block.replace(b"deployment", b"deploymemt")
            db.execute("UPDATE chunks_fts_data SET block = ? WHERE id = ?", (changed, number))

    assert any(line.startswith(("indexes", "file")) for line in problems(home))
    mend(home)
    assert problems(home) == []
    assert len(served(home)["deployment"]) == 4


def test_a_backup_never_overwrites(home: Path, container: Container, tmp_path: Path) -> None:
    """An existing file is refused, whatever it is."""
    made(home, container)
    target = tmp_path / "b.sqlite"
    target.write_text("mine")

    with pytest.raises(Invalid):
        backup.back_up(paths_in(home), PROJECT, target, clock=StepClock(), settings=ROOMY)

    assert target.read_text() == "mine"
    with closing(open_readonly(paths_in(home).database)) as db:
        assert db.execute("SELECT count(*) FROM compact_authority").fetchone() == (1,)


def test_what_is_committed_during_a_repair_is_not_cut(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stops and says so; the next run finishes with the new events in place."""
    paths = made(home, "indexed")
    with stream_of(paths).open("ab") as file:
        file.write(b"torn")
    real = repair_journal._believe

    def believe_late(*args: Any) -> Any:
        found = real(*args)
        with closing(opened(home, create=False)) as store:
            store.append([say.document_upserted(a_document("Meanwhile.", name="m"))])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(repair_journal, "_believe", believe_late)
        with pytest.raises(Busy):
            mend(home)

    mend(home)
    assert problems(home) == []
    with closing(opened(home, create=False)) as store, store.read() as reads:
        assert reads.document(a_document(name="m").key) is not None
