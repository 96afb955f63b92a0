"""The queue when the file is held by others, and when the disk is full."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import spool
from storage.clock import SystemClock
from storage.errors import MemorydError, Unavailable
from storage.jobs import JobKind, JobSpec, JobState
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import ProjectId
from storage.spool import Entry
from tests.faults.stub import StubHome, stub_home
from tests.support import wait_until

HOLD_S = 6.0


@pytest.fixture
def stub(home: Path) -> Iterator[StubHome]:
    """A home for stub workers."""
    with stub_home(home) as made:
        yield made


@pytest.mark.slow
def test_i5_a_foreign_writer_for_six_seconds_costs_no_lease(stub: StubHome) -> None:
    """Longer than the busy timeout: the run goes on, its ending waits, nothing runs twice."""
    stub.start("--workers", "1")
    name = stub.add("steady", ms=300)
    wait_until(lambda: stub.started() == ["steady"], what="it started")
    done = threading.Event()
    with stub.queue.file.write("OFF"):
        done.wait(HOLD_S)

    wait_until(lambda: stub.queue.counts()[JobState.COMPLETED] == 1, what="it ended")

    view = stub.queue.job(name)
    assert view is not None
    assert (view.attempt, view.crashes) == (1, 0)
    assert stub.effects() == ["steady"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; skips where it cannot be had."""
    if os.geteuid() != 0 or not Path("/proc/mounts").exists():
        pytest.skip("needs the right to mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("this machine does not let us mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False)


def test_i18_a_full_disk_loses_and_corrupts_nothing(small_disk: Path) -> None:
    """Enqueues fail by name, what was acknowledged stays, and space given back is used."""
    home = small_disk / "home"
    queue = open_queue(HomePaths(home), clock=SystemClock())
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 300_000)
    acknowledged: list[str] = []
    failure: MemorydError | None = None
    for n in range(2_000):
        spec = JobSpec(
            kind=JobKind.EMBED, project=ProjectId("p"), subject=str(n), args={"x": "y" * 500}
        )
        try:
            acknowledged += queue.enqueue([spec])
        except MemorydError as cause:
            failure = cause
            break
    ballast.unlink()
    queue.file.checkpoint("TRUNCATE")
    acknowledged += queue.enqueue([JobSpec(kind=JobKind.SYNC, project=ProjectId("p"))])

    kept = {view.job_id for view in queue.jobs(limit=10_000)}
    assert failure is not None
    assert set(acknowledged) == kept
    assert queue.file.db.pragma("integrity_check") == "ok"
    queue.close()


def test_i17_the_file_does_not_grow_under_a_soak(home: Path) -> None:
    """Thousands of jobs come and go; retention and checkpoints keep the file and the WAL small."""
    queue = open_queue(HomePaths(home), clock=SystemClock(), enqueue_durability="OFF")
    sizes = []
    deadline = time.monotonic() + 30
    for _ in range(4):
        for batch in range(10):
            queue.enqueue(
                [
                    JobSpec(kind=JobKind.EMBED, project=ProjectId("p"), subject=f"{batch}-{n}")
                    for n in range(100)
                ]
            )
            while job := queue.claim("1-me"):
                queue.acknowledge(job)
        with queue.file.write("OFF") as db:
            db.execute("UPDATE jobs SET finished_at = 1 WHERE finished_at IS NOT NULL AND id % 2")
        while queue.prune(retention_days=7):
            assert time.monotonic() < deadline
        queue.file.checkpoint("TRUNCATE")
        sizes.append(queue.paths.queue.stat().st_size)

    assert queue.file.wal_bytes() == 0
    assert sizes[-1] < 2_500_000
    queue.close()


def test_a_read_only_file_system_is_named_and_harms_nothing(small_disk: Path) -> None:
    """Opening, enqueuing and spooling refuse in our words; afterwards all is as it was."""
    paths = HomePaths(small_disk / "home")
    queue = open_queue(paths, clock=SystemClock())
    name = queue.enqueue([JobSpec(kind=JobKind.SYNC, project=ProjectId("p"))])[0]
    queue.file.checkpoint("TRUNCATE")
    queue.close()
    _remount(small_disk, "ro")
    try:
        with pytest.raises(Unavailable):
            open_queue(paths, clock=SystemClock()).enqueue(
                [JobSpec(kind=JobKind.GC, project=ProjectId("p"))]
            )
        with pytest.raises(Unavailable):
            spool.append(paths, Entry(project=ProjectId("p")), 1)
    finally:
        _remount(small_disk, "rw")

    again = open_queue(paths, clock=SystemClock())
    assert [view.job_id for view in again.jobs()] == [name]
    again.close()


def _remount(folder: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)
