"""BM25 over arrays: every term of the query, every text of the project, in microseconds.

A rare term's postings are a CSR slice (int32 text numbers, uint8 counts); a term in more than a
tenth of all texts is a dense uint8 row, scored by one vector pass instead of a scatter. Counts are
stored, not scores, so frequencies and lengths may change without touching them. Immutable.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from retrieval.weights import K1, TITLE_WEIGHT, B, idf

if TYPE_CHECKING:
    import numpy.typing as npt

    Numbers: TypeAlias = npt.NDArray[np.int32]
    Counts: TypeAlias = npt.NDArray[np.uint8]
    Scores: TypeAlias = npt.NDArray[np.float32]
    Flags: TypeAlias = npt.NDArray[np.bool_]

DENSE_SHARE: Final = 0.1
DENSE_FROM: Final = 2_048
"""Below so many texts a scatter is as fast, and rows would only cost memory."""
_MAX_COUNT: Final = 255


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """One project's inverted index."""

    texts: int
    vocabulary: dict[str, int]
    offsets: npt.NDArray[np.int64]
    """int64[terms + 1] into `numbers` and `counts`."""
    numbers: Numbers
    counts: Counts
    dense: dict[int, Counts]
    """Term to uint8[texts], for the frequent ones (their CSR slices stay for look-ups)."""
    damping: Scores
    """K of each text."""

    @property
    def nbytes(self) -> int:
        """Memory held, the vocabulary estimated."""
        arrays = self.offsets.nbytes + self.numbers.nbytes + self.counts.nbytes
        rows = sum(row.nbytes for row in self.dense.values())
        return arrays + rows + self.damping.nbytes + 110 * len(self.vocabulary)

    def frequency(self, term: str) -> int:
        """In how many texts the term stands."""
        at = self.vocabulary.get(term)
        return 0 if at is None else int(self.offsets[at + 1] - self.offsets[at])

    def idf(self, term: str) -> float:
        """How rare the term is here."""
        return idf(self.frequency(term), self.texts)

    def scores(self, weighted: Iterable[tuple[str, float]]) -> Scores:
        """float32[texts]: the sum of weight x saturated count over (term, weight)."""
        total = np.zeros(self.texts, dtype=np.float32)
        for term, weight in weighted:
            at = self.vocabulary.get(term)
            if at is None:
                continue
            factor = np.float32(weight * (K1 + 1))
            row = self.dense.get(at)
            if row is not None:
                tf = row.astype(np.float32)
                total += factor * tf / (tf + self.damping)
            else:
                part = slice(int(self.offsets[at]), int(self.offsets[at + 1]))
                where = self.numbers[part]
                tf = self.counts[part].astype(np.float32)
                total[where] += factor * tf / (tf + self.damping[where])
        return total

    def contains(self, term: str, among: Numbers) -> Flags:
        """bool[len(among)]: whether each of those texts has the term."""
        at = self.vocabulary.get(term)
        if at is None:
            return np.zeros(len(among), dtype=np.bool_)
        where = self.numbers[int(self.offsets[at]) : int(self.offsets[at + 1])]
        spot = np.searchsorted(where, among)
        found: Flags = where[np.minimum(spot, len(where) - 1)] == among
        return found

    def having_all(self, wanted: Sequence[str]) -> Numbers:
        """int32[n]: the texts that have every one of the terms, ascending."""
        parts = []
        for term in wanted:
            at = self.vocabulary.get(term)
            if at is None:
                return np.zeros(0, dtype=np.int32)
            parts.append(self.numbers[int(self.offsets[at]) : int(self.offsets[at + 1])])
        if not parts:
            return np.zeros(0, dtype=np.int32)
        parts.sort(key=len)
        common = parts[0]
        for part in parts[1:]:
            common = common[np.isin(common, part, assume_unique=True)]
        return common


class PostingsBuilder:
    """Collects texts in order; `build` inverts them."""

    def __init__(self) -> None:
        self._vocabulary: dict[str, int] = {}
        # Machine integers: ten million Python ones would take the memory of the whole server.
        self._terms = array("i")
        self._counts = array("i")
        self._sizes: list[int] = []
        self._lengths: list[int] = []

    def add(self, body: Sequence[str], title: Sequence[str] = ()) -> None:
        """The next text, as the terms of its body and of its title."""
        tally = Counter(body)
        for term in title:
            tally[term] += TITLE_WEIGHT
        vocabulary = self._vocabulary
        self._terms.extend([vocabulary.setdefault(term, len(vocabulary)) for term in tally])
        self._counts.extend(tally.values())
        self._sizes.append(len(tally))
        self._lengths.append(len(body) + TITLE_WEIGHT * len(title))

    def build(self) -> Postings:
        """The index of everything added."""
        texts, vocabulary = len(self._sizes), self._vocabulary
        terms = np.array(self._terms, dtype=np.int32)
        counts = np.minimum(np.array(self._counts, dtype=np.int32), _MAX_COUNT).astype(np.uint8)
        numbers = np.repeat(np.arange(texts, dtype=np.int32), self._sizes)
        order = np.argsort(terms, kind="stable")
        frequencies = np.bincount(terms, minlength=len(vocabulary))
        offsets = np.zeros(len(vocabulary) + 1, dtype=np.int64)
        np.cumsum(frequencies, out=offsets[1:])
        numbers, counts = numbers[order], counts[order]
        dense: dict[int, Counts] = {}
        if texts >= DENSE_FROM:
            for at in np.flatnonzero(frequencies > DENSE_SHARE * texts):
                row = np.zeros(texts, dtype=np.uint8)
                part = slice(int(offsets[at]), int(offsets[at + 1]))
                row[numbers[part]] = counts[part]
                dense[int(at)] = row
        lengths = np.array(self._lengths, dtype=np.float32)
        average = float(lengths.mean()) if texts else 0.0
        share = lengths / np.float32(average) if average > 0 else np.zeros_like(lengths)
        damping = (K1 * (1 - B + B * share)).astype(np.float32)
        return Postings(texts, vocabulary, offsets, numbers, counts, dense, damping)
