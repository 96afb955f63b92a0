"""A recall server in this process, over a small memory, with a capture that only listens."""

from __future__ import annotations

import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hooks.events import HookEvent
from hooks.server import Server
from hooks.serving import PeerUid
from retrieval.embedding import HashEncoder
from retrieval.quantize import packed
from storage.authority.port import Authority
from storage.clock import SystemClock
from storage.paths import HomePaths
from storage.records import ProjectId
from tests.retrieval.memories import FACTS, PROJECT, a_fact, a_store, remember
from tests.support import wait_until


class Listener:
    """A capture that keeps the events it is given."""

    def __init__(self) -> None:
        self.events: list[HookEvent] = []
        self.broken = False

    def handle(self, event: HookEvent) -> None:
        if self.broken:
            raise RuntimeError("capture is broken")
        self.events.append(event)


class Running:
    """A started server and how to talk to it."""

    def __init__(self, paths: HomePaths, server: Server, listener: Listener) -> None:
        self.paths, self.server, self.listener = paths, server, listener
        self.exit_code: int | None = None
        self.thread = threading.Thread(target=self._run, name="server-under-test")

    def _run(self) -> None:
        self.exit_code = self.server.run()

    def connect(self, timeout_s: float = 10.0) -> socket.socket:
        """A new connection."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(timeout_s)
        try:
            link.connect(os.fspath(self.paths.socket))
        except BaseException:
            link.close()
            raise
        return link

    def ask(self, frame: dict[str, object]) -> dict[str, object]:
        """The answer to one frame on a connection of its own."""
        with self.connect() as link:
            link.sendall(json.dumps({"v": 1, "id": "t", **frame}).encode() + b"\n")
            answer = json.loads(read_line(link))
            assert isinstance(answer, dict)
            return answer

    def ready(self) -> bool:
        """Whether it answers and its index can be built (a stale socket refuses at first)."""
        try:
            return '"ready": true' in json.dumps(self.ask({"op": "stats"}))
        except OSError:
            return False

    def alive(self) -> bool:
        """Whether it still answers a ping."""
        return self.ask({"op": "ping"})["ok"] is True


def read_line(link: socket.socket) -> bytes:
    """The next line; b"" when the server hung up first."""
    got = b""
    while not got.endswith(b"\n"):
        part = link.recv(65_536)
        if not part:
            return b""
        got += part
    return got


def find_test_project(_paths: HomePaths, cwd: Path) -> ProjectId | None:
    """Every folder but /elsewhere belongs to the test's project."""
    return None if cwd == Path("/elsewhere") else PROJECT


@contextmanager
def a_server(
    home: Path,
    *,
    facts: tuple[str, ...] = FACTS,
    peer_uid: PeerUid | None = None,
    idle_exit_s: int | None = None,
    environment: dict[str, str] | None = None,
    find_project: Callable[[HomePaths, Path], ProjectId | None] = find_test_project,
) -> Iterator[Running]:
    """A server of `home` (encoder off unless the environment says so); stopped at the end."""
    clock = SystemClock()
    store = a_store(home, clock)
    remember(store, [a_fact(text) for text in facts])
    store.close()
    listener = Listener()
    server = Server(
        HomePaths(home),
        clock=clock,
        environment={"MEMORYD_ENCODER": "none", **(environment or {})},
        idle_exit_s=idle_exit_s,
        new_capture=lambda: listener,
        find_project=find_project,
        peer_uid=peer_uid,
    )
    running = Running(HomePaths(home), server, listener)
    running.thread.start()
    try:
        wait_until(running.ready, what="a ready server")
        yield running
    finally:
        server.stop()
        running.thread.join(20)
        assert not running.thread.is_alive()


@contextmanager
def short_home() -> Iterator[Path]:
    """A private home with a short path, so that its socket needs no stand-in."""
    with tempfile.TemporaryDirectory(prefix="md") as folder:
        home = Path(folder)
        home.chmod(0o700)
        yield home


def store_vectors(store: Authority, encoder: HashEncoder) -> None:
    """A vector for every chunk of the store."""
    with store.read() as reads:
        chunks = list(reads.chunks())
    vectors = packed(HashEncoder().encode([chunk.text for chunk in chunks]), 127.0)
    rows = [(chunk.rowid, vector) for chunk, vector in zip(chunks, vectors, strict=True)]
    store.store_vectors(encoder.collection, rows)


def recall(server: Running, query: str, **fields: object) -> dict[str, object]:
    """The result of a recall op."""
    answer = server.ask({"op": "recall", "cwd": "/work", "query": query, **fields})
    assert answer["ok"] is True
    result = answer["result"]
    assert isinstance(result, dict)
    return result


def prompt_frame(prompt: str, *, reply: str = "raw", cwd: str = "/work") -> dict[str, object]:
    """A Claude Code prompt hook."""
    payload = {"session_id": "s1", "cwd": cwd, "prompt": prompt, "transcript_path": "/t.jsonl"}
    return {
        "op": "hook",
        "host": "claude",
        "event": "UserPromptSubmit",
        "reply": reply,
        "payload": payload,
    }
