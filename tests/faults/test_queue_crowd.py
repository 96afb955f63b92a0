"""Many processes and busy ones: crowds, forks, bodies that hog the interpreter or the memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.clock import SystemClock
from storage.jobs import JobState
from storage.paths import HomePaths
from storage.queue import open_queue
from tests.conftest import ROOT
from tests.faults.stub import StubHome, stub_home
from tests.support import wait_until

CROWD = 40
EACH = 10
FORKS = 30
MEMBER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.clock import SystemClock
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import ProjectId
print("ready", flush=True)
sys.stdin.readline()
queue = open_queue(HomePaths(Path(sys.argv[1])), clock=SystemClock())
for n in range(int(sys.argv[4])):
    started = time.monotonic()
    queue.enqueue([JobSpec(kind=JobKind.EMBED, project=ProjectId(sys.argv[3]), subject=str(n))])
    print(time.monotonic() - started)
queue.close()
"""
FORKER = """
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.clock import SystemClock
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import ProjectId
import warnings
warnings.simplefilter("ignore")
paths = HomePaths(Path(sys.argv[1]))
stop = threading.Event()

def busy(name):
    queue = open_queue(paths, clock=SystemClock(), enqueue_durability="NORMAL")
    n = 0
    while not stop.is_set():
        n += 1
        queue.enqueue([JobSpec(kind=JobKind.EMBED, project=ProjectId("p"), subject=f"{name}-{n}")])
    print("enqueued", n, flush=True)

threads = [threading.Thread(target=busy, args=(name,)) for name in "ab"]
for thread in threads:
    thread.start()
for round_number in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-c", "pass"])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
for thread in threads:
    thread.join()
print("sqlite3" in sys.modules, flush=True)
"""


@pytest.fixture
def stub(home: Path) -> Iterator[StubHome]:
    """A home for stub workers."""
    with stub_home(home) as made:
        yield made


@pytest.mark.slow
def test_i14_forty_processes_make_and_fill_a_queue_at_once(home: Path) -> None:
    """FULL, from nothing: no locked database reaches a caller, and nothing is lost.

    How long they wait is measured by `ops bench queue`, not judged here.
    """
    argv = [sys.executable, "-c", MEMBER, str(home), str(ROOT)]
    crowd = [
        subprocess.Popen(
            [*argv, f"p{n}", str(EACH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(CROWD)
    ]
    for process in crowd:
        assert process.stdout is not None
        process.stdout.readline()
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ended = [process.communicate(timeout=120) for process in crowd]

    queue = open_queue(HomePaths(home), clock=SystemClock())
    assert [error for _, error in ended] == [""] * CROWD
    assert queue.counts()[JobState.AVAILABLE] == CROWD * EACH
    assert sum(len(said.split()) for said, _ in ended) == CROWD * EACH
    queue.close()


def test_i20_processes_that_fork_under_load_lose_nothing(home: Path) -> None:
    """Children of a busy process start other programs; no lock, no transaction goes with them."""
    done = subprocess.run(
        [sys.executable, "-c", FORKER, str(home), str(ROOT), str(FORKS)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    queue = open_queue(HomePaths(home), clock=SystemClock())
    *counts, brought_along = done.stdout.split("\n")[:-1]
    enqueued = sum(int(line.split()[1]) for line in counts)

    assert done.returncode == 0, done.stderr
    assert len(counts) == 2
    assert queue.counts()[JobState.AVAILABLE] == enqueued
    assert queue.file.db.pragma("integrity_check") == "ok"
    assert brought_along == "False"
    queue.close()


def test_i20_nothing_is_opened_through_a_second_sqlite(home: Path) -> None:
    """Huey's own module loads Python's SQLite; two builds on one file drop each other's locks."""
    code = (
        "import sys, sqlite3; sys.path.insert(0, sys.argv[1])\n"
        "def refuse(*arguments, **options): raise SystemExit('opened by another SQLite')\n"
        "sqlite3.connect = sqlite3.dbapi2.connect = sqlite3.Connection = refuse\n"
        "import worker\n"
        "from storage.jobs import JobKind, JobSpec\n"
        "worker.huey.engine.queue.enqueue([JobSpec(kind=JobKind.CHECKPOINT, project='')])\n"
        "sys.exit(worker.main(['--once', '--workers', '1']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)],
        env={"PI_MEMORY_HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    queue = open_queue(HomePaths(home), clock=SystemClock())

    assert done.returncode == 0, done.stderr
    assert queue.counts()[JobState.COMPLETED] == 1
    queue.close()


def test_i5_a_body_that_hogs_the_interpreter_keeps_its_lease(stub: StubHome) -> None:
    """Longer than the lease, in pure Python: the heartbeat still comes in time."""
    stub.start("--workers", "1", PI_MEMORY_DAEMON_LEASE_MS="3000")
    name = stub.add("spinning", do="spin", checks=True)

    wait_until(lambda: stub.effects() == ["spinning"], what="it ended")
    wait_until(lambda: stub.queue.counts()[JobState.COMPLETED] == 1, what="it was acknowledged")

    view = stub.queue.job(name)
    assert view is not None
    assert (view.attempt, view.crashes) == (1, 0)
    assert stub.started() == ["spinning"]


def test_i6_a_body_that_runs_out_of_memory_dies_and_its_neighbours_finish(stub: StubHome) -> None:
    """Under a limit of the address space: its attempts end, nobody else's do."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    hoarder = stub.add("hoarder", do="hoard")
    for n in range(5):
        stub.add(f"good{n}")
    stub.start("--workers", "1", PI_MEMORY_DAEMON_MAX_ATTEMPTS="2")

    wait_until(lambda: stub.queue.counts()[JobState.DEAD] == 1, what="it died")

    view = stub.queue.job(hoarder)
    assert view is not None
    assert "MemoryError" in view.error
    assert sorted(stub.effects()) == [f"good{n}" for n in range(5)]
