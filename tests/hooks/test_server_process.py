"""The server as a process: one a home, gone on TERM, replaced after a kill, small while idle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hooks.recall_client import call
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.errors import MemorydError
from storage.paths import HomePaths
from storage.projects import bind
from tests.hooks.serverside import short_home
from tests.retrieval.memories import FACTS, a_fact, a_store, remember
from tests.support import wait_until

IDLE_BUDGET_BYTES = 100 * 1024 * 1024


@pytest.fixture
def home() -> Iterator[Path]:
    """A short private home with a bound checkout that remembers the ten facts."""
    with short_home() as folder:
        checkout = folder / "checkout"
        checkout.mkdir()
        paths, clock = HomePaths(folder), SystemClock()
        bound = bind(paths, checkout, clock=clock, settings=StorageSettings())
        store = a_store(folder, clock, project=bound.project_id)
        remember(store, [a_fact(text) for text in FACTS])
        store.close()
        yield folder


def spawn(home: Path, *, encoder: str = "none") -> subprocess.Popen[bytes]:
    """The server, as a client starts it."""
    return subprocess.Popen(
        [sys.executable, "-I", "-m", "hooks.server", "--home", os.fspath(home)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"HOME": os.fspath(home), "MEMORYD_ENCODER": encoder},
    )


def pid_of(home: Path) -> int:
    """Who answers now; 0 for nobody."""
    try:
        answer = call(HomePaths(home), "ping", {}, timeout_ms=1_000)
    except MemorydError:
        return 0
    assert isinstance(answer, dict)
    return int(str(answer["pid"]))


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Exit code and output, once it has ended."""
    output, _ = process.communicate(timeout=20)
    return process.returncode, output


def test_of_two_that_race_one_serves_and_the_other_leaves(home: Path) -> None:
    """Started at the same moment: one pid answers, the other exits 0 without a word."""
    racers = [spawn(home) for _ in range(4)]
    try:
        wait_until(lambda: pid_of(home) != 0, what="an answer")
        serving = pid_of(home)
        losers = [process for process in racers if process.pid != serving]

        assert len(losers) == 3
        for process in losers:
            assert ended(process) == (0, b"")
        assert pid_of(home) == serving
    finally:
        for process in racers:
            process.terminate()
            process.communicate(timeout=20)


def test_term_ends_it_cleanly(home: Path) -> None:
    """Exit code 0, no output, no socket left."""
    process = spawn(home)
    wait_until(lambda: pid_of(home) == process.pid, what="an answer")

    process.terminate()

    assert ended(process) == (0, b"")
    assert not HomePaths(home).socket.exists()


def test_a_killed_server_is_replaced_by_the_next(home: Path) -> None:
    """kill -9 leaves a stale socket and a free lock; the next server takes both over."""
    first = spawn(home)
    wait_until(lambda: pid_of(home) == first.pid, what="the first")
    first.kill()
    first.communicate(timeout=20)
    assert HomePaths(home).socket.exists()

    second = spawn(home)
    try:
        wait_until(lambda: pid_of(home) == second.pid, what="the second")
        found = call(
            HomePaths(home),
            "recall",
            {"cwd": os.fspath(home / "checkout" / "src"), "query": "which local database"},
            timeout_ms=5_000,
        )
        assert isinstance(found, dict)
        assert FACTS[0] in str(found["block"])
    finally:
        second.terminate()
        second.communicate(timeout=20)


def test_a_missing_home_is_a_plain_error(tmp_path: Path) -> None:
    """One line and exit code 1, no traceback."""
    code, output = ended(spawn(tmp_path / "gone"))

    assert code == 1
    assert output.decode().startswith("hooks.server: ")
    assert output.count(b"\n") == 1


@pytest.mark.skipif(sys.platform != "linux", reason="measures resident memory through /proc")
def test_idle_it_is_small_and_holds_no_model(home: Path) -> None:
    """With a project indexed and the encoder set but not needed, half of 200 MB is plenty."""
    process = spawn(home, encoder="embedded")
    try:
        wait_until(lambda: pid_of(home) != 0, what="an answer")
        query = {"cwd": os.fspath(home / "checkout"), "query": "which local database"}
        call(HomePaths(home), "recall", query, timeout_ms=5_000)

        stats = call(HomePaths(home), "stats", {}, timeout_ms=5_000)

        assert isinstance(stats, dict)
        assert stats["encoder"] == "cold"
        assert int(str(stats["rss_bytes"])) < IDLE_BUDGET_BYTES
    finally:
        process.send_signal(signal.SIGINT)
        assert ended(process) == (0, b"")
