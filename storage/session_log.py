"""memoryd's own log of learnable observations: `<project>/pi-session/<UTC day>.jsonl`.

Owns the lines: what a person declared, and what a session proved. Written by hooks, one durable
append a turn; read back like any transcript. Promises that every text in it is redacted, that a
declared statement with a credential never enters, and that one file never grows past its bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from storage.atomic import append_line
from storage.clock import utc_day
from storage.connection import private_directory
from storage.names import opaque
from storage.outcomes import LINE_CHARS, MAX_REMEDIES, Fixed
from storage.paths import ProjectPaths
from storage.records import FactKind, JsonValue, canonical_json, digest_of, statement_key
from storage.redaction import is_learnable, redact

VERSION: Final = 1
MAX_PER_TURN: Final = 64
MAX_FILE_BYTES: Final = 33_554_432
_VARYING: Final = re.compile(r"[0-9a-f]{8,}|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A declared statement."""

    kind: FactKind
    statement: str
    sentence: str
    session_id: str
    host: str
    at: int

    @property
    def key(self) -> str:
        return digest_of("said", self.session_id, self.kind, statement_key(self.statement))[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proved:
    """A failure and the commands that repaired it."""

    fixed: Fixed
    session_id: str
    host: str

    @property
    def key(self) -> str:
        """The same for the same lesson, whatever ids, ports and counts its words carry."""
        words = _VARYING.sub("#", self.fixed.statement)
        return digest_of("proved", self.session_id, words)[:32]


Entry: TypeAlias = Said | Proved


def append(paths: ProjectPaths, entries: Iterable[Entry], now: int) -> int:
    """Write a turn's entries in one durable append; returns how many were written.

    Entries with one key count once; beyond `MAX_PER_TURN` the rest is left out.

    Raises:
        Unavailable: the folder or the file cannot be written.
    """
    unique = {entry.key: entry for entry in entries if _is_fit(entry)}
    lines = [_line(entry) for entry in list(unique.values())[:MAX_PER_TURN]]
    if not lines:
        return 0
    folder = private_directory(paths.session_log)
    append_line(_file(folder, now), b"\n".join(lines))
    return len(lines)


def encode(entry: Entry) -> dict[str, JsonValue]:
    """The entry as plain JSON."""
    common: dict[str, JsonValue] = {
        "v": VERSION,
        "key": entry.key,
        "session": opaque(entry.session_id),
        "host": entry.host,
    }
    if isinstance(entry, Said):
        return common | {
            "type": "said",
            "at": entry.at,
            "kind": entry.kind.value,
            "statement": entry.statement,
            "sentence": entry.sentence,
        }
    fixed = entry.fixed
    return common | {
        "type": "proved",
        "at": fixed.at,
        "command": fixed.command,
        "failure": fixed.failure,
        "remedies": list(fixed.remedies),
        "call": opaque(fixed.call_id),
    }


def decode(line: Mapping[str, JsonValue], number: int) -> Entry | None:
    """The entry of one line, redacted again; None when it is none, or of a newer version."""
    if line.get("v") != VERSION:
        return None
    session, host = opaque(str(line.get("session", ""))), opaque(str(line.get("host", "")))
    match line:
        case {"type": "said", "at": int(at), "kind": str(kind), "statement": str(statement)} if (
            kind in {item.value for item in FactKind}
        ):
            said = Said(
                kind=FactKind(kind),
                statement=statement,
                sentence=str(line.get("sentence") or statement),
                session_id=session,
                host=host,
                at=at,
            )
            return said if _is_fit(said) else None
        case {
            "type": "proved",
            "at": int(at),
            "command": str(command),
            "failure": str(failure),
            "remedies": [str(), *_] as remedies,
        }:
            fixed = Fixed(
                command=redact(command),
                failure=redact(failure)[:LINE_CHARS],
                remedies=tuple(redact(str(item)) for item in remedies[:MAX_REMEDIES]),
                call_id=opaque(str(line.get("call", ""))),
                line=number,
                at=at,
            )
            proved = Proved(fixed=fixed, session_id=session, host=host)
            return proved if _is_fit(proved) else None
        case _:
            return None


def _is_fit(entry: Entry) -> bool:
    """No hole where a credential was; a declared statement is a literal part of its sentence."""
    if isinstance(entry, Proved):
        return is_learnable(entry.fixed.statement)
    return entry.statement in entry.sentence and is_learnable(entry.sentence)


def _line(entry: Entry) -> bytes:
    return canonical_json(encode(entry))


def _file(folder: Path, now: int) -> Path:
    """The day's file, or its next part once it is full."""
    day = utc_day(now)
    part = 1
    while True:
        path = folder / (f"{day}.jsonl" if part == 1 else f"{day}.{part}.jsonl")
        if not path.exists() or path.lstat().st_size < MAX_FILE_BYTES:
            return path
        part += 1
