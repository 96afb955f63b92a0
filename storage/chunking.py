"""How a text becomes chunks: deterministic slices that together hold every word of it.

Blank lines part blocks; neighbouring blocks are folded up to the target size; a block longer than
the target is cut into overlapping windows, at a sentence or a space where one is near. Nothing is
dropped: only white space may lie between two slices. Leaves indexing to the containers.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from storage.records import ChunkId, DocumentKey, digest_of

TARGET_CHARS: Final = 1_200
OVERLAP_CHARS: Final = 160

_SENTENCE_END: Final = re.compile(r"[.!?;:](?=\s)|[。!?;、,।॥။។]|\n")


@dataclass(frozen=True, slots=True)
class Slice:
    """`text[start:end]` of a document."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk before it has a number."""

    ordinal: int
    chunk_id: ChunkId
    start: int
    """Where it begins in the text, in UTF-8 bytes."""
    bytes: int


def pieces(
    key: DocumentKey,
    title: str,
    text: str,
    *,
    target: int = TARGET_CHARS,
    overlap: int = OVERLAP_CHARS,
) -> tuple[Piece, ...]:
    """The chunks of a document, each standing under its title.

    An id is keyed on place and wording, so an edit gives new ids to the chunks it touched or moved
    and leaves the others (and their vectors) as they are.
    """
    found: list[Piece] = []
    seen = at = 0
    for ordinal, part in enumerate(slices(text, target=target, overlap=overlap)):
        body = text[part.start : part.end]
        digest = digest_of(key, str(ordinal), title, body)
        at += _bytes_of(text[seen : part.start])
        seen = part.start
        found.append(Piece(ordinal, ChunkId("chk_" + digest[:32]), at, _bytes_of(body)))
    return tuple(found)


def slices(
    text: str, *, target: int = TARGET_CHARS, overlap: int = OVERLAP_CHARS
) -> tuple[Slice, ...]:
    """Slices in order, none longer than `target`; a text of white space alone has none."""
    if not 0 <= overlap <= target // 3:
        raise ValueError("the overlap must lie between 0 and a third of the target")
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    if 0 < last - first <= target:
        return (Slice(first, last),)
    found: list[Slice] = []
    open_start = open_end = -1
    for start, end in _blocks(text):
        if open_start >= 0 and end - open_start <= target:
            open_end = end
            continue
        if open_start >= 0:
            found.append(Slice(open_start, open_end))
        open_start = -1
        if end - start <= target:
            open_start, open_end = start, end
        else:
            found.extend(_windows(text, start, end, target, overlap))
    if open_start >= 0:
        found.append(Slice(open_start, open_end))
    return tuple(found)


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each run of lines without a blank line, outer white space left out."""
    start = end = -1
    position = 0
    for line in text.splitlines(keepends=True):
        body = line.strip()
        if body:
            first = position + (len(line) - len(line.lstrip()))
            if start < 0:
                start = first
            end = position + len(line.rstrip())
        elif start >= 0:
            yield start, end
            start = -1
        position += len(line)
    if start >= 0:
        yield start, end


def _windows(text: str, start: int, end: int, target: int, overlap: int) -> Iterator[Slice]:
    at = start
    while end - at > target:
        cut = _cut(text, at, at + target)
        yield Slice(at, cut)
        at = _next_start(text, cut, max(at + 1, cut - overlap))
    yield Slice(at, end)


def _cut(text: str, start: int, limit: int) -> int:
    """Where a window ends: after a sentence, else at a space, else before a base character."""
    floor = start + (limit - start) * 2 // 3
    last = -1
    for match in _SENTENCE_END.finditer(text, floor, limit):
        last = match.end()
    if last > floor:
        return last
    space = max(text.rfind(" ", floor, limit), text.rfind("\t", floor, limit))
    if space > floor:
        return space
    cut = limit
    while cut > floor and unicodedata.combining(text[cut]):
        cut -= 1
    return cut


def _next_start(text: str, cut: int, wanted: int) -> int:
    """The first word that starts at or after `wanted`, never after the cut."""
    space = text.find(" ", wanted, cut)
    if space >= 0:
        return space + 1
    while wanted < cut and unicodedata.combining(text[wanted]):
        wanted += 1
    return wanted
