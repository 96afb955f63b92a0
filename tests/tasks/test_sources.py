"""Transcripts are read in any number of windows, whatever state the file is in."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.errors import SourceUnavailable
from storage.records import SourceCursor
from tasks.sources import Checkouts, Record, SourceAdapter, ToolResult, UserMessage
from tasks.sources.claude import ClaudeSource
from tasks.sources.pi import PiSource
from tasks.sources.transcript import has_news, is_unchanged
from tests.learning import claude_line, lines, pi_header, pi_ran, pi_result, pi_said, read_all

HERE = "/home/dev/harbor"
LIMIT = 1 << 16
ROOT = Path(__file__).resolve().parent.parent.parent


def _pi(folder: Path, *, max_line_bytes: int = 1 << 20) -> PiSource:
    return PiSource(folder, Checkouts((HERE,)), max_line_bytes=max_line_bytes)


def _start(adapter: SourceAdapter, path: Path) -> SourceCursor:
    return SourceCursor(adapter=adapter.name, locator=str(path), offset=0, line=0)


def _said(records: list[Record]) -> list[str]:
    return [record.text for record in records if isinstance(record, UserMessage)]


def _session(*texts: str) -> bytes:
    return lines([pi_header(HERE), *(pi_said(n, text) for n, text in enumerate(texts, 1))])


def test_a_window_ends_at_its_limit_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """A limit bounds each read; no line is lost or read twice at the seam."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(_session(*(f"message number {n}" for n in range(40))))

    assert _said(read_all(_pi(tmp_path), str(path), limit=300)) == [
        f"message number {n}" for n in range(40)
    ]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=12), limit=st.integers(1, 4_000))
def test_any_splitting_of_a_growing_file_gives_the_records_of_one_read(
    tmp_path: Path, cuts: list[int], limit: int
) -> None:
    """Reading while the file grows by arbitrary bytes equals reading it whole, line numbers too."""
    whole = (ROOT / "ops/sample/pi-session.jsonl").read_bytes().replace(b"\n", b"\r\n")
    whole = b"\xef\xbb\xbf" + whole[:9_000] + b"\n" + whole[9_000:] + b'{"type":"mess'
    path = tmp_path / "grows.jsonl"
    adapter = _pi(tmp_path)
    path.write_bytes(whole)
    expected = read_all(adapter, str(path))
    cursor = _start(adapter, path)
    found: list[Record] = []

    for end in [*sorted(min(cut, len(whole)) for cut in cuts), len(whole)]:
        path.write_bytes(whole[:end])
        more = True
        while more:
            window = adapter.read(cursor, limit=limit)
            found += window.records
            cursor, more = window.cursor_after, window.more
            assert not window.restarted

    assert found == expected


def test_a_line_beyond_the_bound_is_passed_over_without_being_held(tmp_path: Path) -> None:
    """A 40 MB line costs neither memory nor its neighbours, and is counted."""
    path = tmp_path / "s.jsonl"
    huge = json.dumps(pi_said(2, "x" * 40_000_000)).encode()
    path.write_bytes(_session("before the big one") + huge + b"\n")
    with path.open("ab") as file:
        file.write(json.dumps(pi_said(3, "after the big one")).encode() + b"\n")
    del huge
    adapter = _pi(tmp_path, max_line_bytes=100_000)

    tracemalloc.start()
    window = adapter.read(_start(adapter, path), limit=1 << 30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert _said(list(window.records)) == ["before the big one", "after the big one"]
    assert window.gaps == {"too_long": 1}
    assert window.cursor_after.skipped == 1
    assert peak < 4_000_000


def test_a_torn_last_line_is_left_for_later(tmp_path: Path) -> None:
    """Half a line is not consumed; once it is whole it is read, once."""
    path = tmp_path / "s.jsonl"
    last = json.dumps(pi_said(2, "the second message")).encode()
    path.write_bytes(_session("the first message") + last[:30])
    adapter = _pi(tmp_path)

    first = adapter.read(_start(adapter, path), limit=LIMIT)
    path.write_bytes(_session("the first message") + last + b"\n")
    second = adapter.read(first.cursor_after, limit=LIMIT)

    assert _said(list(first.records)) == ["the first message"]
    assert _said(list(second.records)) == ["the second message"]
    assert (second.cursor_after.skipped, second.more) == (0, False)


def test_a_whole_last_line_without_newline_is_read(tmp_path: Path) -> None:
    """Some hosts end a file without a newline; the line counts, and its newline later does not."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(_session("one message here").rstrip(b"\n"))
    adapter = _pi(tmp_path)

    first = adapter.read(_start(adapter, path), limit=LIMIT)
    with path.open("ab") as file:
        file.write(b"\n" + json.dumps(pi_said(2, "and another one")).encode() + b"\n")
    second = adapter.read(first.cursor_after, limit=LIMIT)

    assert _said(list(first.records)) == ["one message here"]
    (record,) = second.records
    assert isinstance(record, UserMessage)
    assert (record.text, record.line) == ("and another one", 3)


def test_lines_that_are_no_objects_are_counted_and_do_no_harm(tmp_path: Path) -> None:
    """Garbage, arrays, deep nesting, NULs, a lone surrogate, CRLF: never fatal."""
    path = tmp_path / "s.jsonl"
    body = [
        b"\xef\xbb\xbf" + json.dumps(pi_header(HERE)).encode() + b"\r",
        b"\0" * 500,
        b"{not json}",
        b"[1, 2]",
        b"[" * 100_000,
        b'{"type": "message", "message": [1], "id": 7}',
        b'{"type": "message", "message": {"role": "user", "content": {"a": 1}}}',
        b"\0\0" + json.dumps(pi_said(1, "kept \ud800 text")).encode() + b"\r",
        b"",
    ]
    path.write_bytes(b"\n".join(body))
    adapter = _pi(tmp_path)

    window = adapter.read(_start(adapter, path), limit=1 << 20)

    (text,) = _said(list(window.records))
    assert text.startswith("kept ")
    assert text.encode("utf-8")
    assert window.gaps == {"not_json": 2, "not_object": 1}


@pytest.mark.parametrize("fate", ["truncated", "replaced", "rewritten"])
def test_a_file_that_is_no_longer_the_same_is_read_from_its_start(
    tmp_path: Path, fate: str
) -> None:
    """Shorter than the cursor, or with another head, or a line boundary gone: start again."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(_session("one of the first", "two of the first"))
    adapter = _pi(tmp_path)
    before = adapter.read(_start(adapter, path), limit=LIMIT).cursor_after
    fates = {
        "truncated": _session("one of the first"),
        "replaced": lines([pi_header(HERE, id="other"), pi_said(1, "one of the other")])
        + b"\n" * 600,
        "rewritten": _session("one of the first", "two of the first, and longer now"),
    }
    path.write_bytes(fates[fate])

    assert has_news(before)
    window = adapter.read(before, limit=LIMIT)

    assert window.restarted
    assert _said(list(window.records))[0].startswith("one of the")


def test_an_abandoned_torn_file_is_no_news(tmp_path: Path) -> None:
    """A torn tail that nobody finishes is looked at once, not at every sync."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(_session("a message that is whole") + b'{"type": "mes')
    adapter = _pi(tmp_path)

    after = adapter.read(_start(adapter, path), limit=LIMIT).cursor_after

    assert not has_news(after)
    assert is_unchanged(after)


def test_what_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    """Links, folders and missing files are unavailable sources, not crashes."""
    (tmp_path / "real.jsonl").write_bytes(_session("hello there"))
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "real.jsonl")
    adapter = _pi(tmp_path)

    for name in ("link.jsonl", "missing.jsonl", "."):
        with pytest.raises(SourceUnavailable):
            adapter.read(_start(adapter, tmp_path / name), limit=LIMIT)


def test_the_carried_state_is_small_and_free_of_credentials(tmp_path: Path) -> None:
    """Open calls travel in the cursor: bounded in number and length, redacted."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    calls = [
        pi_ran(n, f"curl -H 'Authorization: Bearer {secret}' {'x' * 900}") for n in range(1, 200)
    ]
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines([pi_header(HERE), *calls]))
    adapter = _pi(tmp_path)

    state = adapter.read(_start(adapter, path), limit=1 << 22).cursor_after.state

    assert secret not in state
    assert len(state) < 32_768


def test_a_result_finds_its_call_across_windows(tmp_path: Path) -> None:
    """The command of a result is known even when its call was read a window earlier."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines([pi_header(HERE), pi_ran(1, "make all"), pi_result(2, "done")]))

    results = [r for r in read_all(_pi(tmp_path), str(path), limit=1) if isinstance(r, ToolResult)]

    assert [(r.tool, r.input, r.output) for r in results] == [("bash", "make all", "done")]


@pytest.mark.parametrize("host", ["pi", "claude"])
def test_every_recorded_transcript_reads_alike_in_windows_of_any_size(
    shared_dir: Path, host: str
) -> None:
    """Real files, damaged ones included: small windows give exactly the records of one read."""
    everywhere = Checkouts(("/",))
    folder = Path("/")
    adapter: SourceAdapter = (
        PiSource(folder, everywhere, max_line_bytes=1 << 23)
        if host == "pi"
        else ClaudeSource(folder, everywhere, max_line_bytes=1 << 23)
    )
    files = sorted((shared_dir / "data/sessions" / host).rglob("*.jsonl"))
    assert files

    for path in files:
        whole = read_all(adapter, str(path), limit=1 << 30)
        assert read_all(adapter, str(path), limit=5_000) == whole, path.name


def test_a_cursor_of_unreadable_state_starts_again(tmp_path: Path) -> None:
    """State that this version cannot read means reading again, never trusting an offset."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(_session("one message here"))
    adapter = _pi(tmp_path)
    cursor = adapter.read(_start(adapter, path), limit=LIMIT).cursor_after

    window = adapter.read(replace(cursor, state="{oops", offset=7), limit=LIMIT)

    assert window.restarted
    assert _said(list(window.records)) == ["one message here"]


def test_claude_lines_of_unknown_shape_are_passed_over(tmp_path: Path) -> None:
    """A growing format: whatever is not understood yields nothing and raises nothing."""
    odd: list[dict[str, object]] = [
        claude_line(1, "user", None, HERE),
        claude_line(2, "user", [None, 3, {"type": "text"}], HERE),
        claude_line(3, "assistant", [{"type": "tool_use"}], HERE),
        claude_line(4, "user", [{"type": "tool_result", "content": [{}]}], HERE, toolUseResult="x"),
        {**claude_line(5, "user", "text", HERE), "message": "a string"},
        {**claude_line(6, "user", "text", HERE), "timestamp": {"odd": 1}, "cwd": 5},
    ]
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines(odd))
    adapter = ClaudeSource(tmp_path, Checkouts((HERE,)), max_line_bytes=1 << 20)

    assert _said(read_all(adapter, str(path))) == []
