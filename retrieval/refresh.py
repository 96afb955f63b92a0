"""An index brought up to date: only what changed is read, and added to the arrays.

Events name the documents that changed. Their chunks are compared with the positions that the index
has for them: new ones go to the end (a chunk's number is never used twice, so order is kept), those
that are gone stay where they are and count no more, the others are judged anew. Vectors come later
than their chunks, in the order of chunk numbers. The result answers as an index built anew would;
where that cannot be had by adding, there is none, and the caller builds anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from retrieval.index import IndexSnapshot, Shelf
from retrieval.matrix import Matrix, build_matrix
from retrieval.multilingual import COLLECTION as MULTILINGUAL
from retrieval.shelving import Shelved, shelved
from retrieval.structure import Line, Structure, line_of, structure_of
from storage.authority.changes import changes_since
from storage.authority.searchable import (
    Entry,
    documents_beyond,
    entries_of,
    last_number,
    vector_of,
)
from storage.records import Collection, DocumentKey

if TYPE_CHECKING:
    from storage.authority.reads import Reads

MAX_CHUNKS: Final = 2_048
"""More new texts or vectors at once are read behind, not while a question waits."""
MAX_LATE: Final = 512
"""Texts without a vector that are looked up one by one."""
MAX_GONE: Final = 0.2
"""Share of positions that may be gone before everything is built anew."""


@dataclass(slots=True)
class _Difference:
    """What the changed documents mean for the positions of an index."""

    gone: list[int] = field(default_factory=list)
    kept: list[tuple[int, Entry, Shelved]] = field(default_factory=list)
    fresh: list[tuple[Entry, Shelved]] = field(default_factory=list)


def refreshed(
    index: IndexSnapshot,
    reads: Reads,
    events: Path,
    *,
    generation: int,
    collection: Collection | None,
) -> IndexSnapshot | None:
    """The index as of this read snapshot; None when it must be built anew.

    `events` is the folder of the project's journal; `collection` what the index was built with.
    """
    try:
        return _refreshed(index, reads, events, generation, collection)
    except _BuildAnew:
        return None


class _BuildAnew(Exception):
    """Adding to the arrays would not give what a build gives, or not soon enough."""


def _refreshed(
    index: IndexSnapshot,
    reads: Reads,
    events: Path,
    generation: int,
    collection: Collection | None,
) -> IndexSnapshot:
    changes = changes_since(reads, events, index.history)
    last = last_number(reads)
    if changes is None or last < index.last_rowid:
        raise _BuildAnew
    found = _difference(index, reads, changes.documents)
    if len(index.postings.gone) + len(found.gone) > MAX_GONE * max(index.size, 500):
        raise _BuildAnew
    grown = _grown(index, found)
    matrix = foreign = None
    if collection is not None:
        matrix = _matrix(index.matrix, grown, reads, collection, found.gone)
        if index.foreign is not None or MULTILINGUAL in reads.collections():
            foreign = _matrix(index.foreign, grown, reads, MULTILINGUAL, found.gone)
    return replace(
        grown,
        generation=generation,
        matrix=matrix,
        foreign=foreign,
        history=changes.mark,
        last_rowid=last,
    )


def _difference(
    index: IndexSnapshot, reads: Reads, documents: Iterable[DocumentKey]
) -> _Difference:
    """What became of the texts of these documents.

    Raises:
        _BuildAnew: a text would have to go between others, or nothing says where one comes from.
    """
    found, known = _Difference(), frozenset(documents)
    beyond = documents_beyond(reads, index.last_rowid, limit=MAX_CHUNKS + 1)
    if not known.issuperset(beyond):
        raise _BuildAnew
    for key in known:
        present = {int(index.rowids[at]): at for at in index.columns.of_document(key)}
        for entry in entries_of(reads, key):
            one, at = shelved(entry), present.get(entry.rowid)
            if one is None:
                continue
            if at is not None:
                del present[entry.rowid]
                found.kept.append((at, entry, one))
            elif entry.rowid > index.last_rowid:
                found.fresh.append((entry, one))
            else:
                raise _BuildAnew
        found.gone += present.values()
    if len(found.fresh) > MAX_CHUNKS:
        raise _BuildAnew
    found.fresh.sort(key=lambda pair: pair[0].rowid)
    return found


def _grown(index: IndexSnapshot, found: _Difference) -> IndexSnapshot:
    """The index with everything changed but its vectors."""
    if not (found.gone or found.kept or found.fresh):
        return index
    shelf = Shelf(first=index.size)
    for entry, one in found.fresh:
        shelf.put(entry, one)
    judged = [at for at, _, _ in found.kept]
    names = [(name, at) for at, _, one in found.kept for name in one.names]
    names += [
        (name, index.size + at) for at, (_, one) in enumerate(found.fresh) for name in one.names
    ]
    postings = index.postings
    if found.fresh or found.gone:
        segments = shelf.postings.segments()
        postings = postings.changed(segments[0] if segments else None, found.gone)
    return replace(
        index,
        postings=postings,
        columns=index.columns.changed(
            [(at, one) for at, _, one in found.kept], shelf.columns.build(), found.gone
        ),
        names=index.names.changed(names, found.gone + judged),
        structure=_structure(index, found, shelf.lines),
    )


def _structure(
    index: IndexSnapshot, found: _Difference, fresh: list[tuple[int, Line]]
) -> Structure | None:
    texts = index.size + len(found.fresh)
    judged = [(at, line_of(one.place, entry.text)) for at, entry, one in found.kept]
    lines = [(at, line) for at, line in judged if line is not None] + fresh
    if index.structure is None:
        return structure_of(lines, texts)
    return index.structure.changed(texts, lines, found.gone + [at for at, _ in judged])


def _matrix(
    before: Matrix | None,
    grown: IndexSnapshot,
    reads: Reads,
    collection: Collection,
    gone: list[int],
) -> Matrix | None:
    """The vectors of the grown index.

    Raises:
        _BuildAnew: there are too many new ones.
    """
    rowids = grown.rowids
    newest = int(rowids[before.owners].max()) if before is not None and len(before.owners) else 0
    rows = list(islice(reads.vectors(collection, after=newest), MAX_CHUNKS + 1))
    if len(rows) > MAX_CHUNKS:
        raise _BuildAnew
    added = []
    for rowid, embedding in rows:
        at = int(np.searchsorted(rowids, rowid))
        if at < len(rowids) and rowids[at] == rowid and len(embedding) == collection.dims:
            added.append((at, embedding))
    late = _late(before, grown, reads, collection, newest)
    added = [(at, row) for at, row in late + added if not _is_gone(grown, at)]
    if before is None:
        owners, vectors = [at for at, _ in added], [row for _, row in added]
        return build_matrix(collection, owners, vectors, texts=grown.size) if added else None
    if not added and not gone and len(before.row_of) == grown.size:
        return before
    return before.grown(grown.size, added, gone)


def _late(
    before: Matrix | None, grown: IndexSnapshot, reads: Reads, collection: Collection, newest: int
) -> list[tuple[int, bytes]]:
    """Vectors of texts that were passed over.

    Raises:
        _BuildAnew: there are so many that more must be expected.
    """
    if before is None:
        return []
    missing = np.flatnonzero((before.row_of < 0) & (grown.rowids[: len(before.row_of)] < newest))
    missing = missing[grown.columns.ends[missing] > 0][:MAX_LATE]
    found = []
    for at in missing.tolist():
        embedding = vector_of(reads, collection, int(grown.rowids[at]))
        if embedding is not None and len(embedding) == collection.dims:
            found.append((at, embedding))
    if len(found) == MAX_LATE:
        raise _BuildAnew
    return found


def _is_gone(index: IndexSnapshot, at: int) -> bool:
    return not index.columns.owners[at]
