"""The log: one JSON line an event, from a closed list of events, without anybody's words.

Ids, counts, sizes and durations may appear; statements, prompts, excerpts and messages may not. A
key that is not on the list is kept only if its value is a number: free text has no way through.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import structlog

from storage.clock import Clock, iso
from storage.connection import private_directory
from storage.errors import Unavailable
from storage.paths import HomePaths

EVENTS: Final = frozenset(
    {
        "worker.started",
        "worker.stopped",
        "worker.refused",
        "worker.replaced",
        "clock.stepped",
        "tick.failed",
        "tick.slow",
        "job.completed",
        "job.already_applied",
        "job.failed",
        "job.retried",
        "job.snoozed",
        "job.discarded",
        "job.died",
        "job.lease_lost",
        "job.interrupted",
        "job.overran",
        "lease.renewal_failed",
        "lease.reaped",
        "store.corrupt",
        "schedule.fired",
        "schedule.refused",
        "schedule.missed",
        "spool.drained",
        "reconcile.enqueued",
        "reconcile.failed",
        "queue.pruned",
        "queue.checkpointed",
        "budget.reserved",
        "budget.settled",
        "budget.rolled_up",
        "budget.exhausted",
        "model.called",
        "model.failed",
        "model.paused",
        "model.resumed",
        "source.scanned",
        "source.unavailable",
        "authority.appended",
        "authority.promoted",
        "library.reported",
        "log.unlisted",
    }
)
WORDS: Final = frozenset(
    {
        "event",
        "level",
        "at",
        "job_id",
        "kind",
        "project",
        "owner",
        "error",
        "waiting_for",
        "state",
        "outcome",
        "schedule",
        "scope",
        "model",
        "adapter",
        "container",
        "version",
        "library",
        "signal",
        "problem",
    }
)
"""Keys whose text is ours: ids, class names, members of closed lists."""
MAX_WORD_CHARS = 120
MAX_FILE_BYTES = 4_194_304
KEPT_FILES = 3
LOG_NAME = "worker.log"
_ENCODE: Final = json.JSONEncoder(sort_keys=True).encode
"""Made once: `json.dumps` with any option makes an encoder a line."""
_PLAIN: Final = re.compile(r"[^\w.:@|/+ -]")
_ALL_PLAIN: Final = re.compile(r"[\w.:@|/+ -]*").fullmatch


class RotatingFile:
    """An append-only private file that moves aside when it is full; safe between threads."""

    def __init__(
        self, path: Path, *, max_bytes: int = MAX_FILE_BYTES, kept: int = KEPT_FILES
    ) -> None:
        private_directory(path.parent)
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._lock = threading.Lock()
        self._fd = self._open()
        self._size = os.fstat(self._fd).st_size

    def write(self, text: str) -> int:
        """Append; a full disk loses the line, never the work that it tells of."""
        data = text.encode("utf-8", "replace")
        with self._lock, suppress(OSError, Unavailable):
            if self._size + len(data) > self._max_bytes:
                self._rotate()
            self._size += os.write(self._fd, data)
        return len(text)

    def flush(self) -> None:
        """Nothing is buffered here."""

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, 0o600)
        except OSError as cause:
            raise Unavailable(f"{self._path}: cannot be written ({cause.strerror})") from cause

    def _rotate(self) -> None:
        for number in range(self._kept - 1, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number}")
            if older.exists():
                older.rename(self._path.with_name(f"{self._path.name}.{number + 1}"))
        self._path.rename(self._path.with_name(f"{self._path.name}.1"))
        fresh = self._open()
        os.close(self._fd)
        self._fd, self._size = fresh, 0


def configure(
    paths: HomePaths, clock: Clock, *, terminal: bool | None = None, libraries: bool = True
) -> None:
    """Send events to `<home>/pi-memory/logs/worker.log`, or to a person at a terminal.

    `libraries` also takes over what Huey logs, without its texts.
    """
    to_terminal = sys.stderr.isatty() if terminal is None else terminal
    target = sys.stderr if to_terminal else RotatingFile(paths.logs / LOG_NAME)
    renderer: Any = (  # Any: structlog's renderers share no public type
        structlog.processors.KeyValueRenderer(key_order=["at", "level", "event"])
        if to_terminal
        else structlog.processors.JSONRenderer(lambda event, **_: _ENCODE(event))
    )
    structlog.configure(
        processors=[
            _headed(clock),
            keep_plain,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=target),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    _Bound.logger = structlog.get_logger().bind()
    if libraries:
        _adopt_libraries()


def get_logger() -> Any:  # Any: structlog's lazy proxy
    """The process's logger; call with an event of EVENTS and plain keys.

    In a process that configured none (a person's command) it says nothing: structlog's own default
    prints, which would stand between the lines of an answer.
    """
    if not structlog.is_configured():
        return _SILENT
    # Bound once: the lazy proxy would assemble a logger for every line.
    return _Bound.logger or structlog.get_logger()


def _dropped(*_: object) -> MutableMapping[str, Any]:
    raise structlog.DropEvent


_ABOUT: Final[ContextVar[Mapping[str, str | int]]] = ContextVar(
    "about", default=MappingProxyType({})
)


class _Bound:
    """The process's one logger, once `configure` made it."""

    logger: Any = None


_SILENT: Final = structlog.wrap_logger(structlog.ReturnLogger(), processors=[_dropped])


def keep_plain(_logger: object, _method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """The event without anything that could be somebody's words."""
    kept: dict[str, Any] = {}
    for key, value in event.items():
        if isinstance(value, bool | int | float):
            kept[key] = value
        elif isinstance(value, str) and key in WORDS:
            plain = value if _ALL_PLAIN(value) else _PLAIN.sub("?", value)
            kept[key] = plain[:MAX_WORD_CHARS]
    if kept.get("event") not in EVENTS:
        kept["event"] = "log.unlisted"
    return kept


@contextmanager
def logged_about(**fields: str | int) -> Iterator[None]:
    """Whatever this thread logs in the block says these too: one variable, not one a field."""
    token = _ABOUT.set({**_ABOUT.get(), **fields})
    try:
        yield
    finally:
        _ABOUT.reset(token)


def _headed(clock: Clock) -> Any:
    def head(
        _logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        return {**_ABOUT.get(), **event, "at": iso(clock.now_ms()), "level": method}

    return head


class _LibraryHandler(logging.Handler):
    """What libraries say at WARNING and above, by name and level only: their texts quote data."""

    def emit(self, record: logging.LogRecord) -> None:
        problem = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        get_logger().warning(
            "library.reported", library=record.name, problem=problem, line=record.lineno
        )


def _adopt_libraries() -> None:
    for name in ("huey", "huey.consumer"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, _LibraryHandler) for handler in logger.handlers):
            if name == "huey":
                logger.addHandler(_LibraryHandler(logging.WARNING))
            logger.setLevel(logging.WARNING)
