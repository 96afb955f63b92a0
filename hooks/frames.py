"""The wire between a hook's client and the recall server: one JSON object a line, version 1.

Owns the bounds and the spelling of frames, nothing else: a request names an `op` and carries that
op's own fields; an answer repeats the request's `id`. Imports nothing but `json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from storage.errors import Invalid
from storage.records import JsonValue

VERSION: Final = 1
MAX_FRAME_BYTES: Final = 1_048_576
MAX_ID_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class Request:
    """One frame from a client, its envelope checked."""

    id: str
    op: str
    fields: Mapping[str, JsonValue]

    def text(self, name: str, default: str = "") -> str:
        """The string in one field; the default when it is absent or something else."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else default

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """The whole number in one field, clamped."""
        value = self.fields.get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            return default
        return min(most, max(least, value))


class LineBuffer:
    """Bytes in as they come, whole lines out; a line that grows too long is an error."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pending = bytearray()

    def feed(self, part: bytes) -> list[bytes]:
        """The lines that this part completes, without their newline; empty ones are skipped.

        Raises:
            Invalid: a line exceeds the bound, finished or not.
        """
        self._pending += part
        if b"\n" not in part:
            self._check(len(self._pending))
            return []
        *lines, rest = bytes(self._pending).split(b"\n")
        self._pending = bytearray(rest)
        for line in (*lines, rest):
            self._check(len(line))
        return [line for line in lines if line.strip()]

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise Invalid(f"a frame of more than {self._max_bytes} bytes")


def parse_request(line: bytes) -> Request:
    """The request on one line.

    Raises:
        Invalid: not UTF-8, not JSON, not an object, of another version, or without id and op.
    """
    try:
        frame = json.loads(line.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as cause:
        raise Invalid("not a JSON line") from cause
    if not isinstance(frame, dict):
        raise Invalid("not a JSON object")
    ident, op = frame.get("id"), frame.get("op")
    if not isinstance(ident, str) or not isinstance(op, str) or len(ident) > MAX_ID_CHARS:
        raise Invalid("a frame without a usable id and op")
    if frame.get("v") != VERSION:
        raise Invalid(f"this server speaks version {VERSION}")
    return Request(ident, op, frame)


def request_line(ident: str, op: str, fields: Mapping[str, JsonValue]) -> bytes:
    """A request as a client sends it."""
    return _line({**fields, "v": VERSION, "id": ident, "op": op})


def answer_line(ident: str, result: JsonValue) -> bytes:
    """The answer to a request that worked."""
    return _line({"v": VERSION, "id": ident, "ok": True, "result": result})


def failure_line(ident: str, error: str) -> bytes:
    """The answer to a request that did not."""
    return _line({"v": VERSION, "id": ident, "ok": False, "error": error})


def raw_line(value: JsonValue) -> bytes:
    """A host's own JSON without an envelope, or an empty line for nothing."""
    return b"\n" if value is None else _line(value)


def parse_answer(line: bytes, ident: str) -> JsonValue:
    """The result in an answer to `ident`.

    Raises:
        Invalid: not an answer to that request, or a failure.
    """
    try:
        frame = json.loads(line.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as cause:
        raise Invalid("not a JSON line") from cause
    if not isinstance(frame, dict) or frame.get("id") != ident:
        raise Invalid("not an answer to this request")
    if frame.get("ok") is not True:
        raise Invalid(f"the server refused: {frame.get('error')}")
    result: JsonValue = frame.get("result")
    return result


def _line(value: JsonValue) -> bytes:
    # ASCII on the wire: a lone surrogate from a host's JSON stays an escape instead of an error.
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"
