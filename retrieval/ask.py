"""What an answer must respect: instant, size, and which sorts of things. A value."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What an answer must respect."""

    at: int
    """The instant at which items must hold, UTC ms."""
    limit: int = 4
    max_bytes: int = 2_200
    namespaces: Collection[str] | None = None
    """None: every one."""
    kinds: Collection[str] | None = None
