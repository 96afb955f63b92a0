"""The baseline of the authority's bench: a bare apsw loop that writes the same rows.

One WAL database at FULL with an event line, a document, a chunk, its FTS5 entry (external content)
and its vec0 int8 vector a document; no reducer, no chain, no checks. With `journal`, the event line
goes to a synced JSONL file instead, which is the second flush that the authority makes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ops.bench.corpus import DIMS, Sample
from storage.connection import load_vectors, open_database
from storage.records import canonical_json

SCHEMA: Final = (
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, line BLOB NOT NULL)",
    "CREATE TABLE documents (id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, title TEXT NOT NULL,"
    " observed_at INTEGER NOT NULL)",
    "CREATE TABLE chunks (id INTEGER PRIMARY KEY, document INTEGER NOT NULL, title TEXT NOT NULL,"
    " text TEXT NOT NULL)",
    "CREATE VIRTUAL TABLE chunks_fts"
    " USING fts5 (title, text, content='chunks', content_rowid='id')",
    f"CREATE VIRTUAL TABLE chunks_vec USING vec0 (embedding int8[{DIMS}])",
)
INSERT_EVENT: Final = "INSERT INTO events (line) VALUES (?)"
INSERT_DOCUMENT: Final = "INSERT INTO documents (id, key, title, observed_at) VALUES (?, ?, ?, ?)"
INSERT_CHUNK: Final = "INSERT INTO chunks (id, document, title, text) VALUES (?, ?, ?, ?)"
INSERT_TERMS: Final = "INSERT INTO chunks_fts (rowid, title, text) VALUES (?, ?, ?)"
INSERT_VECTOR: Final = "INSERT INTO chunks_vec (rowid, embedding) VALUES (?, vec_int8(?))"


class RawLoop:
    """The bare loop; one `write` is one transaction."""

    def __init__(self, folder: Path, *, journal: bool = False) -> None:
        folder.mkdir(mode=0o700, parents=True)
        self._db = open_database(folder / "raw.sqlite", create=True)
        load_vectors(self._db)
        for statement in SCHEMA:
            self._db.execute(statement)
        self._last = 0
        self._journal: int | None = None
        if journal:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._journal = os.open(folder / "raw.jsonl", flags, 0o600)

    def write(self, samples: Sequence[Sample]) -> None:
        """Store the samples in one durable transaction."""
        numbers = range(self._last + 1, self._last + 1 + len(samples))
        lines = [_line(sample) for sample in samples]
        rows = list(zip(numbers, (sample.document for sample in samples), strict=True))
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        db.executemany(
            INSERT_DOCUMENT, [(n, d.external_id, d.title, d.observed_at) for n, d in rows]
        )
        db.executemany(INSERT_CHUNK, [(n, n, d.title, d.text) for n, d in rows])
        db.executemany(INSERT_TERMS, [(n, d.title, d.text) for n, d in rows])
        db.executemany(
            INSERT_VECTOR, [(n, s.vector) for n, s in zip(numbers, samples, strict=True)]
        )
        if self._journal is None:
            db.executemany(INSERT_EVENT, [(line,) for line in lines])
        else:
            os.write(self._journal, b"\n".join(lines) + b"\n")
            os.fsync(self._journal)
        db.execute("COMMIT")
        self._last = numbers[-1]

    def close(self) -> None:
        """Release the files."""
        self._db.close()
        if self._journal is not None:
            os.close(self._journal)


def _line(sample: Sample) -> bytes:
    document = sample.document
    return canonical_json(
        {
            "type": "document.upserted",
            "name": document.external_id,
            "title": document.title,
            "text": document.text,
            "observed_at": document.observed_at,
        }
    )
