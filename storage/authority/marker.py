"""The one row that says whose a memory file is, which container holds it, and its revision.

`compact_authority` has a single row for the whole life of the file. Mode 0: the row is the store
(state and vectors), guarded by a digest. Mode 1: the tables of the file are the store and the row
only marks it. The revision grows with every commit in both, so it is the generation counter.
Every function works inside the caller's transaction or reads in one statement.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import apsw

from storage.connection import damage_named, translated
from storage.errors import Corrupt, MemorydError, NewerSchema, NotInitialized, Stale, WrongOwner
from storage.records import ProjectId

FORMAT: Final = 1
COMPACT: Final = 0
INDEXED: Final = 1

CREATE_MARKER: Final = """
CREATE TABLE IF NOT EXISTS compact_authority (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  owner    TEXT    NOT NULL,
  format   INTEGER NOT NULL,
  mode     INTEGER NOT NULL CHECK (mode IN (0, 1)),
  revision INTEGER NOT NULL CHECK (revision >= 1),
  digest   TEXT    NOT NULL,
  state    BLOB,
  vectors  BLOB,
  CHECK ((mode = 0) = (state IS NOT NULL)),
  CHECK (mode = 0 OR vectors IS NULL)
) STRICT
"""
TABLE_EXISTS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
SELECT_HEADER: Final = (
    "SELECT owner, format, mode, revision, digest FROM compact_authority WHERE id = 1"
)
SELECT_WHOLE: Final = (
    "SELECT owner, format, mode, revision, digest, state, vectors FROM compact_authority"
    " WHERE id = 1"
)
INSERT_ROW: Final = (
    "INSERT INTO compact_authority (id, owner, format, mode, revision, digest, state, vectors)"
    " VALUES (1, ?, ?, ?, 1, ?, ?, ?)"
)
UPDATE_STATE: Final = (
    "UPDATE compact_authority SET revision = ?, digest = ?, state = ?, vectors = ?"
    " WHERE id = 1 AND mode = 0 AND revision = ?"
)
ADVANCE: Final = (
    "UPDATE compact_authority SET revision = revision + 1 WHERE id = 1 AND mode = 1"
    " RETURNING revision"
)
MARK_INDEXED: Final = (
    "UPDATE compact_authority SET mode = 1, revision = revision + 1, digest = ?, state = NULL,"
    " vectors = NULL WHERE id = 1 AND mode = 0 AND revision = ?"
)

SET_REVISION: Final = "UPDATE compact_authority SET revision = ?, digest = ? WHERE id = 1"


class ContainerChanged(MemorydError):
    """Another process promoted this authority; open it again."""


@dataclass(frozen=True, slots=True)
class Header:
    """What the row says without its blobs."""

    mode: int
    revision: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A compact store as it lies in the row."""

    state: bytes
    vectors: bytes | None


def exists(db: apsw.Connection) -> bool:
    """Whether the file has been initialised at all."""
    with translated("memory.sqlite"):
        return db.execute(TABLE_EXISTS, ("compact_authority",)).fetchone() is not None


def header(db: apsw.Connection, owner: ProjectId) -> Header:
    """Mode and revision, the owner and the format checked.

    Raises:
        NotInitialized, WrongOwner, NewerSchema, Corrupt
    """
    row = _row(db, SELECT_HEADER)
    return _checked(row, owner)


def load(db: apsw.Connection, owner: ProjectId) -> tuple[Header, Stored | None]:
    """The row whole, its digest proven; None in place of the store when it is indexed.

    Raises:
        NotInitialized, WrongOwner, NewerSchema, Corrupt
    """
    row = _row(db, SELECT_WHOLE)
    found = _checked(row, owner)
    assert row is not None
    if found.mode == INDEXED:
        return found, None
    state, vectors = row[5], row[6]
    if not isinstance(state, bytes) or not (vectors is None or isinstance(vectors, bytes)):
        raise Corrupt("the memory row holds no state")
    stored = Stored(state, vectors)
    if row[4] != digest(owner, found.revision, stored):
        raise Corrupt("the memory row fails its checksum; nothing was changed")
    return found, stored


def owner_is_damaged(db: apsw.Connection, owner: ProjectId) -> bool:
    """Whether a row that names another owner was written for this one: its digest says so."""
    with translated("memory.sqlite"):
        row = db.execute(SELECT_WHOLE).fetchone()
    if row is None or row[0] == owner:
        return False
    if row[2] == INDEXED:
        return bool(row[4] == indexed_digest(owner))
    state, vectors = row[5], row[6] if isinstance(row[6], bytes) else None
    whole = isinstance(state, bytes) and isinstance(row[3], int)
    return whole and row[4] == digest(owner, _int(row[3]), Stored(bytes(state or b""), vectors))


def insert_compact(db: apsw.Connection, owner: ProjectId, stored: Stored) -> None:
    """The first row of a compact authority."""
    first = digest(owner, 1, stored)
    db.execute(INSERT_ROW, (owner, FORMAT, COMPACT, first, stored.state, stored.vectors))


def insert_indexed(db: apsw.Connection, owner: ProjectId) -> None:
    """The first row of an authority that starts indexed."""
    db.execute(INSERT_ROW, (owner, FORMAT, INDEXED, indexed_digest(owner), None, None))


def swap(db: apsw.Connection, owner: ProjectId, expected: int, stored: Stored) -> int:
    """Replace the store if it is still at the expected revision; returns the new one.

    Raises:
        Stale: it is not.
    """
    revision = expected + 1
    row = (revision, digest(owner, revision, stored), stored.state, stored.vectors, expected)
    db.execute(UPDATE_STATE, row)
    if db.changes() != 1:
        raise Stale("the memory moved on while this change was made; nothing was written")
    return revision


def advance(db: apsw.Connection) -> int:
    """Count one commit of an indexed authority; returns the new revision."""
    rows = db.execute(ADVANCE).fetchall()
    if len(rows) != 1:
        raise Corrupt("the memory file has no mode marker")
    return _int(rows[0][0])


def mark_indexed(db: apsw.Connection, owner: ProjectId, expected: int) -> None:
    """Flip the mode: from this commit on, the tables are the store.

    Raises:
        Stale: the compact store is not at the expected revision any more.
    """
    db.execute(MARK_INDEXED, (indexed_digest(owner), expected))
    if db.changes() != 1:
        raise Stale("the memory moved on while it was promoted; nothing was changed")


def raise_revision(db: apsw.Connection, owner: ProjectId, least: int) -> None:
    """Give a store that is put in another's place a revision that nobody has seen."""
    found, stored = load(db, owner)
    revision = max(least, found.revision)
    if stored is None:
        db.execute(SET_REVISION, (revision, indexed_digest(owner)))
    else:
        db.execute(SET_REVISION, (revision, digest(owner, revision, stored)))


def digest(owner: ProjectId, revision: int, stored: Stored) -> str:
    """SHA-256 over owner, format, revision and both blobs, each with its length."""
    h = hashlib.sha256()
    vectors = stored.vectors or b""
    h.update(f"{owner}\0{FORMAT}\0{revision}\0{len(stored.state)}\0{len(vectors)}\0".encode())
    h.update(stored.state)
    h.update(vectors)
    return h.hexdigest()


def indexed_digest(owner: ProjectId) -> str:
    """What the digest column holds once the row only marks."""
    return hashlib.sha256(f"{owner}\0{FORMAT}\0indexed".encode()).hexdigest()


def _row(db: apsw.Connection, statement: str) -> apsw.SQLiteValues | None:
    with damage_named("memory.sqlite"):
        try:
            return db.execute(statement).fetchone()
        except apsw.SQLError as cause:
            if not exists(db):
                raise NotInitialized("the memory file of this project is empty") from cause
            raise


def _checked(row: apsw.SQLiteValues | None, owner: ProjectId) -> Header:
    if row is None:
        raise NotInitialized("the memory file of this project is empty")
    if row[0] != owner:
        raise WrongOwner(f"this memory belongs to another project, not to {owner}")
    if _int(row[1]) > FORMAT:
        raise NewerSchema(f"memory format {row[1]} is newer than this memoryd; update it")
    if row[1] != FORMAT or row[2] not in (COMPACT, INDEXED):
        raise Corrupt("the memory row is of no known format or mode")
    if row[2] == INDEXED and row[4] != indexed_digest(owner):
        raise Corrupt("the mode marker fails its checksum; nothing was changed")
    return Header(_int(row[2]), _int(row[3]))


def _int(value: apsw.SQLiteValue) -> int:
    if not isinstance(value, int):
        raise Corrupt("a number of the memory row is not a number")
    return value
