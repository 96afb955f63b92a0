"""The indexes of the indexed container: FTS5 over chunks, sqlite-vec over the stored vectors.

FTS5 changes in the transaction that changes a chunk: dropped chunks leave it by a TEMP trigger of
the writing connection, new ones enter it by `settle` before the commit, all at once (FTS5 writes
out what it has gathered at each statement savepoint, which is every statement with a trigger). Text
goes in as the analyzer's terms. Vectors need no second copy: sqlite-vec's distance functions read
the int8 rows as they are, in 53 ms for 100,000 of them. A vec0 table takes 47 ms, costs 408 bytes a
vector more, updates no int8 row, and is never smaller after deletes; who wants it faster asks the
recall server, which holds arrays. Leaves ranking to retrieval.
"""

from __future__ import annotations

from typing import Final

import apsw

from storage.connection import load_vectors
from storage.records import Collection
from storage.terms import term_text

CREATE_INDEXES: Final = (
    "CREATE VIRTUAL TABLE chunks_fts USING fts5 (title, text, content='', contentless_delete=1,"
    " tokenize=\"ascii tokenchars '_'\")",
    # Journal bytes whose events are in the tables; what lies beyond was left by a crash, and
    # `ignored` of it was looked at and found not to apply.
    "CREATE TABLE journals (day TEXT NOT NULL, writer TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " ignored INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (day, writer)) STRICT, WITHOUT ROWID",
)
FOLLOW: Final = """
CREATE TEMP TRIGGER IF NOT EXISTS chunk_dropped AFTER DELETE ON main.slices BEGIN
  DELETE FROM chunks_fts WHERE rowid = old.rowid;
END
"""
LAST_NUMBER: Final = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'slices'"
SELECT_NEW: Final = "SELECT rowid, title, text FROM chunks WHERE rowid > ? ORDER BY rowid LIMIT ?"
AT_ONCE: Final = 2_000
"""Chunks that `settle` holds in memory at once."""
INSERT_TERMS: Final = "INSERT INTO chunks_fts (rowid, title, text) VALUES (?, ?, ?)"
CLEAR_FTS: Final = "INSERT INTO chunks_fts (chunks_fts) VALUES ('delete-all')"
MERGE_FTS: Final = "INSERT INTO chunks_fts (chunks_fts) VALUES ('optimize')"
FTS_DIFFERENCE: Final = (
    "SELECT (SELECT count(*) FROM slices WHERE rowid NOT IN (SELECT rowid FROM chunks_fts)),"
    " (SELECT count(*) FROM chunks_fts WHERE rowid NOT IN (SELECT rowid FROM slices))"
)
COPIED_INDEX: Final = ("data", "idx", "docsize", "config")
CHECKED_INDEX: Final = (
    "CREATE TEMP VIEW checked_words (id, title, text) AS"
    " SELECT rowid, term_text(title), term_text(text) FROM main.chunks",
    "CREATE VIRTUAL TABLE temp.checked USING fts5 (title, text, content='checked_words',"
    " content_rowid='id', tokenize=\"ascii tokenchars '_'\")",
    *(f"DELETE FROM temp.checked_{part}" for part in COPIED_INDEX),
    "INSERT INTO temp.checked_data (id, block) SELECT id, block FROM main.chunks_fts_data",
    "INSERT INTO temp.checked_idx (segid, term, pgno)"
    " SELECT segid, term, pgno FROM main.chunks_fts_idx",
    "INSERT INTO temp.checked_docsize (id, sz) SELECT id, sz FROM main.chunks_fts_docsize",
    "INSERT INTO temp.checked_config (k, v) SELECT k, v FROM main.chunks_fts_config",
    "INSERT INTO temp.checked (checked, rank) VALUES ('integrity-check', 1)",
)
NEAREST: Final = (
    "SELECT chunk, vec_distance_L2(vec_int8(embedding), vec_int8(?2)) AS distance FROM vectors"
    " WHERE collection = ?1 ORDER BY distance, chunk LIMIT ?3"
)


def connect(db: apsw.Connection) -> None:
    """Give a connection what the indexes need to be read.

    Raises:
        Unavailable: sqlite-vec does not load.
    """
    load_vectors(db)


def create(db: apsw.Connection) -> None:
    """The empty indexes, in the caller's transaction."""
    for statement in CREATE_INDEXES:
        db.execute(statement)


def follow(db: apsw.Connection) -> None:
    """From now on the chunks that this connection drops leave the index too.

    Idempotent; works inside the caller's transaction, and its rollback takes it back.
    """
    db.execute(FOLLOW)


def last_number(db: apsw.Connection) -> int:
    """The highest number that a chunk ever had: what is beyond it later is new."""
    row = db.execute(LAST_NUMBER).fetchone()
    return int(str(row[0])) if row else 0


def settle(db: apsw.Connection, after: int) -> None:
    """Index the chunks numbered beyond `after`, which must not be in the index yet."""
    while fresh := db.execute(SELECT_NEW, (after, AT_ONCE)).fetchall():
        db.executemany(INSERT_TERMS, [(n, _words_of(t), _words_of(x)) for n, t, x in fresh])
        after = int(str(fresh[-1][0]))


def clear(db: apsw.Connection) -> None:
    """Empty the full-text index, whatever it holds; the rows that follow fill it again."""
    db.execute(CLEAR_FTS)


def rewrite(db: apsw.Connection) -> None:
    """Merge the full-text index into one segment that holds nothing of what was deleted."""
    db.execute(MERGE_FTS)


def nearest(
    db: apsw.Connection, collection: Collection, embedding: bytes, limit: int
) -> list[tuple[int, float]]:
    """The chunks closest to an int8 vector and their distance (exact L2 at the common scale)."""
    rows = db.execute(NEAREST, (collection.name, embedding, limit))
    return [(int(str(chunk)), float(str(distance))) for chunk, distance in rows]


def faults(db: apsw.Connection) -> list[str]:
    """Where the full-text index does not hold exactly the base tables' rows."""
    row = db.execute(FTS_DIFFERENCE).fetchone()
    if row is None or row == (0, 0):
        return []
    return [f"full-text index: {row[0]} chunks missing, {row[1]} rows too many"]


def content_faults(db: apsw.Connection) -> list[str]:
    """Where the full-text index does not hold exactly the chunks' words.

    SQLite itself compares an index with its content, but ours has none that it knows of. So the
    pages of the index are lent to a temporary one whose content is the chunks' words: every term,
    place and length is compared, in C, one chunk at a time. `db` is a read-only connection of its
    own; its temporary tables are used.
    """
    db.pragma("query_only", False)
    db.create_scalar_function("term_text", _words_of, 1, deterministic=True)
    try:
        for statement in CHECKED_INDEX:
            db.execute(statement)
    except (apsw.CorruptError, apsw.SQLError) as fault:
        return [f"full-text index: its words are not what the chunks hold ({fault})"]
    finally:
        db.pragma("query_only", True)
    return []


def _words_of(*text: apsw.SQLiteValue) -> str:
    return term_text(str(text[0]))
