"""What a crash of the encoder's native code costs a running server: one question its vectors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from time import monotonic
from typing import cast

import pytest

from hooks.frames import parse_answer, request_line
from hooks.recall_client import call
from retrieval.embedding import OnnxEncoder
from retrieval.quantize import packed
from storage.clock import SystemClock
from storage.config import EncoderSettings, StorageSettings
from storage.errors import MemorydError
from storage.paths import HomePaths
from storage.projects import bind
from storage.records import JsonValue
from tests.hooks.serverside import read_line, short_home
from tests.hooks.test_server_process import ended, pid_of, spawn
from tests.retrieval.memories import FACTS, a_fact, a_store, remember
from tests.support import wait_until

QUERY = "which local database"


class World:
    """A server over a memory with real vectors, its encoder loaded."""

    def __init__(self, home: Path) -> None:
        self.paths = HomePaths(home)
        self.checkout = home / "checkout"
        self.checkout.mkdir()
        clock = SystemClock()
        bound = bind(self.paths, self.checkout, clock=clock, settings=StorageSettings())
        encoder = OnnxEncoder(EncoderSettings())
        with closing(a_store(home, clock, project=bound.project_id)) as store:
            remember(store, [a_fact(text) for text in FACTS])
            with store.read() as reads:
                chunks = list(reads.chunks())
            vectors = packed(encoder.encode([chunk.text for chunk in chunks]), 512.0)
            rows = [(chunk.rowid, vector) for chunk, vector in zip(chunks, vectors, strict=True)]
            store.store_vectors(encoder.collection, rows)
        self.server = spawn(home, encoder="embedded")
        wait_until(self.warm, what="a server with its encoder", within_s=60)

    def stats(self) -> Mapping[str, JsonValue]:
        """What the server says of itself."""
        found = call(self.paths, "stats", {}, timeout_ms=5_000)
        assert isinstance(found, dict)
        return found

    def encoder_pid(self) -> int:
        """The encoder's process; 0 for none."""
        return cast("int", self.stats()["encoder_pid"])

    def warm(self) -> bool:
        """Whether questions are compared with vectors; asking is what makes it load."""
        try:
            return self.ask()["gaps"] == [] and self.encoder_pid() > 0
        except MemorydError:
            return False

    def ask(self) -> Mapping[str, JsonValue]:
        """The answer to the question."""
        found = call(self.paths, "recall", self._asked(), timeout_ms=5_000)
        assert isinstance(found, dict)
        return cast("Mapping[str, JsonValue]", found["recall"])

    def ask_later(self) -> socket.socket:
        """The question on its way; its answer is read by `answer_of`."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.settimeout(20)
        link.connect(os.fspath(self.paths.socket))
        link.sendall(request_line("q", "recall", self._asked()))
        return link

    def _asked(self) -> dict[str, JsonValue]:
        return {"cwd": os.fspath(self.checkout), "query": QUERY}


def answer_of(link: socket.socket) -> Mapping[str, JsonValue]:
    """The answer that comes on a connection."""
    with link:
        found = parse_answer(read_line(link).rstrip(b"\n"), "q")
    assert isinstance(found, dict)
    return cast("Mapping[str, JsonValue]", found["recall"])


def first_text(answer: Mapping[str, JsonValue]) -> str:
    """The best item."""
    return str(cast("list[dict[str, JsonValue]]", answer["items"])[0]["text"])


@pytest.fixture
def world() -> Iterator[World]:
    """Ended with the test, and its encoder with it."""
    with short_home() as home:
        made = World(home)
        encoder = made.encoder_pid()
        yield made
        encoder = made.encoder_pid() or encoder
        made.server.terminate()
        assert ended(made.server) == (0, b"")
        wait_until(lambda: not alive(encoder), what="the end of the encoder")


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("how", [signal.SIGSEGV, signal.SIGKILL])
def test_a_crash_during_a_question_is_a_lexical_answer_and_one_gap(world: World, how: int) -> None:
    """The same server answers by words, says why in one line, and later uses vectors again."""
    encoder = world.encoder_pid()
    os.kill(encoder, signal.SIGSTOP)
    link = world.ask_later()
    os.kill(encoder, how)
    os.kill(encoder, signal.SIGCONT)

    answer = answer_of(link)

    assert first_text(answer) == FACTS[0]
    gaps = cast("list[str]", answer["gaps"])
    assert len(gaps) == 1
    assert "encoder" in gaps[0]
    assert pid_of(world.paths.home) == world.server.pid
    wait_until(world.warm, what="another encoder", within_s=60)
    assert world.encoder_pid() not in {0, encoder}


def test_a_hung_encoder_costs_no_question_its_answer(world: World) -> None:
    """Every question is answered by words, the first after a short wait, the others at once."""
    os.kill(world.encoder_pid(), signal.SIGSTOP)
    waits = []
    for _ in range(4):
        began = monotonic()
        answer = world.ask()
        waits.append(monotonic() - began)
        assert first_text(answer) == FACTS[0]
        assert len(cast("list[str]", answer["gaps"])) == 1

    assert min(waits[1:]) < 0.1


def test_a_server_killed_with_its_encoder_loaded_leaves_no_process(world: World) -> None:
    """kill -9 of the server ends the encoder too; the next server loads its own."""
    encoder = world.encoder_pid()
    world.server.kill()
    world.server.communicate(timeout=20)

    wait_until(lambda: not alive(encoder), what="the end of the encoder")

    world.server = spawn(world.paths.home, encoder="embedded")
    wait_until(world.warm, what="the next server", within_s=60)
    assert isinstance(world.server, subprocess.Popen)
    assert world.encoder_pid() != encoder
