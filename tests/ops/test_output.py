"""What verbs print: foreign text cannot act on a terminal, and JSON is always one whole object."""

from __future__ import annotations

import io
import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ops.output import count, duration, pairs, printable, table, write_json

HOSTILE = "see \x1b[31mred\x1b[0m \x07\u202eabc [bold]not bold[/bold] :smile:\nnext"


@given(st.text())
def test_printable_text_has_no_character_that_acts(text: str) -> None:
    """No control, format, surrogate or unassigned character survives, and it is one line."""
    shown = printable(text)

    acting = [c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co", "Cn"}]
    assert [c for c in acting if c != "\N{ZERO WIDTH JOINER}"] == []
    assert len(shown.splitlines()) <= 1
    assert printable(shown) == shown


def test_a_table_shows_foreign_text_literally() -> None:
    """Escape sequences, rich's markup and emoji codes are shown, not obeyed."""
    stream = io.StringIO()
    screen = Console(file=stream, width=120, markup=False, emoji=False, highlight=False)

    screen.print(table(("what",), [(HOSTILE,)]))
    screen.print(pairs([("what", HOSTILE)]))

    out = stream.getvalue()
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count("[bold]not bold[/bold] :smile: next") == 2


def test_a_long_path_in_a_table_keeps_every_character() -> None:
    """Cells fold: what people copy from a table must be whole."""
    stream = io.StringIO()
    path = "/very" * 40 + "/session.jsonl:1234"

    Console(file=stream, width=60).print(table(("where",), [(path,)]))

    assert "".join(stream.getvalue().split()).endswith(path)


@given(st.dictionaries(st.text(max_size=5), st.text() | st.integers() | st.none(), max_size=4))
def test_json_is_one_line_that_reads_back(value: dict[str, str | int | None]) -> None:
    """Whatever a fact holds (lone surrogates too), a program can read the line."""
    stream = io.StringIO()

    write_json(value, stream)

    line = stream.getvalue()
    assert line.endswith("\n")
    assert len(line.split("\n")) == 2
    assert json.loads(line) == value


def test_lengths_of_time_and_counts_read_well() -> None:
    """The largest unit that fits, and the plural where it belongs."""
    assert [duration(ms) for ms in (0, 59_999, 60_000, 7_200_000, 172_800_000)] == [
        "0 s",
        "59 s",
        "1 min",
        "2 h",
        "2 d",
    ]
    assert count(1, "fact") == "1 fact"
    assert count(1200, "memory", "memories") == "1,200 memories"
