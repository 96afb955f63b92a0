"""The file behind the queue: made once, checked on every open, one connection a thread.

Each write says what durability it needs: enqueues and budgets FULL (an acknowledged one survives a
power cut), claims and acknowledgements NORMAL (losing one only repeats a run). A FULL write syncs
the WAL after its commit, not in it: nobody waits for a lock while a disk works, and the syncs of a
crowd go in parallel. Enqueuers never checkpoint; the worker does.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import apsw

from storage.atomic import file_lock
from storage.clock import Clock
from storage.connection import (
    Durability,
    free_bytes,
    hurried,
    open_database,
    open_readonly,
    private_directory,
    transaction,
    translated,
)
from storage.errors import Busy, Corrupt, Unavailable, unusable
from storage.paths import HomePaths
from storage.schema import current_version, keep_copy, migrate, require_current

APPLICATION_ID = 1835363697
CHECKPOINT_ON_CLOSE_BYTES = 4_194_304
"""An enqueuer closing last would pay the checkpoint; it does so only past this WAL size."""

QUEUE_BUSY_MS = 30_000
"""Everybody's file: in a crowd on a slow disk a caller waits rather than fails. Who must not wait
(a hook) says so, and has the spool. Below a lease: a beat that waits still comes in time."""

MAKING_MS = 200
PAGE_BYTES = 2_048
"""Of a new file. An ending changes a few bytes in five pages, and each is logged whole."""

RESTART_BYTES = 2_097_152
"""Below it, moving the WAL costs more than it saves."""
PREPARED_WAL_BYTES = 2_621_440
SCARCE_BYTES = 268_435_456
TRUNCATE_BYTES = 33_554_432
RESTART_BUSY_MS = 50
_CHECKPOINT_NOOP = -1
"""SQLITE_CHECKPOINT_NOOP (SQLite 3.51): report the size of the WAL and do nothing."""
_sync_data = getattr(os, "fdatasync", os.fsync)
"""macOS has no `fdatasync`."""
CheckpointMode = Literal["PASSIVE", "RESTART", "TRUNCATE"]
SqlFunction = Callable[..., "apsw.SQLiteValue"]


@dataclass(slots=True)
class _Held:
    db: apsw.Connection
    durability: Durability
    version: int = -1


@dataclass(slots=True)
class _Local:
    by_thread: threading.local = field(default_factory=threading.local)
    all: list[_Held] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


class QueueFile:
    """The open file. Safe to share between threads, never across a fork."""

    def __init__(self, paths: HomePaths, clock: Clock, *, busy_ms: int = QUEUE_BUSY_MS) -> None:
        self.paths = paths
        self.clock = clock
        self._busy_ms = busy_ms
        self._local = _Local()
        self._closed = False
        self._wal = -1
        self._functions: dict[str, SqlFunction] = {}
        self._page_bytes = int(self._held().db.pragma("page_size"))

    def provide(self, name: str, function: SqlFunction) -> None:
        """Give every connection a one-argument SQL function; the file holds no names of it."""
        self._functions[name] = function
        for held in self._local.all:
            held.db.create_scalar_function(name, function, 1)

    @property
    def db(self) -> apsw.Connection:
        """This thread's connection, for reads."""
        return self._held().db

    @contextmanager
    def write(self, durability: Durability) -> Iterator[apsw.Connection]:
        """One IMMEDIATE transaction, as durable as asked when the block has ended.

        Others may see a FULL write a moment before it is durable; whoever made it is told after.

        Raises:
            Busy: the write lock was not had in time; nothing was written.
            Unavailable: it was written, but the disk did not confirm it.
        """
        with transaction(self.settle("NORMAL" if durability == "FULL" else durability)) as db:
            yield db
        if durability == "FULL":
            self._sync()

    def settle(self, durability: Durability) -> apsw.Connection:
        """This thread's connection, its next commit having the given durability."""
        held = self._held()
        if held.durability != durability:
            # Not possible inside a transaction; SQLite would ignore it there.
            with translated():
                held.db.pragma("synchronous", durability)
            held.durability = durability
        return held.db

    def _sync(self) -> None:
        # Even when nothing changed: the row that was joined may not be durable yet. Whatever a
        # checkpoint has moved meanwhile is in the file, synced by it.
        try:
            _sync_data(self._wal_fd())
        except OSError as cause:
            raise unusable(f"{self.paths.queue}-wal: cannot be synced", cause) from cause
        if self._closed:
            # The number may have meant another file by then: what it proved, nobody knows.
            raise Unavailable("the queue was closed before its write was durable")

    def _wal_fd(self) -> int:
        with self._local.lock:
            if self._wal < 0:
                # While a connection is open, nobody removes the log or puts another in its place.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                self._wal = os.open(f"{self.paths.queue}-wal", flags)
            return self._wal

    def changed(self) -> bool:
        """Whether another connection committed since this thread last asked."""
        held = self._held()
        with translated():
            version = int(held.db.pragma("data_version"))
        moved, held.version = version != held.version, version
        return moved

    def checkpoint(self, mode: CheckpointMode = "PASSIVE") -> int:
        """Move the WAL into the file; the frames left in it, -1 if it is in use.

        PASSIVE waits for nobody. RESTART makes the next writer start the WAL over in place, which
        syncs several times faster than a WAL that grows; TRUNCATE also gives its space back.
        """
        if mode == "PASSIVE":
            return checkpoint_wal(self._held().db, mode)
        # These two hold writers up: whatever a PASSIVE can move, it moves before them.
        db = self.settle("NORMAL")
        checkpoint_wal(db, "PASSIVE")
        with hurried(db, RESTART_BUSY_MS, self._busy_ms):
            return checkpoint_wal(db, mode)

    def wal_frames(self) -> int:
        """Frames in the WAL that are not in the file yet; asking moves nothing."""
        try:
            with translated():
                size, moved = self._held().db.wal_checkpoint(mode=_CHECKPOINT_NOOP)
        except Busy:
            return 0
        return max(0, size - moved)

    def tidy(self) -> int:
        """Checkpoint as the size of the WAL asks for; the frames it had, 0 if nothing was done."""
        frames = self.wal_frames()
        if frames * self._page_bytes < RESTART_BYTES:
            return 0
        self.checkpoint("TRUNCATE" if self.wal_bytes() > TRUNCATE_BYTES else "RESTART")
        return frames

    def wal_bytes(self) -> int:
        """Size of the write-ahead log now."""
        path = self.paths.queue
        with suppress(OSError):
            return path.with_name(path.name + "-wal").stat().st_size
        return 0

    def close(self) -> None:
        """Close every thread's connection; idempotent."""
        self._closed = True
        with self._local.lock:
            held, self._local.all = self._local.all, []
            wal, self._wal = self._wal, -1
        if wal >= 0:
            os.close(wal)
        for one in held:
            with suppress(apsw.Error):
                one.db.config(
                    apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE,
                    int(self.wal_bytes() < CHECKPOINT_ON_CLOSE_BYTES),
                )
                one.db.close()

    def _held(self) -> _Held:
        if self._closed:
            raise Unavailable("the queue is closed")
        held: _Held | None = getattr(self._local.by_thread, "held", None)
        if held is None:
            db = open_database(
                self.paths.queue, durability="NORMAL", busy_ms=self._busy_ms, autocheckpoint=0
            )
            for name, function in self._functions.items():
                db.create_scalar_function(name, function, 1)
            held = _Held(db, "NORMAL")
            self._local.by_thread.held = held
            with self._local.lock:
                self._local.all.append(held)
        return held


def checkpoint_wal(db: apsw.Connection, mode: CheckpointMode) -> int:
    """Checkpoint any database of ours; the frames left in its WAL, -1 when it is in use."""
    number = {
        "PASSIVE": apsw.SQLITE_CHECKPOINT_PASSIVE,
        "RESTART": apsw.SQLITE_CHECKPOINT_RESTART,
        "TRUNCATE": apsw.SQLITE_CHECKPOINT_TRUNCATE,
    }[mode]
    try:
        with translated():
            size, moved = db.wal_checkpoint(mode=number)
    except Busy:
        return -1
    return max(0, size - moved)


def open_queue_file(paths: HomePaths, clock: Clock, *, busy_ms: int = QUEUE_BUSY_MS) -> QueueFile:
    """The queue of this home, made on first use; an existing one is only checked.

    Raises:
        Corrupt: the file is damaged or is not a queue of ours; it is left as it is.
        NewerSchema: a newer memoryd wrote it.
        Unavailable: permissions, links, or a read-only file system.
        Busy: another process is making or migrating it for longer than we may wait.
    """
    if not _ready(paths):
        _prepare(paths)
    return QueueFile(paths, clock, busy_ms=busy_ms)


def open_queue_reader(paths: HomePaths) -> apsw.Connection:
    """A read-only connection for people's tools: takes no write lock, runs nothing.

    Raises:
        Unavailable: there is no queue yet.
        Corrupt: the file is damaged or is not a queue of ours.
    """
    db = open_readonly(paths.queue)
    try:
        with translated(paths.queue.name):
            if not _is_current(db):
                raise Unavailable(
                    "curation.sqlite: not up to date yet: the consumer sees to it (ops start)"
                )
    except BaseException:
        db.close()
        raise
    return db


def _ready(paths: HomePaths) -> bool:
    # Asked through a read-only connection: opening for writing would turn somebody else's database
    # into WAL mode before we know whose it is.
    try:
        if paths.queue.lstat().st_size == 0:
            return False
    except OSError:
        return False
    try:
        db = open_readonly(paths.queue, busy_ms=MAKING_MS)
        try:
            with translated(paths.queue.name):
                return _is_current(db)
        finally:
            db.close()
    except Busy:
        # Somebody makes it at this moment: wait at the lock.
        return False


def _is_current(db: apsw.Connection) -> bool:
    version = int(db.pragma("user_version"))
    if version == 0 and not db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall():
        return False
    if int(db.pragma("application_id")) != APPLICATION_ID:
        raise Corrupt("curation.sqlite: a database, but not a queue of memoryd")
    if version < current_version("queue"):
        return False
    require_current(db, "queue", "curation.sqlite")
    return True


def _prepare(paths: HomePaths) -> None:
    private_directory(paths.shared)
    with file_lock(paths.queue.with_name("curation.lock")):
        if _ready(paths):
            return
        db = open_database(paths.queue, create=True, page_bytes=PAGE_BYTES)
        try:
            fresh = int(db.pragma("user_version")) == 0
            migrate(db, "queue", before_first=lambda found: keep_copy(paths.queue, found))
            if fresh:
                _prepare_wal(db)
        finally:
            db.close()


def _prepare_wal(db: apsw.Connection) -> None:
    """Give the log its length before anybody waits for it: a sync of a file that grows costs twice.

    Frames that are rolled back stay in the file as room for the next ones. A help, not a need:
    where space is short, nothing is done.
    """
    if free_bytes(Path(db.filename).parent) < SCARCE_BYTES:
        return
    db.pragma("cache_size", 8)
    with suppress(apsw.Error):
        # The file itself is to hold the schema, not a log that stays for long.
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute("CREATE TABLE room (bytes BLOB)")
            db.execute("INSERT INTO room VALUES (zeroblob(?))", (PREPARED_WAL_BYTES,))
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
    # The last one to close would remove the log.
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
