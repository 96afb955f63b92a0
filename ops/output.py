"""How a verb speaks: one JSON object for programs, or text and tables for people.

Owns the console and the making-safe of foreign text (facts and file names can hold terminal
control characters and rich's own markup; neither acts here). Leaves what to say to the verbs.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from storage.clock import iso
from storage.records import JsonValue

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

PIPED_WIDTH = 160
"""Columns when nobody's terminal (or COLUMNS) decides: wide enough that paths stay whole."""
MIN_WIDTH = 40
_PADDING = re.compile(r"[ \t]+(?=\n)")


def write_json(value: Mapping[str, JsonValue], stream: TextIO | None = None) -> None:
    """One object on one line, its keys in the order given."""
    text = json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)
    # A lone surrogate (a file name that is not UTF-8) has no UTF-8 form: escape it.
    safe = text.encode("utf-8", "backslashreplace").decode("utf-8")
    print(safe, file=stream or sys.stdout, flush=True)


def printable(text: str) -> str:
    """`text` on one line, without characters that act on a terminal or reorder what follows."""
    shown = []
    for character in text:
        category = unicodedata.category(character)
        if character in "\n\t\r" or category in {"Zl", "Zp"}:
            shown.append(" ")
        elif category in {"Cc", "Cf", "Cs", "Co", "Cn"}:
            shown.append("�" if character != "\N{ZERO WIDTH JOINER}" else character)
        else:
            shown.append(character)
    return "".join(shown)


class _Unpadded(io.TextIOBase):
    """A pipe or a file for a console: the blanks that fill a column up do not reach it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(_PADDING.sub("", text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()


def console(*, stderr: bool = False) -> Console:
    """A rich console for foreign text: no markup, no emoji codes, no guessing of highlights."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    wide = os.environ.get("COLUMNS", "")
    width = max(MIN_WIDTH, int(wide)) if wide.isdecimal() else PIPED_WIDTH
    # Any: TextIOBase is the IO[str] that rich asks for, but typeshed does not say so.
    piped: Any = _Unpadded(stream)
    return Console(file=piped, markup=False, emoji=False, highlight=False, width=width)


def styled(text: str, style: str = "") -> Text:
    """Foreign text as a rich Text, made safe."""
    from rich.text import Text

    return Text(printable(text), style=style)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Table:
    """A light table: a header line, no box; long cells fold instead of losing their end."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        # A column named ">n" holds numbers.
        right = column.startswith(">")
        made.add_column(
            column.lstrip(">"),
            overflow="fold",
            justify="right" if right else "left",
            no_wrap=right,
        )
    for row in rows:
        made.add_row(*(styled(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def pairs(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Names and values, in two columns without a header."""
    from rich.table import Table

    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, styled(value) if isinstance(value, str) else value)
    return made


def show(
    as_json: bool, value: Mapping[str, JsonValue], people: Iterable[RenderableType | str]
) -> None:
    """The verb's answer in the form that was asked for."""
    if as_json:
        write_json(value)
        return
    screen = console()
    for part in people:
        screen.print(part)


def moment(at: int | None) -> str:
    """An instant for people: local date and minute; "" for none."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def moment_json(at: int | None) -> JsonValue:
    """An instant for programs: ISO 8601 in UTC."""
    return None if at is None else iso(at)


def duration(ms: int) -> str:
    """A length of time in its largest unit that reads well: `4 s`, `3 min`, `2 h`, `5 d`."""
    seconds = abs(ms) // 1000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 fact`, `2 facts`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
