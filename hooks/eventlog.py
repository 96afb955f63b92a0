"""The recall server's own log: JSON lines of closed words and numbers, two files at most.

No statement, prompt, path or message can get in: a value is a number, or one of our own words
(class names, ops, project ids). A log that cannot be written never stops the server.
"""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from storage.clock import Clock, iso

MAX_BYTES: Final = 1_048_576
_WORD: Final = re.compile(r"[\w.:+-]{0,80}", re.ASCII)


class EventLog:
    """Appends events to one file; when it is full it becomes `<name>.1`. Safe between threads."""

    def __init__(self, path: Path, clock: Clock, *, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._clock, self._max_bytes = path, clock, max_bytes
        self._lock = threading.Lock()

    def write(self, event: str, **values: int | float | str) -> None:
        """One line; text that is no single word is replaced by "?"."""
        entry: dict[str, int | float | str] = {"at": iso(self._clock.now_ms()), "event": event}
        for key, value in values.items():
            plain = not isinstance(value, str) or _WORD.fullmatch(value)
            entry[key] = value if plain else "?"
        line = json.dumps(entry, separators=(",", ":")).encode("ascii") + b"\n"
        with self._lock, suppress(OSError):
            self._append(line)

    def _append(self, line: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size > self._max_bytes:
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            os.write(descriptor, line)
        finally:
            os.close(descriptor)
