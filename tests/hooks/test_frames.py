"""Frames: whole lines out of any pieces, and nothing but our own requests accepted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.frames import (
    LineBuffer,
    answer_line,
    failure_line,
    parse_answer,
    parse_request,
    raw_line,
    request_line,
)
from storage.errors import Invalid


@given(
    st.lists(st.text(max_size=40).filter(lambda text: text.strip("\n\r ") != ""), max_size=8),
    st.lists(st.integers(1, 17), min_size=1, max_size=20),
)
def test_lines_do_not_depend_on_how_they_arrive(texts: list[str], cuts: list[int]) -> None:
    """However the bytes are cut, in the middle of a character too, the same lines come out."""
    lines = [json.dumps(text, ensure_ascii=False).encode("utf-8", "replace") for text in texts]
    stream = b"".join(line + b"\n" for line in lines)
    buffer = LineBuffer()

    got: list[bytes] = []
    at = number = 0
    while at < len(stream):
        size = cuts[number % len(cuts)]
        got += buffer.feed(stream[at : at + size])
        at += size
        number += 1

    assert got == lines


def test_a_line_that_never_ends_is_an_error() -> None:
    """A client cannot make the server's memory grow without bound."""
    buffer = LineBuffer(max_bytes=100)
    buffer.feed(b"x" * 90)

    with pytest.raises(Invalid):
        buffer.feed(b"x" * 20)


def test_a_finished_line_over_the_bound_is_an_error_too() -> None:
    """The bound holds for whole lines as well."""
    with pytest.raises(Invalid):
        LineBuffer(max_bytes=100).feed(b"y" * 101 + b"\n")


def test_a_request_comes_back_as_it_was_sent() -> None:
    """Envelope and fields survive, a lone surrogate included."""
    request = parse_request(request_line("7", "recall", {"query": "x\ud800", "limit": 3}))

    assert (request.id, request.op) == ("7", "recall")
    assert request.text("query") == "x\ud800"
    assert request.text("limit", "none") == "none"
    assert request.number("limit", 9, least=1, most=2) == 2
    assert request.number("query", 9, least=1, most=99) == 9


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"v":1}',
        b'{"v":1,"id":3,"op":"ping"}',
        b'{"v":2,"id":"a","op":"ping"}',
        b'{"id":"a","op":"ping"}',
        b'{"v":1,"id":"' + b"a" * 300 + b'","op":"ping"}',
        b"[" * 100_000,
        b'{"v":NaN,"id":"a","op":"ping"}',
    ],
)
def test_anything_else_is_refused(line: bytes) -> None:
    """What is no request of version 1 is an error with a name, never a crash."""
    with pytest.raises(Invalid):
        parse_request(line)


@given(st.binary(max_size=300))
def test_random_bytes_never_crash_the_parser(line: bytes) -> None:
    """Any bytes are a request or a refusal."""
    try:
        parse_request(line)
    except Invalid:
        return


def test_answers_name_their_request() -> None:
    """A client takes only the answer to what it asked."""
    assert parse_answer(answer_line("1", {"a": [1]}).strip(), "1") == {"a": [1]}
    with pytest.raises(Invalid):
        parse_answer(answer_line("2", {}).strip(), "1")
    with pytest.raises(Invalid, match="no room"):
        parse_answer(failure_line("1", "no room").strip(), "1")
    with pytest.raises(Invalid):
        parse_answer(b"[1]", "1")


def test_a_raw_answer_has_no_envelope() -> None:
    """A host that reads the line itself gets its own JSON, or an empty line."""
    assert raw_line(None) == b"\n"
    assert json.loads(raw_line({"x": "é\u2028"})) == {"x": "é\u2028"}
    assert raw_line({"x": "é\u2028"}).isascii()
