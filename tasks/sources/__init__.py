"""What people and agents said, as host-neutral records read from transcripts.

An adapter finds the transcripts of one project's checkouts and reads each in windows, by byte
offset, in bounded memory. It drops by structure whatever nobody said: injected context (ours above
all), system prompts, compaction summaries, every line of a sub-agent. What is left it hands on as
the host wrote it: redaction and judgement belong to the readers. Reading a file in any number of
windows yields the same records as reading it at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from storage.outcomes import Fixed
from storage.places import SameFolder, nearest, same_folder
from storage.records import FactKind, SourceCursor


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What a person typed; injected blocks are gone, nothing else was changed."""

    text: str
    line: int
    at: int
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """What the agent answered, and the tools it called (call id, tool name)."""

    text: str
    line: int
    at: int
    session_id: str
    tool_calls: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool gave back. `input` is the redacted, bounded command or path of its call."""

    tool: str
    call_id: str
    input: str
    output: str
    is_error: bool
    exit_code: int | None
    line: int
    at: int
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A statement that was already recognised as declared, with the kind it was given."""

    text: str
    excerpt: str
    kind: FactKind
    line: int
    at: int
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """A failure and its remedy that the hooks already paired."""

    fixed: Fixed
    line: int
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PathLeft:
    """The conversation went back to an earlier point: what failed since then was abandoned."""

    line: int


Record: TypeAlias = UserMessage | AssistantMessage | ToolResult | Declared | Repaired | PathLeft


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One bounded read of one source."""

    records: tuple[Record, ...]
    cursor_after: SourceCursor
    more: bool
    """Complete lines are left: read again from `cursor_after`."""
    gaps: Mapping[str, int] = field(default_factory=dict)
    """Lines of this window that could not be read, by reason."""
    restarted: bool = False
    """The file was truncated or replaced, so reading began again at its start."""


class SourceAdapter(Protocol):
    """One kind of source."""

    @property
    def name(self) -> str:
        """`pi`, `claude` or `pi-session`; part of every quote's address."""
        ...

    def discover(self) -> list[str]:
        """Locators (absolute paths) of this project's sources, oldest name first."""
        ...

    def read(self, cursor: SourceCursor, *, limit: int) -> Window:
        """The next window of `cursor.locator`: about `limit` bytes of complete lines.

        Raises:
            SourceUnavailable: the file is gone, not a plain file, or not readable.
        """
        ...


@dataclass(frozen=True, slots=True)
class Checkouts:
    """Which working directories belong to one project: all folders that share its memory."""

    roots: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    """Roots of other projects; the nearest root that holds a directory decides."""
    same: SameFolder = same_folder

    def contains(self, directory: str) -> bool:
        """Whether a session that ran in `directory` is this project's."""
        if not directory.startswith("/") or "\0" in directory:
            return False
        owners = {os.path.normpath(root): True for root in self.roots}
        owners |= {os.path.normpath(root): False for root in self.foreign}
        for place in (os.path.realpath(directory), os.path.normpath(directory)):
            holder = nearest(place, owners.keys(), same=self.same)
            if holder is not None:
                return owners[holder]
        return False


def folders(parent: Path, belongs: Callable[[str], bool]) -> list[Path]:
    """The real subfolders of `parent` whose name qualifies, in name order; [] if there is none."""
    try:
        with os.scandir(parent) as entries:
            found = [
                Path(entry.path)
                for entry in entries
                if entry.is_dir(follow_symlinks=False) and belongs(entry.name)
            ]
    except OSError:
        return []
    return sorted(found)


def transcripts(folder: Path) -> list[Path]:
    """The plain `*.jsonl` files directly in `folder`, in name order; symlinks are not followed."""
    try:
        with os.scandir(folder) as entries:
            found = [
                Path(entry.path)
                for entry in entries
                if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)
            ]
    except OSError:
        return []
    return sorted(found)
