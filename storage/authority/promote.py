"""Promotion: a compact authority becomes an indexed one, all or nothing, and never back.

In order: under the write lock the row is read again; history is written to the journal and proven
against it; the tables are made and filled in the same SQLite transaction; rows are counted; the
mode marker is flipped last. Until the commit the compact row is the store, whatever fails. Journal
files of a failed attempt are a prefix of what the next one writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import apsw

from storage.authority import derived, history, journal, marker
from storage.authority.backlog import Backlog
from storage.authority.image import Image
from storage.authority.journal import Stream
from storage.clock import utc_day
from storage.connection import transaction
from storage.errors import Corrupt
from storage.paths import ProjectPaths
from storage.records import ProjectId
from storage.schema import migrations

COPIED_TABLES: Final = (
    "meta",
    "forgotten",
    "heads",
    "applied_jobs",
    "documents",
    "slices",
    "facts",
    "evidence",
    "fact_evidence",
    "entities",
    "fact_entities",
    "fact_links",
    "usefulness",
    "deferred_statements",
    "source_cursors",
    "collections",
    "vectors",
)
COPY_EVENTS: Final = (
    "SELECT seq, event_id, writer, writer_seq, recorded_at, type, previous_hash, payload_hash,"
    " hash, more, job_id, job_token, iif(type IN ('memory.forgotten', 'chain.repaired'), payload,"
    " NULL) FROM events ORDER BY seq"
)
SELECT_NUMBERS: Final = "SELECT name, seq FROM sqlite_sequence"
CLEAR_NUMBERS: Final = "DELETE FROM main.sqlite_sequence"
INSERT_NUMBER: Final = "INSERT INTO main.sqlite_sequence (name, seq) VALUES (?, ?)"


def promote(
    db: apsw.Connection,
    load: Callable[[], tuple[int, Image]],
    paths: ProjectPaths,
    project: ProjectId,
) -> None:
    """Make the authority in `db` (a compact container's connection) indexed.

    Raises:
        ContainerChanged: another process did it first.
        Busy, Unavailable, Corrupt: nothing changed; it can be tried again.
    """
    with transaction(db):
        revision, image = load()
        anchors = write_journal(paths, image)
        make_tables(db)
        copy_rows(db, image)
        backlog = Backlog(paths.events, project)
        for stream, size in anchors.items():
            backlog.anchor(db, stream, size)
        prove_copy(db, image)
        marker.mark_indexed(db, project, revision)


def make_tables(db: apsw.Connection) -> None:
    """The base tables and the empty indexes, in the caller's transaction."""
    for step in migrations("memory"):
        db.execute(step.sql)
        db.pragma("user_version", step.version)
    derived.create(db)


def write_journal(paths: ProjectPaths, image: Image) -> dict[Stream, int]:
    """History as journal files, synced and read back; returns each file's size.

    Raises:
        Corrupt: history does not verify, or a file holds something else already.
    """
    lines: dict[Stream, list[bytes]] = {}
    chains = history.ChainProof()
    faults: list[str] = []
    for event in history.events(image.db):
        faults += chains.see(event)
        stream = Stream(utc_day(event.recorded_at), event.writer)
        lines.setdefault(stream, []).append(event.line())
    faults += chains.finish(history.heads(image.db))
    if faults:
        raise Corrupt(f"history does not verify, nothing was promoted: {faults[0]}")
    return {stream: _write_stream(paths, stream, wanted) for stream, wanted in lines.items()}


def copy_rows(db: apsw.Connection, image: Image) -> None:
    """Every row of the image into the file; the indexes follow."""
    _copy(db, image, COPY_EVENTS, "events")
    for table in COPIED_TABLES:
        _copy(db, image, f"SELECT * FROM {table}", table)
    derived.settle(db, after=0)
    db.execute(CLEAR_NUMBERS)
    db.executemany(INSERT_NUMBER, image.db.execute(SELECT_NUMBERS).fetchall())


def prove_copy(db: apsw.Connection, image: Image) -> None:
    """Every table has every row, and the indexes hold exactly them.

    Raises:
        Corrupt: they do not.
    """
    for table in (*COPIED_TABLES, "events"):
        statement = f"SELECT count(*) FROM {table}"
        if db.execute(statement).fetchone() != image.db.execute(statement).fetchone():
            raise Corrupt(f"the copy of {table} is not whole; nothing was promoted")
    faults = derived.faults(db)
    if faults:
        raise Corrupt(f"{faults[0]}; nothing was promoted")


def _copy(db: apsw.Connection, image: Image, select: str, table: str) -> None:
    rows = image.db.execute(select).fetchall()
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def _write_stream(paths: ProjectPaths, stream: Stream, lines: list[bytes]) -> int:
    wanted = b"".join(line + b"\n" for line in lines)
    path = stream.path(paths.events)
    journal.drop_packed(paths.events, stream)
    found = path.read_bytes() if journal.size(path) else b""
    if not wanted.startswith(found):
        raise Corrupt(f"{path.name}: holds another history; nothing was promoted")
    if len(found) < len(wanted):
        journal.append_bytes(paths.events, stream, wanted[len(found) :])
    read_back = sum(1 for _ in journal.read(paths.events, stream))
    if read_back != len(lines) or journal.size(path) != len(wanted):
        raise Corrupt(f"{path.name}: could not be read back; nothing was promoted")
    return len(wanted)
