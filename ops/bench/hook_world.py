"""The memory and the daemon that `ops bench hook` measures against, in five states.

Owns a throw-away home with a bound checkout, its recall server, and who loads or locks them.
Promises that nothing outlives `close`. Leaves clients and clocks to `ops.bench.hook`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

import apsw

from hooks.recall_client import call, server_argv
from hooks.server import take_lock
from ops.bench.corpus import Corpus
from retrieval.encoders import shared_encoder
from retrieval.quantize import packed
from storage.authority import open_authority
from storage.authority import payloads as say
from storage.clock import Clock
from storage.config import EncoderSettings, StorageSettings
from storage.connection import private_directory
from storage.errors import MemorydError, Unavailable
from storage.events import EventDraft
from storage.paths import HomePaths
from storage.projects import bind
from storage.records import Document, RedactedText, Trust

State = Literal["idle", "saturated", "dead", "locked", "hung"]
STATES: Final[tuple[State, ...]] = ("idle", "saturated", "dead", "locked", "hung")
NEEDLE: Final = "Deployments of the harbor service go through the blue gate on Thursdays."
PROMPT: Final = "Please remind me how deployments of the harbor service go out these days."
READY_S: Final = 60.0
ASKERS: Final = 8
"""Connections that ask as fast as they are answered while the server is saturated."""
_WAIT_S: Final = 0.02


class World:
    """One home, and its server where the state wants one."""

    def __init__(self, folder: Path, clock: Clock, *, documents: int) -> None:
        self.checkout = folder / "checkout"
        self.checkout.mkdir(mode=0o700)
        home = folder / "h"
        home.mkdir(mode=0o700)
        self.paths = HomePaths(home)
        self.encoder = "none"
        private_directory(self.paths.shared)
        self._environment = {**os.environ, "HOME": str(home)}
        bound = bind(self.paths, self.checkout, clock=clock, settings=StorageSettings())
        project = self.paths.project(bound.project_id)
        self._database = project.database
        with closing(
            open_authority(project, bound.project_id, clock=clock, settings=StorageSettings())
        ) as store:
            store.append(list(_documents(documents)))
            with suppress(Unavailable):
                encoder = shared_encoder(EncoderSettings())
                if encoder is not None:
                    with store.read() as reads:
                        chunks = list(reads.chunks())
                    texts = [f"{chunk.title}\n{chunk.text}".strip() for chunk in chunks]
                    vectors = packed(encoder.encode(texts), encoder.collection.scale)
                    rowids = (chunk.rowid for chunk in chunks)
                    store.store_vectors(encoder.collection, list(zip(rowids, vectors, strict=True)))
                    encoder.close()

    @contextmanager
    def in_state(self, state: State) -> Iterator[None]:
        """The daemon as the state says, until the end of the block."""
        with {
            "idle": self._serving,
            "saturated": self._saturated,
            "dead": self._dead,
            "locked": self._locked,
            "hung": self._hung,
        }[state]():
            yield

    @contextmanager
    def _serving(self) -> Iterator[int]:
        """A warm server, its process id; ended without a trace."""
        process = subprocess.Popen(
            server_argv(self.paths), env=self._environment, stderr=subprocess.DEVNULL
        )
        try:
            self._await_warm()
            yield process.pid
        finally:
            # A stopped process hears no TERM.
            with suppress(OSError):
                process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _await_warm(self) -> None:
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            with suppress(MemorydError):
                # The first questions make it load the index and the encoder, behind the answers.
                self._ask()
                stats = call(self.paths, "stats", {}, timeout_ms=1_000)
                assert isinstance(stats, Mapping)
                self.encoder = str(stats.get("encoder"))
                if stats.get("projects") and self.encoder not in {"cold", "warming"}:
                    return
            time.sleep(_WAIT_S)
        raise Unavailable("the recall server of the bench did not get ready")

    def _ask(self) -> None:
        asked = {"cwd": str(self.checkout), "query": PROMPT}
        call(self.paths, "recall", asked, timeout_ms=1_000)

    @contextmanager
    def _saturated(self) -> Iterator[None]:
        argv = [sys.executable, "-I", "-m", "ops.bench.hook_load"]
        place = [str(self.paths.socket), str(self.checkout), str(ASKERS)]
        with self._serving():
            load = subprocess.Popen([*argv, *place], stdout=subprocess.PIPE)
            try:
                assert load.stdout is not None
                load.stdout.readline()
                yield
            finally:
                load.kill()
                load.communicate()

    @contextmanager
    def _dead(self) -> Iterator[None]:
        """What a killed server left: a socket that refuses. No hook may start another one here."""
        with self._serving() as pid:
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + READY_S
            while (lock := take_lock(self.paths.server_lock)) is None:
                if time.monotonic() > deadline:
                    raise Unavailable("the killed server of the bench still holds its lock")
                time.sleep(_WAIT_S)
        spawned = Path(f"{self.paths.socket}.spawn")
        spawned.touch(mode=0o600)
        # Somebody is said to have started a server just now: for as long as this state is measured.
        later = spawned.stat().st_mtime + 3_600
        os.utime(spawned, (later, later))
        try:
            yield
        finally:
            os.close(lock)
            spawned.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """A server whose store another process has locked for writing."""
        with self._serving(), closing(apsw.Connection(str(self._database))) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            try:
                yield
            finally:
                holder.execute("ROLLBACK")

    @contextmanager
    def _hung(self) -> Iterator[None]:
        """A server that listens and never answers."""
        with self._serving() as pid:
            os.kill(pid, signal.SIGSTOP)
            try:
                yield
            finally:
                os.kill(pid, signal.SIGCONT)


def _documents(count: int) -> Iterator[EventDraft]:
    corpus = Corpus()
    for number in range(count):
        text = RedactedText(f"Note {number}: {corpus.text(180)}.") if number else NEEDLE
        yield say.document_upserted(
            Document(
                namespace="notes",
                external_id=f"notes/{number:06d}.md",
                source="notes",
                kind="note",
                text=RedactedText(text),
                observed_at=1_700_000_000_000 + number,
                trust=Trust.USER,
                title=RedactedText(""),
                adapter="notes",
            )
        )
