"""When a fact or a document may be shown: valid time and standing, one rule for every path.

All intervals are half-open [start, end) in UTC ms. The arrays test them as columns, the serverless
path one by one, and both check the few items they return once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.authority.searchable import Entry
from storage.records import TERMINAL_STANDINGS, Document, Fact, Standing, Trust

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
    return _of_fact(fact.standing, fact.valid_at, fact.invalid_at)


def document_interval(document: Document) -> Interval | None:
    """When the document holds: its declared validity, or from its observation on; None = never.

    Other people's instructions are never recalled by themselves: they would pose as the user's.
    """
    return _of_document(document)


def is_hidden(document: Document | Entry) -> bool:
    """Whether the document is an instruction that no user gave."""
    return document.kind == "instruction" and document.trust is not Trust.USER


def entry_interval(entry: Entry) -> Interval | None:
    """The same of a search entry: its fact's interval where it has one, else its document's."""
    if entry.standing is None or entry.valid_at is None:
        return _of_document(entry)
    return _of_fact(entry.standing, entry.valid_at, entry.invalid_at)


def _of_fact(standing: Standing, start: int, end: int | None) -> Interval | None:
    if standing in TERMINAL_STANDINGS and end is None:
        return None
    return Interval(start, MAX_INSTANT if end is None else end)


def _of_document(document: Document | Entry) -> Interval | None:
    if is_hidden(document):
        return None
    start = document.observed_at if document.valid_from is None else document.valid_from
    return Interval(start, MAX_INSTANT if document.valid_to is None else document.valid_to)
