"""I2 and I8 at every SQL statement: killed before the k-th one, for every k, nothing is lost."""

from __future__ import annotations

import subprocess
import sys
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
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.clock import SystemClock
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.queue_owner import Owner
from storage.records import ProjectId

paths = HomePaths(Path(sys.argv[1]))
queue = open_queue(paths, clock=SystemClock())
left = int(sys.argv[3])

def count(cursor, sql, bindings):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return True

def spec(subject, kind=JobKind.SYNC):
    return JobSpec(kind=kind, project=ProjectId("p"), subject=subject)

owner = Owner(paths)
queue.file.db.exec_trace = count
done = queue.claim(owner.name)
queue.acknowledge(done, [spec("next", JobKind.EMBED)])
again = queue.claim(owner.name)
queue.enqueue([spec(again.subject)])
queue.retry(again, "x")
late = queue.claim(owner.name)
queue.snooze(late, 0, "budget")
lost = queue.claim(owner.name)
owner.close()
queue.reap()
queue.bury(queue.claim("1-x"), "no")
print("survived", flush=True)
"""


def _victim(home: Path, kill_at: int) -> bool:
    """Run the script; whether it came to its end."""
    done = subprocess.run(
        [sys.executable, "-c", VICTIM, str(home), str(ROOT), str(kill_at)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (0, -9), done.stderr
    return done.stdout.strip() == "survived"


@pytest.mark.slow
def test_i2_i8_a_kill_before_any_statement_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Claim, acknowledge with a successor, event during a run, retry, snooze, reap, bury."""
    survived_at = None
    for kill_at in range(1, MAX_STATEMENTS):
        home = tmp_path / str(kill_at)
        queue = open_queue(HomePaths(home), clock=SystemClock())
        first = [
            JobSpec(kind=JobKind.SYNC, project=ProjectId("p"), subject=str(n)) for n in range(3)
        ]
        queue.enqueue(first)
        if _victim(home, kill_at):
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
