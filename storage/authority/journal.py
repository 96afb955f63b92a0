"""The journal: hash-chained JSONL files, `events/<UTC day>/<writer>.jsonl`.

A file that nobody adds to any more may lie there packed (`.jsonl.br`); where both are, the plain
one counts. Sizes and offsets are always those of the plain content. Appends are synced before they
return, and so are new folders' names. A file is written only under the authority's write lock, so
what a reader finds beyond the anchored size was left by a crash. Promises that no line is longer
than an event may be, and that an unfinished last line or batch is told apart from a broken file.
Leaves anchoring and applying to the indexed container, and choosing what is packed to `packing`.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from storage.atomic import NOFOLLOW, replace_file, sync_directory
from storage.authority import segments
from storage.authority.needles import in_bytes
from storage.authority.tombstones import KEPT_TYPES
from storage.connection import private_directory
from storage.errors import Corrupt, Unavailable
from storage.events import MAX_DOCUMENT_EVENT_BYTES, Event, parse_line

MAX_LINE_BYTES: Final = MAX_DOCUMENT_EVENT_BYTES + 4_096
"""A payload and its envelope."""
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_FILE: Final = re.compile(r"(writer_[0-9a-f]{16})\.jsonl(?:\.br)?")


@dataclass(frozen=True, slots=True, order=True)
class Stream:
    """One writer's file of one day."""

    day: str
    writer: str

    def path(self, events: Path) -> Path:
        return events / self.day / f"{self.writer}.jsonl"

    def packed(self, events: Path) -> Path:
        return events / self.day / f"{self.writer}.jsonl{segments.ENDING}"


@dataclass(frozen=True, slots=True)
class Located:
    """An event and where its line lies."""

    event: Event
    stream: Stream
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Written:
    """What an append added; `undo` takes it back while the write lock is still held."""

    path: Path
    before: int
    after: int

    def undo(self) -> bool:
        """Cut the file back; False when that failed and the lines stay."""
        try:
            fd = os.open(self.path, os.O_WRONLY | NOFOLLOW)
            try:
                os.ftruncate(fd, self.before)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError:
            return False
        return True


def streams(events: Path) -> list[Stream]:
    """Every file of the journal, oldest day first."""
    found: set[Stream] = set()
    try:
        days = sorted(
            entry.name for entry in os.scandir(events) if entry.is_dir(follow_symlinks=False)
        )
    except FileNotFoundError:
        return []
    for day in days:
        if _DAY.fullmatch(day):
            for entry in os.scandir(events / day):
                match = _FILE.fullmatch(entry.name)
                if match:
                    found.add(Stream(day, match.group(1)))
    return sorted(found)


def size(path: Path) -> int:
    """Bytes of a journal file; 0 when there is none.

    Raises:
        Corrupt: something else stands there.
    """
    try:
        info = path.lstat()
    except FileNotFoundError:
        return 0
    except OSError as cause:
        raise Unavailable(f"{path.name}: cannot be read ({cause.strerror})") from cause
    if not stat.S_ISREG(info.st_mode):
        raise Corrupt(f"{path.name}: not a plain journal file")
    return info.st_size


def length(events: Path, stream: Stream) -> int:
    """Bytes of a file's content, however it lies there; 0 when there is none, or none to be read.

    Raises:
        Corrupt: something else stands there.
    """
    plain = size(stream.path(events))
    packed = stream.packed(events)
    if plain or not size(packed):
        return plain
    try:
        return segments.length(packed)
    except FileNotFoundError:
        return size(stream.path(events))
    except OSError as cause:
        raise Unavailable(f"{packed.name}: cannot be read ({cause.strerror})") from cause
    except Corrupt:
        return 0


def opened(events: Path, stream: Stream, start: int = 0) -> BinaryIO:
    """A file's content from an offset on, however it lies there.

    Raises:
        OSError: there is none, or it cannot be read.
    """
    # Twice, because the plain file may be packed between a look at the one and at the other.
    for _ in range(2):
        with suppress(FileNotFoundError):
            file = os.fdopen(os.open(stream.path(events), os.O_RDONLY | NOFOLLOW), "rb")
            file.seek(start)
            return file
        packed = stream.packed(events)
        if size(packed):
            return io.BufferedReader(segments.Content(packed, start), segments.FRAME_BYTES)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(stream.path(events)))


def salvage(events: Path, stream: Stream) -> tuple[bytes, bool]:
    """What can be read of a file, and whether that is all of its content."""
    path = stream.path(events)
    if size(path):
        return path.read_bytes(), True
    packed = stream.packed(events)
    return segments.salvage(packed) if size(packed) else (b"", True)


def rewrite(events: Path, stream: Stream, content: bytes) -> None:
    """Put other content in a file's place; it lies there plain.

    Raises:
        Unavailable: the folder cannot be written or the disk is full.
    """
    private_directory(events)
    private_directory(stream.path(events).parent)
    replace_file(stream.path(events), content)
    drop_packed(events, stream)


def drop_packed(events: Path, stream: Stream) -> None:
    """Take away the packed form, which no longer counts."""
    packed = stream.packed(events)
    if size(packed):
        packed.unlink(missing_ok=True)
        sync_directory(packed.parent)


def append(
    events: Path, stream: Stream, lines: Sequence[bytes], *, before: int | None = None
) -> Written:
    """Add whole lines and sync them, and the folder names on the way; on failure, take them back.

    `before` is the file's size where the caller has just seen it.

    Raises:
        Unavailable: the disk is full or the folder cannot be written.
    """
    return append_bytes(events, stream, b"\n".join((*lines, b"")), before=before)


def append_bytes(
    events: Path, stream: Stream, data: bytes, *, before: int | None = None
) -> Written:
    """The same for lines that are joined already."""
    path = stream.path(events)
    try:
        if before is None:
            before = size(path)
        if before == 0:
            private_directory(events)
            private_directory(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | NOFOLLOW, 0o600)
    except OSError as cause:
        raise Unavailable(f"{path.name}: cannot be written ({cause.strerror})") from cause
    written = Written(path, before, before + len(data))
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        if before == 0:
            # Also where the file is there already: whoever made it may not have come this far.
            for folder in (path.parent, events, events.parent):
                sync_directory(folder)
    except OSError as cause:
        written.undo()
        raise Unavailable(f"{path.name}: cannot be written ({cause.strerror})") from cause
    return written


def read(
    events: Path, stream: Stream, *, start: int = 0, limit: int | None = None
) -> Iterator[Located]:
    """The events of one file in order; an unfinished last line ends it.

    Raises:
        Corrupt: a whole line is no event, is too long, or belongs to another writer.
    """
    path = stream.path(events)
    at = start
    try:
        with opened(events, stream, start) as file:
            while limit is None or at < limit:
                line = file.readline(MAX_LINE_BYTES + 1)
                if not line.endswith(b"\n"):
                    if len(line) > MAX_LINE_BYTES:
                        raise Corrupt(f"{path.name}: a line beyond the bound at byte {at}")
                    return
                yield Located(_parse(line, path, at, stream), stream, at, at + len(line))
                at += len(line)
    except OSError as cause:
        raise Unavailable(f"{path.name}: cannot be read ({cause.strerror})") from cause


def blank(events: Path, stream: Stream, ids: frozenset[str], needles: Sequence[str]) -> bool:
    """Erase the payloads of some events, and damaged lines that hold a needle.

    Every byte keeps its place, so anchors hold before and after. False when nothing was erased.
    """
    with opened(events, stream) as file:
        before = file.read()
    after = b"\n".join(_blanked(line, ids, needles) for line in before.split(b"\n"))
    if after == before:
        # A packed form beside a plain one was left by a crash, and nobody looks into it.
        if size(stream.path(events)):
            drop_packed(events, stream)
        return False
    rewrite(events, stream, after)
    return True


def _blanked(line: bytes, ids: frozenset[str], needles: Sequence[str]) -> bytes:
    if not line.strip():
        return line
    try:
        event = parse_line(line)
    except Corrupt:
        return b" " * len(line) if in_bytes(line, needles) else line
    if event.event_id not in ids or event.payload is None or event.type in KEPT_TYPES:
        return line
    erased = replace(event, payload=None).line()
    # Blanks behind a JSON value are allowed: the line keeps its length.
    return erased.ljust(len(line)) if len(erased) <= len(line) else line


def batches(found: Iterator[Located]) -> Iterator[list[Located]]:
    """Whole batches; the events of one that a crash cut short are left out."""
    batch: list[Located] = []
    for item in found:
        batch.append(item)
        if item.event.more == 0:
            yield batch
            batch = []


def _parse(line: bytes, path: Path, at: int, stream: Stream) -> Event:
    try:
        event = parse_line(line)
    except Corrupt as fault:
        raise Corrupt(f"{path.name}: the line at byte {at}: {fault}") from fault
    if event.writer != stream.writer:
        raise Corrupt(f"{path.name}: the line at byte {at} belongs to another writer")
    return event
