"""Who holds leases: one lock file per running process, which the kernel frees when it dies.

An owner's name is never reused. The file gets its final name only once it is locked, so a name
without a locked file is a dead owner, always.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from storage.atomic import NOFOLLOW
from storage.connection import private_directory
from storage.errors import Unavailable
from storage.paths import HomePaths

SUFFIX = ".lock"


class Owner:
    """This process as a holder of leases. Close it last; never open its file again here."""

    def __init__(self, paths: HomePaths) -> None:
        folder = private_directory(paths.workers)
        self.name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._path = folder / f"{self.name}{SUFFIX}"
        temporary = folder / f".{self.name}.new"
        try:
            self._fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.rename(self._path)
        except OSError as cause:
            raise Unavailable(f"{folder}: cannot hold a lock file ({cause.strerror})") from cause

    def close(self) -> None:
        """Give the name up; idempotent."""
        if self._fd >= 0:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._fd)
            self._fd = -1


def is_alive(paths: HomePaths, name: str) -> bool:
    """Whether the process with this owner name runs."""
    path = paths.workers / f"{name}{SUFFIX}"
    try:
        fd = os.open(path, os.O_RDWR | NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError as cause:
        raise Unavailable(f"{path}: cannot be read ({cause.strerror})") from cause
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def dead_owners(paths: HomePaths, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names whose process is gone."""
    return tuple(name for name in names if not is_alive(paths, name))


def living_owners(paths: HomePaths) -> tuple[str, ...]:
    """Names of the running consumers of this home."""
    return tuple(
        path.name.removesuffix(SUFFIX)
        for path in _lock_files(paths.workers)
        if is_alive(paths, path.name.removesuffix(SUFFIX))
    )


def sweep(paths: HomePaths) -> int:
    """Remove the files that dead processes left; returns how many."""
    gone = 0
    for path in _lock_files(paths.workers):
        name = path.name.removesuffix(SUFFIX)
        if not is_alive(paths, name):
            for left in (path, path.with_name(f"{name}.sock")):
                with suppress(OSError):
                    left.unlink()
            gone += 1
    return gone


def _lock_files(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.name.endswith(SUFFIX)]
    except OSError:
        return []
