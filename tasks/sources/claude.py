"""Claude Code's transcripts: `<projects>/<cwd with - for every other character>/<session>.jsonl`.

The format is undocumented and grows, so only what is known to be said is read: `user` and
`assistant` lines of the main conversation, each of which names its working directory. Everything
else is passed over: attachments (hook context is our own recall), reminders, meta and compaction
messages, sub-agents (their own files, and sidechain lines in old ones). Files are read in order;
parallel calls make siblings of ordinary lines here, so branches are not told apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from storage.errors import SourceUnavailable
from storage.injected import spoken
from storage.places import fold, spellings
from storage.records import JsonValue, SourceCursor
from tasks.sources import (
    AssistantMessage,
    Checkouts,
    Record,
    ToolResult,
    UserMessage,
    Window,
    folders,
    transcripts,
)
from tasks.sources.lines import Position, open_source, scan
from tasks.sources.transcript import (
    OUTPUT_CHARS,
    TEXT_CHARS,
    Calls,
    clean,
    ident,
    instant,
    items,
    mapping,
    read_window,
    text_blocks,
    text_of,
)

NAME: Final = "claude"
_EXIT: Final = re.compile(r"\s*(?:Error: )?Exit code (\d{1,5})\b")
_HEAD_BYTES: Final = 65_536
_OUTSIDE: Final = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")


class ClaudeSource:
    """Claude Code transcripts of one project."""

    def __init__(self, projects: Path, checkouts: Checkouts, *, max_line_bytes: int) -> None:
        self._projects = projects
        self._checkouts = checkouts
        self._max_line_bytes = max_line_bytes

    @property
    def name(self) -> str:
        return NAME

    def discover(self) -> list[str]:
        """Main transcripts in folders named after our checkouts or folders below them.

        Two paths can share a folder name (`a/b` and `a-b`): the directory that a file names decides
        here, and every line's own on reading.
        """
        roots = (form for root in self._checkouts.roots for form in spellings(root))
        names = {fold(folder_name(form)) for form in roots}

        def belongs(name: str) -> bool:
            spelled = fold(name)
            return any(spelled == own or spelled.startswith(own + "-") for own in names)

        return [
            str(path)
            for folder in folders(self._projects, belongs)
            for path in transcripts(folder)
            if not path.name.startswith("agent-") and self._may_be_ours(path)
        ]

    def _may_be_ours(self, path: Path) -> bool:
        """False when the first directory that the file names is not one of ours."""
        cwd = first_cwd(path)
        return not cwd or self._checkouts.contains(cwd)

    def read(self, cursor: SourceCursor, *, limit: int) -> Window:
        return read_window(
            cursor,
            lambda carried: _Translator(self._checkouts, carried),
            limit=limit,
            max_line_bytes=self._max_line_bytes,
        )


def folder_name(cwd: str) -> str:
    """Claude Code's folder for a working directory."""
    return re.sub(r"[^A-Za-z0-9]", "-", cwd.rstrip("/"))


def first_cwd(path: Path) -> str:
    """The first working directory named near the start of a transcript; "" when there is none."""
    try:
        with open_source(str(path)) as file:
            batch = scan(file, Position(), limit=_HEAD_BYTES, max_line_bytes=_HEAD_BYTES)
    except SourceUnavailable:
        return ""
    return next((cwd for _, line in batch.objects if (cwd := text_of(line.get("cwd")))), "")


class _Translator:
    """Carries: the last time seen, open tool calls."""

    def __init__(self, checkouts: Checkouts, carried: JsonValue) -> None:
        state = mapping(carried)
        self._checkouts = checkouts
        self._at = instant(state.get("at")) or 0
        self._calls = Calls.resume(state.get("calls"))
        self._session = ""
        self._known: dict[str, bool] = {}

    def carry(self) -> JsonValue:
        return {"at": self._at, "calls": self._calls.carry()}

    def translate(self, number: int, line: Mapping[str, JsonValue]) -> Iterator[Record]:
        kind = line.get("type")
        if kind not in ("user", "assistant") or any(line.get(key) for key in _OUTSIDE):
            return
        if line.get("agentId") or not self._is_ours(text_of(line.get("cwd"))):
            return
        self._session = ident(text_of(line.get("sessionId")))
        found = instant(line.get("timestamp"))
        self._at = self._at if found is None else found
        content = mapping(line.get("message")).get("content")
        if kind == "assistant":
            if not line.get("isApiErrorMessage"):
                yield self._answer(number, content)
            return
        results = [
            block for block in map(mapping, items(content)) if block.get("type") == "tool_result"
        ]
        for block in results:
            yield from self._result(number, block, mapping(line.get("toolUseResult")))
        if not results and "toolUseResult" not in line:
            text = spoken(clean(text_blocks(content), TEXT_CHARS))
            if text:
                yield UserMessage(text=text, line=number, at=self._at, session_id=self._session)

    def _is_ours(self, cwd: str) -> bool:
        if cwd not in self._known:
            self._known[cwd] = self._checkouts.contains(cwd)
        return self._known[cwd]

    def _answer(self, number: int, content: JsonValue) -> Record:
        calls: list[tuple[str, str]] = []
        for block in map(mapping, items(content)):
            if block.get("type") == "tool_use":
                call, tool = text_of(block.get("id")), text_of(block.get("name"))
                self._calls.opened(call, tool, block.get("input"))
                calls.append((ident(call), tool))
        return AssistantMessage(
            text=clean(text_blocks(content), TEXT_CHARS),
            line=number,
            at=self._at,
            session_id=self._session,
            tool_calls=tuple(calls),
        )

    def _result(
        self, number: int, block: Mapping[str, JsonValue], details: Mapping[str, JsonValue]
    ) -> Iterator[Record]:
        call = text_of(block.get("tool_use_id"))
        tool, given = self._calls.closed(call)
        # An interrupted or still running command has no outcome yet.
        if details.get("interrupted") or details.get("backgroundTaskId"):
            return
        output = clean(text_blocks(block.get("content")), OUTPUT_CHARS)
        failed = block.get("is_error") is True
        code = _EXIT.match(output) if failed else None
        yield ToolResult(
            tool=tool,
            call_id=ident(call),
            input=given,
            output=output,
            is_error=failed,
            exit_code=int(code[1]) if code else None,
            line=number,
            at=self._at,
            session_id=self._session,
        )
