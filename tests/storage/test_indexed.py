"""The indexed container: the journal beside the tables, and the indexes that follow them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from storage.authority import ProjectAuthority, journal
from storage.authority import payloads as say
from storage.authority.backlog import Backlog
from storage.authority.derived import nearest
from storage.clock import DAY_MS
from storage.errors import Corrupt, Unavailable
from storage.records import JobStamp, ProjectId
from storage.terms import terms
from tests.storage.memory_samples import (
    COLLECTION,
    T0,
    StepClock,
    a_document,
    a_fact,
    a_quote,
    opened,
    paths_in,
)

OTHER = ProjectId("p_ba9876543210")


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def store(home: Path, clock: StepClock) -> Iterator[ProjectAuthority]:
    authority = opened(home, "indexed", clock=clock)
    yield authority
    authority.close()


def journal_files(home: Path) -> list[Path]:
    return sorted(paths_in(home).events.rglob("*.jsonl"))


def add(store: ProjectAuthority, name: str, text: str = "Some text.") -> None:
    store.append([say.document_upserted(a_document(text, name=name))])


def documents(store: ProjectAuthority) -> set[str]:
    with store.read() as reads:
        return {document.external_id for document in reads.documents()}


def checks(store: ProjectAuthority) -> set[str]:
    return {problem.check for problem in store.verify().problems}


def fails(*_: object, **__: object) -> None:
    raise Unavailable("the disk is full")


def matches(store: ProjectAuthority, words: str) -> list[int]:
    with store.read() as reads:
        query = " ".join(f'"{term}"' for term in terms(words))
        found = reads.db.execute("SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?", (query,))
        return [int(str(row[0])) for row in found]


def test_history_goes_to_one_file_a_writer_and_day(
    store: ProjectAuthority, home: Path, clock: StepClock
) -> None:
    """Payloads stand in the journal, the tables keep the envelope; a new day is a new file."""
    add(store, "a")
    clock.at += DAY_MS
    add(store, "b")

    files = journal_files(home)

    assert [file.parent.name for file in files] == ["2023-11-14", "2023-11-15"]
    assert len({file.name for file in files}) == 1
    with store.read() as reads:
        assert reads.db.execute("SELECT count(*), count(payload) FROM events").fetchone() == (2, 0)
    assert store.verify().problems == ()


def test_the_full_text_index_follows_chunks(store: ProjectAuthority) -> None:
    """Terms of text and title are found, also inside another script; replaced text is not."""
    add(store, "a", "Run getUserName; 重跑测试")
    add(store, "b", "Nothing of that sort")

    assert matches(store, "user") == [1]
    assert matches(store, "测试") == [1]
    assert matches(store, "deploying") == [1, 2]
    add(store, "a", "Other words")

    assert matches(store, "user") == []
    assert matches(store, "other words") == [3]


def test_nearest_vectors_are_found_by_sqlite_vec(store: ProjectAuthority) -> None:
    """KNN over the stored rows; deleted chunks and dropped collections are not among them."""
    for name in ("a", "b"):
        add(store, name)
    rows = [(1, bytes([100] * 8)), (2, bytes([5] * 8))]

    store.store_vectors(COLLECTION, rows)

    with store.read() as reads:
        ((chunk, distance),) = nearest(reads.db, COLLECTION, bytes([90] * 8), 1)
        assert chunk == 1
        assert distance == pytest.approx(math.sqrt(800))
    store.append([say.document_deleted(a_document(name="a").key, T0)])
    with store.read() as reads:
        assert [chunk for chunk, _ in nearest(reads.db, COLLECTION, bytes([90] * 8), 2)] == [2]
    assert store.verify().sound
    store.append([say.gc_compacted(collections=[COLLECTION.name])])
    with store.read() as reads:
        assert nearest(reads.db, COLLECTION, bytes(8), 2) == []
    assert store.verify().sound


def test_a_failed_journal_append_writes_nothing(
    store: ProjectAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk under the journal rolls the tables back, and the next append works."""
    add(store, "a")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "append", fails)
        with pytest.raises(Unavailable):
            add(store, "b")

    assert documents(store) == {"a"}
    add(store, "c")
    assert store.verify().problems == ()


def test_lines_of_a_failed_commit_are_taken_back(
    store: ProjectAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was journalled but not committed under our lock is cut off again."""
    add(store, "a")

    with monkeypatch.context() as patch:
        patch.setattr(Backlog, "anchor", fails)
        with pytest.raises(Unavailable):
            add(store, "b")

    assert store.replay() == 0
    assert documents(store) == {"a"}
    assert store.verify().problems == ()


def leave_orphan(
    store: ProjectAuthority, monkeypatch: pytest.MonkeyPatch, **more: JobStamp
) -> None:
    """Journalled, not committed, and the lines stay: what a crash between the two leaves."""
    with monkeypatch.context() as patch:
        patch.setattr(Backlog, "anchor", fails)
        patch.setattr(journal.Written, "undo", lambda _: False)
        drafts = [say.document_upserted(a_document(name=name)) for name in ("x", "y")]
        with pytest.raises(Unavailable):
            store.append(drafts, stamp=more.get("stamp"))


def test_replay_applies_what_a_crash_left_once(
    store: ProjectAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole journalled batches enter the tables, exactly once."""
    leave_orphan(store, monkeypatch)
    assert documents(store) == set()
    assert checks(store) == {"journal tail"}

    assert (store.replay(), store.replay()) == (2, 0)

    assert documents(store) == {"x", "y"}
    assert store.verify().problems == ()


def test_the_next_append_replays_first(
    store: ProjectAuthority, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same handle and a fresh one both complete the journal before they add to it."""
    add(store, "warm")
    leave_orphan(store, monkeypatch)
    add(store, "z")
    assert documents(store) == {"warm", "x", "y", "z"}

    store.append([say.document_deleted(a_document(name="x").key, T0)])
    leave_orphan(store, monkeypatch)
    other = opened(home, "indexed", create=False)
    add(other, "o")

    assert documents(other) == {"warm", "x", "y", "z", "o"}
    assert other.verify().problems == ()
    other.close()
    add(store, "after")
    assert store.verify().problems == ()


def test_a_job_whose_commit_was_lost_is_found_applied(
    store: ProjectAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal remembers the stamp: running the job again changes nothing."""
    job = JobStamp(job_id="job-9", token=1)
    leave_orphan(store, monkeypatch, stamp=job)

    done = store.append([say.document_upserted(a_document(name="again"))], stamp=job)

    assert done.applied is False
    assert documents(store) == {"x", "y"}
    assert store.verify().problems == ()


def test_a_batch_cut_short_is_not_applied_in_part(
    store: ProjectAuthority, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whole line of a batch of two is a torn tail, not half an effect."""
    leave_orphan(store, monkeypatch)
    file = journal_files(home)[0]
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])

    assert store.replay() == 0

    assert documents(store) == set()


def test_a_torn_tail_blocks_nobody(
    store: ProjectAuthority, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others and the same handle go on; verify names the tail and nothing else."""
    add(store, "a")
    file = journal_files(home)[0]
    with file.open("ab") as out:
        out.write(b'{"v":1,"torn')
    other = opened(home, "indexed", create=False)

    add(other, "b")
    add(store, "c")

    assert documents(store) == {"a", "b", "c"}
    assert checks(store) == {"journal tail"}
    assert len(journal_files(home)) == 3
    other.close()


def test_an_orphan_that_no_longer_applies_is_reported_not_applied(
    store: ProjectAuthority, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was never acknowledged, so it may stay out; later appends are not held up."""
    fact = a_fact()
    store.append([say.fact_recorded(fact, [a_quote()])])
    other = opened(home, "indexed", create=False)
    add(other, "warm")
    rationale = a_fact("why").statement
    with monkeypatch.context() as patch:
        patch.setattr(Backlog, "anchor", fails)
        patch.setattr(journal.Written, "undo", lambda _: False)
        standing = a_fact().standing
        with pytest.raises(Unavailable):
            store.append([say.fact_resolved(fact.fact_id, standing, T0, rationale)])
    contradicted = type(standing)("contradicted")
    other.append([say.fact_resolved(fact.fact_id, contradicted, T0, rationale)])

    add(store, "later")

    assert checks(store) == {"journal tail"}
    with store.read() as reads:
        found = reads.fact(fact.fact_id)
        assert found is not None
        assert found.standing is contradicted
    other.close()


def test_a_refused_orphan_never_takes_effect_later(
    store: ProjectAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What did not apply when it was found stays out, even when the way becomes free."""
    leave_orphan(store, monkeypatch)
    owned = a_document("Owned.", name="x", adapter="owner")
    with monkeypatch.context() as patch:
        patch.setattr(Backlog, "_whole_batches", lambda *_: [])
        store.append([say.document_upserted(owned)])
    store.append([say.document_deleted(owned.key, T0)])

    assert store.replay() == 0

    assert documents(store) == set()
    assert checks(store) == {"journal tail"}


def test_a_journal_of_another_project_is_no_part_of_this_history(
    store: ProjectAuthority, home: Path, tmp_path: Path
) -> None:
    """A writer's name carries its project: copied lines are reported, never applied."""
    other_home = tmp_path / "other"
    other = opened(other_home, "indexed", project=OTHER)
    add(other, "foreign", "Words of another project.")
    other.close()
    add(store, "ours")
    for file in paths_in(other_home, OTHER).events.glob("*/*.jsonl"):
        place = paths_in(home).events / file.parent.name / file.name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(file.read_bytes())

    assert store.replay() == 0
    details = [problem.detail for problem in store.verify().problems]
    assert any("another project" in detail for detail in details)
    store.rebuild()

    assert documents(store) == {"ours"}


def flip(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[raw.index(b"Some text")] ^= 1
    file.write_bytes(bytes(raw))


def drop_last_line(file: Path) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def swap_lines(file: Path) -> None:
    first, second = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(second + first)


@pytest.mark.parametrize("damage", [flip, drop_last_line, Path.unlink, swap_lines])
def test_damage_to_the_journal_is_found_and_stops_a_rebuild(
    store: ProjectAuthority, home: Path, damage: Callable[[Path], None]
) -> None:
    """A flipped byte, a lost tail, a lost file, a changed order: each is reported."""
    add(store, "a")
    add(store, "b")

    damage(journal_files(home)[0])

    assert "journal" in checks(store)
    with pytest.raises(Corrupt):
        store.rebuild()
    assert documents(store) == {"a", "b"}


@pytest.mark.parametrize(
    ("sql", "check"),
    [
        ("UPDATE documents SET text = 'Forged.'", "tables"),
        ("UPDATE slices SET start = 1", "tables"),
        ("DELETE FROM chunks_fts WHERE rowid = 1", "indexes"),
        ("INSERT INTO chunks_fts (rowid, title, text) VALUES (99, '', 'ghost')", "indexes"),
        ("INSERT INTO vectors VALUES ('0123456789abcdef', 77, x'00')", "vectors"),
        ("UPDATE heads SET writer_seq = 9", "history"),
        ("DELETE FROM events WHERE seq = 2", "journal"),
        ("UPDATE events SET hash = 'x' WHERE seq = 1", "journal"),
    ],
)
def test_damage_to_the_tables_is_found_and_rebuilt_where_history_holds(
    store: ProjectAuthority, home: Path, sql: str, check: str
) -> None:
    """The tables are compared with what history says they must hold."""
    add(store, "a")
    add(store, "b")
    raw = apsw.Connection(str(paths_in(home).database))
    raw.execute(sql)
    raw.close()

    assert check in checks(store)

    if check in {"tables", "indexes", "vectors"}:
        store.rebuild()
        assert store.verify().problems == ()


def test_opening_works_while_another_holds_the_write_lock(
    store: ProjectAuthority, home: Path
) -> None:
    """Opening and reading take no write lock."""
    add(store, "a")
    raw = apsw.Connection(str(paths_in(home).database))
    raw.execute("BEGIN IMMEDIATE")

    other = opened(home, create=False, busy_ms=10)

    assert documents(other) == {"a"}
    other.close()
    raw.execute("ROLLBACK")
    raw.close()


@pytest.mark.parametrize("table", ["data", "docsize"])
def test_a_wrong_byte_in_the_full_text_index_is_found_or_has_no_effect(
    store: ProjectAuthority, home: Path, table: str
) -> None:
    """Terms, places, lengths, beside deleted chunks: whatever is not reported reads as before."""
    for number in range(40):
        add(store, f"n{number}", f"Deploy number {number} to the cluster {number % 7}, then wait.")
    for number in range(0, 40, 3):
        store.append([say.document_deleted(a_document(name=f"n{number}").key, T0)])
    assert store.verify().problems == ()
    column = "block" if table == "data" else "sz"
    reported = 0
    with closing(apsw.Connection(str(paths_in(home).database))) as db:
        before = postings(db)
        rows = db.execute(f"SELECT id, {column} FROM chunks_fts_{table}").fetchall()
        write = f"UPDATE chunks_fts_{table} SET {column} = ? WHERE id = ?"
        for number, (rowid, kept) in enumerate(rows):
            assert isinstance(kept, bytes)
            for at in range(number % 5, len(kept), 23):
                wrong = bytearray(kept)
                wrong[at] ^= 1
                db.execute(write, (bytes(wrong), rowid))
                try:
                    sound = store.verify().sound
                except Corrupt:
                    sound = False
                assert not sound or postings(db) == before, f"{table} {rowid} byte {at}"
                reported += not sound
                db.execute(write, (kept, rowid))
    assert reported > 10
    assert store.verify().problems == ()


def postings(db: apsw.Connection) -> list[tuple[object, ...]]:
    """Every term with its chunk, column and place, and every chunk's lengths."""
    with closing(apsw.Connection(db.filename)) as fresh:
        fresh.execute(
            "CREATE VIRTUAL TABLE temp.words USING fts5vocab (main, chunks_fts, instance)"
        )
        return [
            *fresh.execute("SELECT term, doc, col, offset FROM temp.words").fetchall(),
            *fresh.execute("SELECT id, sz FROM chunks_fts_docsize").fetchall(),
        ]
