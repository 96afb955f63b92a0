"""JSON lines from a file that somebody else is still writing.

Owns the byte level: complete lines only, in bounded memory, from any offset. A line longer than the
bound is passed over without being held; a line that is no JSON object is counted, never fatal; a
last line without its newline is taken only when it already is a whole object (some hosts end a file
like that), otherwise it stays for later. Knows nothing of what a line means.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from storage.errors import SourceUnavailable
from storage.records import JsonValue

CHUNK_BYTES = 262_144
HEAD_BYTES = 4_096
_PADDING = b" \t\r\n\0"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Position:
    """Where the next line starts, and how many lines came before it."""

    offset: int = 0
    line: int = 0
    unterminated: bool = False
    """The last line read had no newline yet: one that follows closes it and counts for nothing."""


@dataclass(slots=True)
class Batch:
    """What one scan gave."""

    objects: list[tuple[int, Mapping[str, JsonValue]]] = field(default_factory=list)
    """(1-based line number, the object)."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Lines that could not be read, by reason: `too_long`, `not_json`, `not_object`."""
    position: Position = field(default_factory=Position)
    more: bool = False


def open_source(path: str) -> BinaryIO:
    """The file, opened for reading; never a symlink, a device or a pipe.

    Raises:
        SourceUnavailable: gone, unreadable, or not a plain file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as cause:
        raise SourceUnavailable("a source file cannot be opened") from cause
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise SourceUnavailable("a source is not a plain file")
    return os.fdopen(fd, "rb")


def size_of(file: BinaryIO) -> int:
    """Bytes in the file now."""
    return os.fstat(file.fileno()).st_size


def head_digest(file: BinaryIO, length: int) -> str:
    """Digest of the first `length` bytes: tells a grown file from a replaced one."""
    return hashlib.sha256(os.pread(file.fileno(), length, 0)).hexdigest()[:16]


def starts_line(file: BinaryIO, offset: int) -> bool:
    """Whether a line can start at `offset` (the byte before it ends one)."""
    return offset == 0 or os.pread(file.fileno(), 1, offset - 1) == b"\n"


def scan(file: BinaryIO, start: Position, *, limit: int, max_line_bytes: int) -> Batch:
    """Complete lines from `start` until about `limit` bytes were taken."""
    batch = Batch(position=start)
    taken = 0
    for raw, length, closed in _raw_lines(file, start, max_line_bytes):
        if not closed and (raw is None or _decode(raw)[0] is None):
            break  # torn: its writer will finish it
        if taken >= limit:
            batch.more = True
            break
        _take(batch, raw, length, closed)
        taken += length
    return batch


def _take(batch: Batch, raw: bytes | None, length: int, closed: bool) -> None:
    before = batch.position
    closes = before.unterminated and raw is not None and not raw.strip(_PADDING)
    number = before.line if closes else before.line + 1
    batch.position = Position(before.offset + length, number, not closed)
    if closes:
        return
    if raw is None:
        batch.skipped["too_long"] += 1
        return
    found, problem = _decode(raw)
    if found is not None:
        batch.objects.append((number, found))
    elif problem:
        batch.skipped[problem] += 1


def _decode(raw: bytes) -> tuple[Mapping[str, JsonValue] | None, str]:
    body = raw.strip(_PADDING).removeprefix(_BOM).strip(_PADDING)
    if not body:
        return None, ""
    try:
        found = json.loads(body.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None, "not_json"
    return (found, "") if isinstance(found, dict) else (None, "not_object")


def _raw_lines(
    file: BinaryIO, start: Position, max_line_bytes: int
) -> Iterator[tuple[bytes | None, int, bool]]:
    """(bytes or None when too long, length with its newline, whether a newline ended it)."""
    file.seek(start.offset)
    parts: list[bytes] = []
    length = 0
    while chunk := file.read(CHUNK_BYTES):
        at = 0
        while (end := chunk.find(b"\n", at)) >= 0:
            length += end + 1 - at
            parts.append(chunk[at : end + 1])
            yield (b"".join(parts) if length <= max_line_bytes else None), length, True
            parts, length, at = [], 0, end + 1
        length += len(chunk) - at
        if length <= max_line_bytes:
            parts.append(chunk[at:])
        else:
            parts = []
    if length:
        yield (b"".join(parts) if length <= max_line_bytes else None), length, False
