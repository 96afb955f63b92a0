"""What a session has shown of a project since its last turn: one small private file for each pair.

Owns `<home>/pi-memory/staging/<digest of host and session>-<digest of project>.jsonl`: a session
may walk from one project into another, and what it says there is said there. Hooks are short-lived
processes and several may run at once, so staging is appended under a lock and taken away whole at
the end of a turn; it survives a killed process, not a power cut. Holds redacted text only, the
newest 64 tool results at most; it dies with the session, and whatever a killed one left is found.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.atomic import NOFOLLOW, file_lock
from storage.connection import private_directory
from storage.errors import Unavailable
from storage.paths import HomePaths
from storage.records import JsonValue, ProjectId, canonical_json, digest_of

MAX_TOOLS: Final = 64
MAX_SAID: Final = 16
MAX_LOGGED: Final = 512
MAX_BYTES: Final = 1_048_576
LOCK_WAIT_S: Final = 0.2
Line = Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Staged:
    """What was staged, oldest first."""

    project: ProjectId
    host: str
    session_id: str
    carried: JsonValue
    """What the last flush left open (`storage.outcomes`)."""
    logged: tuple[str, ...]
    """Keys of the entries that this session already wrote."""
    said: tuple[Line, ...]
    tools: tuple[Line, ...]


class Staging:
    """The staging file of one session in one project."""

    def __init__(self, paths: HomePaths, host: str, session_id: str, project: ProjectId) -> None:
        session = _session(host, session_id)
        self._folder = _folder(paths)
        self._path = self._folder / f"{session}-{digest_of(project)[:16]}.jsonl"
        # Never deleted, so nobody can hold one that is gone; sixteen are few, and seldom shared.
        self._lock = self._folder / f"{session[0]}.lock"
        self._host = host
        self._session_id = session_id
        self.project = project

    def stage(self, lines: Sequence[Line]) -> None:
        """Append lines (`{"t": "said" | "tool", ...}`).

        Raises:
            Busy, Unavailable: not staged.
        """
        with self._locked():
            if not self._path.exists():
                lines = [self._head(None, ()), *lines]
            elif self._path.lstat().st_size > MAX_BYTES:
                self._write(_newest(_parse(self._path.read_bytes())))
            self._append(lines)

    def flush(
        self, take: Callable[[Staged], tuple[JsonValue, Sequence[str]]], *, last: bool = False
    ) -> bool:
        """Hand over what is staged; then keep only what `take` returns (carry, keys written).

        Nothing is kept after the `last` time: the session is over. What `take` raises leaves the
        staging as it was. False when nothing is staged.

        Raises:
            Busy, Unavailable: nothing was handed over.
        """
        if not self._path.exists():
            return False
        with self._locked():
            staged = _staged(_parse(self._path.read_bytes()))
            if staged is None:
                self._path.unlink(missing_ok=True)
                return False
            carried, keys = take(staged)
            if last:
                self._path.unlink(missing_ok=True)
                return True
            logged = list(dict.fromkeys([*staged.logged, *keys]))[-MAX_LOGGED:]
            self._write([self._head(carried, logged)])
        return True

    def _head(self, carried: JsonValue, logged: Sequence[str]) -> Line:
        return {
            "t": "head",
            "project": self.project,
            "host": self._host,
            "session": self._session_id,
            "carried": carried,
            "logged": list(logged),
        }

    @contextmanager
    def _locked(self) -> Iterator[None]:
        private_directory(self._folder)
        with file_lock(self._lock, wait_s=LOCK_WAIT_S):
            try:
                yield
            except OSError as cause:
                raise Unavailable("the staging file cannot be used") from cause

    def _append(self, lines: Sequence[Line]) -> None:
        data = b"".join(canonical_json(line) + b"\n" for line in lines)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NOFOLLOW, 0o600)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)

    def _write(self, lines: Sequence[Line]) -> None:
        # Not synced: losing staging costs one turn's observations, which transcripts still hold.
        fresh = self._path.with_suffix(".tmp")
        fresh.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(b"".join(canonical_json(line) + b"\n" for line in lines))
        fresh.replace(self._path)


def of_session(paths: HomePaths, host: str, session_id: str) -> list[Staging]:
    """What a session has staged, project by project."""
    return _found(paths, sorted(_folder(paths).glob(f"{_session(host, session_id)}-*.jsonl")))


def left_behind(paths: HomePaths, *, now: int, older_than_ms: int) -> list[Staging]:
    """Staging that nobody touched for a while: its session was killed."""
    before_ns = (now - older_than_ms + 1) * 1_000_000
    with suppress(OSError):
        files = sorted(_folder(paths).glob("*.jsonl"))
        return _found(paths, [path for path in files if path.stat().st_mtime_ns < before_ns])
    return []


def _found(paths: HomePaths, files: Sequence[Path]) -> list[Staging]:
    found: list[Staging] = []
    for path in files:
        with suppress(OSError):
            staged = _staged(_parse(path.read_bytes()))
            if staged is not None:
                found.append(Staging(paths, staged.host, staged.session_id, staged.project))
    return found


def _folder(paths: HomePaths) -> Path:
    return paths.shared / "staging"


def _session(host: str, session_id: str) -> str:
    return digest_of(host, session_id)[:32]


def _parse(data: bytes) -> list[Line]:
    lines: list[Line] = []
    for raw in data.splitlines():
        with suppress(ValueError):
            line = json.loads(raw)
            if isinstance(line, dict):
                lines.append(line)
    return lines


def _newest(lines: Sequence[Line]) -> list[Line]:
    """The head, the statements, and the newest tool results."""
    tools = [line for line in lines if line.get("t") == "tool"][-MAX_TOOLS:]
    others = [line for line in lines if line.get("t") != "tool"]
    return [*others, *tools]


def _staged(lines: Sequence[Line]) -> Staged | None:
    head = next((line for line in lines if line.get("t") == "head"), None)
    if head is None:
        return None
    logged = head.get("logged")
    return Staged(
        project=ProjectId(str(head.get("project", ""))),
        host=str(head.get("host", "")),
        session_id=str(head.get("session", "")),
        carried=head.get("carried"),
        logged=tuple(str(key) for key in logged) if isinstance(logged, list) else (),
        said=tuple(line for line in lines if line.get("t") == "said")[:MAX_SAID],
        tools=tuple(line for line in lines if line.get("t") == "tool")[-MAX_TOOLS:],
    )
