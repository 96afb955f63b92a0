"""The memory that `ops bench recall` asks: one home a vocabulary, filled the way every memory is.

Texts come in as batches of events through the authority, vectors beside them, so tables, full-text
index and journal are what they are in use. Owns the home and its server; nothing outlives `close`.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from hooks.recall_client import call, server_argv
from ops.bench.texts import COLLECTION, Texts, Vocabulary
from retrieval.quantize import packed
from storage.authority import open_authority
from storage.authority import payloads as say
from storage.clock import Clock
from storage.config import StorageSettings
from storage.connection import private_directory
from storage.errors import MemorydError, Unavailable
from storage.paths import HomePaths
from storage.projects import bind
from storage.records import Collection, JsonValue

if TYPE_CHECKING:
    from retrieval.quantize import Floats
    from storage.authority.port import Authority

BATCH: Final = 1_000
READY_S: Final = 300.0
_WAIT_S: Final = 0.05
_SETTINGS: Final = "[recall]\nmax_index_bytes = {}\n"
_BYTES_A_TEXT: Final = 2_048
"""Far more than an index takes, so that the bound of a usual home is not what is measured."""


class World:
    """One home with a checkout and a memory of so many texts."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        vocabulary: Vocabulary,
        *,
        documents: int,
        collection: Collection = COLLECTION,
    ) -> None:
        folder.mkdir(mode=0o700)
        self.vocabulary, self.documents, self.collection = vocabulary, documents, collection
        self.clock = clock
        self.checkout = folder / "checkout"
        self.checkout.mkdir(mode=0o700)
        self.paths = HomePaths(folder / "h")
        self.paths.home.mkdir(mode=0o700)
        private_directory(self.paths.shared)
        bound = max(1 << 27, documents * _BYTES_A_TEXT)
        self.paths.config.write_text(_SETTINGS.format(bound), encoding="utf-8")
        made = bind(self.paths, self.checkout, clock=clock, settings=StorageSettings())
        self.project = made.project_id

    def opened(self) -> Authority:
        """A handle on the memory, one more with every call."""
        paths = self.paths.project(self.project)
        return open_authority(paths, self.project, clock=self.clock, settings=StorageSettings())

    def fill(self) -> Floats:
        """Write every text and vector; returns the vectors of the first texts."""
        texts, first = Texts(self.vocabulary), np.zeros((0, self.collection.dims), np.float32)
        with closing(self.opened()) as store:
            for start in range(0, self.documents, BATCH):
                count = min(BATCH, self.documents - start)
                documents = texts.documents(count, start=start)
                store.append([say.document_upserted(document) for document in documents])
                vectors = texts.vectors(count)
                rows = packed(vectors, self.collection.scale)
                numbers = range(start + 1, start + count + 1)
                store.store_vectors(self.collection, list(zip(numbers, rows, strict=True)))
                first = vectors if start == 0 else first
        return first

    def vectors(self) -> Iterator[Floats]:
        """Every vector again, unrounded, in batches."""
        texts = Texts(self.vocabulary)
        for start in range(0, self.documents, BATCH):
            yield texts.vectors(min(BATCH, self.documents - start))

    @contextmanager
    def served(self) -> Iterator[Callable[[str, dict[str, JsonValue]], JsonValue]]:
        """A real server over the memory, its index built: what asks it one op."""
        process = subprocess.Popen(
            server_argv(self.paths),
            env={**os.environ, "HOME": str(self.paths.home)},
            stderr=subprocess.DEVNULL,
        )
        try:
            self._await_index()
            yield lambda op, fields: call(self.paths, op, fields, timeout_ms=10_000)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _await_index(self) -> None:
        deadline = time.monotonic() + READY_S
        asked: dict[str, JsonValue] = {"cwd": str(self.checkout), "query": "what is there to know"}
        while time.monotonic() < deadline:
            with suppress(MemorydError):
                # A question makes it load the index and the encoder, behind its answer.
                call(self.paths, "recall", asked, timeout_ms=5_000)
                stats = call(self.paths, "stats", {}, timeout_ms=1_000)
                assert isinstance(stats, dict)
                if stats.get("projects") and stats.get("encoder") not in {"cold", "warming"}:
                    return
            time.sleep(_WAIT_S)
        raise Unavailable("the recall server of the bench did not get ready")
