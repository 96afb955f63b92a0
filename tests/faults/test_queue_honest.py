"""Looking must not touch, and what is said about health must be true."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import apsw
import pytest

from storage.clock import DAY_MS
from storage.jobs import JobKind, JobSpec, JobState
from storage.leases import Reaped
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import ProjectId
from storage.schedules import fire, views
from tasks.context import Finished
from tasks.dispatch import Route
from tasks.engine import Engine
from tests.conftest import ROOT
from tests.faults.stub import StubHome, stub_home
from tests.support import ManualClock, wait_until

P = ProjectId("p")
READING = ("queue", "jobs", "budget", "schedule", "leases", "dead", "status")
SILENCE_MS = 60_000
PASSES = 4
Write = Callable[..., AbstractContextManager[apsw.Connection]]


@pytest.fixture
def stub(home: Path) -> Iterator[StubHome]:
    """A home for stub workers."""
    with stub_home(home) as made:
        yield made


@pytest.mark.parametrize("verb", READING)
def test_i16_looking_runs_nothing_and_waits_for_no_writer(
    stub: StubHome, verb: str, tmp_path: Path
) -> None:
    """A pickle bomb in the row, the write lock held by somebody: every reading verb answers."""
    trap = tmp_path / "pwned"
    bomb = f"cposix\nsystem\n(S'touch {trap}'\ntR.".encode()
    stub.add("bomb")
    with stub.queue.file.write("FULL") as db:
        db.execute("UPDATE jobs SET message = ?, error = ?", (bomb, "a\x1b[2J"))
    with stub.queue.file.write("FULL") as db:
        db.execute("UPDATE jobs SET note = 'held'")
        done = subprocess.run(
            [sys.executable, "-m", "ops", verb, "--json", "--home", str(stub.paths.home)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert json.loads(done.stdout), done.stderr
    assert not trap.exists()
    assert stub.queue.counts()[JobState.AVAILABLE] == 1


def test_i19_a_wedged_round_starves_the_watchdog(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service manager hears of whole rounds only: a thread that hangs is no sign of life."""
    told = tmp_path / "notify"
    wedged = threading.Event()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(told))
        manager.setblocking(False)
        environment = {"NOTIFY_SOCKET": str(told), "WATCHDOG_USEC": "60000000"}
        clock = ManualClock()
        routes = {kind: Route(lambda _context, _args: Finished(), 1_000) for kind in JobKind}
        engine = Engine(HomePaths(home), environment, clock, routes=routes, projects=tuple)
        engine.start(workers=1)
        engine.tick()
        heard = [manager.recv(100), manager.recv(100)]

        def hang(**_: int) -> Reaped:
            wedged.wait(20)
            return Reaped()

        monkeypatch.setattr(engine.queue, "reap", hang)
        stuck = threading.Thread(target=engine.tick)
        stuck.start()
        clock.advance(SILENCE_MS)
        with pytest.raises(BlockingIOError):
            manager.recv(100)
        silent_ms = clock.boot_ms() - engine.ticker.progressed_at
        wedged.set()
        stuck.join(20)
        engine.close()

    assert heard[0].startswith(b"READY=1")
    assert heard[1] == b"WATCHDOG=1"
    assert silent_ms >= SILENCE_MS


def test_i19_a_hung_worker_is_seen_by_the_age_of_what_is_due(stub: StubHome) -> None:
    """A process that exists and does nothing does not look healthy."""
    stub.start("--workers", "1")
    stub.add("hung", do="hang")
    wait_until(lambda: stub.started() == ["hung"], what="it hangs")
    stub.add("waiting")

    wait_until(lambda: stub.queue.oldest_ready_age_ms() > 300, what="its age is told")

    assert not stub.queue.drained()
    assert stub.effects() == []


def test_i17_every_table_has_a_limit(home: Path) -> None:
    """A year of days: jobs, slots, reservations, spool names, values and windows all stay small."""
    clock = ManualClock()
    queue = open_queue(HomePaths(home), clock=clock, durability="OFF", enqueue_durability="OFF")
    with queue.file.write("OFF") as db:
        db.execute("INSERT INTO schedules VALUES ('gc', '* * * * *', 'UTC', 0, NULL, 0)")
    sizes: list[dict[str, int]] = []
    for day in range(PASSES * 30):
        queue.enqueue(
            [JobSpec(kind=JobKind.EMBED, project=P, subject=f"{day}-{n}") for n in range(40)]
        )
        while job := queue.claim("1-me"):
            queue.acknowledge(job)
        _fill_a_day(queue.file.write, clock.now_ms(), day)
        with queue.file.write("OFF") as db:
            (entry,) = views(db)
            fire(db, entry, slots=[f"{day}"], waiting=(), next_run_at=0, missed=0,
                 now=clock.now_ms())  # fmt: skip
        clock.advance(DAY_MS)
        while queue.prune(retention_days=7):
            pass
        if day % 30 == 29:
            queue.file.checkpoint("TRUNCATE")
            sizes.append(_rows(queue.file.db))

    assert sizes[-1].keys() == sizes[0].keys()
    grown = {
        name: (sizes[1][name], rows)
        for name, rows in sizes[-1].items()
        if rows > sizes[1][name] + 10 and name != "budget_windows"
    }
    assert grown == {}
    assert sizes[-1]["budget_windows"] <= 400
    assert queue.file.wal_bytes() == 0
    queue.close()


def _fill_a_day(write: Write, now: int, day: int) -> None:
    with write("OFF") as db:
        for n in range(20):
            db.execute("INSERT INTO spooled VALUES (?, ?)", (f"{day}-{n}", now))
            db.execute("INSERT INTO huey_values VALUES (?, x'00', ?)", (f"{day}-{n}", now))
            db.execute(
                "INSERT INTO reservations (nonce, window, state, calls, tokens, scopes, kind,"
                " project, model, job_id, reserved_at)"
                " VALUES (1, ?, ?, 1, 1, '[]', '', '', '', '', ?)",
                (now, "held" if n == 0 else "settled", now),
            )
        db.execute("INSERT INTO budget_windows (scope, window) VALUES ('all', ?)", (now,))


def _rows(db: apsw.Connection) -> dict[str, int]:
    tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return {
        str(name): int(str(db.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]))
        for (name,) in tables
    }
