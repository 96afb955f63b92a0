"""What memoryd needs from a machine and a home, as checks with a verdict and a hint.

Each check is one function that never raises for a foreseeable fault and changes nothing. Leaves
showing them, and the exit code, to `ops doctor`.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import apsw

from ops.hosts import TITLES, HostState, host_states
from ops.output import count, moment
from ops.services import SERVER, WORKER, consumer_pids, server_answers
from ops.settings_check import settings_problems
from storage.clock import Clock
from storage.config import load_settings
from storage.connection import (
    MINIMUM_SQLITE,
    check_sqlite,
    load_vectors,
    open_memory,
    open_readonly,
    translated,
)
from storage.errors import Corrupt, MemorydError
from storage.paths import HomePaths
from storage.projects import Binding, bindings

Verdict = Literal["ok", "warn", "fail"]
LOW_DISK_BYTES = 500_000_000
NO_DISK_BYTES = 20_000_000
PYTHONS = ((3, 11), (3, 15))
QUEUE_HINT = (
    "Losing it costs time, never memory: ops repair queue"
    " (or stop everything with `ops stop` and delete {0}, {0}-wal and {0}-shm)."
)
REINSTALL = "Install memoryd again: in a checkout, remove .venv and run ./ops/bin/quickstart."


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at."""

    name: str
    verdict: Verdict
    found: str
    hint: str = ""


def check_machine(home: HomePaths) -> Iterator[Check]:
    """Interpreter, SQLite, sqlite-vec, the encoder's files, free space."""
    yield _python()
    yield _attempt("SQLite", _sqlite, REINSTALL)
    yield _attempt("sqlite-vec", _vectors, REINSTALL)
    yield _attempt("encoder", _encoder, REINSTALL)
    yield _disk(home)


def check_home(home: HomePaths, environment: Mapping[str, str]) -> Iterator[Check]:
    """Permissions, settings, the queue's file, and what the hooks complained of."""
    if not os.path.lexists(home.shared):
        yield _unmade(home.home)
        return
    yield replace(_private(home.home), name="home root")
    yield _private(home.shared)
    yield from _check_settings(home, environment)
    yield _attempt("queue", lambda: _sound(home.queue), QUEUE_HINT.format(home.queue))
    yield _hook_errors(home)


def check_projects(
    home: HomePaths, environment: Mapping[str, str], clock: Clock
) -> Iterator[Check]:
    """Whether each bound project's memory opens; a missing one is reported, never made anew."""
    try:
        known = bindings(home)
    except MemorydError as error:
        hint = "Nothing is inferred from it: restore it from a backup."
        yield Check(name="projects", verdict="fail", found=str(error), hint=hint)
        return
    for binding in known:
        hint = "Nothing was changed. Restore it from a backup, or unbind the folder."
        check = _attempt(
            "memory", functools.partial(_memory, binding, home, environment, clock), hint
        )
        yield replace(check, found=f"{binding.location}: {check.found}")


def check_services(home: HomePaths) -> Iterator[Check]:
    """Whether work is being done: not running is a state, not a fault."""
    pids = consumer_pids(home)
    hint = "" if pids else "Nothing is learned until it runs: ops start"
    found = f"runs (process {', '.join(map(str, pids))})" if pids else "does not run"
    yield Check(name=WORKER.title, verdict="ok" if pids else "warn", found=found, hint=hint)
    yield _server(home)


def _server(home: HomePaths) -> Check:
    if server_answers(home):
        return Check(name=SERVER.title, verdict="ok", found=f"answers at {home.socket}")
    with suppress(OSError):
        if not stat.S_ISSOCK(home.socket.lstat().st_mode):
            found = f"{home.socket} is no socket: the server cannot listen there"
            hint = f"Move it away: mv {home.socket} {home.socket}.old"
            return Check(name=SERVER.title, verdict="fail", found=found, hint=hint)
    hint = "Connected agents start it when they need it; or: ops start"
    return Check(name=SERVER.title, verdict="ok", found="does not run", hint=hint)


def check_hosts(environment: Mapping[str, str]) -> Iterator[Check]:
    """Whether each agent is connected, and by an adapter that can still start memoryd."""
    for state in host_states(environment):
        yield _host(state)


def _attempt(name: str, look: Callable[[], str], hint: str) -> Check:
    try:
        return Check(name=name, verdict="ok", found=look())
    except (MemorydError, OSError) as error:
        return Check(name=name, verdict="fail", found=str(error), hint=hint)


def _python() -> Check:
    version = ".".join(str(part) for part in sys.version_info[:3])
    least, below = PYTHONS
    found = f"{version} at {sys.executable}"
    if least <= sys.version_info[:2] < below:
        return Check(name="Python", verdict="ok", found=found)
    return Check(name="Python", verdict="fail", found=found, hint="3.11 to 3.14 is needed.")


def _sqlite() -> str:
    check_sqlite()
    return f"{apsw.sqlite_lib_version()} (needs {'.'.join(map(str, MINIMUM_SQLITE))} or newer)"


def _vectors() -> str:
    with closing(open_memory()) as db:
        load_vectors(db)
        (version,) = db.execute("SELECT vec_version()").fetchall()[0]
    return f"{version} loads"


def _encoder() -> str:
    from retrieval.embedding import MODEL, TOKENIZER

    size = sum(len(file.read()) for file in (MODEL, TOKENIZER))
    return f"all-MiniLM-L6-v2, {size // 1_000_000} MB, hashes as expected"


def _disk(home: HomePaths) -> Check:
    folder = next(path for path in (home.home, *home.home.parents) if os.path.exists(path))  # noqa: PTH110 -- never raises
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:,.1f} GB free" if free >= LOW_DISK_BYTES else f"{free / 1e6:,.0f} MB free"
    if free >= LOW_DISK_BYTES:
        return Check(name="disk", verdict="ok", found=found)
    if free >= NO_DISK_BYTES:
        return Check(name="disk", verdict="warn", found=found, hint="Writes fail when it is full.")
    return Check(name="disk", verdict="fail", found=found, hint="Free some space.")


def _unmade(home: Path) -> Check:
    """A home without a memory: whether one can be made there."""
    nearest = next(path for path in (home, *home.parents) if os.path.lexists(path))
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        found = f"{home} cannot be made: {nearest} is not a folder that can be written"
        hint = "Make it writable, or choose another --home."
        return Check(name="home", verdict="fail", found=found, hint=hint)
    found = f"{home} holds no memory yet"
    return Check(name="home", verdict="warn", found=found, hint="Run `ops init` in a project.")


def _private(folder: Path) -> Check:
    """Ours, private, and writable."""
    try:
        info = folder.stat() if folder.is_symlink() else folder.lstat()
    except OSError as error:
        hint = "Move it away, or choose another --home."
        return Check(name="home", verdict="fail", found=f"{folder}: {error.strerror}", hint=hint)
    mode = stat.S_IMODE(info.st_mode)
    found = f"{folder} ({mode:04o})"
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        hint = "It must be a plain folder of yours: move it away, or choose another --home."
        return Check(name="home", verdict="fail", found=found, hint=hint)
    if mode & 0o077:
        hint = f"Others can {'change' if mode & 0o022 else 'read'} it: chmod 700 {folder}"
        return Check(name="home", verdict="fail", found=found, hint=hint)
    if mode & 0o700 != 0o700 or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        hint = f"Nothing can be kept in it: chmod 700 {folder} (or its file system is read-only)"
        return Check(name="home", verdict="fail", found=f"{found} is not writable", hint=hint)
    return Check(name="home", verdict="ok", found=found)


def _check_settings(home: HomePaths, environment: Mapping[str, str]) -> Iterator[Check]:
    check = _attempt("settings", lambda: _settings(home, environment), "Correct that line.")
    if check.verdict == "fail":
        yield check
        return
    problems = settings_problems(load_settings(home, environment), environment)
    hint = f"Correct it in {home.config} or the environment, then: ops stop, ops start"
    for problem in problems:
        yield Check(name="settings", verdict="fail", found=problem, hint=hint)
    if not problems:
        yield check


def _settings(home: HomePaths, environment: Mapping[str, str]) -> str:
    settings = load_settings(home, environment)
    source = str(home.config) if home.config.exists() else "defaults"
    model = settings.model.name if settings.model.provider != "none" else "none"
    return f"{source}; model {model}, encoder {settings.encoder.provider}"


def _sound(path: Path) -> str:
    if not path.exists():
        return "not made yet"
    with closing(open_readonly(path)) as db, translated(path.name):
        answer = db.execute("PRAGMA quick_check(1)").fetchall()[0][0]
    if answer != "ok":
        raise Corrupt(f"{path.name}: {answer}")
    return f"{path.name}, {path.stat().st_size / 1e6:,.1f} MB, sound"


def _memory(binding: Binding, home: HomePaths, environment: Mapping[str, str], clock: Clock) -> str:
    from storage.authority import open_authority

    paths = home.project(binding.project_id)
    settings = load_settings(home, environment, paths)
    authority = open_authority(paths, binding.project_id, clock=clock, settings=settings.storage)
    with closing(authority), authority.read() as reads:
        stats = reads.stats()
        return f"{authority.container}, {stats.facts_current} facts, {stats.events} events"


def _hook_errors(home: HomePaths) -> Check:
    log = Path(f"{home.socket}.errors")
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    if not lines:
        return Check(name="hooks", verdict="ok", found="no failures noted")
    hint = f"Agents went on without memory then. The list: {log}"
    last = lines[-1]
    at, _, words = last.partition(" ")
    if at.isascii() and at.isdecimal() and len(at) <= len("1800000000000"):
        last = f"{moment(int(at))}, {words}"
    found = f"{count(len(lines), 'failure')} noted; the last: {last}"
    return Check(name="hooks", verdict="warn", found=found, hint=hint)


def _host(state: HostState) -> Check:
    name = TITLES[state.name]
    if not state.connected:
        where = f"found at {state.program}" if state.program else "not on this machine"
        hint = f"ops host install {state.name}" if state.program else ""
        return Check(name=name, verdict="ok", found=f"not connected ({where})", hint=hint)
    missing = [path for path in _named_programs(state.target) if not path.exists()]
    if missing:
        hint = f"memoryd moved: ops host install {state.name}"
        found = f"its adapter names {missing[0]}, which is gone"
        return Check(name=name, verdict="fail", found=found, hint=hint)
    return Check(name=name, verdict="ok", found=f"connected ({state.target})")


def _named_programs(target: Path) -> Iterator[Path]:
    """Absolute interpreters that the adapter's JSON files name."""
    for file in sorted(target.rglob("*.json")):
        try:
            document = json.loads(file.read_text("utf-8"))
        except (OSError, ValueError):
            continue
        for text in _strings(document):
            if text.startswith("/") and Path(text).name.startswith("python"):
                yield Path(text)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        if value.startswith("["):  # a command line inside a string, as Claude Code's hooks need it
            with suppress(ValueError):
                yield from _strings(json.loads(value))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)
