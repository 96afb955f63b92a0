"""One project's memory as arrays: what the resident server searches.

An `IndexSnapshot` is immutable and belongs to one generation of the authority; `build_index`
derives it from one read snapshot, so it holds nothing that SQLite could not give again. Texts stay
in the store: the few that are shown are read, and checked again, at the end of a search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from retrieval.door import UNCONFIRMED
from retrieval.eligibility import Interval, document_interval, fact_interval
from retrieval.matrix import Matrix, build_matrix
from retrieval.multilingual import COLLECTION as MULTILINGUAL
from retrieval.postings import Postings, PostingsBuilder
from retrieval.structure import Place, Structure, StructureBuilder, place_of
from storage.clock import MAX_AT
from storage.records import Collection, Document, Fact, fact_document_key
from storage.terms import terms

if TYPE_CHECKING:
    from collections.abc import Collection as Names

    import numpy.typing as npt

    from retrieval.postings import Flags, Numbers
    from storage.authority.reads import Reads

    Instants = npt.NDArray[np.int64]

Analyzer = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True, eq=False)
class IndexSnapshot:
    """The arrays; position i is the i-th chunk in rowid order."""

    generation: int
    postings: Postings
    matrix: Matrix | None
    rowids: npt.NDArray[np.int64]
    starts: Instants
    ends: Instants
    """Valid time [start, end) of each chunk's fact or document; MAX_INSTANT is open."""
    unconfirmed: Flags
    spaces: npt.NDArray[np.int16]
    """Namespace number of each chunk."""
    space_names: tuple[str, ...]
    kinds: npt.NDArray[np.int16]
    kind_names: tuple[str, ...]
    named: dict[str, Numbers]
    """Chunk id, external id, fact id or URI, case-folded, to positions."""
    foreign: Matrix | None = None
    """Vectors of the multilingual encoder; None where it never ran."""
    structure: Structure | None = None
    """Which texts stand in sessions; None when none does."""

    @property
    def size(self) -> int:
        return len(self.rowids)

    @property
    def nbytes(self) -> int:
        """Memory held, for the server's bound."""
        columns = self.rowids.nbytes + self.starts.nbytes + self.ends.nbytes
        flags = self.unconfirmed.nbytes + self.spaces.nbytes + self.kinds.nbytes
        vectors = sum(found.nbytes for found in (self.matrix, self.foreign) if found)
        around = self.structure.nbytes if self.structure else 0
        return self.postings.nbytes + vectors + columns + flags + around + 260 * len(self.named)

    def eligible(
        self, at: int, *, namespaces: Names[str] | None = None, kinds: Names[str] | None = None
    ) -> Flags:
        """bool[size]: valid at one instant, and of the wanted namespaces and kinds."""
        # An open end holds at every instant, the last representable one included.
        instant = min(max(at, 0), MAX_AT)
        mask: Flags = (self.starts <= instant) & (instant < self.ends)
        if namespaces is not None:
            mask &= np.isin(self.spaces, _numbers(self.space_names, namespaces))
        if kinds is not None:
            mask &= np.isin(self.kinds, _numbers(self.kind_names, kinds))
        return mask


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
    facts = {fact_document_key(fact.fact_id): fact for fact in reads.facts()}
    headers = {doc.key: _header(doc, facts.get(doc.key)) for doc in reads.documents()}
    columns = _Columns()
    postings, structure = PostingsBuilder(), StructureBuilder()
    for chunk in reads.chunks():
        header = headers.get(chunk.document_key)
        if header is None or header.interval is None:
            continue
        # A fact's title repeats its kind or its words: counting it again would skew short texts.
        title = "" if header.is_fact else chunk.title
        postings.add(analyzer(chunk.text), analyzer(title))
        structure.add(len(columns.rowids), header.place, chunk.text)
        columns.add(chunk.rowid, header, chunk.chunk_id)
    matrix = _matrix(reads, collection, columns.rowids) if collection else None
    snapshot = columns.snapshot(generation, postings.build(), matrix)
    second = MULTILINGUAL in reads.collections() if collection else False
    return replace(
        snapshot,
        structure=structure.build(snapshot.size),
        foreign=_matrix(reads, MULTILINGUAL, columns.rowids) if second else None,
    )


@dataclass(frozen=True, slots=True)
class _Header:
    interval: Interval | None
    is_fact: bool
    unconfirmed: bool
    namespace: str
    kind: str
    names: tuple[str, ...]
    place: Place | None = None


def _header(document: Document, fact: Fact | None) -> _Header:
    if fact is not None:
        return _Header(
            interval=fact_interval(fact),
            is_fact=True,
            unconfirmed=fact.standing in UNCONFIRMED,
            namespace=document.namespace,
            kind=fact.kind.value,
            names=(fact.fact_id,),
        )
    names = tuple(name for name in (document.external_id, document.uri) if name)
    return _Header(
        interval=document_interval(document),
        is_fact=False,
        unconfirmed=False,
        namespace=document.namespace,
        kind=document.kind,
        names=names,
        place=place_of(document),
    )


class _Columns:
    """The growing columns of a snapshot."""

    def __init__(self) -> None:
        self.rowids: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._unconfirmed: list[bool] = []
        self._spaces: list[int] = []
        self._kinds: list[int] = []
        self._space_numbers: dict[str, int] = {}
        self._kind_numbers: dict[str, int] = {}
        self._named: dict[str, list[int]] = {}

    def add(self, rowid: int, header: _Header, chunk_id: str) -> None:
        assert header.interval is not None
        at = len(self.rowids)
        self.rowids.append(rowid)
        self._starts.append(header.interval.start)
        self._ends.append(header.interval.end)
        self._unconfirmed.append(header.unconfirmed)
        spaces, kinds = self._space_numbers, self._kind_numbers
        self._spaces.append(spaces.setdefault(header.namespace, len(spaces)))
        self._kinds.append(kinds.setdefault(header.kind, len(kinds)))
        for name in (*header.names, chunk_id):
            self._named.setdefault(name.casefold(), []).append(at)

    def snapshot(self, generation: int, postings: Postings, matrix: Matrix | None) -> IndexSnapshot:
        return IndexSnapshot(
            generation=generation,
            postings=postings,
            matrix=matrix,
            rowids=np.array(self.rowids, dtype=np.int64),
            starts=np.array(self._starts, dtype=np.int64),
            ends=np.array(self._ends, dtype=np.int64),
            unconfirmed=np.array(self._unconfirmed, dtype=np.bool_),
            spaces=np.array(self._spaces, dtype=np.int16),
            space_names=tuple(self._space_numbers),
            kinds=np.array(self._kinds, dtype=np.int16),
            kind_names=tuple(self._kind_numbers),
            named={name: np.array(at, dtype=np.int32) for name, at in self._named.items()},
        )


def _matrix(reads: Reads, collection: Collection, rowids: list[int]) -> Matrix | None:
    position = {rowid: at for at, rowid in enumerate(rowids)}
    owners: list[int] = []
    rows: list[bytes] = []
    for rowid, embedding in reads.vectors(collection):
        at = position.get(rowid)
        if at is not None and len(embedding) == collection.dims:
            owners.append(at)
            rows.append(embedding)
    return build_matrix(collection, owners, rows) if rows else None


def _numbers(known: tuple[str, ...], wanted: Names[str]) -> npt.NDArray[np.int16]:
    return np.array([at for at, name in enumerate(known) if name in wanted], dtype=np.int16)
