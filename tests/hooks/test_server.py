"""The resident server answers, and nobody can stop it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import threading
from pathlib import Path

import pytest

from hooks.events import PromptSubmitted, TurnEnded
from hooks.server import Server, take_lock
from retrieval.embedding import HashEncoder
from storage.authority import open_authority
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.errors import Unavailable
from storage.paths import HomePaths
from storage.records import ProjectId
from tests.hooks.serverside import (
    Listener,
    Running,
    a_server,
    find_test_project,
    prompt_frame,
    read_line,
    recall,
    short_home,
    store_vectors,
)
from tests.retrieval.memories import FACTS, PROJECT, a_fact, a_store, remember
from tests.support import wait_until


def test_recall_finds_a_fact_and_renders_it(running: Running) -> None:
    """An answer holds the items, their scores, and the block a prompt would get."""
    result = recall(running, "which local database is used")

    found = result["recall"]
    assert isinstance(found, dict)
    assert found["items"][0]["text"] == FACTS[0]
    assert str(result["block"]).startswith("<private_memory")


def test_what_is_recorded_later_is_recalled_at_once(running: Running) -> None:
    """A commit of another process is in the next answer."""
    assert recall(running, "who reviews terraform plans")["block"] == ""
    store = a_store(running.paths.home, SystemClock())
    remember(store, [a_fact("Terraform plans are reviewed by the platform team.")])
    store.close()

    assert "Terraform" in str(recall(running, "who reviews terraform plans")["block"])


def test_a_prompt_gets_the_hosts_own_json(running: Running) -> None:
    """A raw reply is one line that the host reads as it is."""
    with running.connect() as link:
        link.sendall(json.dumps({"v": 1, "id": "1", **prompt_frame("which database")}).encode())
        link.sendall(b"\n")
        shown = json.loads(read_line(link))

    context = shown["hookSpecificOutput"]["additionalContext"]
    assert FACTS[0] in context
    wait_until(lambda: len(running.listener.events) == 1, what="the captured prompt")
    assert isinstance(running.listener.events[0], PromptSubmitted)


def test_a_prompt_without_an_answer_gets_an_empty_line(running: Running) -> None:
    """Nothing to say is an empty line: the host prints nothing."""
    with running.connect() as link:
        for prompt, cwd in (("ok, continue", "/work"), ("which database", "/elsewhere")):
            frame = {"v": 1, "id": "1", **prompt_frame(prompt, cwd=cwd)}
            link.sendall(json.dumps(frame).encode() + b"\n")
            assert read_line(link) == b"\n"


def test_every_event_goes_to_capture(running: Running) -> None:
    """Events without an answer are acknowledged and written down, in order."""
    stop = {"op": "hook", "host": "claude", "event": "Stop", "reply": "json"}
    answer = running.ask({**stop, "payload": {"session_id": "s1", "cwd": "/work"}})

    assert answer == {"v": 1, "id": "t", "ok": True, "result": None}
    wait_until(lambda: len(running.listener.events) == 1, what="the captured event")
    assert isinstance(running.listener.events[0], TurnEnded)


def test_events_are_written_down_in_the_order_they_came() -> None:
    """A prompt whose answer takes long is still captured before the end of its turn."""
    asked, answered = threading.Event(), threading.Event()

    def find_project(paths: HomePaths, cwd: Path) -> ProjectId | None:
        if cwd == Path("/slow"):
            asked.set()
            assert answered.wait(20)
        return find_test_project(paths, cwd)

    turn = {"op": "hook", "host": "pi", "payload": {"sessionId": "s1", "cwd": "/work"}}
    frames: list[dict[str, object]] = [
        prompt_frame("which database", cwd="/slow"),
        {**turn, "event": "turn_end"},
        {**turn, "event": "agent_settled"},
    ]
    with short_home() as home, a_server(home, find_project=find_project) as running:
        with running.connect() as link:
            for number, frame in enumerate(frames):
                line = json.dumps({"v": 1, "id": str(number), **frame}).encode() + b"\n"
                link.sendall(line)
            assert asked.wait(20)
            with link.makefile("rb") as told:
                assert [json.loads(told.readline())["id"] for _ in frames[1:]] == ["1", "2"]
            answered.set()
        wait_until(lambda: len(running.listener.events) == 3, what="the captured events")

        first, second, third = running.listener.events

    assert isinstance(first, PromptSubmitted)
    assert isinstance(second, TurnEnded)
    assert isinstance(third, TurnEnded)
    assert (second.settled, third.settled) == (False, True)


def test_a_prompt_does_not_stand_in_line_behind_other_questions() -> None:
    """With every thread busy and questions waiting, the prompt that came last is taken next.

    The questions let nobody on until a prompt was taken: behind them it never would be.
    """
    held, released, prompted = threading.Semaphore(0), threading.Event(), threading.Event()
    gave_up: list[Path] = []

    def find_project(paths: HomePaths, cwd: Path) -> ProjectId | None:
        if cwd == Path("/slow"):
            held.release()
            assert released.wait(20)
        elif cwd == Path("/prompt"):
            prompted.set()
        elif not prompted.wait(5):
            gave_up.append(cwd)
            prompted.set()
        return find_test_project(paths, cwd)

    question = {"op": "recall", "query": "which database"}
    frames = [{**question, "cwd": "/slow"}] * 2
    frames += [{**question, "cwd": "/work"}] * 30
    with (
        short_home() as home,
        a_server(home, find_project=find_project) as running,
        running.connect() as link,
    ):
        for number, frame in enumerate(frames):
            link.sendall(json.dumps({"v": 1, "id": str(number), **frame}).encode() + b"\n")
        assert held.acquire(timeout=20)
        assert held.acquire(timeout=20)
        asked = prompt_frame("which database", reply="json", cwd="/prompt")
        link.sendall(json.dumps({"v": 1, "id": "prompt", **asked}).encode() + b"\n")
        wait_until(lambda: queued(running) == 31, what="everything in line")
        released.set()
        with link.makefile("rb") as told:
            answered = {json.loads(told.readline())["id"] for _ in range(33)}

    assert gave_up == []
    assert len(answered) == 33


def queued(running: Running) -> int:
    """How many wait in the server."""
    stats = running.ask({"op": "stats"})["result"]
    assert isinstance(stats, dict)
    return int(stats["queued"])


def test_only_a_session_that_starts_where_vectors_are_loads_the_encoder() -> None:
    """A server holds no model for itself or for sessions elsewhere; a first prompt finds one."""
    start = {"op": "hook", "host": "claude", "event": "SessionStart", "reply": "json"}
    with short_home() as home, a_server(home, environment={"MEMORYD_ENCODER": "hash"}) as running:
        running.ask({**start, "payload": {"session_id": "s0", "cwd": "/elsewhere"}})
        wait_until(lambda: len(running.listener.events) == 1, what="the captured start")
        before = running.ask({"op": "stats"})["result"]
        store = open_authority(
            running.paths.project(PROJECT),
            PROJECT,
            clock=SystemClock(),
            settings=StorageSettings(),
        )
        store_vectors(store, HashEncoder())
        store.close()
        running.ask({**start, "payload": {"session_id": "s1", "cwd": "/work"}})
        wait_until(
            lambda: '"vectors": 10' in json.dumps(running.ask({"op": "stats"})),
            what="the index of the first prompt",
        )
        after = running.ask({"op": "stats"})["result"]

    assert isinstance(before, dict)
    assert isinstance(after, dict)
    assert (before["encoder"], before["projects"]) == ("off", [])
    assert after["encoder"] in ("warming", "ready")


def test_a_server_told_to_leave_writes_down_what_it_was_told_before() -> None:
    """An event whose answer is still being made when the server stops is captured first."""
    asked, answered = threading.Event(), threading.Event()

    def find_project(paths: HomePaths, cwd: Path) -> ProjectId | None:
        if cwd == Path("/slow"):
            asked.set()
            assert answered.wait(20)
        return find_test_project(paths, cwd)

    with short_home() as home, a_server(home, find_project=find_project) as running:
        with running.connect() as link:
            frame = {"v": 1, "id": "1", **prompt_frame("which database", cwd="/slow")}
            link.sendall(json.dumps(frame).encode() + b"\n")
            assert asked.wait(20)
            running.server.stop()
            wait_until(lambda: not running.paths.socket.exists(), what="the closing server")
            answered.set()
            running.thread.join(20)

        assert [type(event) for event in running.listener.events] == [PromptSubmitted]


def test_a_broken_capture_does_not_cost_the_answer(running: Running) -> None:
    """Capture fails, prompts are answered; the failure is counted and logged without words."""
    running.listener.broken = True

    answer = running.ask(prompt_frame("which database", reply="json"))

    assert answer["ok"] is True
    assert answer["result"]
    wait_until(lambda: "capture_failed" in str(running.ask({"op": "stats"})), what="the count")
    log = (running.paths.logs / "server.log").read_text(encoding="ascii")
    assert "capture.failed" in log
    assert "RuntimeError" in log
    assert "broken" not in log


def test_the_socket_is_private(running: Running) -> None:
    """Mode 0600 in a folder of mode 0700."""
    assert stat.S_IMODE(running.paths.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(running.paths.socket.parent.stat().st_mode) == 0o700


def test_a_long_home_gets_a_short_socket(tmp_path: Path) -> None:
    """A path longer than the system accepts is served at a private stand-in."""
    home = tmp_path / ("h" * 80) / ("i" * 40)
    home.mkdir(parents=True, mode=0o700)

    with a_server(home) as server:
        assert server.alive()
        assert len(os.fsencode(server.paths.socket)) <= 104
    assert not server.paths.socket.exists()


def test_a_store_deleted_underneath_is_no_memory(running: Running) -> None:
    """The folder is gone: silence, no error; a new store there is found again."""
    assert recall(running, "which local database")["block"]
    shutil.rmtree(running.paths.project(PROJECT).root)

    assert recall(running, "which local database")["block"] == ""

    store = a_store(running.paths.home, SystemClock())
    remember(store, [a_fact("The project uses a local Postgres database now.")])
    store.close()
    assert "Postgres" in str(recall(running, "which local database")["block"])


def test_a_damaged_store_is_an_empty_answer(running: Running) -> None:
    """Garbage where the database was: the prompt goes through with nothing, the log has a line."""
    database = running.paths.project(PROJECT).database
    for name in (database.name, f"{database.name}-wal", f"{database.name}-shm"):
        database.with_name(name).unlink(missing_ok=True)
    database.write_bytes(b"garbage " * 4_096)
    database.chmod(0o600)

    with running.connect() as link:
        link.sendall(json.dumps({"v": 1, "id": "1", **prompt_frame("which database")}).encode())
        link.sendall(b"\n")
        assert read_line(link) == b"\n"
    assert running.alive()
    assert "request.failed" in (running.paths.logs / "server.log").read_text(encoding="ascii")


def test_a_second_server_leaves_quietly(running: Running) -> None:
    """The lock is taken: exit code 0, and the first goes on."""
    second = Server(running.paths, clock=SystemClock(), environment={}, new_capture=Listener)

    assert second.run() == 0
    assert running.alive()


def test_a_stale_socket_is_replaced() -> None:
    """What a killed server left behind does not keep the next one from starting."""
    with short_home() as home:
        paths = HomePaths(home)
        paths.shared.mkdir(mode=0o700)
        dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        dead.bind(os.fspath(paths.socket))
        dead.close()

        with a_server(home) as server:
            assert server.alive()


def test_stopping_removes_the_socket_and_frees_the_lock() -> None:
    """After the end nothing is left but the lock file, and it is free."""
    with short_home() as home:
        with a_server(home) as server:
            assert server.alive()
        assert server.exit_code == 0
        assert not server.paths.socket.exists()
        lock = take_lock(server.paths.server_lock)
        assert lock is not None
        os.close(lock)


def test_it_leaves_when_its_home_is_gone() -> None:
    """No orphan: the deleted home ends the server by itself."""
    with short_home() as home, a_server(home) as server:
        assert server.alive()
        shutil.rmtree(home)

        server.thread.join(20)

        assert not server.thread.is_alive()
        assert server.exit_code == 0
        home.mkdir(mode=0o700)


def test_it_leaves_when_its_socket_is_gone() -> None:
    """Without a socket nobody can reach it: it makes room for the next server."""
    with short_home() as home, a_server(home) as server:
        server.paths.socket.unlink()

        server.thread.join(20)

        assert server.exit_code == 0


def test_it_leaves_after_the_set_silence() -> None:
    """An idle limit ends a server that nobody asks anything."""
    with short_home() as home, a_server(home, idle_exit_s=1) as server:
        server.thread.join(20)

        assert server.exit_code == 0


def test_a_home_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """A server does not make a home that a person deleted."""
    server = Server(HomePaths(tmp_path / "gone"), clock=SystemClock(), environment={})

    with pytest.raises(Unavailable):
        server.run()
    assert not (tmp_path / "gone").exists()


def test_recall_can_be_switched_off() -> None:
    """The setting silences prompts and says so to people."""
    with short_home() as home:
        config = HomePaths(home).config
        config.parent.mkdir(mode=0o700)
        config.write_text("[recall]\nenabled = false\n", encoding="utf-8")
        with a_server(home) as server:
            assert recall(server, "which local database")["block"] == ""
            config.write_text("[recall]\nenabled = true\nmax_items = 1\n", encoding="utf-8")
            assert recall(server, "which local database")["block"]


def test_stats_hold_numbers_and_no_words(running: Running) -> None:
    """Counts, sizes and ids; nothing that was asked or remembered."""
    recall(running, "which local database is durable")

    stats = running.ask({"op": "stats"})["result"]

    assert isinstance(stats, dict)
    assert stats["projects"][0]["chunks"] == len(FACTS)
    assert stats["counts"]["recall"] == 1
    assert stats["rss_bytes"] > 1_000_000
    assert "durable" not in json.dumps(stats)
    log = (running.paths.logs / "server.log").read_text(encoding="ascii")
    assert "durable" not in log
