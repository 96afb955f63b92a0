"""memoryd's own log as a source: what the hooks already recognised, line by line.

The statements were judged by the same rules when they were written, so they are handed on as they
are; everything is still redacted again on the way in. The folder belongs to one project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from storage import session_log
from storage.errors import SourceUnavailable
from storage.paths import ProjectPaths
from storage.records import JsonValue, SourceCursor
from storage.session_log import Said
from tasks.sources import Declared, Record, Repaired, Window, transcripts
from tasks.sources.transcript import read_window

NAME: Final = "pi-session"


class SessionLogSource:
    """The project's `pi-session` folder."""

    def __init__(self, project: ProjectPaths, *, max_line_bytes: int) -> None:
        self._folder = project.session_log
        self._max_line_bytes = max_line_bytes

    @property
    def name(self) -> str:
        return NAME

    def discover(self) -> list[str]:
        return [str(path) for path in transcripts(self._folder)]

    def read(self, cursor: SourceCursor, *, limit: int) -> Window:
        # Nothing in a line says whose it is: the folder does, so no other folder is read.
        if Path(cursor.locator).parent != self._folder:
            raise SourceUnavailable("not a file of this project's own log")
        return read_window(
            cursor, lambda _: _Translator(), limit=limit, max_line_bytes=self._max_line_bytes
        )


class _Translator:
    """Every line stands for itself: nothing is carried."""

    def carry(self) -> JsonValue:
        return None

    def translate(self, number: int, line: Mapping[str, JsonValue]) -> Iterator[Record]:
        entry = session_log.decode(line, number)
        if entry is None:
            return
        if isinstance(entry, Said):
            yield Declared(
                text=entry.statement,
                excerpt=entry.sentence,
                kind=entry.kind,
                line=number,
                at=entry.at,
                session_id=entry.session_id,
            )
        else:
            yield Repaired(fixed=entry.fixed, line=number, session_id=entry.session_id)
