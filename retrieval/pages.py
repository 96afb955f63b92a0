"""Texts taken apart in plain Python: what the serverless path scores. No numpy.

A `Shelf` is a store seen by one question: its statistics, and the pages worth scoring.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from retrieval.names import external_id
from retrieval.weights import TITLE_WEIGHT
from storage.authority.reads import Reads
from storage.records import Chunk
from storage.terms import terms


@dataclass(frozen=True, slots=True)
class Page:
    """One chunk and its terms."""

    chunk: Chunk
    counts: Counter[str]
    length: int


class Shelf(Protocol):
    """The texts that may answer, and what is known of all texts."""

    @property
    def texts(self) -> int:
        """How many there are."""
        ...

    @property
    def average(self) -> float:
        """Their mean length in terms, titles weighed."""
        ...

    def frequency(self, term: str) -> int:
        """In how many the term stands."""
        ...

    def pages(self, weights: Mapping[str, float]) -> Iterable[Page]:
        """Those worth scoring for weighed terms."""
        ...

    def named(self, names: Sequence[str]) -> Iterable[Page]:
        """Those whose chunk, fact or document bears one of the (case-folded) names."""
        ...


class ScannedShelf:
    """Every text, read and taken apart."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._pages = [page_of(chunk) for chunk in chunks]
        self._frequency = Counter(term for page in self._pages for term in page.counts)
        total = sum(page.length for page in self._pages)
        self._average = total / len(self._pages) if self._pages else 0.0

    @property
    def texts(self) -> int:
        return len(self._pages)

    @property
    def average(self) -> float:
        return self._average

    def frequency(self, term: str) -> int:
        return self._frequency[term]

    def pages(self, weights: Mapping[str, float]) -> Iterable[Page]:
        return (page for page in self._pages if not weights.keys().isdisjoint(page.counts))

    def named(self, names: Sequence[str]) -> Iterable[Page]:
        wanted = set(names)
        return (page for page in self._pages if not wanted.isdisjoint(names_of(page.chunk)))


def names_of(chunk: Chunk) -> tuple[str, str]:
    """What a chunk may be called by: its own id, and its document's (a fact's id)."""
    return chunk.chunk_id.casefold(), external_id(chunk.document_key).casefold()


def page_of(chunk: Chunk) -> Page:
    """The chunk with its terms counted, its title's `TITLE_WEIGHT` times."""
    body, title = terms(chunk.text), terms(chunk.title)
    counts = Counter(body)
    for term in title:
        counts[term] += TITLE_WEIGHT
    return Page(chunk, counts, len(body) + TITLE_WEIGHT * len(title))


def read_page(reads: Reads, rowid: int) -> Page | None:
    """One chunk by its number, taken apart."""
    chunk = reads.chunk(rowid)
    return page_of(chunk) if chunk else None
