"""How a database of ours is opened: private, by apsw only, with its settings asserted.

A connection belongs to one thread and one process. SQLite's errors leave here as `storage.errors`.
"""

from __future__ import annotations

import importlib.util
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import apsw

from storage.errors import Busy, Corrupt, DiskFull, MemorydError, Unavailable, unusable

MINIMUM_SQLITE = (3, 51, 3)
"""3.7.0 to 3.51.2 can corrupt a WAL that two connections reset at once."""

Durability = Literal["FULL", "NORMAL", "OFF"]
BUSY_TIMEOUT_MS = 5_000
LONGEST_NAP_S = 0.000_2
SHORTEST_NAP_S = 0.000_05
EASY_MS = 4.0
CROWD_NAP_S = 0.005
LEFT_BEHIND_NAP_S = 0.001
CROWD_MS = 60.0
LEFT_BEHIND_MS = 1_000.0
FULL_BYTES = 262_144
"""Less free space than this is none: SQLite writes its log in steps of 32 KiB and more."""


def check_sqlite() -> None:
    """Refuse a SQLite library with the WAL-reset fault.

    Raises:
        Unavailable: the linked library is older than 3.51.3.
    """
    version = tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
    if version < MINIMUM_SQLITE:
        raise Unavailable(
            f"SQLite {apsw.sqlite_lib_version()} is too old: 3.51.3 or newer is needed"
        )


def open_database(
    path: Path,
    *,
    durability: Durability = "FULL",
    create: bool = False,
    busy_ms: int = BUSY_TIMEOUT_MS,
    autocheckpoint: int = 1_000,
    shrinkable: bool = False,
    page_bytes: int = 0,
) -> apsw.Connection:
    """A read-write connection in WAL mode; `create` makes the file (0600) and its folder (0700).

    `shrinkable` lets a new file give free pages back (`PRAGMA incremental_vacuum`); `page_bytes` is
    the page size of a new file (0: SQLite's own).

    Raises:
        Unavailable: missing, not ours, or not a private regular file.
        Corrupt: not a database.
        Busy: locked for longer than `busy_ms`.
    """
    check_sqlite()
    if create:
        private_directory(path.parent)
        _create_private(path)
    _require_private_file(path)
    with damage_named(str(path.name), path):
        db = apsw.Connection(
            str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        )
        _settle(db, busy_ms)
        if shrinkable and path.stat().st_size == 0:
            # Takes effect only before the first page is written, and switching to WAL writes it.
            db.pragma("auto_vacuum", 2)
        if page_bytes and path.stat().st_size == 0:
            db.pragma("page_size", page_bytes)
        if db.pragma("journal_mode", "wal") != "wal":
            db.close()
            raise Unavailable(f"{path.name}: this file system does not support SQLite's WAL mode")
        db.pragma("synchronous", durability)
        db.pragma("wal_autocheckpoint", autocheckpoint)
        return db


def open_readonly(path: Path, *, busy_ms: int = BUSY_TIMEOUT_MS) -> apsw.Connection:
    """A connection that cannot write and takes no write lock.

    Raises:
        Unavailable: missing, not ours, or not a private regular file.
        Corrupt: not a database.
    """
    check_sqlite()
    _require_private_file(path)
    with damage_named(str(path.name), path):
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW)
        _settle(db, busy_ms)
        db.pragma("query_only", True)
        return db


def open_memory() -> apsw.Connection:
    """An empty in-memory database with our connection settings."""
    db = apsw.Connection(":memory:")
    _settle(db, 0)
    return db


@contextmanager
def hurried(db: apsw.Connection, busy_ms: int, usual_ms: int) -> Iterator[None]:
    """Wait for locks at most `busy_ms` in this block, and `usual_ms` again after it."""
    db.set_busy_handler(_randomised_wait(busy_ms))
    try:
        yield
    finally:
        db.set_busy_handler(_randomised_wait(usual_ms))


def _settle(db: apsw.Connection, busy_ms: int) -> None:
    db.set_busy_handler(_randomised_wait(busy_ms))
    db.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    db.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    db.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    db.pragma("foreign_keys", True)


def _randomised_wait(busy_ms: int) -> Callable[[int], bool]:
    # SQLite's own handler backs off to 100 ms without fairness and starves waiters behind fsyncs.
    started: list[float] = [0.0]

    def wait(count: int) -> bool:
        now = time.monotonic()
        if count == 0:
            started[0] = now
        waited_ms = (now - started[0]) * 1000
        if waited_ms >= busy_ms:
            return False
        longest_s = _longest_nap_s(waited_ms)
        time.sleep(random.uniform(longest_s / 4, longest_s))  # noqa: S311 -- spreads, no secret
        return True

    return wait


def _longest_nap_s(waited_ms: float) -> float:
    """The longer the wait, the shorter the nap: the oldest asks most often, so it is next.

    Beyond the first bound the crowd is large: somebody always asks soon, and asking often would
    take the processor from the one that commits. Who is left behind even there asks more often.
    """
    if waited_ms >= CROWD_MS:
        return CROWD_NAP_S if waited_ms < LEFT_BEHIND_MS else LEFT_BEHIND_NAP_S
    return max(SHORTEST_NAP_S, LONGEST_NAP_S / (1 + (waited_ms / EASY_MS) ** 2))


@contextmanager
def transaction(
    db: apsw.Connection, mode: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
) -> Iterator[apsw.Connection]:
    """One transaction: commits at the end, rolls back on any exception. Does not nest.

    Raises:
        Busy: the write lock was not had in time.
    """
    with translated(at=db.filename):
        db.execute(f"BEGIN {mode}")
    try:
        with translated(at=db.filename):
            yield db
            db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            # A failing ROLLBACK (disk gone) must not hide the first error; SQLite undoes at close.
            with suppress(apsw.Error):
                db.execute("ROLLBACK")
        raise


@contextmanager
def page_copy(into: apsw.Connection, source: apsw.Connection) -> Iterator[apsw.Backup]:
    """SQLite's online copy of a whole database; the caller steps it and proves the copy.

    On a failing disk apsw's `with` and its `close` answer with SystemError: a step's own error, or
    the caller's proof, tells the truth, so what the end adds is left out.
    """
    work = into.backup("main", source, "main")
    try:
        yield work
    finally:
        with suppress(SystemError, apsw.Error):
            work.close(True)


@contextmanager
def translated(what: str = "database", at: Path | str = "") -> Iterator[None]:
    """SQLite's exceptions as ours, cause chained; our own pass through untouched.

    `at` is the file: a full disk is told apart from other errors of input and output by the space
    that is left there.
    """
    try:
        yield
    except MemorydError:
        raise
    except (apsw.BusyError, apsw.LockedError) as cause:
        raise Busy(f"{what}: locked by another process") from cause
    except (apsw.NotADBError, apsw.CorruptError) as cause:
        raise Corrupt(f"{what}: not a sound SQLite database ({cause})") from cause
    except apsw.FullError as cause:
        raise DiskFull(f"{what}: the disk is full: free some space") from cause
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError, apsw.PermissionsError) as cause:
        if _for_want_of_space(cause, at):
            raise DiskFull(f"{what}: the disk is full: free some space") from cause
        raise Unavailable(f"{what}: cannot be used ({cause})") from cause


def _for_want_of_space(cause: apsw.Error, at: Path | str) -> bool:
    # SQLite says "full" only of the database and its log. That the log's index cannot grow, or that
    # no file can be made beside it, is an error of input and output to it.
    if not isinstance(cause, (apsw.IOError, apsw.CantOpenError)):
        return False
    if getattr(cause, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE:
        return True
    return bool(str(at)) and disk_is_full(Path(at).parent)


def free_bytes(folder: Path) -> int:
    """What the disk of a folder still takes; 0 when it does not say."""
    try:
        system = os.statvfs(folder)
    except OSError:
        return 0
    return system.f_bavail * system.f_frsize


def disk_is_full(folder: Path) -> bool:
    """Whether so little space is left where the folder lies that nothing can be written."""
    try:
        system = os.statvfs(folder)
    except OSError:
        return False
    # A file system that counts no files (btrfs) reports none at all.
    no_files = system.f_files > 0 and system.f_favail == 0
    return no_files or system.f_bavail * system.f_frsize < FULL_BYTES


@contextmanager
def damage_named(what: str, at: Path | str = "") -> Iterator[None]:
    """Errors of reading a store whose schema was checked: a statement that fails is damage too.

    Raises:
        Corrupt: a table that must be there is not, or holds what it cannot hold.
    """
    with translated(what, at):
        try:
            yield
        except (apsw.SQLError, apsw.MismatchError, UnicodeDecodeError) as cause:
            raise Corrupt(f"{what}: not a sound memory ({cause})") from cause


def reclaim(db: apsw.Connection) -> None:
    """Rewrite the file without what was deleted, and empty its log.

    Raises:
        Busy: a reader or a writer is in the way; try again.
    """
    with translated():
        db.execute("VACUUM")
        frames, folded = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    if frames != folded:
        raise Busy("a reader holds the write-ahead log; try again in a moment")


def load_vectors(db: apsw.Connection) -> None:
    """Load sqlite-vec into the connection, by path: importing its package would import numpy.

    Raises:
        Unavailable: the package is missing or its library does not load here.
    """
    spec = importlib.util.find_spec("sqlite_vec")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("the sqlite-vec package is not installed")
    library = Path(next(iter(spec.submodule_search_locations))) / "vec0"
    db.enable_load_extension(True)
    try:
        db.load_extension(str(library))
    except apsw.ExtensionLoadingError as cause:
        raise Unavailable(f"sqlite-vec does not load on this machine ({cause})") from cause
    finally:
        db.enable_load_extension(False)


def private_directory(path: Path) -> Path:
    """The folder, made 0700 if missing, and checked: ours, a real directory, no symlink.

    Missing parents are made 0700 too: the home itself is often one of them.

    Raises:
        Unavailable: it cannot be made, is not ours, or is not a plain directory.
    """
    try:
        for missing in reversed([path, *path.parents]):
            # `mkdir(parents=True)` would give the parents the mode of the umask.
            if not (missing.is_symlink() or missing.exists()):
                missing.mkdir(mode=0o700, exist_ok=True)
        info = path.lstat()
    except OSError as cause:
        raise unusable(f"{path}: cannot make this folder", cause) from cause
    if not stat.S_ISDIR(info.st_mode):
        raise Unavailable(f"{path}: not a plain folder (a link or a file stands there)")
    if info.st_uid != os.geteuid():
        raise Unavailable(f"{path}: belongs to another user")
    if stat.S_IMODE(info.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def _create_private(path: Path) -> None:
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError as cause:
        raise unusable(f"{path}: cannot make this file", cause) from cause


def _require_private_file(path: Path) -> None:
    try:
        info = path.lstat()
    except OSError as cause:
        raise Unavailable(f"{path}: {cause.strerror or 'cannot be read'}") from cause
    if not stat.S_ISREG(info.st_mode):
        raise Unavailable(f"{path}: not a plain file")
    if info.st_uid != os.geteuid():
        raise Unavailable(f"{path}: belongs to another user")
