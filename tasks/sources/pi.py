"""Pi's session files: `<sessions>/--<cwd with - for / \\ :>--/<time>_<id>.jsonl`.

Version 3 is a tree in one file, version 1 a plain list; both are read in file order. The rule for
branches, since an incremental reader cannot know which one will be left: what a person said counts
when it was said, on whichever branch; what tools did counts only along one path, so a jump to an
earlier entry abandons open failures. Forks copy entries with their times; equal words at an equal
instant are one utterance to whoever stores them. Custom messages (extensions', our own recall),
system entries, summaries, context edits and commands kept out of the context are never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from storage.errors import SourceUnavailable
from storage.injected import spoken
from storage.names import opaque
from storage.places import fold
from storage.records import JsonValue, SourceCursor
from tasks.sources import (
    AssistantMessage,
    Checkouts,
    PathLeft,
    Record,
    ToolResult,
    UserMessage,
    Window,
    folders,
    transcripts,
)
from tasks.sources.lines import open_source
from tasks.sources.transcript import (
    OUTPUT_CHARS,
    TEXT_CHARS,
    Calls,
    clean,
    essence,
    ident,
    instant,
    items,
    mapping,
    read_window,
    text_blocks,
    text_of,
)

NAME: Final = "pi"
_EXIT: Final = re.compile(r"Command exited with code (\d+)\s*$")
_HEADER_BYTES: Final = 65_536


class PiSource:
    """Pi transcripts of one project."""

    def __init__(self, sessions: Path, checkouts: Checkouts, *, max_line_bytes: int) -> None:
        self._sessions = sessions
        self._checkouts = checkouts
        self._max_line_bytes = max_line_bytes

    @property
    def name(self) -> str:
        return NAME

    def discover(self) -> list[str]:
        """Files in folders named after our checkouts whose header names a folder of ours."""
        names = [fold(folder_name(root)) for root in self._checkouts.roots]

        def belongs(name: str) -> bool:
            spelled = fold(name)
            return any(spelled == own or spelled.startswith(own[:-2] + "-") for own in names)

        # A session folder that the user chose holds its files directly.
        places = [self._sessions, *folders(self._sessions, belongs)]
        return [
            str(path)
            for place in places
            for path in transcripts(place)
            if self._checkouts.contains(header_cwd(path))
        ]

    def read(self, cursor: SourceCursor, *, limit: int) -> Window:
        return read_window(
            cursor,
            lambda carried: _Translator(self._checkouts, carried),
            limit=limit,
            max_line_bytes=self._max_line_bytes,
        )


def folder_name(cwd: str) -> str:
    """Pi's folder for a working directory."""
    return "--" + re.sub(r"[/\\:]", "-", cwd.lstrip("/\\")) + "--"


def header_cwd(path: Path) -> str:
    """The working directory that a session file's first line names; "" when it has none."""
    try:
        with open_source(str(path)) as file:
            first = file.readline(_HEADER_BYTES)
        header = json.loads(first.removeprefix(b"\xef\xbb\xbf").strip(b" \r\n\0").decode("utf-8"))
    except (SourceUnavailable, OSError, ValueError, RecursionError):
        return ""
    entry = mapping(header)
    return text_of(entry.get("cwd")) if entry.get("type") == "session" else ""


class _Translator:
    """Carries: whose session it is, the last entry's id and time, open tool calls."""

    def __init__(self, checkouts: Checkouts, carried: JsonValue) -> None:
        state = mapping(carried)
        self._checkouts = checkouts
        self._ours = state.get("ours") is True
        self._session = text_of(state.get("session"))
        self._last = text_of(state.get("last"))
        self._at = instant(state.get("at")) or 0
        self._calls = Calls.resume(state.get("calls"))

    def carry(self) -> JsonValue:
        return {
            "ours": self._ours,
            "session": self._session,
            "last": self._last,
            "at": self._at,
            "calls": self._calls.carry(),
        }

    def translate(self, number: int, line: Mapping[str, JsonValue]) -> Iterator[Record]:
        kind = line.get("type")
        if kind == "session":
            self._ours = self._checkouts.contains(text_of(line.get("cwd")))
            self._session = ident(text_of(line.get("id")))
            self._at = instant(line.get("timestamp")) or self._at
            return
        if not self._ours:
            return
        entry = ident(text_of(line.get("id")))
        if entry:
            if self._last and ident(text_of(line.get("parentId"))) != self._last:
                self._calls.pending.clear()
                yield PathLeft(line=number)
            self._last = entry
        if kind == "message":
            message = mapping(line.get("message"))
            found = instant(message.get("timestamp"), line.get("timestamp"))
            self._at = self._at if found is None else found
            yield from self._message(number, message)

    def _message(self, number: int, message: Mapping[str, JsonValue]) -> Iterator[Record]:
        match message.get("role"):
            case "user":
                text = spoken(clean(text_blocks(message.get("content")), TEXT_CHARS))
                if text:
                    yield UserMessage(text=text, line=number, at=self._at, session_id=self._session)
            case "assistant":
                yield self._answer(number, message)
            case "toolResult":
                yield self._result(number, message)
            case "bashExecution":
                # `!!command` is the person's own and was kept from the model: kept from us too.
                if not message.get("excludeFromContext") and not message.get("cancelled"):
                    yield self._own_command(number, message)

    def _answer(self, number: int, message: Mapping[str, JsonValue]) -> Record:
        calls: list[tuple[str, str]] = []
        for block in map(mapping, items(message.get("content"))):
            if block.get("type") == "toolCall":
                call, tool = text_of(block.get("id")), text_of(block.get("name"))
                self._calls.opened(call, tool, block.get("arguments"))
                calls.append((ident(call), tool))
        return AssistantMessage(
            text=clean(text_blocks(message.get("content")), TEXT_CHARS),
            line=number,
            at=self._at,
            session_id=self._session,
            tool_calls=tuple(calls),
        )

    def _result(self, number: int, message: Mapping[str, JsonValue]) -> Record:
        call = text_of(message.get("toolCallId"))
        tool, given = self._calls.closed(call)
        output = clean(text_blocks(message.get("content")), OUTPUT_CHARS)
        failed = message.get("isError") is True
        code = _EXIT.search(output)
        return ToolResult(
            tool=tool or opaque(text_of(message.get("toolName"))[:80]),
            call_id=ident(call),
            input=given,
            output=output,
            is_error=failed,
            exit_code=int(code[1]) if code and len(code[1]) < 6 else None,
            line=number,
            at=self._at,
            session_id=self._session,
        )

    def _own_command(self, number: int, message: Mapping[str, JsonValue]) -> Record:
        code = message.get("exitCode")
        known = code if isinstance(code, int) and not isinstance(code, bool) else None
        return ToolResult(
            tool="bash",
            call_id=self._last or f"line-{number}",
            input=essence(message),
            output=clean(text_of(message.get("output")), OUTPUT_CHARS),
            is_error=known not in (0, None),
            exit_code=known,
            line=number,
            at=self._at,
            session_id=self._session,
        )
