"""The two programs that work in the background: the consumer and the recall server of one home.

Owns starting them (isolated, detached, their words kept in `logs/`), seeing whether they run, and
stopping them. Each makes sure by itself that it is the only one of its home. Leaves what they do to
`worker` and `hooks.server`.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from storage.config import load_settings
from storage.connection import disk_is_full, private_directory
from storage.errors import DiskFull, Unavailable, unusable
from storage.paths import HomePaths
from storage.queue_file import open_queue_reader
from storage.queue_owner import living_owners

START_S = 20.0
MAX_STARTS = 8
"""Starts of one keeper; a program that ends more often is broken."""
STOP_S = 15.0
KILL_S = 5.0
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command politely."""
_PAUSE_S = 0.02


class Killed(Unavailable):
    """Somebody ended the program while it started: nothing is wrong with it."""


@dataclass(frozen=True, slots=True)
class Program:
    """One background program."""

    name: str
    title: str
    module: str

    def argv(self, paths: HomePaths) -> list[str]:
        """How it is started, from any folder."""
        return [sys.executable, "-I", "-m", self.module, "--home", str(paths.home)]

    def log(self, paths: HomePaths) -> Path:
        """What it says on its standard streams."""
        return paths.logs / f"{self.name}.out"


WORKER = Program("worker", "consumer", "worker")
SERVER = Program("server", "recall server", "hooks.server")


def consumer_pids(paths: HomePaths) -> list[int]:
    """Process ids of this home's running consumers."""
    pids = (name.partition("-")[0] for name in living_owners(paths))
    return [int(pid) for pid in pids if pid.isdecimal()]


def server_answers(paths: HomePaths) -> bool:
    """Whether a recall server takes connections."""
    with _connected(paths) as link:
        return link is not None


def server_pid(paths: HomePaths) -> int | None:
    """Process id of this home's recall server; None when none answers."""
    with _connected(paths) as link:
        if link is None:
            return None
        if sys.platform == "darwin":
            return link.getsockopt(0, 0x002)  # SOL_LOCAL, LOCAL_PEERPID
        raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("=iII"))
        return int(struct.unpack("=iII", raw)[0])


@contextmanager
def _connected(paths: HomePaths) -> Iterator[socket.socket | None]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(1.0)
        try:
            link.connect(str(paths.socket))
        except OSError:
            yield None
        else:
            yield link


def start(program: Program, paths: HomePaths, environment: Mapping[str, str]) -> Running:
    """Start one program and return once it is ready for work.

    Raises:
        Unavailable: it ended, or was not ready in time; the message holds its last words.
    """
    running = launch(program, paths, environment)
    try:
        running.wait_ready()
    except BaseException:
        running.stop()
        raise
    return running


def launch(program: Program, paths: HomePaths, environment: Mapping[str, str]) -> Running:
    """Start one program, isolated and detached, without waiting for it.

    Raises:
        Unavailable: its log cannot be written.
    """
    log = program.log(paths)
    private_directory(log.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        said = os.open(log, flags, 0o600)
    except OSError as cause:
        raise unusable(f"{log}: cannot be written", cause) from cause
    try:
        process = subprocess.Popen(
            program.argv(paths),
            env=dict(environment),
            cwd=paths.shared,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    finally:
        os.close(said)
    return Running(program, paths, process)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds Ctrl-C, TERM and HUP back until the block is left: a child must not be forgotten."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    kept = [(number, signal.signal(number, lambda it, _: held.append(it))) for number in STOPS]
    try:
        yield
    finally:
        for number, handler in kept:
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


@dataclass(frozen=True, slots=True)
class Running:
    """A program that we started."""

    program: Program
    paths: HomePaths
    process: subprocess.Popen[bytes]

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ready(self) -> bool:
        """Whether it takes work."""
        if self.program is SERVER:
            return server_answers(self.paths)
        return self.process.pid in consumer_pids(self.paths)

    def wait_ready(self) -> None:
        """Return once it takes work.

        Raises:
            Unavailable: it ended, or was not ready in time.
        """
        title = self.program.title
        if not _happens(lambda: not self.alive or self.ready(), START_S):
            if disk_is_full(self.paths.shared):
                raise DiskFull
            raise Unavailable(f"the {title} was not ready within {START_S:.0f} s")
        if not self.alive:
            kind = Killed if (self.process.returncode or 0) < 0 else Unavailable
            if disk_is_full(self.paths.shared):
                raise DiskFull
            raise kind(f"the {title} ended at once: {self.last_words()}")

    def last_words(self) -> str:
        """The end of what it said, for an error message."""
        with suppress(OSError):
            lines = self.program.log(self.paths).read_text("utf-8", "replace").split("\n")
            said = [line.strip() for line in lines if line.strip()]
            if said:
                return f"{said[-1][:300]} (all of it: {self.program.log(self.paths)})"
        return f"exit code {self.process.poll()}"

    def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait()


class Keeper:
    """Sees to it that both programs run while something needs them, and stops what it started.

    Programs of others are used and left alone. One that ends meanwhile is started again, a few
    times: its work is in the queue, and leases make repeating safe.
    """

    def __init__(self, paths: HomePaths, environment: Mapping[str, str]) -> None:
        self._paths = paths
        self._environment = environment
        self._started: dict[Program, Running] = {}
        self.starts = 0

    def ensure(self) -> None:
        """Return once both run.

        Raises:
            Unavailable: one cannot be started, or does not stay.
        """
        for program in (WORKER, SERVER):
            while not program_pids(program, self._paths):
                self._start(program)

    def _start(self, program: Program) -> None:
        if self.starts >= MAX_STARTS:
            ended = self._started.get(program)
            words = ended.last_words() if ended else "it was stopped"
            if disk_is_full(self._paths.shared):
                raise DiskFull
            raise Unavailable(f"the {program.title} does not stay: {words}")
        self.starts += 1
        self._drop(program)
        with uninterrupted():
            running = launch(program, self._paths, self._environment)
            self._started[program] = running
        try:
            running.wait_ready()
        except Killed:
            return
        except Unavailable:
            # Another process may have started the same program a moment earlier.
            if not program_pids(program, self._paths):
                raise

    def release(self) -> list[Running]:
        """What it started and still runs; from now on it is no longer this one's to stop."""
        running = [one for one in self._started.values() if one.alive]
        self._started.clear()
        return running

    def stop(self) -> None:
        """End what it started; idempotent."""
        for program in list(self._started):
            self._drop(program)

    def _drop(self, program: Program) -> None:
        ended = self._started.pop(program, None)
        if ended is not None:
            ended.stop()


def program_pids(program: Program, paths: HomePaths) -> list[int]:
    """Process ids of one program of this home, whoever started it."""
    if program is WORKER:
        return consumer_pids(paths)
    pid = server_pid(paths)
    return [] if pid is None else [pid]


def others_run(paths: HomePaths) -> list[str]:
    """What runs already, in words."""
    return [
        f"the {program.title} (process {pid})"
        for program in (WORKER, SERVER)
        for pid in program_pids(program, paths)
    ]


def require_ground(paths: HomePaths, environment: Mapping[str, str]) -> None:
    """What both programs stand on can be read.

    Raises:
        ConfigError, Corrupt, NewerSchema: as the program would find it, said before it starts.
    """
    load_settings(paths, environment)
    if paths.queue.exists():
        # A file of an older memoryd is brought up to date by the consumer that is to be started.
        try:
            open_queue_reader(paths).close()
        except DiskFull:
            raise
        except Unavailable:
            return


def start_all(paths: HomePaths, environment: Mapping[str, str]) -> list[tuple[Program, int, bool]]:
    """Both programs with their process ids and whether this call started them.

    Raises:
        ConfigError, Corrupt, NewerSchema: as the program would find it, said before it starts.
        Unavailable: one cannot be started; the other is stopped again if this call started it.
    """
    require_ground(paths, environment)
    began: list[Running] = []
    found: list[tuple[Program, int, bool]] = []
    try:
        for program in (WORKER, SERVER):
            pids = program_pids(program, paths)
            if not pids:
                began.append(_start_again(program, paths, environment))
            found.append((program, pids[0] if pids else began[-1].process.pid, not pids))
    except BaseException:
        with uninterrupted():
            for running in began:
                running.stop()
        raise
    return found


def _start_again(program: Program, paths: HomePaths, environment: Mapping[str, str]) -> Running:
    """Start a program that somebody may kill meanwhile: that is no fault of its own."""
    for _ in range(MAX_STARTS - 1):
        with suppress(Killed):
            return start(program, paths, environment)
    return start(program, paths, environment)


def stop_pid(program: Program, paths: HomePaths, pid: int) -> bool:
    """Ask somebody's process to end, and end it if it does not; False when it was gone already."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return False
    if not _happens(lambda: _has_ended(program, paths, pid), STOP_S):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _happens(lambda: _has_ended(program, paths, pid), KILL_S)
    return True


def _has_ended(program: Program, paths: HomePaths, pid: int) -> bool:
    """Whether the process is gone, not just its lock and its socket.

    Its entry may stay until its parent looks: such a process has ended too.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return True  # gone, or its number belongs to somebody else's process by now
    try:
        state = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return sys.platform == "darwin" and pid not in program_pids(program, paths)
    return state[0] in {"Z", "X"}


def _happens(condition: Callable[[], bool], within_s: float) -> bool:
    """Whether the condition comes true in time. Processes give no event for "ready": look often."""
    deadline = time.monotonic() + within_s
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            return False
        pause.wait(_PAUSE_S)
    return True
