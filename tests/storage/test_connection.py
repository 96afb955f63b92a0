"""Connections: private, asserted settings, errors in our words."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import apsw
import pytest

from storage.connection import (
    disk_is_full,
    load_vectors,
    open_database,
    open_readonly,
    private_directory,
    transaction,
    translated,
)
from storage.errors import Busy, Corrupt, DiskFull, MemorydError, Unavailable


def test_a_new_database_is_private_and_durable(tmp_path: Path) -> None:
    """0600 in 0700, WAL, FULL, foreign keys, and no untrusted schema."""
    path = tmp_path / "folder" / "a.sqlite"

    db = open_database(path, create=True)

    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert db.pragma("journal_mode") == "wal"
    assert db.pragma("synchronous") == 2
    assert db.pragma("foreign_keys") == 1
    assert db.pragma("trusted_schema") == 0
    db.close()


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    """Only `create` makes one."""
    with pytest.raises(Unavailable):
        open_database(tmp_path / "absent.sqlite")
    with pytest.raises(Unavailable):
        open_readonly(tmp_path / "absent.sqlite")

    assert list(tmp_path.iterdir()) == []


def test_links_and_folders_are_refused(tmp_path: Path) -> None:
    """Neither a link to a database nor a folder is opened."""
    open_database(tmp_path / "real.sqlite", create=True).close()
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "real.sqlite")
    (tmp_path / "folder.sqlite").mkdir()

    for name in ("link.sqlite", "folder.sqlite"):
        with pytest.raises(Unavailable):
            open_database(tmp_path / name)
        with pytest.raises(Unavailable):
            open_database(tmp_path / name, create=True)


def test_a_private_directory_is_no_link_and_no_file(tmp_path: Path) -> None:
    """Made 0700, tightened when wider, refused when something else stands there."""
    wide = tmp_path / "wide"
    wide.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(wide)
    (tmp_path / "file").touch()

    assert private_directory(wide).stat().st_mode & 0o777 == 0o700
    for name in ("link", "file", "file/below"):
        with pytest.raises(Unavailable):
            private_directory(tmp_path / name)


def test_what_is_no_database_is_corrupt(tmp_path: Path) -> None:
    """SQLite's own error becomes ours, the cause kept."""
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"nothing of the sort" * 200)
    path.chmod(0o600)

    with pytest.raises(Corrupt) as found:
        open_database(path)

    assert isinstance(found.value.__cause__, apsw.Error)


def test_a_held_lock_is_busy_after_the_wait(tmp_path: Path) -> None:
    """The wait is bounded and has a name."""
    path = tmp_path / "a.sqlite"
    first, second = open_database(path, create=True), open_database(path, busy_ms=20)

    with transaction(first), pytest.raises(Busy), transaction(second):
        pass

    with transaction(second):
        second.execute("CREATE TABLE t (x)")
    first.close()
    second.close()


def test_a_waiter_gets_the_lock_when_it_is_freed(tmp_path: Path) -> None:
    """Waiting threads take turns; none is told busy while there is time."""
    path = tmp_path / "a.sqlite"
    db = open_database(path, create=True)
    db.execute("CREATE TABLE t (x)")
    failures: list[BaseException] = []

    def work() -> None:
        own = open_database(path)
        try:
            for _ in range(20):
                with transaction(own):
                    own.execute("INSERT INTO t VALUES (1)")
        except MemorydError as fault:
            failures.append(fault)
        finally:
            own.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert db.execute("SELECT count(*) FROM t").fetchone() == (80,)
    db.close()


def test_a_transaction_commits_whole_or_not_at_all(tmp_path: Path) -> None:
    """An exception of any kind rolls back and passes through."""
    db = open_database(tmp_path / "a.sqlite", create=True)
    with transaction(db):
        db.execute("CREATE TABLE t (x)")

    def interrupted() -> None:
        with transaction(db):
            db.execute("INSERT INTO t VALUES (1)")
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()

    assert db.execute("SELECT count(*) FROM t").fetchone() == (0,)
    assert not db.in_transaction
    db.close()


def test_a_read_only_connection_cannot_write(tmp_path: Path) -> None:
    """Neither by accident nor by pragma."""
    path = tmp_path / "a.sqlite"
    db = open_database(path, create=True)
    db.execute("CREATE TABLE t (x)")
    reader = open_readonly(path)

    with pytest.raises(Unavailable), translated():
        reader.execute("INSERT INTO t VALUES (1)")

    reader.close()
    db.close()


def test_vectors_are_loaded_without_numpy(tmp_path: Path) -> None:
    """sqlite-vec works over its library alone, and loading stays off afterwards."""
    db = open_database(tmp_path / "a.sqlite", create=True)

    load_vectors(db)

    row = db.execute("SELECT vec_length(vec_int8(?))", (bytes(8),)).fetchone()
    assert row == (8,)
    with pytest.raises(apsw.Error):
        db.load_extension("anything")
    db.close()


def test_an_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A library with the WAL-reset fault opens nothing."""
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")

    with pytest.raises(Unavailable, match="too old"):
        open_database(tmp_path / "a.sqlite", create=True)


def test_a_missing_parent_is_as_private_as_the_folder(tmp_path: Path) -> None:
    """The home is often made on the way to a folder in it: 0700 all the way, old parents kept."""
    tmp_path.chmod(0o755)

    private_directory(tmp_path / "home" / "pi-memory" / "logs")

    made = [tmp_path / "home", tmp_path / "home" / "pi-memory", tmp_path / "home/pi-memory/logs"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_full_disk_is_told_apart_from_other_errors_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite calls it an error of input and output when its log's index cannot grow: look there."""
    full = [False]
    monkeypatch.setattr("storage.connection.disk_is_full", lambda _: full[0])

    with pytest.raises(Unavailable) as other, translated("a", at=tmp_path / "a"):
        raise apsw.IOError
    full[0] = True
    told = "the disk is full: free some space"
    with pytest.raises(DiskFull, match=told), translated("a", at=tmp_path / "a"):
        raise apsw.IOError
    with pytest.raises(Unavailable, match="cannot be used"), translated("a", at=tmp_path / "a"):
        raise apsw.ReadOnlyError

    assert not isinstance(other.value, DiskFull)


def test_room_is_measured_where_the_file_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine has room; none is left below what one commit needs, or without a free inode."""
    real = os.statvfs(tmp_path)
    roomy = disk_is_full(tmp_path)
    sizes = list(real)
    sizes[4] = 0  # f_bavail
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(sizes))

    assert (roomy, disk_is_full(tmp_path)) == (False, True)
