"""The daemon as a process: stock and ours, once, refused, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import worker
from storage.clock import SystemClock
from storage.jobs import JobKind, JobSpec, JobState
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.queue_owner import living_owners
from storage.records import ProjectId
from tests.conftest import ROOT
from tests.support import wait_until

OURS = [sys.executable, "-m", "worker"]
STOCK = [sys.executable, "-m", "huey.bin.huey_consumer", "worker.huey", "-w", "2"]


@pytest.fixture
def queue(home: Path) -> Iterator[JobQueue]:
    """An empty queue."""
    made = open_queue(HomePaths(home), clock=SystemClock())
    yield made
    made.close()


def spawn(argv: list[str], home: Path) -> subprocess.Popen[str]:
    """A worker process of a home."""
    environment = {**os.environ, "PI_MEMORY_HOME": str(home)}
    return subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


def add(queue: JobQueue) -> str:
    """A job with a real body that needs no project."""
    return queue.enqueue([JobSpec(kind=JobKind.CHECKPOINT, project=ProjectId(""))])[0]


@pytest.mark.parametrize(
    ("argv", "stop"), [(OURS, signal.SIGTERM), (STOCK, signal.SIGINT)], ids=["ours", "stock"]
)
def test_a_worker_runs_jobs_until_it_is_told_to_stop(
    queue: JobQueue, home: Path, argv: list[str], stop: signal.Signals
) -> None:
    """`python -m worker` and stock `huey_consumer worker.huey` alike."""
    name = add(queue)
    with spawn(argv, home) as process:
        wait_until(lambda: queue.counts()[JobState.COMPLETED] == 1, what="the job ran")
        process.send_signal(stop)
        _, errors = process.communicate(timeout=30)

    view = queue.job(name)
    assert view is not None
    assert view.state is JobState.COMPLETED
    assert process.returncode == 0, errors
    assert living_owners(HomePaths(home)) == ()


@pytest.mark.parametrize("argv", [OURS, STOCK], ids=["ours", "stock"])
def test_a_second_worker_of_a_home_is_refused(queue: JobQueue, home: Path, argv: list[str]) -> None:
    """Exit code 3 and one plain sentence."""
    with spawn(OURS, home) as first:
        wait_until(lambda: len(living_owners(HomePaths(home))) == 1, what="the first one listens")

        with spawn(argv, home) as second:
            _, errors = second.communicate(timeout=30)

        first.send_signal(signal.SIGTERM)
        first.communicate(timeout=30)

    assert second.returncode == 3
    assert "a worker of this home is running already" in errors
    assert "Traceback" not in errors
    assert first.returncode == 0


def test_once_leaves_when_nothing_is_due(queue: JobQueue, home: Path) -> None:
    """What waits for later is left for later."""
    now = SystemClock().now_ms()
    done = add(queue)
    later = queue.enqueue(
        [JobSpec(kind=JobKind.GC, project=ProjectId(""), run_at=now + 3_600_000)]
    )[0]

    with spawn([*OURS, "--once"], home) as process:
        _, errors = process.communicate(timeout=30)

    states = [view.state for name in (done, later) if (view := queue.job(name)) is not None]
    assert process.returncode == 0, errors
    assert states == [JobState.COMPLETED, JobState.AVAILABLE]


def test_a_killed_worker_keeps_nobody_out(queue: JobQueue, home: Path) -> None:
    """The guard is the kernel's lock, not a file that says so."""
    with spawn(OURS, home) as first:
        wait_until(lambda: len(living_owners(HomePaths(home))) == 1, what="it listens")
        first.kill()
        first.communicate(timeout=30)

    with spawn([*OURS, "--once"], home) as second:
        _, errors = second.communicate(timeout=30)

    assert second.returncode == 0, errors


@pytest.mark.parametrize(
    ("content", "message"),
    [("[model]\nnome = 1\n", "did you mean name"), ('[schedule]\ngc = "x"\n', "schedule.gc")],
)
def test_unusable_settings_are_one_sentence(
    home: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1, no traceback, nothing started."""
    paths = HomePaths(home)
    paths.shared.mkdir(mode=0o700)
    paths.config.write_text(content)

    code = worker.main(["--home", str(home), "--once"])

    assert code == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--workers", "0"], ["--workers", "x"], ["--no-such"]])
def test_wrong_usage_is_exit_code_two(
    home: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As every command of ours."""
    with pytest.raises(SystemExit) as left:
        worker.main(["--home", str(home), *arguments])

    assert left.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_importing_the_worker_opens_nothing(home: Path) -> None:
    """The Huey instance is built when it is asked for, once."""
    code = (
        "import os, worker; before = os.listdir(os.environ['PI_MEMORY_HOME']);"
        "print(before, worker.huey is worker.huey)"
    )
    environment = {**os.environ, "PI_MEMORY_HOME": str(home)}

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "[] True"
    with pytest.raises(AttributeError):
        _ = worker.no_such_name


def test_a_worker_that_says_ready_can_be_told_to_stop(home: Path, tmp_path: Path) -> None:
    """A TERM in the very moment of its readiness is a polite stop, not a death."""
    told = tmp_path / "notify"
    environment = {**os.environ, "PI_MEMORY_HOME": str(home), "NOTIFY_SOCKET": str(told)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(told))
        manager.settimeout(30)
        for _ in range(5):
            process = subprocess.Popen(OURS, cwd=ROOT, env=environment)
            assert manager.recv(200).startswith(b"READY=1")
            process.send_signal(signal.SIGTERM)
            assert manager.recv(200).startswith(b"STOPPING=1")
            assert process.wait(30) == 0
