"""What search needs of each chunk, read in one pass: wording, document, and fact behind it.

One joined row a chunk, in rowid order, so that an index of a million chunks is built without
holding a million documents. Deleted documents have no chunks and so no entry. Leaves judging what
may be shown, and when, to retrieval.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import apsw

from storage.authority.reads import Reads
from storage.records import Collection, DocumentKey, FactKind, JsonValue, Standing, Trust

_COLUMNS: Final = (
    "s.rowid, s.chunk_id, s.document_key, d.title,"
    " CAST(substr(CAST(d.text AS BLOB), s.start + 1, s.bytes) AS TEXT), d.namespace,"
    " d.external_id, d.source, d.kind, d.uri, d.observed_at, d.trust, d.valid_from, d.valid_to,"
    " d.metadata, f.fact_id, f.kind, f.standing, f.valid_at, f.invalid_at"
    " FROM slices s JOIN documents d ON d.document_key = s.document_key"
    " LEFT JOIN facts f ON d.namespace = 'memory' AND f.fact_id = d.external_id"
)
SELECT_ENTRIES: Final = (
    f"SELECT {_COLUMNS} WHERE s.rowid > ? AND d.deleted_at IS NULL ORDER BY s.rowid"
)
SELECT_ENTRIES_OF: Final = (
    f"SELECT {_COLUMNS} WHERE s.document_key = ? AND d.deleted_at IS NULL ORDER BY s.rowid"
)
SELECT_LAST: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'slices'"
SELECT_NEW: Final = "SELECT DISTINCT document_key FROM slices WHERE rowid > ? LIMIT ?"
SELECT_OWNER: Final = "SELECT document_key FROM slices WHERE rowid = ?"
SELECT_VECTOR: Final = "SELECT embedding FROM vectors WHERE collection = ? AND chunk = ?"


class Entry(NamedTuple):
    """One chunk with what decides whether, when and under which names it is found."""

    rowid: int
    chunk_id: str
    document_key: DocumentKey
    title: str
    text: str
    namespace: str
    external_id: str
    source: str
    kind: str
    uri: str
    observed_at: int
    trust: Trust
    valid_from: int | None
    valid_to: int | None
    metadata: str
    """JSON as stored."""
    fact_id: str | None
    """None where the document stands for no fact; then so are the rest."""
    fact_kind: FactKind | None
    standing: Standing | None
    valid_at: int | None
    invalid_at: int | None

    def described(self) -> Mapping[str, JsonValue]:
        """The document's metadata."""
        given = json.loads(self.metadata)
        return given if isinstance(given, dict) else {}


def entries(reads: Reads, *, after: int = 0) -> Iterator[Entry]:
    """Every chunk with a number beyond `after`, in order."""
    return map(_entry, reads.db.execute(SELECT_ENTRIES, (after,)))


def entries_of(reads: Reads, key: DocumentKey) -> list[Entry]:
    """The chunks of one document; none when it is deleted or unknown."""
    return [_entry(row) for row in reads.db.execute(SELECT_ENTRIES_OF, (key,))]


def last_number(reads: Reads) -> int:
    """The highest number that a chunk ever had."""
    row = reads.db.execute(SELECT_LAST).fetchone()
    return int(str(row[0])) if row else 0


def documents_beyond(reads: Reads, number: int, *, limit: int) -> list[DocumentKey]:
    """Documents that have a chunk with a number beyond this one, at most `limit`."""
    return [DocumentKey(str(row[0])) for row in reads.db.execute(SELECT_NEW, (number, limit))]


def owner_of(reads: Reads, number: int) -> DocumentKey | None:
    """The document of one chunk, its text left alone."""
    row = reads.db.execute(SELECT_OWNER, (number,)).fetchone()
    return DocumentKey(str(row[0])) if row else None


def vector_of(reads: Reads, collection: Collection, number: int) -> bytes | None:
    """The vector of one chunk."""
    row = reads.db.execute(SELECT_VECTOR, (collection.name, number)).fetchone()
    return bytes(row[0]) if row and isinstance(row[0], bytes) else None


def _entry(row: apsw.SQLiteValues) -> Entry:
    found = Entry._make(row)
    trust = _TRUST[str(found.trust)]
    if found.fact_id is None:
        return found._replace(trust=trust)
    return found._replace(
        trust=trust,
        fact_kind=FactKind(str(found.fact_kind)),
        standing=Standing(str(found.standing)),
    )


_TRUST: Final = {trust.value: trust for trust in Trust}
