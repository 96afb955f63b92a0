"""When a fact or a document may be shown: valid time and standing, one rule for every path.

All intervals are half-open [start, end) in UTC ms. The arrays test them as columns, the serverless
path one by one, and both check the few items they return once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.records import TERMINAL_STANDINGS, Document, Fact, Trust

MAX_INSTANT: Final = 2**62
"""The end of what has no end."""


@dataclass(frozen=True, slots=True)
class Interval:
    """[start, end); empty when end <= start."""

    start: int
    end: int

    def holds(self, at: int) -> bool:
        return self.start <= at < self.end


def fact_interval(fact: Fact) -> Interval | None:
    """When the fact holds; None when never (terminal without an end): as `Fact.holds_at`."""
    if fact.standing in TERMINAL_STANDINGS and fact.invalid_at is None:
        return None
    return Interval(fact.valid_at, MAX_INSTANT if fact.invalid_at is None else fact.invalid_at)


def document_interval(document: Document) -> Interval | None:
    """When the document holds: its declared validity, or from its observation on; None = never.

    Other people's instructions are never recalled by themselves: they would pose as the user's.
    """
    if is_hidden(document):
        return None
    start = document.observed_at if document.valid_from is None else document.valid_from
    return Interval(start, MAX_INSTANT if document.valid_to is None else document.valid_to)


def is_hidden(document: Document) -> bool:
    """Whether the document is an instruction that no user gave."""
    return document.kind == "instruction" and document.trust is not Trust.USER
