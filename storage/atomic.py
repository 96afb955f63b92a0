"""Files replaced whole or not at all, and locks the kernel frees when their holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.errors import Busy, unusable

NOFOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write beside, sync, rename over, sync the folder: a crash leaves the old or the new file.

    Raises:
        Unavailable: the folder cannot be written or the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(6).hex()}.tmp")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, mode)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        sync_directory(path.parent)
    except OSError as cause:
        raise unusable(f"{path}: cannot be written", cause) from cause


def append_line(path: Path, line: bytes) -> None:
    """Append one line to a private file and sync it; a torn last line is closed first.

    A new file's name is synced with it: the first line of a day is as durable as the next.

    Raises:
        Unavailable: the file cannot be opened or written.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | NOFOLLOW, 0o600)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            data = (b"\n" if torn else b"") + line + b"\n"
            while data:
                data = data[os.write(fd, data) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        if size == 0:
            sync_directory(path.parent)
    except OSError as cause:
        raise unusable(f"{path}: cannot be appended to", cause) from cause


def sync_directory(path: Path) -> None:
    """Make a rename or a new name in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def file_lock(path: Path, *, wait_s: float = 30.0) -> Iterator[None]:
    """An exclusive advisory lock on a file of its own; the kernel frees it when the holder dies.

    Raises:
        Busy: not had within `wait_s`.
        Unavailable: the lock file cannot be made.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | NOFOLLOW, 0o600)
    except OSError as cause:
        raise unusable(f"{path}: cannot be locked", cause) from cause
    try:
        _acquire(fd, path, wait_s)
        yield
    finally:
        os.close(fd)


def _acquire(fd: int, path: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as cause:
            if time.monotonic() >= deadline:
                raise Busy(f"{path.name}: held by another process") from cause
            time.sleep(0.01)
        else:
            return
