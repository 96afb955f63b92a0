"""Ids and names that hosts give, made safe to keep.

Hosts choose them (sessions, calls, entries, tools), and nothing stops one from holding a
credential. A clean name stays as it is; any other becomes a digest of itself, so that what belongs
together still does.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

from storage.redaction import is_clean

_PLAIN: Final = re.compile(
    r"[a-z]{1,12}|[A-Za-z]{1,6}[-_]?\d{1,12}|[0-9a-f]{1,12}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:toolu|call|msg)_[A-Za-z0-9]{1,32}"
)
"""The shapes of nearly all of them: asking the rules about each would cost more than reading it."""


def is_clean_path(path: str) -> bool:
    """Whether a path holds no credential: whole, part by part, and without its suffix."""
    return is_clean(path) and all(
        _PLAIN.fullmatch(part) or (is_clean(part) and is_clean(part.rpartition(".")[0]))
        for part in path.split("/")
        if part
    )


def opaque(name: str) -> str:
    """The name, or `id-` and 24 hex in place of one that holds something credential-shaped."""
    if not name or _PLAIN.fullmatch(name) or is_clean(name):
        return name
    return "id-" + hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:24]
