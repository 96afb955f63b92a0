"""Text and instants within bounds, before anything durable is built of them.

Pure functions that admission shares. Nothing is cut in silence: what must not be shortened is
refused, and what may be shows a mark where its middle was. Leaves redaction to its callers.
"""

from __future__ import annotations

import re
from typing import Final

from storage.clock import MAX_AT
from storage.errors import Refused

MAX_NAME_CHARS: Final = 512
_UNSTORABLE: Final = re.compile("[\ud800-\udfff\0]")
_CUT: Final = "\n[...]\n"


def clean(text: str) -> str:
    """The text as storable UTF-8: lone surrogates and NUL become U+FFFD."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def is_storable(text: str) -> bool:
    """Whether `clean` would leave the text as it is."""
    return _UNSTORABLE.search(text) is None


def shortened(text: str, max_bytes: int) -> str:
    """The text in at most `max_bytes`, its middle replaced by a mark when it was longer."""
    raw = text.encode("utf-8")
    if len(raw) <= max_bytes:
        return text
    room = max_bytes - len(_CUT)
    tail = room // 2
    head = raw[: room - tail].decode("utf-8", "ignore")
    return head + _CUT + raw[len(raw) - tail :].decode("utf-8", "ignore")


def within_bytes(what: str, text: str, max_bytes: int) -> None:
    """Check that there is text, and not too much.

    Raises:
        Refused: blank, or longer.
    """
    if not text.strip():
        raise Refused(f"{what} without text")
    size = len(text.encode("utf-8"))
    if size > max_bytes:
        raise Refused(f"{what} of {size} bytes; at most {max_bytes} are kept")


def instant(what: str, at: int) -> int:
    """The instant itself.

    Raises:
        Refused: outside the years 1970 to 9999.
    """
    if isinstance(at, bool) or not 0 <= at <= MAX_AT:
        raise Refused(f"{what}: {at} is not an instant between 1970 and 9999")
    return at


def interval(what: str, start: int, end: int | None) -> None:
    """Check a half-open interval; an empty one is allowed (a cancelled plan).

    Raises:
        Refused: inverted, or outside the calendar.
    """
    instant("start", start)
    if end is not None and instant("end", end) < start:
        raise Refused(f"{what} that ends before it starts")
