"""The exact leg: what the question names as it stands in the store.

A name (chunk id, fact id, external id, URI) finds its text by look-up. A literal (a quoted phrase,
an identifier) finds the texts that hold all of its terms, and counts only where the text really
contains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from storage.terms import terms

if TYPE_CHECKING:
    from retrieval.index import IndexSnapshot
    from retrieval.postings import Flags
    from retrieval.query import Query
    from storage.authority.reads import Reads

NAMED: Final = 1.0
CONTAINED: Final = 0.2
"""A literal inside a text says less than its name; several add up to at most NAMED."""
_BARE: Final = re.compile(r"\W*[\d.,:%-]+\W*")
MAX_READ: Final = 64
"""Texts read to look for one literal."""


def exact_scores(
    index: IndexSnapshot, query: Query, reads: Reads, eligible: Flags
) -> dict[int, float]:
    """Position to a score in (0, 1], for the texts that are named or contain a literal."""
    found: dict[int, float] = {}
    for at in index.names.find(names_in(query)).tolist():
        if eligible[at]:
            found[at] = NAMED
    for literal in query.literals:
        wanted = tuple(dict.fromkeys(terms(literal)))
        if is_specific((index.postings.frequency(term) for term in wanted), index.texts):
            hits = index.postings.having_all(wanted)
            texts = _texts(index, reads, [int(at) for at in hits if eligible[at]][:MAX_READ])
            add_literal(found, literal, texts)
    return found


def _texts(index: IndexSnapshot, reads: Reads, positions: Sequence[int]) -> dict[int, str]:
    found: dict[int, str] = {}
    for at in positions:
        chunk = reads.chunk(int(index.rowids[at]))
        if chunk is not None:
            found[at] = f"{chunk.title}\n{chunk.text}"
    return found


def names_in(query: Query) -> Sequence[str]:
    """Case-folded words of the question that could be a name in the store.

    A bare number in a sentence is a year or an amount, whatever some document is called.
    """
    words = [query.text, *(word for word in query.text.split()[:64] if not _BARE.fullmatch(word))]
    return [word.strip("\"'`.,;:!?()[]").casefold() for word in words if 3 <= len(word) <= 600]


def add_literal(found: dict[int, float], literal: str, texts: Mapping[int, str]) -> None:
    """Raise the score of each text that contains the literal, whatever its case."""
    needle = literal.casefold()
    for at, text in texts.items():
        if needle in text.casefold():
            found[at] = min(NAMED, found.get(at, 0.0) + CONTAINED)


def is_specific(frequencies: Iterable[int], texts: int) -> bool:
    """Whether containing the literal sets a text apart in this store."""
    rarest = min(frequencies, default=0)
    return 0 < rarest <= max(3, texts // 50)
