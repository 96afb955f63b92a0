"""The `collections` and `vectors` tables: derived data, kept beside history, in both containers.

Works inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import apsw

from storage.errors import Invalid
from storage.records import Collection

INSERT_COLLECTION: Final = (
    "INSERT INTO collections (name, model, dims, fingerprint, scale, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
)
SELECT_CHUNK: Final = "SELECT 1 FROM slices WHERE rowid = ?"
SELECT_VECTOR: Final = "SELECT embedding FROM vectors WHERE collection = ? AND chunk = ?"
DELETE_VECTOR: Final = "DELETE FROM vectors WHERE collection = ? AND chunk = ?"
INSERT_VECTOR: Final = "INSERT INTO vectors (collection, chunk, embedding) VALUES (?, ?, ?)"


def add_collection(db: apsw.Connection, collection: Collection, created_at: int) -> None:
    """The collection exists from here on."""
    row = (
        collection.name,
        collection.model,
        collection.dims,
        collection.fingerprint,
        collection.scale,
        created_at,
    )
    db.execute(INSERT_COLLECTION, row)


def store(db: apsw.Connection, collection: Collection, rows: Sequence[tuple[int, bytes]]) -> int:
    """Put the vectors of chunks that still exist; returns how many were not there before.

    Raises:
        Invalid: a vector is not as long as the collection says.
    """
    name, fresh = collection.name, 0
    for chunk, embedding in rows:
        if len(embedding) != collection.dims:
            raise Invalid(f"a vector of {len(embedding)} bytes, not {collection.dims}")
        if db.execute(SELECT_CHUNK, (chunk,)).fetchone() is None:
            continue
        known = db.execute(SELECT_VECTOR, (name, chunk)).fetchone()
        if known is None:
            fresh += 1
        elif known[0] == embedding:
            continue
        else:
            db.execute(DELETE_VECTOR, (name, chunk))
        db.execute(INSERT_VECTOR, (name, chunk, embedding))
    return fresh
