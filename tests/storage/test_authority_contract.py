"""What every authority promises, whichever container holds it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.authority import ProjectAuthority
from storage.authority import payloads as say
from storage.authority.port import Container
from storage.errors import (
    Busy,
    Invalid,
    LeaseLost,
    NotInitialized,
    Unavailable,
    WrongOwner,
)
from storage.records import (
    DeferredStatement,
    FactKind,
    JobStamp,
    ProjectId,
    RedactedText,
    SourceCursor,
    fact_document_key,
)
from tests.storage.memory_samples import (
    COLLECTION,
    PROJECT,
    T0,
    StepClock,
    a_document,
    a_fact,
    a_quote,
    dump,
    opened,
    paths_in,
)

VECTOR = bytes(range(8))


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


@pytest.fixture
def authority(home: Path, container: Container) -> Iterator[ProjectAuthority]:
    store = opened(home, container)
    yield store
    store.close()


def test_a_new_authority_is_empty_and_sound(
    authority: ProjectAuthority, container: Container
) -> None:
    """A fresh store holds nothing, proves sound and knows its container."""
    with authority.read() as reads:
        stats = reads.stats()

    assert (stats.events, stats.facts, stats.chunks) == (0, 0, 0)
    assert authority.container == container
    assert authority.verify().sound


def test_opening_what_was_never_made_creates_nothing(home: Path) -> None:
    """Only `create` makes a store; reading verbs leave no file behind."""
    with pytest.raises(NotInitialized):
        opened(home, create=False)

    assert list(home.iterdir()) == []


def test_an_empty_file_left_by_a_crash_is_not_an_authority(home: Path) -> None:
    """A file without its first commit counts as not initialised, and `create` completes it."""
    paths = paths_in(home)
    paths.memory.mkdir(parents=True, mode=0o700)
    paths.database.touch(0o600)

    with pytest.raises(NotInitialized):
        opened(home, create=False)
    opened(home).close()
    opened(home, create=False).close()


def test_a_store_of_another_project_is_refused(home: Path, container: Container) -> None:
    """The owner stands in the file: another project's id does not open it, nor change it."""
    opened(home, container).close()
    other = ProjectId("p_ffffffffffff")
    paths_in(home).root.rename(paths_in(home, other).root)
    before = paths_in(home, other).database.read_bytes()

    with pytest.raises(WrongOwner):
        opened(home, project=other, create=False)

    assert paths_in(home, other).database.read_bytes() == before


def test_files_are_private(authority: ProjectAuthority, home: Path) -> None:
    """Directories are 0700 and files 0600."""
    authority.append([say.fact_recorded(a_fact(), [a_quote()])])

    for path in paths_in(home).root.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_linked_database_is_not_followed(home: Path, tmp_path: Path) -> None:
    """A symlink in place of the database is refused."""
    opened(home).close()
    paths = paths_in(home)
    elsewhere = tmp_path / "elsewhere.sqlite"
    paths.database.rename(elsewhere)
    paths.database.symlink_to(elsewhere)

    with pytest.raises(Unavailable):
        opened(home, create=False)


@pytest.mark.parametrize("linked", ["root", "memory"])
def test_a_linked_folder_is_not_followed(home: Path, tmp_path: Path, linked: str) -> None:
    """A project's folder cannot lead into another place."""
    opened(home).close()
    folder: Path = getattr(paths_in(home), linked)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")

    for create in (False, True):
        with pytest.raises(Unavailable):
            opened(home, create=create)


def test_what_was_appended_is_read_back_after_reopening(
    authority: ProjectAuthority, home: Path
) -> None:
    """Facts, quotes and search documents survive closing."""
    fact, quote = a_fact(), a_quote()

    done = authority.append([say.fact_recorded(fact, [quote])])
    authority.close()
    again = opened(home, create=False)

    assert (done.events, done.applied) == (1, True)
    with again.read() as reads:
        assert reads.fact(fact.fact_id) == fact
        assert reads.evidence(fact.fact_id) == [quote]
        document = reads.document(fact_document_key(fact.fact_id))
        assert document is not None
        assert document.text == fact.statement
        assert [chunk.text for chunk in reads.chunks()] == [fact.statement]
    assert again.verify().sound
    again.close()


def test_a_batch_with_one_invalid_draft_writes_nothing(
    authority: ProjectAuthority, home: Path
) -> None:
    """All of a batch or none of it, in tables, history and journal."""
    authority.append([say.fact_recorded(a_fact(), [a_quote()])])
    before = authority.generation()
    bad = say.fact_recorded(a_fact("Ends first.", valid_at=T0, invalid_at=T0 - 1))

    with pytest.raises(Invalid):
        authority.append([say.document_upserted(a_document()), bad])

    assert authority.generation() == before
    with authority.read() as reads:
        assert reads.document(a_document().key) is None
        assert reads.document(fact_document_key(a_fact().fact_id)) is not None
        assert reads.stats().events == 1
    assert authority.verify().sound


def test_the_guard_is_asked_last_and_what_it_raises_aborts(
    authority: ProjectAuthority,
) -> None:
    """A lost lease publishes nothing, and leaves nothing for a replay to find."""

    def lost() -> None:
        raise LeaseLost

    with pytest.raises(LeaseLost):
        authority.append([say.document_upserted(a_document())], guard=lost)

    assert authority.replay() == 0
    with authority.read() as reads:
        assert reads.stats().documents == 0
    authority.append([say.document_upserted(a_document())])
    assert authority.verify().sound


def test_a_stamp_is_applied_once(authority: ProjectAuthority) -> None:
    """The second batch of one job changes nothing, whatever its token."""
    job = JobStamp(job_id="job-1", token=1)

    first = authority.append([say.document_upserted(a_document("one"))], stamp=job)
    second = authority.append(
        [say.document_upserted(a_document("two"))], stamp=JobStamp(job_id="job-1", token=2)
    )

    assert (first.applied, second.applied, second.events) == (True, False, 0)
    assert second.generation == first.generation
    with authority.read() as reads:
        found = reads.document(a_document().key)
        assert found is not None
        assert found.text == "one"
        assert reads.is_applied("job-1")


def test_a_stamp_alone_is_recorded(authority: ProjectAuthority) -> None:
    """A job without effect still leaves its mark."""
    done = authority.append([], stamp=JobStamp(job_id="job-2", token=1))
    again = authority.append([], stamp=JobStamp(job_id="job-2", token=1))

    assert (done.events, done.applied, again.applied) == (1, True, False)


def test_vectors_share_the_stamp_and_skip_chunks_that_are_gone(
    authority: ProjectAuthority,
) -> None:
    """Vectors of living chunks are stored once; a repeated job stores none."""
    authority.append([say.document_upserted(a_document())])
    with authority.read() as reads:
        chunk = next(reads.chunks())
        assert reads.chunks_without_vector(COLLECTION, limit=5) == [chunk]
    job = JobStamp(job_id="embed-1", token=3)

    stored = authority.store_vectors(COLLECTION, [(chunk.rowid, VECTOR), (999, VECTOR)], stamp=job)
    repeated = authority.store_vectors(COLLECTION, [(chunk.rowid, VECTOR[::-1])], stamp=job)

    assert (stored, repeated) == (1, 0)
    with authority.read() as reads:
        assert list(reads.vectors(COLLECTION)) == [(chunk.rowid, VECTOR)]
        assert reads.chunks_without_vector(COLLECTION, limit=5) == []
        assert reads.collections() == [COLLECTION]
    assert authority.verify().sound


def test_a_vector_of_the_wrong_size_is_invalid(authority: ProjectAuthority) -> None:
    """A collection holds vectors of its own size only."""
    authority.append([say.document_upserted(a_document())])

    with pytest.raises(Invalid):
        authority.store_vectors(COLLECTION, [(1, b"short")])

    with authority.read() as reads:
        assert reads.collections() == []


def test_a_replaced_vector_is_replaced_everywhere(authority: ProjectAuthority) -> None:
    """Storing another vector for a chunk replaces the first, and verify agrees."""
    authority.append([say.document_upserted(a_document())])
    authority.store_vectors(COLLECTION, [(1, VECTOR)])

    fresh = authority.store_vectors(COLLECTION, [(1, VECTOR[::-1])])

    assert fresh == 0
    with authority.read() as reads:
        assert list(reads.vectors(COLLECTION)) == [(1, VECTOR[::-1])]
    assert authority.verify().sound


def test_chunks_that_go_take_their_vectors_along(authority: ProjectAuthority) -> None:
    """Deleting a document leaves no vector behind, and its number is never used again."""
    authority.append([say.document_upserted(a_document())])
    authority.store_vectors(COLLECTION, [(1, VECTOR)])

    authority.append([say.document_deleted(a_document().key, T0 + 1)])
    authority.append([say.document_upserted(a_document("Another text."))])

    with authority.read() as reads:
        assert list(reads.vectors(COLLECTION)) == []
        assert [chunk.rowid for chunk in reads.chunks()] == [2]
    assert authority.verify().sound


def test_a_snapshot_sees_no_later_commit(authority: ProjectAuthority) -> None:
    """Reads inside one `with` belong to one moment, even while the same thread writes."""
    authority.append([say.document_upserted(a_document("one"))])

    with authority.read() as before:
        authority.append([say.document_upserted(a_document("two", name="b"))])
        with authority.read() as after:
            assert after.stats().documents == 2
        assert before.stats().documents == 1

    assert authority.verify().sound


def test_the_generation_grows_with_every_commit_of_any_handle(
    authority: ProjectAuthority, home: Path
) -> None:
    """A second handle's commits move the counter of the first."""
    other = opened(home, create=False)
    seen = [authority.generation()]

    other.append([say.document_upserted(a_document("one"))])
    seen.append(authority.generation())
    authority.append([say.document_upserted(a_document("two"))])
    seen.append(other.generation())
    other.store_vectors(COLLECTION, [(2, VECTOR)])
    seen.append(authority.generation())

    assert seen == sorted(set(seen))
    with authority.read() as reads:
        assert [pair[0] for pair in reads.vectors(COLLECTION)] == [2]
    other.close()


def test_a_writer_that_waits_too_long_is_told_busy(home: Path, container: Container) -> None:
    """The write lock held elsewhere is an error with a name, and nothing is written."""
    first = opened(home, container)
    second = opened(home, container, busy_ms=30)
    errors: list[str] = []

    def hold() -> None:
        with pytest.raises(Busy):
            second.append([say.document_upserted(a_document("two"))])
        errors.append("busy")

    first.append([say.document_upserted(a_document("one"))], guard=hold)

    assert errors == ["busy"]
    second.append([say.document_upserted(a_document("three"))])
    assert second.verify().sound
    first.close()
    second.close()


def test_deferred_statements_wait_and_leave(authority: ProjectAuthority) -> None:
    """A statement waits with its quote until it is released."""
    waiting = DeferredStatement(
        statement_id="st_1",
        kind=FactKind.PREFERENCE,
        original=RedactedText("Siempre usa pnpm"),
        lang="es",
        evidence=a_quote("Siempre usa pnpm"),
        deferred_at=T0,
        supersedes=(a_fact().fact_id,),
    )

    authority.append([say.statement_deferred(waiting), say.statement_deferred(waiting)])
    with authority.read() as reads:
        assert reads.deferred() == [waiting]
        assert reads.stats().chunks == 0
    authority.append([say.statement_released("st_1", "translated")])

    with authority.read() as reads:
        assert reads.deferred() == []
    assert authority.verify().sound


def test_a_source_cursor_is_what_was_said_last(authority: ProjectAuthority) -> None:
    """Advancing replaces the cursor of that source only."""
    first = SourceCursor(adapter="pi", locator="/a", offset=10, line=2, observations=1)
    second = SourceCursor(adapter="pi", locator="/a", offset=30, line=5, state="{}")
    other = SourceCursor(adapter="pi", locator="/b", offset=1, line=1, skipped=4)

    authority.append([say.source_advanced(item) for item in (first, other, second)])

    with authority.read() as reads:
        assert reads.cursor("pi", "/a") == second
        assert reads.cursors() == [second, other]
        assert reads.cursor("pi", "/c") is None


def test_rebuild_gives_the_same_rows_and_keeps_vectors(authority: ProjectAuthority) -> None:
    """Derived again from history, nothing differs, and living vectors stay."""
    clock = StepClock()
    old = a_fact("Use npm.")
    authority.append([say.fact_recorded(old, [a_quote()]), say.document_upserted(a_document())])
    authority.append([say.document_deleted(a_document().key, T0 + 5)])
    authority.append([say.fact_recorded(a_fact(supersedes=[old.fact_id]), [a_quote("x", line=2)])])
    authority.store_vectors(COLLECTION, [(1, VECTOR)])
    with authority.read() as reads:
        before = dump(reads)
        vectors = list(reads.vectors(COLLECTION))

    count = authority.rebuild()

    assert count == 4
    assert clock.at == T0
    with authority.read() as reads:
        assert dump(reads) == before
        assert list(reads.vectors(COLLECTION)) == vectors
    assert authority.verify().sound


def test_rebuild_keeps_a_collection_that_was_dropped_and_made_again(
    authority: ProjectAuthority,
) -> None:
    """History once dropped it; vectors are not history, so those of now stay."""
    authority.append([say.document_upserted(a_document())])
    authority.store_vectors(COLLECTION, [(1, bytes(8))])
    authority.append([say.gc_compacted(collections=[COLLECTION.name])])
    authority.store_vectors(COLLECTION, [(1, VECTOR)])

    authority.rebuild()

    with authority.read() as reads:
        assert reads.collections() == [COLLECTION]
        assert list(reads.vectors(COLLECTION)) == [(1, VECTOR)]
    assert authority.verify().sound


def test_closing_twice_is_fine(home: Path, container: Container) -> None:
    """Close is idempotent."""
    store = opened(home, container)

    store.close()
    store.close()

    assert store.project == PROJECT
