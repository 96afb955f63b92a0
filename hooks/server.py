"""The resident recall server: `python -I -m hooks.server --home H [--idle-exit S]`.

Owns the process: one per home (a lock held for life), its socket (0600 in a 0700 folder), its
signals and its end. It holds no authority: kill it and nothing is lost, the next client starts
another. Leaves sooner than it becomes an orphan: on TERM, when its home or its socket is gone,
after a set silence.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hooks.desk import CaptureLike, Desk
from hooks.eventlog import EventLog
from hooks.holdings import FileIdentity, file_identity
from hooks.recall import FindProject, bound_project
from hooks.serving import PeerUid, Service
from storage.clock import Clock, SystemClock
from storage.config import Settings, load_settings
from storage.connection import private_directory
from storage.errors import ConfigError, MemorydError, Unavailable
from storage.paths import HomePaths
from storage.wakeup import sweep_short

if TYPE_CHECKING:
    from collections.abc import Callable

BACKLOG = 1_024
"""A full backlog is an error for the client at once, not a wait."""
LOG_NAME = "server.log"
SWITCH_S = 0.000_5
"""Longest turn of one thread; Python's own is ten times that."""


class Server:
    """One server for one home: lock, socket, desk, loop."""

    def __init__(
        self,
        paths: HomePaths,
        *,
        clock: Clock,
        environment: Mapping[str, str],
        idle_exit_s: int | None = None,
        new_capture: Callable[[], CaptureLike] | None = None,
        find_project: FindProject = bound_project,
        peer_uid: PeerUid | None = None,
    ) -> None:
        self._paths, self._clock, self._environment = paths, clock, environment
        self._idle_exit_s = idle_exit_s
        self._new_capture = new_capture or self._capture
        self._find_project, self._peer_uid = find_project, peer_uid
        self._home: FileIdentity | None = None
        self._socket: FileIdentity | None = None
        self._service: Service | None = None
        self._stopping = False

    def run(self) -> int:
        """Serve until told to leave; the process's exit code. A second server leaves at once.

        Raises:
            Unavailable: the home is missing or not private.
        """
        if not self._paths.home.is_dir():
            raise Unavailable(f"{self._paths.home}: there is no such home")
        private_directory(self._paths.shared)
        lock = take_lock(self._paths.server_lock)
        if lock is None:
            return 0
        try:
            return self._serve()
        finally:
            os.close(lock)

    def stop(self) -> None:
        """Leave soon; from any thread or a signal handler."""
        self._stopping = True
        if self._service is not None:
            self._service.stop()

    def _serve(self) -> int:
        log = EventLog(private_directory(self._paths.logs) / LOG_NAME, self._clock)
        idle_exit_s = self._idle_exit_s
        if idle_exit_s is None:
            idle_exit_s = self._read_settings(log).recall.idle_exit_s
        self._home = file_identity(self._paths.shared)
        listener = bind(self._paths.socket)
        self._socket = file_identity(self._paths.socket)
        sweep_short(self._paths, self._clock.now_ms() / 1000)
        desk = Desk(
            self._paths,
            clock=self._clock,
            environment=self._environment,
            log=log,
            new_capture=self._new_capture,
            find_project=self._find_project,
            still_ours=self._still_ours,
            idle_exit_s=idle_exit_s,
        )
        self._service = Service(listener, desk, peer_uid=self._peer_uid)
        if self._stopping:
            self._service.stop()
        log.write("server.started", pid=os.getpid())
        try:
            self._service.run()
        finally:
            # Unlinked before the desk drains: whoever comes now starts another server.
            if self._still_ours():
                self._paths.socket.unlink(missing_ok=True)
            listener.close()
            desk.close()
            if self._home == file_identity(self._paths.shared):
                log.write("server.stopped", pid=os.getpid())
        return 0

    def _still_ours(self) -> bool:
        """Whether home and socket are the ones that this server began with."""
        same_home = file_identity(self._paths.shared) == self._home
        return same_home and file_identity(self._paths.socket) == self._socket

    def _read_settings(self, log: EventLog) -> Settings:
        try:
            return load_settings(self._paths, self._environment)
        except ConfigError as problem:
            # The doctor tells the person; recall must not depend on a typing error.
            log.write("settings.refused", problem=type(problem).__name__)
            return Settings()

    def _capture(self) -> CaptureLike:
        from hooks.capture import Capture

        capture: CaptureLike = Capture(self._paths, self._clock)
        return capture


def take_lock(path: Path) -> int | None:
    """A descriptor that holds the lock for as long as it is open; None when another has it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as cause:
        raise Unavailable(f"{path.name}: cannot be opened ({cause.strerror})") from cause
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def bind(path: Path) -> socket.socket:
    """A listening socket at `path`, 0600 in a private folder; a stale one is replaced.

    The caller holds the server's lock, so whatever lies at `path` belongs to nobody alive.

    Raises:
        Unavailable: the folder is not ours, or the system refuses.
    """
    private_directory(path.parent)
    # Renamed into place once it listens: a socket that can be seen can be connected to. The name is
    # no longer than the final one, which may be as long as the system allows.
    fresh = path.with_name(path.name[:-1] + "~")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)
    try:
        fresh.unlink(missing_ok=True)
        listener.bind(os.fspath(fresh))
        listener.listen(BACKLOG)
        fresh.rename(path)
    except OSError as cause:
        listener.close()
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise Unavailable(f"{path}: cannot listen there ({cause.strerror})") from cause
    finally:
        os.umask(umask)
    return listener


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server for the home named on the command line."""
    parser = argparse.ArgumentParser(prog="hooks.server", description="memoryd's recall server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--idle-exit", type=int, default=None, metavar="S")
    options = parser.parse_args(argv)
    server = Server(
        HomePaths(options.home.absolute()),
        clock=SystemClock(),
        environment=dict(os.environ),
        idle_exit_s=options.idle_exit,
    )
    # Questions are answered while an index is built behind: a thread that holds the interpreter
    # gives it up sooner, and the linear algebra of one question starts no threads beside it.
    sys.setswitchinterval(SWITCH_S)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    with suppress(OSError):
        os.chdir("/")  # The folder it was started in may be unmounted or deleted later.
    try:
        return server.run()
    except MemorydError as problem:
        sys.stderr.write(f"hooks.server: {problem}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
