"""One project's memory as arrays: what the resident server searches.

An `IndexSnapshot` is immutable and belongs to one generation of the authority; `build_index`
derives it from one read snapshot, so it holds nothing that SQLite could not give again. What was
written since is added by `retrieval.refresh`. Texts stay in the store: the few that are shown are
read, and checked again, at the end of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from retrieval.columns import Columns, ColumnsBuilder
from retrieval.matrix import Matrix, MatrixBuilder
from retrieval.multilingual import COLLECTION as MULTILINGUAL
from retrieval.naming import Names, named
from retrieval.postings import Postings, PostingsBuilder
from retrieval.shelving import Shelved, shelved
from retrieval.structure import Line, Structure, line_of, structure_of
from storage.authority.changes import Mark, mark
from storage.authority.searchable import Entry, entries, last_number
from storage.records import Collection
from storage.terms import terms

if TYPE_CHECKING:
    from collections.abc import Collection as Wanted

    import numpy.typing as npt

    from retrieval.postings import Flags
    from storage.authority.reads import Reads

Analyzer = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class IndexSnapshot:
    """The arrays; position i is the i-th chunk in rowid order."""

    generation: int
    postings: Postings
    matrix: Matrix | None
    columns: Columns
    names: Names
    """Chunk id, external id, fact id or URI to positions."""
    foreign: Matrix | None = None
    """Vectors of the multilingual encoder; None where it never ran."""
    structure: Structure | None = None
    """Which texts stand in sessions; None when none does."""
    history: Mark = field(default_factory=Mark)
    """The moment in history that the snapshot is of."""
    last_rowid: int = 0
    """The highest chunk number that there was then, whatever became of it."""

    @property
    def size(self) -> int:
        """Positions: texts that can be found, and those that are gone and keep their place."""
        return self.columns.size

    @property
    def texts(self) -> int:
        """Texts that can be found."""
        return self.postings.texts

    @property
    def rowids(self) -> npt.NDArray[np.int64]:
        return self.columns.rowids

    @property
    def unconfirmed(self) -> Flags:
        return self.columns.unconfirmed

    @property
    def nbytes(self) -> int:
        """Memory held, for the server's bound."""
        vectors = sum(found.nbytes for found in (self.matrix, self.foreign) if found)
        around = self.structure.nbytes if self.structure else 0
        beside = self.columns.nbytes + self.names.nbytes
        return self.postings.nbytes + vectors + around + beside

    def eligible(
        self, at: int, *, namespaces: Wanted[str] | None = None, kinds: Wanted[str] | None = None
    ) -> Flags:
        """bool[size]: valid at one instant, and of the wanted namespaces and kinds."""
        return self.columns.eligible(at, namespaces=namespaces, kinds=kinds)


def build_index(
    reads: Reads,
    *,
    generation: int,
    collection: Collection | None = None,
    analyzer: Analyzer = terms,
) -> IndexSnapshot:
    """The snapshot of everything that could be recalled at some instant.

    Chunks whose document or fact may never be shown (a terminal fact without an end, an imported
    instruction) are left out, so they count in no frequency either.
    """
    shelf = Shelf(analyzer)
    shelf.fill(entries(reads))
    columns = shelf.columns.build()
    matrix = _matrix(reads, collection, columns) if collection else None
    second = MULTILINGUAL in reads.collections() if collection else False
    return IndexSnapshot(
        generation=generation,
        postings=shelf.postings.build(),
        matrix=matrix,
        columns=columns,
        names=named(shelf.hashes, shelf.named),
        foreign=_matrix(reads, MULTILINGUAL, columns) if second else None,
        structure=structure_of(shelf.lines, columns.size),
        history=mark(reads),
        last_rowid=last_number(reads),
    )


class Shelf:
    """Search entries on their way into arrays, from a given position on."""

    def __init__(self, analyzer: Analyzer = terms, *, first: int = 0) -> None:
        self.columns = ColumnsBuilder()
        self.postings = PostingsBuilder(analyzer)
        self.lines: list[tuple[int, Line]] = []
        self.hashes: list[int] = []
        self.named: list[int] = []
        self._next = first

    def fill(self, found: Iterable[Entry]) -> None:
        """Put in every entry that may be shown at some instant."""
        for entry in found:
            one = shelved(entry)
            if one is not None:
                self.put(entry, one)

    def put(self, entry: Entry, one: Shelved) -> None:
        """The next position."""
        self.columns.add(entry.rowid, entry.document_key, one)
        self.postings.add_text(entry.text, one.title)
        line = line_of(one.place, entry.text)
        if line is not None:
            self.lines.append((self._next, line))
        for name in one.names:
            self.hashes.append(hash(name.casefold()))
            self.named.append(self._next)
        self._next += 1


def _matrix(reads: Reads, collection: Collection, columns: Columns) -> Matrix | None:
    builder = MatrixBuilder(collection)
    rowids = columns.rowids.tolist()
    at, count = 0, len(rowids)
    for rowid, embedding in reads.vectors(collection):
        # Both come in the order of chunk numbers.
        while at < count and rowids[at] < rowid:
            at += 1
        if at < count and rowids[at] == rowid and len(embedding) == collection.dims:
            builder.add(at, embedding)
    return builder.build(count) if len(builder) else None
