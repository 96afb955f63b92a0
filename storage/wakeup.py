"""The bell: a datagram to each consumer after a commit, so that work starts at once.

Ringing is best effort and never an error: a consumer's tick also looks at `PRAGMA data_version`,
which sees every commit of every process.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
from contextlib import suppress
from pathlib import Path

from storage.connection import private_directory
from storage.errors import Unavailable
from storage.paths import HomePaths, short_socket

SOCKET_SUFFIX = ".sock"
_YOUNG_S = 60.0
"""A socket that was bound just now may not listen yet."""
_LONGER_THAN_ANY = 200
"""More than any system allows in the name of a socket."""


def socket_path(paths: HomePaths, owner: str) -> Path:
    """Where the consumer with this owner name listens."""
    return short_socket(paths.workers / f"{owner}{SOCKET_SUFFIX}")


def ring(paths: HomePaths) -> int:
    """Wake every consumer of this home; returns how many took the datagram."""
    try:
        owners = [name[:-5] for name in os.listdir(paths.workers) if name.endswith(".lock")]  # noqa: PTH208 -- on the hook path, half the cost of pathlib
    except OSError:
        return 0
    if not owners:
        return 0
    woken = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.setblocking(False)
        for owner in owners:
            # A full buffer means that the consumer is being woken already.
            with suppress(OSError):
                bell.sendto(b"!", str(socket_path(paths, owner)))
                woken += 1
    return woken


def sweep_short(paths: HomePaths, now_s: float) -> int:
    """Remove sockets that nobody holds any more from the folder of short names; how many.

    A home's own folder is swept with its workers; this one stands for homes whose path is too
    long, and a home that was deleted never comes back for its socket. Nothing is an error.
    """
    here = paths.shared / ("x" * _LONGER_THAN_ANY)
    folder = short_socket(here).parent
    gone = 0
    with suppress(OSError):
        info = folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
            return 0
        for path in folder.iterdir():
            with suppress(OSError):
                if now_s - path.lstat().st_mtime > _YOUNG_S and _is_left_behind(path):
                    path.unlink()
                    gone += 1
    return gone


def _is_left_behind(path: Path) -> bool:
    """Whether a socket's holder is gone: any connection is refused then, whatever its type."""
    if not stat.S_ISSOCK(path.lstat().st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.setblocking(False)
        return link.connect_ex(os.fspath(path)) == errno.ECONNREFUSED


class Listener:
    """One consumer's end of the bell."""

    def __init__(self, paths: HomePaths, owner: str) -> None:
        self._path = socket_path(paths, owner)
        private_directory(self._path.parent)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.bind(str(self._path))
            self._path.chmod(0o600)
        except OSError as cause:
            self._socket.close()
            raise Unavailable(f"{self._path}: cannot listen ({cause.strerror})") from cause
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Whether the bell rang within the time (None: however long); several rings count once."""
        if not self._poll.poll(timeout_ms):
            return False
        with suppress(BlockingIOError):
            while self._socket.recv(64):
                pass
        return True

    def wake(self) -> None:
        """End a `wait` of another thread as if the bell rang."""
        with suppress(OSError):
            self._socket.sendto(b"!", str(self._path))

    def close(self) -> None:
        """Stop listening; idempotent. A `wait` of another thread needs `wake` first."""
        self._socket.close()
        with suppress(OSError):
            self._path.unlink()
