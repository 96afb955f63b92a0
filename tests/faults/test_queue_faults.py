"""Faults against real workers, each named after its invariant in the queue's specification."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.jobs import JobState, Priority
from tests.conftest import ROOT
from tests.faults.stub import StubHome, stub_home
from tests.support import wait_until

ENQUEUER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.clock import SystemClock
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.jobs import JobKind, JobSpec
from storage.records import ProjectId
queue = open_queue(HomePaths(Path(sys.argv[1])), clock=SystemClock())
for n in range(int(sys.argv[4])):
    spec = JobSpec(kind=JobKind.EMBED, project=ProjectId("p"), subject=f"{sys.argv[3]}-{n}")
    print(queue.enqueue([spec])[0], flush=True)
"""


@pytest.fixture
def stub(home: Path) -> Iterator[StubHome]:
    """A home for stub workers."""
    with stub_home(home) as made:
        yield made


def drained(stub: StubHome) -> bool:
    """Nothing waits and nothing runs."""
    counts = stub.queue.counts()
    return counts[JobState.AVAILABLE] + counts[JobState.LEASED] == 0


def enqueuer(stub: StubHome, name: str, count: int) -> subprocess.Popen[str]:
    """A process that prints the id of each acknowledged enqueue."""
    argv = [sys.executable, "-c", ENQUEUER, str(stub.paths.home), str(ROOT), name, str(count)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_i1_killed_enqueuers_lose_nothing_that_was_acknowledged(stub: StubHome) -> None:
    """An id that was printed is in the file, whatever happened to its process."""
    acknowledged: list[str] = []
    for round_number in range(3):
        crowd = [enqueuer(stub, f"{round_number}-{n}", 10_000) for n in range(3)]
        for process in crowd:
            assert process.stdout is not None
            acknowledged += [process.stdout.readline().strip() for _ in range(20)]
        for process in crowd:
            process.kill()
        for process in crowd:
            rest, _ = process.communicate(timeout=20)
            # The last line may be torn: only whole ids were acknowledged.
            acknowledged += [line for line in rest.splitlines() if len(line.split("-")[-1]) == 12]

    kept = {view.job_id for view in stub.queue.jobs(limit=10**6)}
    assert len(acknowledged) >= 180
    assert set(acknowledged) <= kept
    assert stub.queue.file.db.pragma("integrity_check") == "ok"


def test_i2_a_storm_of_kills_loses_no_job(stub: StubHome) -> None:
    """Every job ends as completed, runs that were cut off run again, the count is conserved."""
    names = [f"job{n}" for n in range(60)]
    for name in names:
        stub.add(name, ms=30)
    chance = random.Random(7)
    killed = 0
    while not drained(stub):
        worker = stub.start()
        begun = len(stub.effects())
        target = begun + chance.randint(1, 25)
        wait_until(
            lambda least=target: len(stub.effects()) >= least or drained(stub),  # type: ignore[misc]
            what="the storm goes on",
        )
        worker.kill()
        worker.wait(10)
        killed += 1
        stub.queue.reap(max_crashes=100)

    assert killed >= 3
    assert set(stub.effects()) == set(names)
    assert stub.queue.counts()[JobState.COMPLETED] == len(names)


def test_i3_a_frozen_worker_that_wakes_up_publishes_nothing(stub: StubHome) -> None:
    """SIGSTOP past the lease: another run finishes, the zombie's ending is refused."""
    frozen = stub.start("--workers", "1", PI_MEMORY_DAEMON_LEASE_MS="3000")
    name = stub.add("slow", ms=300, checks=True)
    wait_until(lambda: stub.started() == ["slow"], what="it started")
    frozen.send_signal(signal.SIGSTOP)
    wait_until(lambda: stub.queue.reap().returned == 1, what="the lease lapsed")
    taken = stub.queue.claim("1-other")
    assert taken is not None
    stub.queue.acknowledge(taken)

    frozen.send_signal(signal.SIGCONT)
    stub.add("next")
    wait_until(lambda: "next" in stub.effects(), what="the woken worker goes on")

    view = stub.queue.job(name)
    assert view is not None
    assert (view.state, view.crashes) == (JobState.COMPLETED, 1)
    assert stub.effects() == ["next"]


def test_i4_a_killed_workers_job_restarts_within_two_seconds(stub: StubHome) -> None:
    """Its lock tells the next worker's first round; nobody waits for the lease to lapse."""
    first = stub.start()
    stub.add("long", ms=500)
    wait_until(lambda: stub.started() == ["long"], what="it started")
    first.kill()
    first.wait(10)
    stub.start()
    listening_at = time.time_ns()

    wait_until(lambda: len(stub.started()) == 2, what="it started again")

    assert (stub.started_at_ns()[1] - listening_at) / 1e9 < 2
    wait_until(lambda: stub.effects() == ["long"], what="it finished")


@pytest.mark.parametrize("manner", ["exit", "segv"])
def test_i6_a_job_that_kills_its_worker_dies_and_its_neighbours_finish(
    stub: StubHome, manner: str
) -> None:
    """Three lost workers, then dead with its history."""
    poison = stub.add("poison", do=manner)
    for n in range(5):
        stub.add(f"good{n}")
    for _ in range(6):
        stub.start("--once", "--workers", "1", ready=False).wait(30)
        if drained(stub):
            break

    view = stub.queue.job(poison)
    assert view is not None
    assert (view.state, view.crashes) == (JobState.DEAD, 3)
    assert sorted(stub.effects()) == [f"good{n}" for n in range(5)]


@pytest.mark.parametrize("manner", ["hang", "hang in C"])
def test_i7_a_hung_job_frees_its_slot(stub: StubHome, manner: str) -> None:
    """After max_runtime its lease lapses and another thread takes the hung one's place."""
    stub.start("--workers", "1", PI_MEMORY_DAEMON_LEASE_MS="3000", MAX_RUNTIME_MS="300")
    hung = stub.add("hung", do=manner)
    wait_until(lambda: stub.started() == ["hung"], what="it hangs")
    stub.add("good", priority=Priority.INTERACTIVE)

    wait_until(lambda: stub.effects() == ["good"], what="the slot is free")

    view = stub.queue.job(hung)
    assert view is not None


def test_i8_a_successor_is_enqueued_exactly_when_its_job_is_done(stub: StubHome) -> None:
    """Killed between: the first runs again, the second runs once."""
    stub.add("first", then="second", ms=200)
    worker = stub.start()
    wait_until(lambda: stub.started() == ["first"], what="it started")
    worker.kill()
    worker.wait(10)
    before = stub.queue.counts()[JobState.AVAILABLE] + stub.queue.counts()[JobState.LEASED]

    stub.start("--once", ready=False).wait(30)

    assert before == 1
    assert stub.effects() == ["first", "second"]


def test_i9_sixteen_enqueuers_of_one_key_make_one_job(stub: StubHome) -> None:
    """And while it runs, exactly one more."""
    stub.add("same", ms=0)
    running = stub.queue.claim("1-me")
    assert running is not None
    code = ENQUEUER.replace('f"{sys.argv[3]}-{n}"', '"same"').replace("EMBED", "SYNC")
    code = code.replace('ProjectId("p")', 'ProjectId("p1")')
    crowd = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(stub.paths.home), str(ROOT), "x", "5"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(16)
    ]

    printed = {line for process in crowd for line in process.communicate(timeout=60)[0].split()}

    assert len(printed) == 1
    assert stub.queue.counts()[JobState.AVAILABLE] == 1


def test_i13_term_lets_a_job_finish_and_takes_no_other(stub: StubHome) -> None:
    """Exit 0, well before the service manager's patience ends."""
    worker = stub.start("--workers", "1")
    stub.add("running", ms=600)
    wait_until(lambda: stub.started() == ["running"], what="it started")
    stub.add("waiting")

    worker.send_signal(signal.SIGTERM)
    code = worker.wait(20)

    counts = stub.queue.counts()
    assert code == 0
    assert stub.effects() == ["running"]
    assert (counts[JobState.COMPLETED], counts[JobState.AVAILABLE]) == (1, 1)


def test_i13_a_second_term_gives_the_running_job_back(stub: StubHome, tmp_path: Path) -> None:
    """Without a lost attempt: the stop was ours."""
    told = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(told))
        manager.settimeout(20)
        worker = stub.start("--workers", "1", NOTIFY_SOCKET=str(told))
        ready = manager.recv(200)
        name = stub.add("running", ms=60_000)
        wait_until(lambda: stub.started() == ["running"], what="it started")
        worker.send_signal(signal.SIGTERM)
        stopping = manager.recv(200)
    worker.send_signal(signal.SIGTERM)
    worker.wait(20)

    view = stub.queue.job(name)
    assert view is not None
    assert (view.state, view.attempt, view.crashes) == (JobState.AVAILABLE, 0, 0)
    assert ready.startswith(b"READY=1")
    assert stopping.startswith(b"STOPPING=1")


def test_i14_a_crowd_sees_no_locked_database(stub: StubHome) -> None:
    """Twelve processes enqueue, FULL, while a worker works: no error, nothing lost."""
    stub.start()
    crowd = [enqueuer(stub, f"e{n}", 40) for n in range(12)]

    ended = [process.communicate(timeout=120) for process in crowd]

    assert [error for _, error in ended] == [""] * 12
    wait_until(lambda: drained(stub), within_s=60, what="all ran")
    assert stub.queue.counts()[JobState.COMPLETED] == 480


@pytest.mark.parametrize(
    "message",
    [b"", b"\x80\x04\x95", b"cos\nsystem\n.", b'{"v":2,"args":{}}', b"[1,2", b"{" * 9_000],
)
def test_i15_a_message_that_cannot_be_read_is_kept_as_dead(stub: StubHome, message: bytes) -> None:
    """With its reason; the queue goes on."""
    bad = stub.add("bad")
    with stub.queue.file.write("FULL") as db:
        db.execute("UPDATE jobs SET message = ?", (message,))
    stub.add("good")

    stub.start("--once", ready=False).wait(30)

    view = stub.queue.job(bad)
    assert view is not None
    assert view.state is JobState.DEAD
    assert view.error.startswith("UnknownJob: the message")
    assert stub.effects() == ["good"]


def test_i15_a_kind_from_a_newer_version_is_kept_as_dead(stub: StubHome) -> None:
    """It can be revived after an update."""
    bad = stub.add("bad")
    with stub.queue.file.write("FULL") as db:
        db.execute("UPDATE jobs SET kind = 'from-the-future'")

    stub.start("--once", ready=False).wait(30)

    view = stub.queue.job(bad)
    assert view is not None
    assert view.state is JobState.DEAD
    assert "'from-the-future'" in view.error
