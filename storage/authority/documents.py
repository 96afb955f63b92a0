"""What events do to documents and their chunks (SQL over the shared tables).

Promises: the latest revision only, one owning adapter per document, tombstones that keep no text,
and chunks left alone wherever wording and place stay the same, so their vectors survive. A chunk
is a slice of its document's text (table `slices`), read through the view `chunks`.
"""

from __future__ import annotations

from typing import Final

import apsw

from storage.chunking import pieces
from storage.errors import Invalid
from storage.records import Document, DocumentKey, canonical_json

FACT_NAMESPACE: Final = "memory"
"""One document per fact; only the fact reducer writes here."""

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
    if document.namespace == FACT_NAMESPACE:
        raise Invalid("documents of facts are written by recording the fact")
    key = document.key
    owner = db.execute(SELECT_OWNER, (key,)).fetchone()
    if owner is not None and owner[1] is None and owner[0] not in ("", document.adapter):
        raise Invalid(f"a document of adapter {owner[0]} cannot be replaced by another adapter")
    _store(db, key, document, recorded_at, fresh=owner is None)


def store(db: apsw.Connection, document: Document, recorded_at: int) -> None:
    """Write the row and bring its chunks in line."""
    _store(db, document.key, document, recorded_at, fresh=False)


def _store(
    db: apsw.Connection, key: DocumentKey, document: Document, recorded_at: int, *, fresh: bool
) -> None:
    if not document.text.strip():
        raise Invalid("a document without text")
    if (
        document.valid_from is not None
        and document.valid_to is not None
        and document.valid_from > document.valid_to
    ):
        raise Invalid("a document that ends before it starts")
    db.execute(
        UPSERT_DOCUMENT,
        (
            key,
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
            canonical_json(document.metadata).decode("ascii") if document.metadata else "{}",
            recorded_at,
        ),
    )
    _rechunk(db, key, document, fresh=fresh)


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


def _rechunk(db: apsw.Connection, key: DocumentKey, document: Document, *, fresh: bool) -> None:
    wanted = pieces(key, document.title, document.text)
    known = () if fresh else db.execute(SELECT_SLICES, (key,))
    present = {str(row[0]): row[1:] for row in known}
    kept = {piece.chunk_id for piece in wanted}
    for chunk, (rowid, _, _) in present.items():
        if chunk not in kept:
            _drop_chunk(db, rowid)
    for piece in wanted:
        found = present.get(piece.chunk_id)
        if found is None:
            db.execute(INSERT_SLICE, (piece.chunk_id, key, piece.ordinal, piece.start, piece.bytes))
        elif found[1:] != (piece.start, piece.bytes):
            db.execute(MOVE_SLICE, (piece.start, piece.bytes, found[0]))


def _drop_chunk(db: apsw.Connection, rowid: apsw.SQLiteValue) -> None:
    db.execute(DELETE_CHUNK_VECTORS, (rowid,))
    db.execute(DELETE_SLICE, (rowid,))
