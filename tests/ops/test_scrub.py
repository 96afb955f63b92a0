"""`ops redact` on streams: whatever their length, and whatever bytes they hold."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scrub import scrub, scrub_lines
from storage.errors import Invalid
from storage.redaction import redact
from tests.credentials import seeds

SEEDS = seeds()
PROSE = "The harbor opens at six and the cranes are checked before the first ship arrives.\n"


def scrubbed(data: bytes, *, window: int = 1 << 20) -> bytes:
    target = io.BytesIO()
    scrub(io.BytesIO(data), target, window=window)
    return target.getvalue()


def ops_redact(data: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "ops", "redact", *words],
        input=data,
        capture_output=True,
        check=False,
        timeout=120,
    )


@given(st.binary(max_size=400))
def test_bytes_without_credentials_come_out_as_they_went_in(data: bytes) -> None:
    """NUL, invalid UTF-8, no newline at the end: a filter changes what it must, nothing else."""
    text = data.decode("utf-8", "surrogateescape")

    assert scrubbed(data) == redact(text).encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("window", [600, 4_096, 1 << 20])
def test_no_credential_slips_through_between_two_windows(window: int) -> None:
    """However the text is cut, every seed is gone and the prose around it is whole."""
    parts = []
    for number, seed in enumerate(SEEDS):
        parts.append(PROSE * (number % 4 + 1) + f"\n{seed.phrase}\n\n")
    data = "".join(parts).encode()

    result = scrubbed(data, window=window)

    assert [seed.name for seed in SEEDS if any(part in result for part in seed.parts)] == []
    assert result.count(PROSE.encode()) == data.count(PROSE.encode())


def test_a_text_without_line_breaks_is_cut_beside_its_credentials() -> None:
    """One long line, as minified JSON is."""
    token = next(seed for seed in SEEDS if seed.name == "github-token")
    data = (f'{{"k":"{token.secret}","w":"{"harbor " * 40}"}},' * 60).encode()

    result = scrubbed(data, window=1_000)

    assert token.secret.encode() not in result
    assert result.count(b"harbor ") == data.count(b"harbor ")


def test_a_window_that_is_one_credential_is_taken_whole() -> None:
    """A key longer than the window grows it; nothing of the key comes out."""
    kind = "PRIVATE" + " KEY"
    lines = [base64.b64encode(bytes([number] * 48)).decode() for number in range(200)]
    data = "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", PROSE]).encode()

    result = scrubbed(data, window=800)

    assert [line for line in lines if line.encode() in result] == []
    assert result.endswith(PROSE.encode())


def test_memory_stays_bounded_and_cost_linear() -> None:
    """Four times the text takes about four times as long (a generous bound), not sixteen."""
    once = (PROSE * 40 + f"password={'v7Kq2x' + 'Rw9mTz4L'}\n\n").encode() * 120

    def seconds(data: bytes) -> float:
        began = time.process_time()
        scrubbed(data, window=65_536)
        return time.process_time() - began

    seconds(once)
    small, large = seconds(once), seconds(once * 4)

    assert large < 12 * small


def test_lines_of_json_strings_are_answered_line_by_line() -> None:
    """One string in, one out, each by itself; escapes and blank lines survive."""
    token = next(seed for seed in SEEDS if seed.name == "github-token").secret
    given_lines = [f"use {token} now", "plain", "", "two\nlines\0", "\ud800 lone"]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in given_lines) + b"\n"

    done = ops_redact(data, "--json")

    assert done.returncode == 0, done.stderr
    *lines, blank = done.stdout.split(b"\n")[:-1]
    assert [json.loads(line) for line in lines] == [redact(line) for line in given_lines]
    assert blank == b""
    assert token.encode() not in done.stdout


@pytest.mark.parametrize("line", [b"{}", b"[1]", b"7", b"null", b"plain", b'"open', b"\xff"])
def test_a_line_that_is_no_json_string_is_named(line: bytes) -> None:
    """With its number; what came before it was answered."""
    target = io.BytesIO()

    with pytest.raises(Invalid, match="line 2"):
        scrub_lines(io.BytesIO(b'"fine"\n' + line + b"\n"), target)

    assert target.getvalue() == b'"fine"\n'


def test_the_verb_filters_bytes() -> None:
    """From standard input to standard output, byte for byte but for the secret."""
    token = next(seed for seed in SEEDS if seed.name == "github-token").secret.encode()

    done = ops_redact(b"a\0b \xff\xfe " + token + b" c")

    assert done.returncode == 0, done.stderr
    assert done.stdout == b"a\0b \xff\xfe [redacted:github-token] c"
