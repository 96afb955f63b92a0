"""Reading one growing transcript in windows: the part all adapters share.

Owns the cursor's private state (canonical JSON: digest of the file's head, whether the last line
was open, what the translator and the outcome tracker carry over) and the decision to start again
when the file was truncated or replaced. Records are the same however the file is cut into windows:
everything a later line needs is carried, redacted and bounded. What a line means is a translator's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import BinaryIO, Final, Protocol

from storage.clock import parse_instant
from storage.errors import Invalid, SourceUnavailable
from storage.names import opaque
from storage.outcomes import bounded_command
from storage.records import JsonValue, SourceCursor, canonical_json
from tasks.sources import Record, Window
from tasks.sources.lines import (
    HEAD_BYTES,
    Position,
    head_digest,
    open_source,
    scan,
    size_of,
    starts_line,
)

MAX_CALLS: Final = 64
OUTPUT_CHARS: Final = 16_384
TEXT_CHARS: Final = 65_536


class Translator(Protocol):
    """Turns one host's lines into records."""

    def translate(self, number: int, line: Mapping[str, JsonValue]) -> Iterable[Record]:
        """The records of one line; whatever its shape, it never raises."""
        ...

    def carry(self) -> JsonValue:
        """What the lines to come need, as plain JSON without secrets."""
        ...


@dataclass(slots=True)
class SourceState:
    """The parsed `SourceCursor.state`."""

    head: tuple[int, str] = (0, "")
    unterminated: bool = False
    seen: int = -1
    """Size of the file when the last read left no complete line; -1 while there are more."""
    translator: JsonValue = None
    outcomes: JsonValue = None
    """What `storage.outcomes` carries; kept here by the analyst."""

    @classmethod
    def parse(cls, text: str) -> SourceState:
        """The state, or a fresh one when there is none or it is not readable."""
        try:
            found = json.loads(text) if text else {}
        except ValueError:
            return cls()
        match found:
            case {"head": [int(length), str(digest)]}:
                return cls(
                    (length, digest),
                    bool(found.get("open")),
                    int(found["seen"]) if isinstance(found.get("seen"), int) else -1,
                    found.get("translator"),
                    found.get("outcomes"),
                )
            case _:
                return cls()

    def encode(self) -> str:
        """Canonical JSON."""
        return canonical_json(
            {
                "head": list(self.head),
                "open": self.unterminated,
                "seen": self.seen,
                "translator": self.translator,
                "outcomes": self.outcomes,
            }
        ).decode("ascii")


def read_window(
    cursor: SourceCursor,
    translator: Callable[[JsonValue], Translator],
    *,
    limit: int,
    max_line_bytes: int,
) -> Window:
    """The next window of a file; `translator` is built from the state it carried.

    Raises:
        SourceUnavailable: the file cannot be read.
    """
    with open_source(cursor.locator) as file:
        state = SourceState.parse(cursor.state)
        restarted = cursor.offset > 0 and not _same_file(file, cursor, state)
        if restarted:
            cursor = replace(cursor, offset=0, line=0, skipped=0, observations=0, state="")
            state = SourceState()
        start = Position(cursor.offset, cursor.line, state.unterminated)
        batch = scan(file, start, limit=limit, max_line_bytes=max_line_bytes)
        reader = translator(state.translator)
        records: list[Record] = []
        for number, line in batch.objects:
            records.extend(reader.translate(number, line))
        length = min(HEAD_BYTES, batch.position.offset)
        state.head = (length, head_digest(file, length))
        state.seen = -1 if batch.more else size_of(file)
    state.unterminated = batch.position.unterminated
    state.translator = reader.carry()
    after = replace(
        cursor,
        offset=batch.position.offset,
        line=batch.position.line,
        skipped=cursor.skipped + batch.skipped.total(),
        state=state.encode(),
    )
    return Window(
        records=tuple(records),
        cursor_after=after,
        more=batch.more,
        gaps=dict(batch.skipped),
        restarted=restarted,
    )


def has_news(cursor: SourceCursor) -> bool:
    """Whether a file differs from what the cursor's last read left: grown, cut or replaced.

    A torn last line that stays as it was is no news, or an abandoned file would be read for ever.
    """
    state = SourceState.parse(cursor.state)
    try:
        with open_source(cursor.locator) as file:
            size = size_of(file)
            if cursor.offset == 0 and not cursor.state:
                return size > 0
            return size != state.seen or head_digest(file, state.head[0]) != state.head[1]
    except SourceUnavailable:
        return False


def is_unchanged(cursor: SourceCursor) -> bool:
    """Whether everything before the cursor still stands in the file as it was read."""
    try:
        with open_source(cursor.locator) as file:
            return _same_file(file, cursor, SourceState.parse(cursor.state))
    except SourceUnavailable:
        return False


def _same_file(file: BinaryIO, cursor: SourceCursor, state: SourceState) -> bool:
    length, digest = state.head
    return (
        size_of(file) >= cursor.offset
        and head_digest(file, length) == digest
        and (state.unterminated or starts_line(file, cursor.offset))
    )


@dataclass(slots=True)
class Calls:
    """Tool calls whose results are still to come: call id to (tool, redacted input)."""

    pending: dict[str, tuple[str, str]] = field(default_factory=dict)

    def opened(self, call_id: str, tool: str, arguments: JsonValue) -> None:
        """Remember a call; the oldest is forgotten beyond the bound."""
        if not call_id:
            return
        self.pending[ident(call_id)] = (opaque(tool[:80]), essence(arguments))
        while len(self.pending) > MAX_CALLS:
            del self.pending[next(iter(self.pending))]

    def closed(self, call_id: str) -> tuple[str, str]:
        """The call a result belongs to; empty when it was never seen."""
        return self.pending.pop(ident(call_id), ("", ""))

    def carry(self) -> list[JsonValue]:
        return [[call_id, tool, text] for call_id, (tool, text) in self.pending.items()]

    @classmethod
    def resume(cls, carried: JsonValue) -> Calls:
        calls = cls()
        for row in items(carried):
            match row:
                case [str(call_id), str(tool), str(text)]:
                    calls.pending[call_id] = (tool, text)
        return calls


def ident(text: str) -> str:
    """A host's id as it may be kept: valid, bounded, free of credentials."""
    return opaque(clean(text, 200))


def essence(arguments: JsonValue) -> str:
    """The command or the path of a call, redacted and bounded; "" when it has neither."""
    if not isinstance(arguments, Mapping):
        return ""
    for key in ("command", "cmd", "file_path", "path", "filePath", "notebook_path"):
        value = arguments.get(key)
        if isinstance(value, list):
            value = " ".join(str(part) for part in value)
        if isinstance(value, str) and value:
            return bounded_command(clean(value, TEXT_CHARS))
    return ""


def items(value: JsonValue) -> Sequence[JsonValue]:
    """The value when it is a list, else an empty one."""
    return value if isinstance(value, list) else ()


def mapping(value: JsonValue) -> Mapping[str, JsonValue]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def text_of(value: JsonValue) -> str:
    """The value when it is text, else ""."""
    return value if isinstance(value, str) else ""


def clean(text: str, limit: int) -> str:
    """Valid UTF-8 without NUL, at most `limit` characters, its middle left out when longer."""
    if len(text) > limit:
        half = limit // 2
        text = text[:half] + "\n" + text[-(limit - half - 1) :]
    text = text.replace("\0", "\ufffd")
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def text_blocks(content: JsonValue) -> str:
    """The text of a message's content: a string, or its `text` blocks joined by newlines."""
    if isinstance(content, str):
        return content
    return "\n".join(
        text_of(block.get("text"))
        for block in map(mapping, items(content))
        if block.get("type") == "text"
    )


def instant(*candidates: JsonValue) -> int | None:
    """UTC ms of the first candidate that is a date, else None."""
    for candidate in candidates:
        try:
            return parse_instant(candidate)
        except Invalid:
            continue
    return None
