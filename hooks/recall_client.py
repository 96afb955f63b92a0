"""Asking from another process: the server first, SQLite in this process next, else nothing.

Whatever goes wrong is an answer with a gap, within the deadline; only a broken request raises.
Imports neither numpy nor a model.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import apsw

from hooks.events import HookOutcome
from hooks.frames import MAX_FRAME_BYTES, parse_answer, request_line
from hooks.holdings import Holdings
from hooks.recall import Ask, FindProject, Prompted, bound_project, bounds_of, prompted
from retrieval import sqlite_search
from retrieval.results import Recall, abstained, from_json
from storage.config import RecallSettings
from storage.errors import Invalid, MemorydError, NotInitialized, Unavailable

if TYPE_CHECKING:
    import socket

    from hooks.events import PromptSubmitted
    from storage.authority.port import Authority
    from storage.clock import Clock
    from storage.paths import HomePaths
    from storage.records import JsonValue, ProjectId

NO_SERVER: Final = "no recall server answered"
_SERVER_SHARE: Final = 0.6
"""Part of the deadline that the server may use up before SQLite is asked instead."""
_PROGRESS_STEPS: Final = 2_000
"""SQLite instructions between two looks at the clock: well below a millisecond."""


def recall_via_server_or_sqlite(
    paths: HomePaths,
    cwd: str,
    query: str,
    *,
    clock: Clock,
    environment: Mapping[str, str],
    deadline_ms: int = 250,
    limit: int | None = None,
    max_bytes: int | None = None,
    as_of: int | None = None,
    expansions: Sequence[str] = (),
    find_project: FindProject = bound_project,
) -> Recall:
    """The best answer that can be had within the deadline. Never raises for a broken memory."""
    started = monotonic()
    ask = Ask(
        cwd=cwd,
        query=query,
        limit=limit,
        max_bytes=max_bytes,
        as_of=as_of,
        expansions=tuple(expansions)[:4],
    )
    try:
        return ask_server(paths, ask, timeout_ms=int(deadline_ms * _SERVER_SHARE))
    except MemorydError:
        left_ms = deadline_ms - (monotonic() - started) * 1000
    found = recall_from_sqlite(
        paths,
        ask,
        clock=clock,
        environment=environment,
        deadline_ms=max(1, int(left_ms)),
        find_project=find_project,
    )
    return found.with_gap(NO_SERVER)


def ask_server(paths: HomePaths, ask: Ask, *, timeout_ms: int) -> Recall:
    """The server's answer to a question.

    Raises:
        Unavailable: no server, or no answer in time.
        Invalid: it refused, or does not speak our protocol.
    """
    fields: dict[str, JsonValue] = {
        "cwd": ask.cwd,
        "query": ask.query,
        "limit": ask.limit,
        "max_bytes": ask.max_bytes,
        "as_of": ask.as_of,
        "expansions": list(ask.expansions),
    }
    result = call(paths, "recall", fields, timeout_ms=timeout_ms)
    if not isinstance(result, Mapping):
        raise Invalid("not a recall answer")
    return from_json(result.get("recall"))


def call(
    paths: HomePaths, op: str, fields: Mapping[str, JsonValue], *, timeout_ms: int
) -> JsonValue:
    """The result of one op (`ping`, `stats`, `recall`, `hook`) of the running server.

    Raises:
        Unavailable: no server, or no answer in time.
        Invalid: it refused, or does not speak our protocol.
    """
    deadline = monotonic() + timeout_ms / 1000
    ident = os.urandom(8).hex()
    # Here, not above: a hook without a server never gets this far, and has no time to spare.
    import socket

    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.settimeout(max(0.001, deadline - monotonic()))
            link.connect(os.fspath(paths.socket))
            link.sendall(request_line(ident, op, fields))
            return parse_answer(_read_line(link, deadline), ident)
    except OSError as cause:
        raise Unavailable(f"{NO_SERVER} ({cause.strerror or 'too late'})") from cause


def recall_from_sqlite(
    paths: HomePaths,
    ask: Ask,
    *,
    clock: Clock,
    environment: Mapping[str, str],
    deadline_ms: int,
    find_project: FindProject = bound_project,
) -> Recall:
    """The answer without a server, cut off at the deadline; a broken memory abstains."""
    holdings = Holdings(paths, clock, environment)
    deadline = monotonic() + deadline_ms / 1000
    try:
        return _ask_store(paths, ask, holdings, find_project, clock.now_ms(), deadline).recall
    finally:
        holdings.close()


def prompted_from_sqlite(
    paths: HomePaths,
    event: PromptSubmitted,
    *,
    clock: Clock,
    environment: Mapping[str, str],
    deadline_ms: int,
) -> Prompted:
    """What to inject beside a prompt: `recall_from_sqlite` within the project's own bounds."""
    ask = Ask(cwd=event.cwd, query=event.prompt)
    holdings = Holdings(paths, clock, environment)
    now_at, deadline = clock.now_ms(), monotonic() + deadline_ms / 1000
    try:
        found = _ask_store(paths, ask, holdings, bound_project, now_at, deadline)
    finally:
        holdings.close()
    if found.project is None:
        return Prompted(HookOutcome())
    return prompted(found.project, event, found.recall, found.settings, at=now_at, by_server=False)


@dataclass(frozen=True, slots=True)
class _Asked:
    recall: Recall
    settings: RecallSettings
    project: ProjectId | None = None
    """Whose memory was asked; None when none was."""


def _ask_store(
    paths: HomePaths,
    ask: Ask,
    holdings: Holdings,
    find_project: FindProject,
    now_at: int,
    deadline: float,
) -> _Asked:
    settings, project = RecallSettings(), None
    try:
        project = find_project(paths, Path(ask.cwd)) if ask.cwd else None
        if project is None:
            return _Asked(abstained("no memory belongs to this folder"), settings)
        settings = holdings.settings(project).recall
        if not settings.enabled:
            return _Asked(abstained("recall is switched off in the settings"), settings)
        authority = holdings.authority(project).authority
        found = _search(authority, ask, settings, now_at=now_at, deadline=deadline)
        return _Asked(found, settings, project)
    except NotInitialized:
        return _Asked(abstained("this project has no memory yet"), settings)
    except MemorydError as problem:
        return _Asked(abstained("the memory cannot be read", gaps=(str(problem),)), settings)
    except apsw.InterruptError:
        gaps = ("the search was cut off at its deadline",)
        return _Asked(abstained("not enough time", gaps=gaps), settings, project)


def start_server(paths: HomePaths) -> None:
    """Start the resident server, detached, unless one may be running; never waits, never raises.

    Two may start at once: the second finds the lock taken and leaves.
    """
    import subprocess

    with suppress(MemorydError, OSError):
        from hooks.server import take_lock

        lock = take_lock(paths.server_lock)
        if lock is None:
            return
        os.close(lock)
        subprocess.Popen(
            server_argv(paths),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=paths.home,
            start_new_session=True,
        )


def server_argv(paths: HomePaths) -> list[str]:
    """The command line of this installation's server for a home."""
    return [sys.executable, "-I", "-m", "hooks.server", "--home", os.fspath(paths.home)]


def _search(
    authority: Authority, ask: Ask, settings: RecallSettings, *, now_at: int, deadline: float
) -> Recall:
    bounds = bounds_of(ask, settings)
    generation = authority.generation()
    with authority.read() as reads:
        reads.db.set_progress_handler(lambda: monotonic() > deadline, _PROGRESS_STEPS)
        try:
            return sqlite_search.recall(
                reads,
                ask.query,
                generation=generation,
                now_at=now_at,
                limit=bounds.limit,
                max_bytes=bounds.max_bytes,
                as_of=ask.as_of,
                expansions=ask.expansions,
            )
        finally:
            reads.db.set_progress_handler(None)


def _read_line(link: socket.socket, deadline: float) -> bytes:
    got = bytearray()
    while b"\n" not in got:
        left = deadline - monotonic()
        if left <= 0:
            raise TimeoutError("too late")
        if len(got) > MAX_FRAME_BYTES:
            raise Invalid("an answer without an end")
        link.settimeout(left)
        part = link.recv(65_536)
        if not part:
            raise ConnectionResetError("the server hung up")
        got += part
    return bytes(got.partition(b"\n")[0])
