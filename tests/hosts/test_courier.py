"""The courier shortens JSON without reading it, and builds frames a server can read."""

import json
import posix
import re
import stat
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hooks import courier
from tests.hosts.fake_server import FakeServer

LETTERS: Final = st.sampled_from('aé漢😀"\\\n\t\0/u') | st.characters(codec="utf-8")
TEXT: Final = st.text(LETTERS, max_size=200)
HALF: Final = re.compile("[\ud800-\udfff]")
VALUES: Final = st.dictionaries(TEXT, TEXT | st.lists(TEXT, max_size=3), max_size=4)


@given(VALUES, st.booleans(), st.integers(12, 60))
@example({"0000\x1fࠀ𐀀𐀀\r𐀀0\r\r\x80\x80": ""}, False, 12)
def test_trimmed_json_is_still_json(value: dict[str, object], ascii_only: bool, keep: int) -> None:
    """Cutting strings at any place never breaks an escape, a character or the structure."""
    raw = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8")

    trimmed = courier.trim(raw, 2 * keep + 12, keep)

    assert isinstance(json.loads(trimmed.decode("utf-8")), dict)


@given(TEXT, st.booleans(), st.integers(12, 40))
def test_a_trimmed_string_keeps_its_two_ends(text: str, ascii_only: bool, keep: int) -> None:
    """What is left is the beginning and the end, with a mark between them when it was cut."""
    raw = json.dumps([text], ensure_ascii=ascii_only).encode("utf-8")

    (kept,) = json.loads(courier.trim(raw, 2 * keep + 12, keep))

    head, mark, tail = kept.partition("\n[...]\n")
    if mark:
        # Half a surrogate pair may stand at the cut; the server's bounds replace it.
        assert text.startswith(HALF.sub("", head))
        assert text.endswith(HALF.sub("", tail))
    else:
        assert kept == text


@pytest.mark.parametrize("raw", [b"", b"[]", b"null", b'{"a":1', b"text", b"{}\x00"])
def test_what_is_no_object_becomes_no_frame(raw: bytes) -> None:
    """A payload that is not a JSON object is not sent: there is nothing to read in it."""
    assert courier.build_frame("claude", "Stop", raw) == b""


@pytest.mark.parametrize(("host", "event"), [('a"', "Stop"), ("claude", 'S","x":"'), ("", "")])
def test_names_cannot_break_out_of_the_frame(host: str, event: str) -> None:
    """Host and event come from the command line and stand in the frame unescaped."""
    assert courier.build_frame(host, event, b"{}") == b""


def test_a_frame_is_one_line_whatever_the_payload_looks_like() -> None:
    """Pretty-printed JSON becomes one line with the same content."""
    payload = {"prompt": "two\nlines", "cwd": "/p"}

    frame = courier.build_frame("claude", "Stop", json.dumps(payload, indent=2).encode())

    assert frame.count(b"\n") == 1
    body = json.loads(frame)
    assert body["payload"] == payload
    assert (body["v"], body["op"], body["host"], body["event"]) == (1, "hook", "claude", "Stop")


def test_large_outputs_are_trimmed_and_a_prompt_gets_more_room() -> None:
    """A tool's output keeps 4 KiB of each end; a prompt is kept whole up to 32 KiB."""
    text = "A" * 10_000 + "\n" * 10_000 + "Z" * 10_000
    raw = json.dumps({"text": text}).encode()

    tool = json.loads(courier.build_frame("claude", "PostToolUse", raw))["payload"]["text"]
    said = json.dumps({"prompt": "A" * 32_000}).encode()
    prompt = json.loads(courier.build_frame("claude", "UserPromptSubmit", said))

    assert tool == "A" * 4096 + "\n[...]\n" + "Z" * 4096
    assert prompt["payload"]["prompt"] == "A" * 32_000


def test_a_payload_of_many_small_strings_is_not_sent_above_the_limit() -> None:
    """Only long strings can be cut; a frame that stays too large is dropped, not truncated."""
    raw = json.dumps({str(number): "x" * 50 for number in range(30_000)}).encode()

    assert courier.build_frame("claude", "PostToolUse", raw) == b""


def test_an_inherited_session_travels_with_the_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that another agent started says so; a value that could break JSON does not."""
    monkeypatch.setitem(posix.environ, b"MEMORYD_SESSION", b"12:0a-b")
    marked = json.loads(courier.build_frame("claude", "Stop", b'{"a":1}'))
    monkeypatch.setitem(posix.environ, b"MEMORYD_SESSION", b'1","x":"2')
    plain = json.loads(courier.build_frame("claude", "Stop", b'{"a":1}'))

    assert marked["payload"] == {"memoryd_parent": "12:0a-b", "a": 1}
    assert plain["payload"] == {"a": 1}


def test_a_server_inherits_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an agent's environment only what a server needs is passed on."""
    for name in (b"ANTHROPIC_API_KEY", b"CLAUDE_CODE_TOKEN", b"MEMORYD_SESSION", b"PI_MEMORY_HOME"):
        monkeypatch.setitem(posix.environ, name, b"x")

    kept = courier.server_environment()

    assert b"PI_MEMORY_HOME" in kept
    assert not {b"ANTHROPIC_API_KEY", b"CLAUDE_CODE_TOKEN", b"MEMORYD_SESSION"} & kept.keys()


def test_a_socket_of_another_user_is_not_spoken_to(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared temporary folder anybody can put a socket where ours would be."""
    with FakeServer(short_dir / "s"):
        courier.open_socket(str(short_dir / "s"), 1.0).close()
        monkeypatch.setattr(posix, "geteuid", lambda: -1)

        with pytest.raises(PermissionError):
            courier.open_socket(str(short_dir / "s"), 1.0)


def test_the_folder_of_the_socket_is_made_again(short_dir: Path) -> None:
    """After a reboot emptied the temporary folder a server can still be started, once."""
    path = str(short_dir / "gone/s")

    assert [courier.may_spawn(path), courier.may_spawn(path)] == [True, False]
    assert stat.S_IMODE((short_dir / "gone").stat().st_mode) == 0o700
