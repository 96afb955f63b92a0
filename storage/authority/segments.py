"""Closed journal files at rest: the same bytes, compressed frame by frame.

A packed file says how long its content is, then holds frames of at most 128 KiB, each with its
lengths and a checksum over what it stores, so every byte of the file proves itself and a reader
holds one frame at a time. Content, offsets and hashes are those of the plain file. Leaves which
files are closed, and putting one in a plain file's place, to `journal`.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import brotli  # type: ignore[import-untyped]  # ships no stubs

from storage.atomic import NOFOLLOW
from storage.errors import Corrupt

ENDING: Final = ".br"
FRAME_BYTES: Final = 131_072
QUALITY: Final = 4
"""Of 1.7 KB a line: 523 bytes at 91 MB/s; quality 5 gives 512 at 56, frames of 1 MiB 456."""

_MAGIC: Final = b"memoryd journal\x01"
_HEADER: Final = struct.Struct("<16sQI")
"""Magic, length of the content, checksum of both."""
_FRAME: Final = struct.Struct("<III")
"""Length of the content, length as stored, checksum of both and of what is stored."""


def length(path: Path) -> int:
    """Bytes of the content.

    Raises:
        Corrupt: not a packed journal file.
    """
    with _opened(path) as file:
        return _length(file, path)


def frames(path: Path, start: int = 0) -> Iterator[bytes]:
    """The content from an offset on, a frame at a time, each proven.

    Raises:
        Corrupt: a frame is damaged, or the file is cut short.
    """
    with _opened(path) as file:
        whole = _length(file, path)
        at = 0
        while at < whole:
            raw, stored, checksum = _frame(file, path)
            if at + raw <= start:
                # The end is looked at, so that a seek beyond it is no frame.
                file.seek(stored, os.SEEK_CUR)
                at += raw
                continue
            data = _content(file.read(stored), raw, stored, checksum, path)
            yield data[max(0, start - at) :]
            at += raw
        if at != whole or file.read(1):
            raise Corrupt(f"{path.name}: its frames are not as long as it says")


def salvage(path: Path) -> tuple[bytes, bool]:
    """What can be read of the content, and whether that is all of it."""
    found: list[bytes] = []
    whole = False
    with suppress(Corrupt, OSError), _opened(path) as file:
        wanted = _length(file, path)
        at, whole = 0, True
        while at < wanted:
            raw, stored, checksum = _frame(file, path)
            try:
                found.append(_content(file.read(stored), raw, stored, checksum, path))
            except Corrupt:
                # The lines that it cut through must not be taken for one.
                found.append(b"\n")
                whole = False
            at += raw
        whole = whole and at == wanted and not file.read(1)
        return b"".join(found), whole
    return b"".join(found), False


def write(source: BinaryIO, size: int, target: BinaryIO) -> None:
    """Pack `size` bytes of a stream.

    Raises:
        Corrupt: the stream ends before.
    """
    head = struct.pack("<16sQ", _MAGIC, size)
    target.write(head + struct.pack("<I", zlib.crc32(head)))
    while size:
        data = source.read(min(FRAME_BYTES, size))
        if not data:
            raise Corrupt("a journal file became shorter while it was packed")
        stored = brotli.compress(data, quality=QUALITY)
        lengths = struct.pack("<II", len(data), len(stored))
        target.write(lengths + struct.pack("<I", zlib.crc32(stored, zlib.crc32(lengths))))
        target.write(stored)
        size -= len(data)


class Content(io.RawIOBase):
    """The content of a packed file as a stream to read, from an offset on."""

    def __init__(self, path: Path, start: int) -> None:
        super().__init__()
        self._frames = frames(path, start)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer there
        while not self._left:
            self._left = memoryview(next(self._frames, b""))
            if not self._left:
                return 0
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _opened(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_RDONLY | NOFOLLOW), "rb")


def _length(file: BinaryIO, path: Path) -> int:
    head = file.read(_HEADER.size)
    if len(head) == _HEADER.size:
        magic, size, checksum = _HEADER.unpack(head)
        if magic == _MAGIC and checksum == zlib.crc32(head[:-4]):
            return int(size)
    raise Corrupt(f"{path.name}: not a packed journal file")


def _frame(file: BinaryIO, path: Path) -> tuple[int, int, int]:
    head = file.read(_FRAME.size)
    if len(head) < _FRAME.size:
        raise Corrupt(f"{path.name}: cut short")
    raw, stored, checksum = _FRAME.unpack(head)
    if not (0 < raw <= FRAME_BYTES and 0 < stored <= 2 * FRAME_BYTES):
        raise Corrupt(f"{path.name}: a frame of no possible length")
    return raw, stored, checksum


def _content(data: bytes, raw: int, stored: int, checksum: int, path: Path) -> bytes:
    lengths = struct.pack("<II", raw, stored)
    if len(data) == stored and zlib.crc32(data, zlib.crc32(lengths)) == checksum:
        with suppress(brotli.error):
            content: bytes = brotli.decompress(data)
            if len(content) == raw:
                return content
    raise Corrupt(f"{path.name}: a damaged frame")
