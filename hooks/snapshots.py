"""The index snapshots of a resident process: one per project, newest generation, bounded in bytes.

What was written since a snapshot is added to it while the question waits (milliseconds); segments
that this leaves behind are joined on a thread of their own. Where adding will not do, a small store
is indexed at once and a large one behind; meanwhile the question is answered from the previous
snapshot, whose finds are checked against the store anyway, or from SQLite.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from storage.errors import MemorydError

if TYPE_CHECKING:
    from hooks.holdings import FileIdentity, Held, Holdings
    from retrieval.index import IndexSnapshot
    from storage.authority.reads import Reads
    from storage.records import Collection, ProjectId

INLINE_CHUNKS: Final = 600
"""Stores up to this size are indexed at once: about 30 ms."""


@dataclass(frozen=True, slots=True)
class Version:
    """What a snapshot was made from; another version means another snapshot."""

    file: FileIdentity
    generation: int
    collection: Collection | None


@dataclass(frozen=True, slots=True)
class Kept:
    """A snapshot and its version; `index` None = too big to hold."""

    version: Version
    index: IndexSnapshot | None
    nbytes: int


class Snapshots:
    """The snapshots of every project asked about lately. Safe between threads."""

    def __init__(
        self, new_holdings: Callable[[], Holdings], *, ready: threading.Event | None = None
    ) -> None:
        self._new_holdings = new_holdings
        self._ready = ready
        """Set once numpy is imported, which takes longer than answering from SQLite."""
        self._lock = threading.Lock()
        self._kept: OrderedDict[ProjectId, Kept] = OrderedDict()
        self._building: set[ProjectId] = set()
        self._folding: set[ProjectId] = set()
        self._inline: dict[ProjectId, threading.Lock] = {}
        self._threads: set[threading.Thread] = set()

    @property
    def ready(self) -> bool:
        """Whether snapshots can be made yet."""
        return self._ready is None or self._ready.is_set()

    def current(
        self, project: ProjectId, held: Held, collection: Collection | None, *, max_bytes: int
    ) -> IndexSnapshot | None:
        """The snapshot to search now; None when SQLite must answer.

        Raises:
            Corrupt, Unavailable, Busy: the store cannot be read.
        """
        if not self.ready:
            return None
        version = Version(held.identity, held.authority.generation(), collection)
        kept = self._lookup(project)
        if kept is not None and kept.version == version:
            return kept.index
        same_store = kept is not None and kept.version.file == version.file
        if same_store and (found := self._refreshed(project, held, collection, max_bytes)):
            return found
        if not self._is_small(kept if same_store else None, held):
            self._build_behind(project, collection, max_bytes)
            return kept.index if kept is not None and same_store else None
        with self._inline_lock(project):
            kept = self._lookup(project)
            if kept is None or kept.version != version:
                kept = self._build(project, held, collection, max_bytes)
            return kept.index

    def sizes(self) -> list[dict[str, int | str]]:
        """For `stats`: project, generation, chunks, vectors, bytes."""
        with self._lock:
            kept = list(self._kept.items())
        return [
            {
                "project": project,
                "generation": entry.version.generation,
                "chunks": entry.index.size if entry.index else 0,
                "vectors": len(entry.index.matrix.owners)
                if entry.index and entry.index.matrix
                else 0,
                "bytes": entry.nbytes,
            }
            for project, entry in kept
        ]

    def forget(self, project: ProjectId) -> None:
        """Drop a project's snapshot (its store is gone)."""
        with self._lock:
            self._kept.pop(project, None)

    def close(self) -> None:
        """Wait for the builders."""
        for thread in list(self._threads):
            thread.join()

    def _lookup(self, project: ProjectId) -> Kept | None:
        with self._lock:
            if project in self._kept:
                self._kept.move_to_end(project)
            return self._kept.get(project)

    def _inline_lock(self, project: ProjectId) -> threading.Lock:
        with self._lock:
            return self._inline.setdefault(project, threading.Lock())

    def _is_small(self, kept: Kept | None, held: Held) -> bool:
        if kept is not None and kept.index is not None and kept.index.size > INLINE_CHUNKS:
            return False
        with held.authority.read() as reads:
            return _count(reads, INLINE_CHUNKS + 1) <= INLINE_CHUNKS

    def _refreshed(
        self, project: ProjectId, held: Held, collection: Collection | None, max_bytes: int
    ) -> IndexSnapshot | None:
        """The kept snapshot with what was written since; None where it must be built anew."""
        from retrieval.refresh import refreshed

        with self._inline_lock(project):
            kept = self._lookup(project)
            version = Version(held.identity, held.authority.generation(), collection)
            if kept is None or kept.index is None:
                return None
            if kept.version == version:
                return kept.index
            if (kept.version.file, kept.version.collection) != (version.file, collection):
                return None
            with held.authority.read() as reads:
                index = refreshed(
                    kept.index,
                    reads,
                    held.events,
                    generation=version.generation,
                    collection=collection,
                )
            if index is None:
                return None
            self._keep(project, version, index, max_bytes)
        if index.postings.folding():
            self._start(project, self._folding, self._fold, max_bytes)
        return index

    def _build(
        self, project: ProjectId, held: Held, collection: Collection | None, max_bytes: int
    ) -> Kept:
        from retrieval.index import build_index

        # Read the counter first: a commit in between makes the snapshot newer than it says, and
        # the next question builds once more, where the other order would hide the commit.
        version = Version(held.identity, held.authority.generation(), collection)
        with held.authority.read() as reads:
            index = build_index(reads, generation=version.generation, collection=collection)
        return self._keep(project, version, index, max_bytes)

    def _keep(
        self, project: ProjectId, version: Version, index: IndexSnapshot, max_bytes: int
    ) -> Kept:
        fits = index.nbytes <= max_bytes
        kept = Kept(version, index if fits else None, index.nbytes if fits else 0)
        with self._lock:
            self._kept[project] = kept
            self._kept.move_to_end(project)
            while sum(entry.nbytes for entry in self._kept.values()) > max_bytes:
                self._kept.popitem(last=False)
        return kept

    def _build_behind(
        self, project: ProjectId, collection: Collection | None, max_bytes: int
    ) -> None:
        self._start(project, self._building, self._behind, collection, max_bytes)

    def _start(
        self, project: ProjectId, busy: set[ProjectId], work: Callable[..., None], *rest: object
    ) -> None:
        """Do something behind, unless it is being done for this project."""
        with self._lock:
            if project in busy:
                return
            busy.add(project)
        thread = threading.Thread(
            target=self._done_behind, args=(project, busy, work, *rest), name="index", daemon=True
        )
        self._threads.add(thread)
        thread.start()

    def _done_behind(
        self, project: ProjectId, busy: set[ProjectId], work: Callable[..., None], *rest: object
    ) -> None:
        try:
            work(project, *rest)
        finally:
            with self._lock:
                busy.discard(project)
            self._threads.discard(threading.current_thread())

    def _behind(self, project: ProjectId, collection: Collection | None, max_bytes: int) -> None:
        holdings = self._new_holdings()
        try:
            # Whatever is wrong with the store shows again, with its name, at the next question.
            with suppress(MemorydError):
                self._build(project, holdings.authority(project), collection, max_bytes)
        finally:
            holdings.close()

    def _fold(self, project: ProjectId, max_bytes: int) -> None:
        from retrieval.postings import fold

        kept = self._lookup(project)
        if kept is None or kept.index is None:
            return
        found = fold(kept.index.postings)
        if found is None:
            return
        with self._inline_lock(project):
            # Refreshed meanwhile, the snapshot may have more segments behind these.
            newest = self._lookup(project)
            if newest is not None and newest.index is not None:
                postings = newest.index.postings.folded(*found)
                self._keep(
                    project, newest.version, replace(newest.index, postings=postings), max_bytes
                )


def _count(reads: Reads, most: int) -> int:
    return sum(1 for _ in islice(reads.chunks(), most))
