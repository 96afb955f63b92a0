"""Forgotten text in files beside the store: session logs, given copies, staging, queue, quarantine.

Every file keeps its length and its lines their numbers, so offsets and places elsewhere stay true;
lines are overwritten where they lie, so that a hook that appends at the same moment loses nothing.
Running it again changes nothing. Leaves the store and its backups to `storage.forget`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from storage.atomic import NOFOLLOW, file_lock
from storage.authority.needles import forms, in_bytes, in_text
from storage.connection import open_database, reclaim, transaction
from storage.errors import Busy
from storage.paths import HomePaths, ProjectPaths
from storage.records import JsonValue, ProjectId, canonical_json

GONE: Final = b'{"v":0}'
"""A line that no reader of ours takes for an entry."""

BLANK_NOTES: Final = (
    "UPDATE jobs SET note = '' WHERE instr(note, ?1) > 0",
    "UPDATE jobs SET error = '' WHERE instr(error, ?1) > 0",
)
DELETE_MESSAGES: Final = (
    "DELETE FROM jobs WHERE state <> 'leased' AND instr(message, ?1) > 0",
    "DELETE FROM huey_values WHERE instr(value, ?1) > 0",
)
HELD_MESSAGES: Final = "SELECT 1 FROM jobs WHERE state = 'leased' AND instr(message, ?1) > 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What must go: the texts, and lines of our own log by file and number."""

    needles: tuple[str, ...]
    places: frozenset[tuple[str, int]] = frozenset()


def clean_project(home: HomePaths, project: ProjectId, wanted: Wanted) -> list[str]:
    """Blank the lines of every text file that holds the texts; names of what changed.

    Raises:
        Busy: a hook holds a staging file for long.
    """
    paths = home.project(project)
    changed: list[str] = []
    for folder in (paths.session_log, paths.root / "given"):
        files = _files(folder, "*.jsonl")
        changed += [f"{folder.name}/{file.name}" for file in files if _blank_lines(file, wanted)]
    for file in _files(home.shared / "staging", "*.jsonl"):
        with file_lock(file.with_suffix(".lock")):
            if file.exists() and _is_of(file, project) and _blank_lines(file, wanted):
                changed.append(f"staging/{file.name}")
    return changed + _clean_quarantine(paths, wanted)


def clean_queue(home: HomePaths, wanted: Wanted) -> bool:
    """Take the texts out of the queue's rows, and their bytes out of its file.

    Raises:
        Busy: a running job carries the text; it ends soon.
    """
    files = [home.queue, home.queue.with_name(home.queue.name + "-wal")]
    if not any(file.exists() and in_bytes(file.read_bytes(), wanted.needles) for file in files):
        return False
    with closing(open_database(home.queue)) as db:
        with transaction(db):
            for needle in wanted.needles:
                _clean_rows(db, needle)
        reclaim(db)
    return True


def leftovers(home: HomePaths, project: ProjectId, wanted: Wanted) -> list[str]:
    """Files of this project or shared by all that still hold a text, the store itself left out."""
    paths = home.project(project)
    store = {paths.database.name + end for end in ("", "-wal", "-shm")}
    found: list[str] = []
    for folder in (paths.root, home.shared):
        for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
            if file.name in store or paths.events in file.parents or not _is_plain(file):
                continue
            if in_bytes(file.read_bytes(), wanted.needles):
                found.append(str(file.relative_to(home.home)))
    return found


def _clean_rows(db: apsw.Connection, needle: str) -> None:
    for statement in BLANK_NOTES:
        db.execute(statement, (needle,))
    for form in forms(needle):
        if db.execute(HELD_MESSAGES, (form,)).fetchone() is not None:
            raise Busy("a running job carries the forgotten text; try again when it has ended")
        for statement in DELETE_MESSAGES:
            db.execute(statement, (form,))


def _clean_quarantine(paths: ProjectPaths, wanted: Wanted) -> list[str]:
    """Damaged files that were set aside: one that holds the text, or could hold it, goes."""
    removed: list[str] = []
    folder = paths.memory / "quarantine"
    for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if not _is_plain(file):
            continue
        # A database may hold the text compressed, or in a page that cannot be read any more; a
        # packed journal file holds it compressed, in a frame that cannot be read, maybe.
        if (
            ".sqlite" in file.name
            or file.suffix == ".br"
            or in_bytes(file.read_bytes(), wanted.needles)
        ):
            file.unlink()
            removed.append(f"quarantine/{file.name} (removed)")
    return removed


def _blank_lines(file: Path, wanted: Wanted) -> bool:
    changed = False
    fd = os.open(file, os.O_RDWR | NOFOLLOW)
    try:
        for number, start, line in _lines(os.pread(fd, os.fstat(fd).st_size, 0)):
            if (str(file), number) in wanted.places or _line_holds(line, wanted.needles):
                os.pwrite(fd, _replacement(line), start)
                changed = True
        if changed:
            os.fsync(fd)
    finally:
        os.close(fd)
    return changed


def _lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(1-based number, offset, line without its end)."""
    start = 0
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip() and line.strip() != GONE:
            yield number, start, line
        start += len(line) + 1


def _line_holds(line: bytes, needles: Sequence[str]) -> bool:
    if in_bytes(line, needles):
        return True
    try:
        decoded = json.loads(line)
    except ValueError:
        return False
    return any(in_text(text, needles) for text in _texts(decoded))


def _texts(value: JsonValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _texts(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _texts(item)


def _replacement(line: bytes) -> bytes:
    """The line without its content: the head of a staging file keeps whose it is."""
    kept = GONE
    with suppress(ValueError):
        decoded = json.loads(line)
        if isinstance(decoded, dict) and decoded.get("t") == "head":
            kept = canonical_json({**decoded, "carried": None})
    return (kept if len(kept) <= len(line) else b"").ljust(len(line))


def _is_of(file: Path, project: ProjectId) -> bool:
    first = file.read_bytes().split(b"\n", 1)[0]
    with suppress(ValueError):
        head = json.loads(first)
        return isinstance(head, dict) and head.get("project") == project
    return False


def _files(folder: Path, pattern: str) -> list[Path]:
    found = sorted(folder.glob(pattern)) if folder.is_dir() and not folder.is_symlink() else []
    return [file for file in found if _is_plain(file)]


def _is_plain(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()
