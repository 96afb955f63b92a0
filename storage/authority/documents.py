"""What events do to documents and their chunks (SQL over the shared tables).

Promises: the latest revision only, one owning adapter per document, tombstones that keep no text,
and chunks left alone wherever wording and place stay the same, so their vectors survive. A chunk
is a slice of its document's text (table `slices`), read through the view `chunks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final, TypeAlias

import apsw

from storage.authority import payloads
from storage.chunking import Piece, pieces
from storage.errors import Invalid
from storage.records import (
    Document,
    DocumentKey,
    JsonValue,
    Trust,
    canonical_json,
    content_hash,
    document_key,
)

Row: TypeAlias = "tuple[str | int | None, ...]"
"""A document in the order of the columns of `UPSERT_DOCUMENT`."""

FACT_NAMESPACE: Final = "memory"
"""One document per fact; only the fact reducer writes here."""

_PARTS: Final = (
    "namespace", "external_id", "source", "kind", "title", "text", "uri", "version", "observed_at",
    "valid_from", "valid_to", "trust", "adapter", "revision", "metadata",
)  # fmt: skip
_NAMES: Final = frozenset(_PARTS)
_PARTS_OF: Final = itemgetter(*_PARTS)
_USUAL_TYPES: Final = frozenset(
    (*(str,) * 8, int, start, end, str, str, str, dict)
    for start in (int, type(None))
    for end in (int, type(None))
)
_TRUSTS: Final = frozenset(trust.value for trust in Trust)
NAMESPACE, TITLE, TEXT, VALID_FROM, VALID_TO, ADAPTER = 1, 5, 6, 11, 12, 14
"""Places in a row."""
SELECT_KNOWN: Final = (
    "SELECT document_key FROM documents WHERE document_key IN (SELECT value FROM json_each(?))"
)
SELECT_OWNER: Final = "SELECT adapter, deleted_at FROM documents WHERE document_key = ?"
UPSERT_DOCUMENT: Final = """
INSERT INTO documents (document_key, namespace, external_id, source, kind, title, text, uri,
  version, content_hash, observed_at, valid_from, valid_to, trust, adapter, revision, metadata,
  recorded_at, deleted_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)
ON CONFLICT (document_key) DO UPDATE SET
  source = excluded.source, kind = excluded.kind, title = excluded.title, text = excluded.text,
  uri = excluded.uri, version = excluded.version, content_hash = excluded.content_hash,
  observed_at = excluded.observed_at, valid_from = excluded.valid_from,
  valid_to = excluded.valid_to, trust = excluded.trust, adapter = excluded.adapter,
  revision = excluded.revision, metadata = excluded.metadata, recorded_at = excluded.recorded_at,
  deleted_at = NULL
"""
BURY_DOCUMENT: Final = """
UPDATE documents SET title = '', text = '', uri = '', metadata = '{}', content_hash = '',
  deleted_at = ? WHERE document_key = ? AND deleted_at IS NULL
"""
SELECT_SLICES: Final = (
    "SELECT chunk_id, rowid, start, bytes FROM slices WHERE document_key = ? ORDER BY rowid"
)
INSERT_SLICE: Final = (
    "INSERT INTO slices (chunk_id, document_key, ordinal, start, bytes) VALUES (?, ?, ?, ?, ?)"
)
MOVE_SLICE: Final = "UPDATE slices SET start = ?, bytes = ? WHERE rowid = ?"
DELETE_SLICE: Final = "DELETE FROM slices WHERE rowid = ?"
DELETE_CHUNK_VECTORS: Final = (
    "DELETE FROM vectors WHERE collection IN (SELECT name FROM collections) AND chunk = ?"
)


def upsert(db: apsw.Connection, document: Document, recorded_at: int) -> None:
    """A source's document becomes its latest revision.

    Raises:
        Invalid: facts' namespace, another adapter's document, or an inverted validity.
    """
    _upsert(db, row_of(document, recorded_at))


def upsert_all(db: apsw.Connection, rows: Sequence[Row]) -> None:
    """The same for many, in order; those of new documents that follow each other at once."""
    keys = [row[0] for row in rows]
    seen = {key for (key,) in db.execute(SELECT_KNOWN, (json.dumps(keys),)).fetchall()}
    fresh: list[Row] = []
    for row in rows:
        if row[0] in seen:
            _insert(db, fresh)
            fresh = []
            _upsert(db, row)
        else:
            _check_source(row)
            seen.add(row[0])
            fresh.append(row)
    _insert(db, fresh)


def store(db: apsw.Connection, document: Document, recorded_at: int) -> None:
    """Write the row and bring its chunks in line."""
    row = row_of(document, recorded_at)
    _check(row)
    db.execute(UPSERT_DOCUMENT, row)
    _rechunk(db, row)


def row_of(document: Document, recorded_at: int) -> Row:
    """A document as its row."""
    return (
        document.key,
        document.namespace,
        document.external_id,
        document.source,
        document.kind,
        document.title,
        document.text,
        document.uri,
        document.version,
        document.content_hash,
        document.observed_at,
        document.valid_from,
        document.valid_to,
        document.trust.value,
        document.adapter,
        document.revision,
        _spelled(document.metadata),
        recorded_at,
    )


def row_from(payload: JsonValue, recorded_at: int) -> Row:
    """The document that a payload describes, as its row.

    The same as by way of a `Document`, which costs a batch twice the time.

    Raises:
        Invalid: it describes none.
    """
    if isinstance(payload, dict) and payload.keys() >= _NAMES:
        parts = _PARTS_OF(payload)
        if tuple(map(type, parts)) in _USUAL_TYPES and parts[11] in _TRUSTS:
            return (
                document_key(parts[0], parts[1]),
                *parts[:8],
                content_hash(parts[5]),
                *parts[8:14],
                _spelled(parts[14]),
                recorded_at,
            )
    return row_of(payloads.document_from(payload), recorded_at)


def _upsert(db: apsw.Connection, row: Row) -> None:
    _check_source(row)
    owner = db.execute(SELECT_OWNER, (row[0],)).fetchone()
    if owner is None:
        _insert(db, [row])
        return
    if owner[1] is None and owner[0] not in ("", row[ADAPTER]):
        raise Invalid(f"a document of adapter {owner[0]} cannot be replaced by another adapter")
    db.execute(UPSERT_DOCUMENT, row)
    _rechunk(db, row)


def _insert(db: apsw.Connection, rows: Sequence[Row]) -> None:
    """Documents that are not there yet, with their chunks."""
    if rows:
        db.executemany(UPSERT_DOCUMENT, rows)
        db.executemany(
            INSERT_SLICE, [_slice_row(row, piece) for row in rows for piece in _pieces(row)]
        )


def _check_source(row: Row) -> None:
    if row[NAMESPACE] == FACT_NAMESPACE:
        raise Invalid("documents of facts are written by recording the fact")
    _check(row)


def _check(row: Row) -> None:
    start, end = row[VALID_FROM], row[VALID_TO]
    if not str(row[TEXT]).strip():
        raise Invalid("a document without text")
    if isinstance(start, int) and isinstance(end, int) and start > end:
        raise Invalid("a document that ends before it starts")


def _pieces(row: Row) -> tuple[Piece, ...]:
    return pieces(DocumentKey(str(row[0])), str(row[TITLE]), str(row[TEXT]))


def _slice_row(row: Row, piece: Piece) -> tuple[str | int | None, ...]:
    return piece.chunk_id, row[0], piece.ordinal, piece.start, piece.bytes


def _spelled(metadata: Mapping[str, JsonValue]) -> str:
    return canonical_json(metadata).decode("ascii") if metadata else "{}"


def bury(db: apsw.Connection, key: DocumentKey, at: int) -> None:
    """Leave a tombstone; nothing happens when there is no live document.

    Raises:
        Invalid: it belongs to a fact.
    """
    if key.startswith(FACT_NAMESPACE + ":"):
        raise Invalid("the document of a fact ends with the fact")
    db.execute(BURY_DOCUMENT, (at, key))
    if db.changes():
        drop_chunks(db, key)


def drop_chunks(db: apsw.Connection, key: DocumentKey) -> None:
    """Take a document out of every index."""
    for _, rowid, _, _ in db.execute(SELECT_SLICES, (key,)).fetchall():
        _drop_chunk(db, rowid)


def _rechunk(db: apsw.Connection, row: Row) -> None:
    wanted = _pieces(row)
    present = {str(found[0]): found[1:] for found in db.execute(SELECT_SLICES, (row[0],))}
    kept = {piece.chunk_id for piece in wanted}
    for chunk, (rowid, _, _) in present.items():
        if chunk not in kept:
            _drop_chunk(db, rowid)
    for piece in wanted:
        known = present.get(piece.chunk_id)
        if known is None:
            db.execute(INSERT_SLICE, _slice_row(row, piece))
        elif known[1:] != (piece.start, piece.bytes):
            db.execute(MOVE_SLICE, (piece.start, piece.bytes, known[0]))


def _drop_chunk(db: apsw.Connection, rowid: apsw.SQLiteValue) -> None:
    db.execute(DELETE_CHUNK_VECTORS, (rowid,))
    db.execute(DELETE_SLICE, (rowid,))
