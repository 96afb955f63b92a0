"""Packing the journal: files that nobody adds to any more are put aside compressed.

A file is closed when its day is over or when it has grown to `SEGMENT_BYTES`: its writer takes a
new name then. The packed form is written beside it, synced, read back and compared; then, under the
write lock and only if the plain file is still the one that was packed, it gets its name, and the
plain file goes. A crash leaves the plain file, or both, or the packed one: each is the whole
content. Leaves the form to `segments`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

from storage.atomic import NOFOLLOW, sync_directory
from storage.authority import journal, segments
from storage.authority.journal import Stream
from storage.errors import Corrupt, unusable

SEGMENT_BYTES: Final = 8_388_608
SMALLEST: Final = 4_096
"""A file of one block gains nothing."""
_READ: Final = 1_048_576


def pack(
    events: Path,
    anchors: dict[Stream, int],
    today: str,
    lock: Callable[[], AbstractContextManager[object]],
) -> tuple[int, int]:
    """Pack every closed file whose anchored content is all of it; (files, bytes that it saved).

    `lock` is the authority's write lock.

    Raises:
        Unavailable: the folder cannot be written or the disk is full; nothing is lost.
        Busy: the write lock was not had in time.
    """
    files = saved = 0
    for stream, size in sorted(anchors.items()):
        closed = stream.day < today or size >= SEGMENT_BYTES
        if closed and size > SMALLEST and journal.size(stream.path(events)) == size:
            won = _pack(events, stream, size, lock)
            files += won is not None
            saved += won or 0
    return files, saved


def clear(events: Path) -> None:
    """Take away what interrupted runs left in the journal's folders; the caller holds the lock."""
    for left in _unfinished(events):
        left.unlink(missing_ok=True)


def _unfinished(events: Path) -> Iterator[Path]:
    if events.is_dir():
        yield from events.glob("*/.*.tmp")


def _pack(
    events: Path, stream: Stream, size: int, lock: Callable[[], AbstractContextManager[object]]
) -> int | None:
    """Bytes saved; None when the file changed meanwhile."""
    plain, packed = stream.path(events), stream.packed(events)
    unfinished = packed.with_name(f".{packed.name}.{os.urandom(6).hex()}.tmp")
    try:
        before = plain.lstat()
        _write(plain, unfinished, size)
        with lock():
            now = plain.lstat()
            if (now.st_ino, now.st_mtime_ns, now.st_size) != (
                before.st_ino,
                before.st_mtime_ns,
                size,
            ):
                return None
            unfinished.replace(packed)
            sync_directory(packed.parent)
            plain.unlink()
            sync_directory(packed.parent)
            return size - packed.stat().st_size
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise unusable(f"{packed.name}: cannot be written", cause) from cause
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _write(plain: Path, target: Path, size: int) -> None:
    """The packed form, synced and proven against the plain file."""
    wanted, found = hashlib.sha256(), hashlib.sha256()
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW, 0o600)
    with (
        os.fdopen(fd, "wb") as out,
        os.fdopen(os.open(plain, os.O_RDONLY | NOFOLLOW), "rb") as file,
    ):
        segments.write(file, size, out)
        out.flush()
        os.fsync(out.fileno())
        file.seek(0)
        while data := file.read(_READ):
            wanted.update(data)
    for frame in segments.frames(target):
        found.update(frame)
    if found.digest() != wanted.digest():
        raise Corrupt(f"{plain.name}: its packed form is not the same; it stays as it is")
