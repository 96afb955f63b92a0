"""The `collections` and `vectors` tables: derived data, kept beside history, in both containers.

Works inside the caller's transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import apsw

from storage.errors import Invalid
from storage.records import Collection

INSERT_COLLECTION: Final = (
    "INSERT INTO collections (name, model, dims, fingerprint, scale, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
)
SELECT_KNOWN: Final = (
    "SELECT s.rowid, v.embedding FROM slices s LEFT JOIN vectors v"
    " ON v.collection = ? AND v.chunk = s.rowid"
    " WHERE s.rowid IN (SELECT value FROM json_each(?))"
)
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
    name = collection.name
    wanted: dict[int, bytes] = {}
    for chunk, embedding in rows:
        if len(embedding) != collection.dims:
            raise Invalid(f"a vector of {len(embedding)} bytes, not {collection.dims}")
        wanted[chunk] = embedding
    found = db.execute(SELECT_KNOWN, (name, json.dumps(list(wanted))))
    there = {int(str(chunk)): old for chunk, old in found}
    changed = [chunk for chunk, old in there.items() if old is not None and old != wanted[chunk]]
    fresh = [chunk for chunk in wanted if chunk in there and there[chunk] is None]
    db.executemany(DELETE_VECTOR, [(name, chunk) for chunk in changed])
    db.executemany(INSERT_VECTOR, [(name, chunk, wanted[chunk]) for chunk in (*changed, *fresh)])
    return len(fresh)
