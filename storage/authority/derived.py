"""The indexes of the indexed container: FTS5 over chunks, one vec0 table per vector collection.

They follow the base tables by TEMP triggers of the writing connection, so they change in the same
transaction, whoever changes a chunk, and the file holds no trigger that needs our functions. vec0
may not be written from a trigger while schemas are not trusted, so changes of vectors are noted and
carried over by `settle` before the commit. Text goes in as the analyzer's terms. Leaves queries to
retrieval.
"""

from __future__ import annotations

from typing import Final

import apsw

from storage.connection import load_vectors
from storage.terms import term_text

CREATE_INDEXES: Final = (
    "CREATE VIRTUAL TABLE chunks_fts USING fts5 (title, text, content='', contentless_delete=1,"
    " tokenize=\"ascii tokenchars '_'\")",
    # Journal bytes whose events are in the tables; what lies beyond was left by a crash, and
    # `ignored` of it was looked at and found not to apply.
    "CREATE TABLE journals (day TEXT NOT NULL, writer TEXT NOT NULL, bytes INTEGER NOT NULL,"
    " ignored INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (day, writer)) STRICT, WITHOUT ROWID",
)
FOLLOW: Final = (
    """CREATE TEMP TRIGGER IF NOT EXISTS chunk_indexed AFTER INSERT ON main.chunks BEGIN
         INSERT INTO chunks_fts (rowid, title, text)
         VALUES (new.rowid, memoryd_terms(new.title), memoryd_terms(new.text));
       END""",
    """CREATE TEMP TRIGGER IF NOT EXISTS chunk_dropped AFTER DELETE ON main.chunks BEGIN
         DELETE FROM chunks_fts WHERE rowid = old.rowid;
       END""",
    """CREATE TEMP TABLE IF NOT EXISTS changed_vectors (
         collection TEXT NOT NULL, chunk INTEGER NOT NULL, PRIMARY KEY (collection, chunk)
       ) STRICT, WITHOUT ROWID""",
    """CREATE TEMP TRIGGER IF NOT EXISTS vector_added AFTER INSERT ON main.vectors BEGIN
         INSERT OR IGNORE INTO changed_vectors VALUES (new.collection, new.chunk);
       END""",
    """CREATE TEMP TRIGGER IF NOT EXISTS collection_dropped AFTER DELETE ON main.collections BEGIN
         INSERT OR IGNORE INTO changed_vectors VALUES (old.name, 0);
       END""",
    """CREATE TEMP TRIGGER IF NOT EXISTS vector_dropped AFTER DELETE ON main.vectors BEGIN
         INSERT OR IGNORE INTO changed_vectors VALUES (old.collection, old.chunk);
       END""",
)
SELECT_CHANGED: Final = "SELECT DISTINCT collection FROM temp.changed_vectors"
CLEAR_CHANGED: Final = "DELETE FROM temp.changed_vectors"
TABLE_EXISTS: Final = "SELECT 1 FROM main.sqlite_master WHERE name = ?"
CLEAR_FTS: Final = "INSERT INTO chunks_fts (chunks_fts) VALUES ('delete-all')"
VECTOR_TABLES: Final = (
    "SELECT name FROM main.sqlite_master WHERE type = 'table' AND sql LIKE"
    " 'CREATE VIRTUAL TABLE%vec0%'"
)
ANY_VECTOR: Final = "SELECT 1 FROM vectors WHERE collection = ? LIMIT 1"
FTS_DIFFERENCE: Final = (
    "SELECT (SELECT count(*) FROM chunks WHERE rowid NOT IN (SELECT rowid FROM chunks_fts)),"
    " (SELECT count(*) FROM chunks_fts WHERE rowid NOT IN (SELECT rowid FROM chunks))"
)


def connect(db: apsw.Connection) -> None:
    """Give a connection what the indexes need to be read."""
    load_vectors(db)
    db.pragma("temp_store", 2)  # the notes of `follow` need no file


def create(db: apsw.Connection) -> None:
    """The empty indexes, in the caller's transaction."""
    for statement in CREATE_INDEXES:
        db.execute(statement)


def follow(db: apsw.Connection) -> None:
    """From now on the indexes follow what this connection writes.

    Idempotent; works inside the caller's transaction, and its rollback takes it back.
    """
    db.create_scalar_function("memoryd_terms", _terms_of, 1, deterministic=True)
    for statement in FOLLOW:
        db.execute(statement)


def settle(db: apsw.Connection) -> None:
    """Carry the noted changes of vectors into the vec0 tables, made here where one is missing."""
    changed = [str(row[0]) for row in db.execute(SELECT_CHANGED).fetchall()]
    if not changed:
        return
    sizes = {str(name): dims for name, dims in db.execute("SELECT name, dims FROM collections")}
    for name in changed:
        table = table_of(name)
        exists = db.execute(TABLE_EXISTS, (table,)).fetchone() is not None
        if name not in sizes:
            if exists:
                db.execute(f"DROP TABLE main.{table}")
            continue
        if not exists:
            db.execute(
                f"CREATE VIRTUAL TABLE main.{table} USING vec0 (embedding int8[{sizes[name]}])"
            )
        _carry_over(db, table, name)
    db.execute(CLEAR_CHANGED)


def clear(db: apsw.Connection) -> None:
    """Empty every index, whatever it holds; the rows that follow fill it again."""
    db.execute(CLEAR_FTS)
    for (table,) in db.execute(VECTOR_TABLES).fetchall():
        db.execute(f"DROP TABLE main.{table}")


def _carry_over(db: apsw.Connection, table: str, name: str) -> None:
    noted = "SELECT chunk FROM temp.changed_vectors WHERE collection = ?"
    db.executemany(f"DELETE FROM {table} WHERE rowid = ?", db.execute(noted, (name,)).fetchall())
    present = f"SELECT chunk, embedding FROM vectors WHERE collection = ? AND chunk IN ({noted})"
    db.executemany(
        f"INSERT INTO {table} (rowid, embedding) VALUES (?, vec_int8(?))",
        db.execute(present, (name, name)).fetchall(),
    )


def table_of(collection: str) -> str:
    """The vec0 table of a collection, by the collection's name (16 hex)."""
    if len(collection) != 16 or not set(collection) <= set("0123456789abcdef"):
        raise ValueError(f"not the name of a collection: {collection!r}")
    return f"vec_{collection}"


def faults(db: apsw.Connection) -> list[str]:
    """Where the indexes do not hold exactly the base tables' rows."""
    found: list[str] = []
    row = db.execute(FTS_DIFFERENCE).fetchone()
    if row is not None and row != (0, 0):
        found.append(f"full-text index: {row[0]} chunks missing, {row[1]} rows too many")
    for (name,) in db.execute("SELECT name FROM collections").fetchall():
        table = table_of(str(name))
        if db.execute(TABLE_EXISTS, (table,)).fetchone() is None:
            if db.execute(ANY_VECTOR, (name,)).fetchone() is not None:
                found.append(f"vector index {table} is missing")
            continue
        wanted = "SELECT chunk FROM vectors WHERE collection = ?"
        missing = db.execute(
            f"SELECT count(*) FROM ({wanted} EXCEPT SELECT rowid FROM {table})", (name,)
        ).fetchone()
        extra = db.execute(
            f"SELECT count(*) FROM (SELECT rowid FROM {table} EXCEPT {wanted})", (name,)
        ).fetchone()
        if missing != (0,) or extra != (0,):
            found.append(f"vector index {table}: rows differ from the stored vectors")
    return found


def _terms_of(*arguments: apsw.SQLiteValue) -> str:
    return term_text(str(arguments[0]))
