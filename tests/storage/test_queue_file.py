"""The queue's file: made once, checked on open, never rebuilt over another, durable as asked."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from storage.clock import SystemClock
from storage.connection import open_readonly
from storage.errors import Corrupt, NewerSchema, Unavailable, UnknownJob
from storage.jobs import JobKind, JobSpec, JobState
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.queue_file import open_queue_file, open_queue_reader
from storage.queue_message import decode_args
from storage.queue_views import counts, list_jobs
from storage.records import ProjectId
from tests.conftest import ROOT
from tests.support import ManualClock

CREATOR = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.clock import SystemClock
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import ProjectId
sys.stdin.readline()
queue = open_queue(HomePaths(Path(sys.argv[1])), clock=SystemClock())
for n in range(20):
    queue.enqueue([JobSpec(kind=JobKind.EMBED, project=ProjectId(sys.argv[3]), subject=str(n))])
queue.close()
"""


def _sync() -> JobSpec:
    return JobSpec(kind=JobKind.SYNC, project=ProjectId("p1"))


def test_the_file_is_private_and_made_once(home: Path) -> None:
    """0600 in a 0700 folder; opening again runs no DDL (the schema counter stands still)."""
    paths = HomePaths(home)
    first = open_queue(paths, clock=ManualClock())
    before = first.file.db.pragma("schema_version")
    second = open_queue(paths, clock=ManualClock())

    after = second.file.db.pragma("schema_version")

    assert before == after
    assert paths.queue.stat().st_mode & 0o777 == 0o600
    assert paths.shared.stat().st_mode & 0o777 == 0o700
    first.close()
    second.close()


@pytest.mark.parametrize("content", [b"not a database at all" * 400, b"\x00" * 4096])
def test_a_file_that_is_no_database_is_named_and_left_alone(home: Path, content: bytes) -> None:
    """Nothing is rebuilt over it silently."""
    paths = HomePaths(home)
    paths.shared.mkdir(mode=0o700)
    paths.queue.write_bytes(content)

    with pytest.raises(Corrupt, match=r"curation\.sqlite"):
        open_queue(paths, clock=ManualClock())

    assert paths.queue.read_bytes() == content


@pytest.mark.parametrize("version", [0, 1])
def test_a_database_of_somebody_else_is_refused(home: Path, version: int) -> None:
    """With or without a version number that looks like ours."""
    paths = HomePaths(home)
    paths.shared.mkdir(mode=0o700)
    db = apsw.Connection(str(paths.queue))
    db.execute(f"CREATE TABLE mine (x); PRAGMA user_version = {version}")
    db.close()
    before = paths.queue.read_bytes()

    with pytest.raises(Corrupt, match="not a queue"):
        open_queue(paths, clock=ManualClock())

    assert paths.queue.read_bytes() == before


def test_a_newer_file_is_refused(home: Path) -> None:
    """An older memoryd must not guess at a newer schema."""
    paths = HomePaths(home)
    queue = open_queue(paths, clock=ManualClock())
    queue.file.db.pragma("user_version", 99)
    queue.close()

    with pytest.raises(NewerSchema):
        open_queue(paths, clock=ManualClock())


def test_a_symlink_in_the_files_place_is_refused(home: Path, tmp_path: Path) -> None:
    """Somebody else's file must not become our queue."""
    paths = HomePaths(home)
    paths.shared.mkdir(mode=0o700)
    (tmp_path / "other").write_bytes(b"")
    paths.queue.symlink_to(tmp_path / "other")

    with pytest.raises(Unavailable):
        open_queue(paths, clock=ManualClock())


def test_processes_that_create_and_enqueue_at_once_all_succeed(home: Path) -> None:
    """Eight processes race to make the file; nobody sees a locked database, nothing is lost."""
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", CREATOR, str(home), str(ROOT), f"p{n}"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(8)
    ]
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    errors = [process.communicate(timeout=60)[1] for process in crowd]

    queue = open_queue(HomePaths(home), clock=SystemClock())
    assert errors == [""] * 8
    assert queue.counts()[JobState.AVAILABLE] == 160
    assert queue.file.db.pragma("integrity_check") == "ok"
    queue.close()


def test_an_enqueue_is_synced_before_it_returns_and_a_claim_is_not(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log itself, once it holds the commit; claims and endings leave that to a checkpoint."""
    queue = open_queue(HomePaths(home), clock=ManualClock())
    wal = queue.paths.queue.with_name("curation.sqlite-wal")
    synced: list[tuple[bool, int]] = []

    def sync(fd: int) -> None:
        with closing(open_readonly(queue.paths.queue)) as other:
            jobs = other.execute("SELECT count(*) FROM jobs WHERE state = 'available'").fetchall()
        synced.append((os.fstat(fd).st_ino == wal.stat().st_ino, int(str(jobs[0][0]))))

    monkeypatch.setattr("storage.queue_file._sync_data", sync)
    queue.enqueue([_sync()])
    job = queue.claim("1-me")
    assert job is not None
    queue.acknowledge(job)
    after_the_ending = list(synced)
    queue.enqueue([_sync()])
    queue.enqueue([_sync()])

    assert after_the_ending == [(True, 1)]
    # Joining a job that waits is an answer too: that job may not have been synced yet.
    assert synced == [(True, 1)] * 3
    assert queue.file.db.pragma("synchronous") == 1
    queue.close()


def test_a_disk_that_does_not_confirm_is_not_an_enqueue(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller hears of it, and asking again makes no second job."""
    queue = open_queue(HomePaths(home), clock=ManualClock())

    def fails(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("storage.queue_file._sync_data", fails)
        with pytest.raises(Unavailable, match="synced"):
            queue.enqueue([_sync()])
    queue.enqueue([_sync()])

    assert queue.counts()[JobState.AVAILABLE] == 1
    queue.close()


def test_enqueuers_do_not_checkpoint_and_the_worker_can(home: Path) -> None:
    """The WAL grows until the worker moves it into the file."""
    queue = open_queue(HomePaths(home), clock=ManualClock())
    for n in range(50):
        queue.enqueue([JobSpec(kind=JobKind.EMBED, project=ProjectId("p"), subject=str(n))])
    grown = queue.file.wal_bytes()

    left = queue.file.checkpoint("TRUNCATE")

    assert int(queue.file.db.pragma("wal_autocheckpoint")) == 0
    assert grown > 100_000
    assert left == 0
    assert queue.file.wal_bytes() == 0
    queue.close()


def test_a_wal_that_is_started_over_does_not_grow(home: Path) -> None:
    """Growing costs metadata writes at every sync; the worker's tidying keeps it in place."""
    queue = open_queue(HomePaths(home), clock=ManualClock(), enqueue_durability="OFF")
    sizes = []
    for round_number in range(4):
        for n in range(200):
            spec = JobSpec(
                kind=JobKind.EMBED, project=ProjectId("p"), subject=f"{round_number}-{n}"
            )
            queue.enqueue([spec])
        queue.file.tidy()
        sizes.append(queue.file.wal_bytes())
    asked_twice = (queue.file.wal_frames(), queue.file.wal_frames())

    assert sizes[-1] < 2 * sizes[0]
    assert asked_twice[0] == asked_twice[1]
    queue.close()


def test_inspection_runs_nothing_and_takes_no_write_lock(home: Path) -> None:
    """A hostile message is listed as bytes, while a writer holds the file."""
    paths = HomePaths(home)
    queue = open_queue(paths, clock=ManualClock())
    queue.enqueue([_sync()])
    bomb = b"cos\nsystem\n(S'touch pwned'\ntR."
    with queue.file.write("FULL") as db:
        db.execute("UPDATE jobs SET message = ?", (bomb,))
    reader = open_queue_reader(paths)
    with queue.file.write("FULL"):
        shown = list_jobs(reader)
        numbers = counts(reader)

    with pytest.raises(apsw.ReadOnlyError):
        reader.execute("DELETE FROM jobs")

    assert [view.kind for view in shown] == ["sync"]
    assert numbers[JobState.AVAILABLE] == 1
    reader.close()
    queue.close()


def test_a_reader_of_a_home_without_a_queue_is_told_so(home: Path) -> None:
    """Looking creates nothing."""
    with pytest.raises(Unavailable):
        open_queue_reader(HomePaths(home))

    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "message",
    [b"", b"\x80\x04}", b"[]", b"{}", b'{"v":2,"args":{}}', b'{"v":1}', b'{"v":"1","args":{}}'],
)
def test_only_a_message_of_this_version_is_read(message: bytes) -> None:
    """Everything else is a named error that keeps the job as dead."""
    with pytest.raises(UnknownJob, match="message"):
        decode_args(message)


def test_a_closed_file_gives_no_connections(home: Path) -> None:
    """Use after close is a plain error."""
    file = open_queue_file(HomePaths(home), ManualClock())
    file.close()
    file.close()

    with pytest.raises(Unavailable):
        file.db.execute("SELECT 1")
