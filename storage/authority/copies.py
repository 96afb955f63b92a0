"""One-file copies of an authority: a backup is one self-contained `.sqlite`, its journal inside.

A copy is the database as the online backup API gives it, and two tables more: `backup_info` (whose,
when) and `backup_journal` (the journal's bytes up to their anchors). Promises that a copy belongs
to one moment, is proven before it gets its name, is private, and that the living store changes in
one SQLite transaction when a copy is put in its place. Leaves policy to `storage.backup`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from storage.atomic import NOFOLLOW, replace_file, sync_directory
from storage.authority import journal, marker
from storage.authority.journal import Stream
from storage.connection import (
    BUSY_TIMEOUT_MS,
    open_database,
    open_readonly,
    page_copy,
    private_directory,
    transaction,
    translated,
)
from storage.errors import Corrupt, Invalid, NotInitialized, Unavailable
from storage.paths import ProjectPaths
from storage.records import ProjectId

COPY_FORMAT: Final = 1
PIECE_BYTES: Final = 4_194_304
STEP_PAGES: Final = 256

CREATE_COPY_TABLES: Final = (
    "CREATE TABLE backup_info (format INTEGER NOT NULL, project TEXT NOT NULL,"
    " made_at INTEGER NOT NULL) STRICT",
    "CREATE TABLE backup_journal (day TEXT NOT NULL, writer TEXT NOT NULL, piece INTEGER NOT NULL,"
    " data BLOB NOT NULL, PRIMARY KEY (day, writer, piece)) STRICT",
)
DROP_COPY_TABLES: Final = ("DROP TABLE backup_info", "DROP TABLE backup_journal")
INSERT_INFO: Final = "INSERT INTO backup_info (format, project, made_at) VALUES (?, ?, ?)"
SELECT_INFO: Final = "SELECT format, project, made_at FROM backup_info"
INSERT_PIECE: Final = "INSERT INTO backup_journal (day, writer, piece, data) VALUES (?, ?, ?, ?)"
SELECT_PIECES: Final = "SELECT day, writer, data FROM backup_journal ORDER BY day, writer, piece"
SELECT_ANCHORS: Final = "SELECT day, writer, bytes FROM journals ORDER BY day, writer"

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyInfo:
    """What a copy says of itself."""

    project: ProjectId
    made_at: int


def write(
    paths: ProjectPaths,
    project: ProjectId,
    target: Path,
    *,
    made_at: int,
    check: Callable[[Path], None],
    progress: Progress | None = None,
) -> int:
    """Copy the store as it is at one moment; `check` proves the copy before it gets its name.

    Returns its bytes.

    Raises:
        Invalid: the target is there already.
        WrongOwner, Corrupt, Unavailable: no copy was left behind.
    """
    if target.exists() or target.is_symlink():
        raise Invalid(f"{target.name} is there already; a backup never overwrites a file")
    unfinished = target.with_name(f".{target.name}.{os.urandom(6).hex()}.tmp")
    try:
        os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY | NOFOLLOW, 0o600))
        with translated(target.name):
            with closing(open_readonly(paths.database)) as source:
                _copy_pages(source, project, unfinished, progress)
            _complete(unfinished, paths, project, made_at)
            check(unfinished)
        _sync(unfinished)
        # A hard link refuses an existing name, which a rename would overwrite.
        os.link(unfinished, target)
        sync_directory(target.parent)
        return target.stat().st_size
    except FileExistsError as cause:
        raise Invalid(f"{target.name} is there already") from cause
    except OSError as cause:
        raise Unavailable(f"{target}: cannot be written ({cause.strerror})") from cause
    finally:
        for left in (unfinished, *_companions(unfinished)):
            with suppress(OSError):
                left.unlink()


def info(file: Path) -> CopyInfo:
    """Whose copy a file is, and of when.

    Raises:
        Corrupt: not a copy that this memoryd made.
    """
    with closing(open_readonly(file)) as db, translated(file.name):
        try:
            row = db.execute(SELECT_INFO).fetchone()
        except apsw.SQLError as cause:
            raise Corrupt(f"{file.name} is not a backup of memoryd") from cause
    if row is None or row[0] != COPY_FORMAT:
        raise Corrupt(f"{file.name} is not a backup that this memoryd can read")
    return CopyInfo(project=ProjectId(str(row[1])), made_at=int(str(row[2])))


def unpack(file: Path, folder: Path) -> ProjectPaths:
    """The copy as a store of its own below an empty private folder.

    Raises:
        Corrupt: not a copy, or a damaged one.
    """
    info(file)
    paths = ProjectPaths(private_directory(folder))
    private_directory(paths.memory)
    db = open_database(paths.database, create=True, shrinkable=True)
    try:
        with closing(open_readonly(file)) as source, translated(file.name):
            with page_copy(db, source) as work:
                while not work.done:
                    work.step(STEP_PAGES)
            _write_journal(source, paths)
        db.pragma("journal_mode", "wal")
        with transaction(db):
            for statement in DROP_COPY_TABLES:
                db.execute(statement)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        db.close(True)
    return paths


@contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """A private folder beside the store, gone afterwards."""
    private_directory(parent)
    folder = parent / f".work-{os.urandom(6).hex()}"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clear_workshops(parent: Path) -> None:
    """Remove what an interrupted run left; the caller holds the maintenance lock."""
    if parent.is_dir():
        for left in [*parent.glob(".work-*"), *parent.glob(".*.tmp*")]:
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def put(staged: ProjectPaths, paths: ProjectPaths, project: ProjectId) -> None:
    """The staged store takes the place of the living one, for every process that has it open.

    The journal goes first and the database last, in one transaction. Its revision rises above both,
    so no cache takes it for what was there before. A crash in between leaves the journal of the new
    store under the old database, which `verify` names and a second run completes.
    """
    private_directory(paths.memory)
    outgoing = paths.memory / f".work-{os.urandom(6).hex()}"
    incoming = paths.memory / f".work-{os.urandom(6).hex()}"
    if staged.events.is_dir():
        shutil.copytree(staged.events, incoming)
        for folder in (incoming, *(item for item in incoming.iterdir() if item.is_dir())):
            folder.chmod(0o700)
            _sync_files(folder)
    if paths.events.is_dir():
        paths.events.rename(outgoing)
    if incoming.is_dir():
        incoming.rename(paths.events)
    sync_directory(paths.memory)
    put_database(staged, paths, project)
    shutil.rmtree(outgoing, ignore_errors=True)


def put_database(staged: ProjectPaths, paths: ProjectPaths, project: ProjectId) -> None:
    """The same for the database alone."""
    before = _revision(paths, project)
    with closing(open_database(staged.database)) as db, transaction(db):
        marker.raise_revision(db, project, before + 1)
    living = paths.database
    try:
        # Through SQLite, so that other processes see one commit and not a file swapped under them.
        with closing(open_database(living, busy_ms=BUSY_TIMEOUT_MS)) as db:
            _overwrite(db, staged.database)
            db.pragma("journal_mode", "wal")
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except (Corrupt, Unavailable, apsw.Error):
        # No database at all stands there (or none that SQLite can write): nobody can have it open.
        for left in _companions(living):
            left.unlink(missing_ok=True)
        replace_file(living, staged.database.read_bytes())


def _overwrite(db: apsw.Connection, staged: Path) -> None:
    with (
        closing(open_readonly(staged)) as source,
        translated(),
        page_copy(db, source) as work,
    ):
        while not work.done:
            work.step(-1)


def _copy_pages(
    source: apsw.Connection, project: ProjectId, target: Path, progress: Progress | None
) -> None:
    with translated(target.name):
        # One read transaction over all steps: a writer in between does not start the copy over.
        source.execute("BEGIN")
        marker.header(source, project)
        db = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            with page_copy(db, source) as work:
                while not work.done:
                    work.step(STEP_PAGES)
                    if progress is not None:
                        progress(work.page_count - work.remaining, work.page_count)
            db.pragma("journal_mode", "delete")
        finally:
            db.close(True)
            with suppress(apsw.Error):
                source.execute("ROLLBACK")


def _complete(copy: Path, paths: ProjectPaths, project: ProjectId, made_at: int) -> None:
    db = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        with transaction(db):
            for statement in CREATE_COPY_TABLES:
                db.execute(statement)
            db.execute(INSERT_INFO, (COPY_FORMAT, project, made_at))
            if marker.header(db, project).mode == marker.INDEXED:
                for day, writer, size in db.execute(SELECT_ANCHORS).fetchall():
                    _copy_stream(db, paths.events, Stream(str(day), str(writer)), int(str(size)))
    finally:
        db.close(True)


def _copy_stream(db: apsw.Connection, events: Path, stream: Stream, size: int) -> None:
    """The file up to its anchor: what lies beyond is no part of this moment."""
    path = stream.path(events)
    if journal.length(events, stream) < size:
        raise Corrupt(f"{stream.day}/{path.name} is shorter than history says; see `ops verify`")
    with journal.opened(events, stream) as file:
        piece = 0
        while size:
            data = file.read(min(PIECE_BYTES, size))
            if not data:
                raise Corrupt(f"{stream.day}/{path.name} became shorter while it was copied")
            db.execute(INSERT_PIECE, (stream.day, stream.writer, piece, data))
            size -= len(data)
            piece += 1


def _write_journal(source: apsw.Connection, paths: ProjectPaths) -> None:
    for day, writer, data in source.execute(SELECT_PIECES):
        if not isinstance(data, bytes):
            raise Corrupt("a piece of the backup's journal is not bytes")
        journal.append_bytes(paths.events, Stream(str(day), str(writer)), data)


def _revision(paths: ProjectPaths, project: ProjectId) -> int:
    """Of the living store; 0 when nothing readable is there."""
    try:
        with closing(open_readonly(paths.database)) as db:
            return marker.header(db, project).revision
    except (Corrupt, NotInitialized, Unavailable):
        return 0


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal")]


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_files(folder: Path) -> None:
    for item in folder.iterdir():
        if item.is_file():
            _sync(item)
    sync_directory(folder)
