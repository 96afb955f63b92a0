"""The port: what an authority promises, whichever container holds it.

One authority per project. Everything that changes memory is a batch of event drafts, applied by one
reducer in one durable transaction: a batch is in history and in every table, or in neither. Vectors
are derived data: stored beside, never in history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from storage.authority.reads import Reads
from storage.events import Event, EventDraft
from storage.records import Collection, JobStamp, ProjectId

Container = Literal["compact", "indexed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What one batch did."""

    generation: int
    events: int
    applied: bool
    """False: the stamp was already applied, and nothing changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that `verify` found wrong, in one line."""

    check: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The proof: what was checked, and what is wrong."""

    events: int
    writers: int
    documents: int
    facts: int
    problems: tuple[Problem, ...]

    @property
    def sound(self) -> bool:
        return not self.problems


class Authority(Protocol):
    """The store that decides. Use from one thread; open another for another thread."""

    @property
    def project(self) -> ProjectId: ...

    @property
    def container(self) -> Container:
        """Re-read from the file: another process may have promoted it."""
        ...

    def append(
        self,
        drafts: Sequence[EventDraft],
        *,
        stamp: JobStamp | None = None,
        guard: Callable[[], None] | None = None,
    ) -> Appended:
        """Apply a batch atomically and durably (FULL).

        `stamp` makes the batch the effect of one job: a second batch with the same job id changes
        nothing and says `applied=False`. `guard` is called under the write lock just before the
        commit; what it raises (LeaseLost) aborts the batch. A full compact container is promoted
        first, by itself.

        Raises:
            Busy: another process held the write lock too long; nothing was written.
            Invalid: a draft breaks a rule of the reducer; nothing was written.
            Corrupt: the store fails its checks; nothing was written.
        """
        ...

    def store_vectors(
        self,
        collection: Collection,
        rows: Sequence[tuple[int, bytes]],
        *,
        stamp: JobStamp | None = None,
        guard: Callable[[], None] | None = None,
    ) -> int:
        """Put vectors (chunk rowid, int8 bytes of length dims); returns how many are new.

        Rows whose chunk is gone meanwhile are left out. Same stamp and guard rules as `append`.
        """
        ...

    def read(self) -> AbstractContextManager[Reads]:
        """One consistent snapshot; its queries see no later commit."""
        ...

    def generation(self) -> int:
        """A counter that grows with every commit, by any process: the key of every cache."""
        ...

    def snapshot(self) -> AbstractContextManager[tuple[Reads, Iterator[Event]]]:
        """One consistent moment with its history, payloads included (None where erased).

        Raises:
            Corrupt: history cannot be read whole.
        """
        ...

    def erase(self, needles: Sequence[str]) -> None:
        """Erase the payloads that tombstones name, and reclaim every page that held them.

        `needles` are the forgotten texts: damaged journal lines that hold one are blanked too.

        Raises:
            Busy: somebody reads old pages; what was erased stays erased, try again.
        """
        ...

    def erased(self) -> None:
        """Say that no file holds forgotten text any more; until then `verify` reports it."""
        ...

    def verify(self) -> VerifyReport:
        """Prove chain, heads, counts, references and derived indexes."""
        ...

    def replay(self) -> int:
        """Apply journal events that a crash kept from the tables; returns how many."""
        ...

    def pack(self) -> tuple[int, int]:
        """Compress journal files that nobody adds to any more; (files, bytes that it saved)."""
        ...

    def rebuild(self) -> int:
        """Re-derive every table and index from verified history; returns events applied."""
        ...

    def promote(self) -> None:
        """Make a compact authority indexed, all or nothing; no-op when it is indexed already."""
        ...

    def close(self) -> None:
        """Release the files; idempotent."""
        ...
