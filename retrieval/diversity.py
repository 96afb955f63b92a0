"""Not saying the same thing twice: near-duplicates of a better item are left out."""

from __future__ import annotations

from typing import Final

from storage.records import statement_key
from storage.terms import terms

OVERLAP: Final = 0.8
"""Jaccard of the term sets above which the later text adds nothing (paraphrases reach 0.6)."""


class Seen:
    """The texts shown so far."""

    def __init__(self) -> None:
        self._keys: set[str] = set()
        self._sets: list[frozenset[str]] = []

    def is_new(self, text: str) -> bool:
        """Whether the text adds something; if so it is remembered."""
        key = statement_key(text)
        words = frozenset(terms(text))
        if key in self._keys or any(_overlap(words, other) > OVERLAP for other in self._sets):
            return False
        self._keys.add(key)
        self._sets.append(words)
        return True


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    union = len(one | other)
    return len(one & other) / union if union else 1.0
