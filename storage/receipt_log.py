"""What recall leaves behind of each answered prompt: `<project>/memory/receipts/<UTC day>.jsonl`.

Owns the files: one JSON object a line, one write a line, two files a day at most, as many days as
the settings say. Promises that no line is torn by another writer and that a torn one costs only
itself. Not synced: a receipt explains, it is no memory, and a power loss may take the last ones.
What a line says is `retrieval.receipts`'s business; no text of anybody may be in it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.atomic import NOFOLLOW
from storage.clock import DAY_MS, utc_day
from storage.connection import private_directory
from storage.errors import unusable
from storage.paths import ProjectPaths
from storage.records import JsonValue

FILE_BYTES: Final = 1_048_576
"""A full file becomes the day's older one, in place of the one before."""
LINE_BYTES: Final = 16_384
_NAME: Final = re.compile(r"(?P<day>\d{4}-\d{2}-\d{2})(?:\.old)?\.jsonl")


def append(
    paths: ProjectPaths, value: Mapping[str, JsonValue], *, now: int, keep_days: int
) -> bool:
    """Write one receipt down; False when it is too long to be one.

    Raises:
        Unavailable: the folder or the file cannot be written.
    """
    line = json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    if len(line) > LINE_BYTES:
        return False
    folder = private_directory(paths.receipts)
    file = folder / f"{utc_day(now)}.jsonl"
    try:
        fresh = _append(file, line)
    except OSError as cause:
        raise unusable(f"{file}: cannot be appended to", cause) from cause
    if fresh:
        prune(paths, now=now, keep_days=keep_days)
    return True


def newest_first(paths: ProjectPaths) -> Iterator[Mapping[str, JsonValue]]:
    """Every receipt that is kept, the last one first; a line that is no JSON object is skipped."""
    for file in sorted(_files(paths), key=_place, reverse=True):
        try:
            lines = file.read_bytes().split(b"\n")
        except FileNotFoundError:
            continue
        except OSError as cause:
            raise unusable(f"{file}: cannot be read", cause) from cause
        for line in reversed(lines):
            with suppress(ValueError, RecursionError):
                value = json.loads(line) if line else None
                if isinstance(value, dict):
                    yield value


def prune(paths: ProjectPaths, *, now: int, keep_days: int) -> int:
    """Remove the files of days that are over for longer; returns how many."""
    oldest = utc_day(max(0, now - keep_days * DAY_MS))
    over = [file for file in _files(paths) if file.name[:10] < oldest]
    for file in over:
        with suppress(OSError):
            file.unlink()
    return len(over)


def _append(file: Path, line: bytes) -> bool:
    """Whether the line is its file's first one."""
    size = _write(file, line)
    if size < FILE_BYTES:
        return size == 0
    # Two writers may both see it full: the second finds the fresh file far from full, and goes on.
    with suppress(FileNotFoundError):
        if file.stat().st_size >= FILE_BYTES:
            file.replace(file.with_name(file.name.replace(".jsonl", ".old.jsonl")))
    return False


def _write(file: Path, line: bytes) -> int:
    """The file's size before the line."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NOFOLLOW, 0o600)
    try:
        size = os.fstat(fd).st_size
        # The line's own end comes first: what a writer that died left open ends here.
        os.write(fd, b"\n" + line)
        return size
    finally:
        os.close(fd)


def _files(paths: ProjectPaths) -> list[Path]:
    with suppress(OSError):
        return [
            paths.receipts / entry.name
            for entry in os.scandir(paths.receipts)
            if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)
        ]
    return []


def _place(file: Path) -> tuple[str, bool]:
    """Oldest first: a day's older file stands before the one that is written."""
    return file.name[:10], ".old." not in file.name
