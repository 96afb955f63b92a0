"""Redacting a stream: text of any length in, the same text without credentials out.

Owns cutting a long input where no credential can span the cut, and the line protocol of programs
(one JSON string a line in, one out). Promises memory that does not grow with the input (a single
credential longer than a window aside), cost that grows linearly with it, and that bytes that are
no UTF-8 come out as they went in. Leaves what is a credential to `storage.redaction`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import BinaryIO, Final

from storage.errors import Invalid
from storage.redaction import findings, redact

WINDOW_CHARS: Final = 1_048_576
"""Text that is judged together."""
_MARGIN: Final = 65_536
"""What stays for the next window: words that belong together stand closer than this."""
_READ_BYTES: Final = 262_144


def scrub(source: BinaryIO, target: BinaryIO, *, window: int = WINDOW_CHARS) -> None:
    """Copy a stream without its credentials."""
    held = ""
    wanted = window
    for text in _decoded(source):
        held += text
        if len(held) < wanted:
            continue
        cut = _cut(held, min(_MARGIN, window // 4))
        if cut:
            target.write(_encoded(redact(held[:cut])))
            held = held[cut:]
        # One finding fills the window: twice as much must come before it is looked at again.
        wanted = max(window, 2 * len(held))
    target.write(_encoded(redact(held)))
    target.flush()


def scrub_lines(source: BinaryIO, target: BinaryIO) -> None:
    """Copy lines that are JSON strings, each redacted by itself; blank lines stay blank.

    Raises:
        Invalid: a line is no JSON string; the lines before it were written.
    """
    for number, line in enumerate(source, 1):
        if not line.strip():
            target.write(b"\n")
            continue
        try:
            text = json.loads(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as cause:
            raise Invalid(f"line {number} is not JSON") from cause
        if not isinstance(text, str):
            raise Invalid(f"line {number} is not a JSON string")
        target.write(json.dumps(redact(text)).encode("ascii") + b"\n")
        target.flush()


def _cut(text: str, margin: int) -> int:
    """Where `text` may be parted: a blank line, else a line's end, in no finding; 0 if nowhere."""
    last = len(text) - margin
    spans = [(each.start, each.end) for each in findings(text)]
    for mark in ("\n\n", "\n", " ", ""):
        at = text.rfind(mark, 0, last) + len(mark) if mark else last
        for start, end in reversed(spans):
            if start < at < end:
                at = text.rfind(mark, 0, start) + len(mark) if mark else start
        if at > len(mark) and at > (len(text) // 2 if mark == "\n\n" else 0):
            return at
    return 0


def _decoded(source: BinaryIO) -> Iterator[str]:
    import codecs

    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    while raw := source.read(_READ_BYTES):
        yield decoder.decode(raw)
    yield decoder.decode(b"", final=True)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
