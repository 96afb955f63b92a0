"""Statements that were noted and wait for the consumer to take them into the memory.

Owns counting them and finding one again: they stand in memoryd's own log, after the place up to
which the memory has read it. Reads only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from ops.invocation import Invocation
from ops.output import count
from ops.services import consumer_pids
from storage import session_log
from storage.authority.reads import Reads
from storage.paths import ProjectPaths
from storage.records import JsonValue, statement_key
from storage.session_log import Said

ADAPTER: Final = "pi-session"
MAX_BYTES: Final = 8_388_608
"""A longer rest of a log is counted by its first part: nobody reads such a number closely."""


def waiting_lines(reads: Reads, paths: ProjectPaths) -> Iterator[bytes]:
    """Whole lines of the log that the memory has not read yet."""
    read_to = {
        Path(cursor.locator).name: cursor.offset
        for cursor in reads.cursors()
        if cursor.adapter == ADAPTER
    }
    try:
        files = sorted(paths.session_log.glob("*.jsonl"))
    except OSError:
        return
    for path in files:
        rest = _rest(path, read_to.get(path.name, 0))
        yield from (line for line in rest.split(b"\n")[:-1] if line.strip())


def waiting_count(reads: Reads, paths: ProjectPaths) -> int:
    """How many statements and repairs wait to be taken in."""
    return sum(1 for _ in waiting_lines(reads, paths))


def is_waiting(reads: Reads, paths: ProjectPaths, statement: str) -> bool:
    """Whether this statement was noted already and waits."""
    wanted = statement_key(statement)
    for number, line in enumerate(waiting_lines(reads, paths)):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, Mapping):
            entry = session_log.decode(cast("Mapping[str, JsonValue]", document), number)
            if isinstance(entry, Said) and statement_key(entry.statement) == wanted:
                return True
    return False


def backlog_line(number: int, *, runs: bool) -> str:
    """What waits, and what to do about it."""
    waits = f"{count(number, 'statement')} {'waits' if number == 1 else 'wait'} for the consumer"
    return f"{waits}{', which runs: a moment' if runs else ': ops start'}"


def backlog(invocation: Invocation, reads: Reads, paths: ProjectPaths) -> list[str]:
    """The line that reading verbs add while something waits; nothing when nothing does."""
    number = waiting_count(reads, paths)
    if not number:
        return []
    return [backlog_line(number, runs=bool(consumer_pids(invocation.paths)))]


def _rest(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(MAX_BYTES)
    except OSError:
        return b""
