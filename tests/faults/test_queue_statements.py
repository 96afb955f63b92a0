"""I2 and I8 at every SQL statement: killed before the k-th one, for every k, nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.clock import SystemClock
from storage.jobs import JobKind, JobSpec, JobState
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import ProjectId
from tests.conftest import ROOT

MAX_STATEMENTS = 120
VICTIM = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from storage.clock import SystemClock
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.queue_owner import Owner
from storage.queue_port import Take
from storage.records import ProjectId

def spec(subject, kind=JobKind.SYNC):
    return JobSpec(kind=kind, project=ProjectId("p"), subject=subject)

def live(home, left):
    paths = HomePaths(Path(home))
    queue = open_queue(paths, clock=SystemClock())

    def count(cursor, sql, bindings):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    owner = Owner(paths)
    queue.file.db.exec_trace = count
    done = queue.claim(owner.name)
    take = Take(owner=owner.name, floor=20)
    again = queue.acknowledge_and_claim(done, take, [spec("next", JobKind.EMBED)])
    queue.enqueue([spec(again.subject)])
    queue.retry(again, "x")
    late = queue.claim(owner.name)
    queue.snooze(late, 0, "budget")
    lost = queue.claim(owner.name)
    owner.close()
    queue.reap()
    queue.bury(queue.claim("1-x"), "no")

# One process knows the modules and opens nothing; each victim is a fork of it.
for line in sys.stdin:
    home, left = line.split()
    child = os.fork()
    if child == 0:
        live(home, int(left))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


Nursery = subprocess.Popen[str]


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    """The process that the victims are forked from."""
    process = subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(ROOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.communicate(timeout=30)


def _victim(nursery: Nursery, home: Path, kill_at: int) -> bool:
    """Run the script in a process of its own; whether it came to its end."""
    assert nursery.stdin is not None
    assert nursery.stdout is not None
    nursery.stdin.write(f"{home} {kill_at}\n")
    nursery.stdin.flush()
    code = int(nursery.stdout.readline())
    assert code in (0, -9)
    return code == 0


@pytest.mark.slow
def test_i2_i8_a_kill_before_any_statement_loses_and_doubles_nothing(
    tmp_path: Path, nursery: Nursery
) -> None:
    """Claim, fused acknowledgement, event during a run, retry, snooze, reap, bury."""
    survived_at = None
    for kill_at in range(1, MAX_STATEMENTS):
        home = tmp_path / str(kill_at)
        queue = open_queue(HomePaths(home), clock=SystemClock())
        first = [
            JobSpec(kind=JobKind.SYNC, project=ProjectId("p"), subject=str(n)) for n in range(3)
        ]
        queue.enqueue(first)
        if _victim(nursery, home, kill_at):
            survived_at = kill_at
            queue.close()
            break
        queue.reap()
        _work_off(home)

        views = queue.jobs(limit=1_000)
        completed = [view.subject for view in views if view.state is JobState.COMPLETED]
        dead = [view for view in views if view.state is JobState.DEAD]
        open_jobs = [view for view in views if view.finished_at is None]
        assert open_jobs == [], kill_at
        assert {"0", "1", "2"} <= {*completed, *(view.subject for view in dead)}, kill_at
        # The successor exists exactly if its job was acknowledged; either way it ran once.
        assert completed.count("next") == 1, kill_at
        assert queue.file.db.pragma("integrity_check") == "ok"
        queue.close()

    assert survived_at is not None
    assert survived_at > 20


def _work_off(home: Path) -> None:
    queue = open_queue(HomePaths(home), clock=SystemClock())
    with queue.file.write("OFF") as db:
        db.execute("UPDATE jobs SET run_at = 0 WHERE state = 'available'")
    while job := queue.claim("1-survivor"):
        follows = job.subject == "0" and job.kind == "sync"
        successors = [JobSpec(kind=JobKind.EMBED, project=ProjectId("p"), subject="next")]
        queue.acknowledge(job, successors if follows else ())
    queue.close()
