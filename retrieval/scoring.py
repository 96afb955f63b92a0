"""The words of one question against every text: exact scores, found without computing all of them.

Rare terms are added up exactly. Of frequent ones an upper bound is (`Segment.impacts`, one matrix
product for all of them); only texts whose bound reaches the best exact scores are then scored from
their counts. What is returned is the exact BM25, and the top texts are the exact ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from retrieval.postings import drift
from retrieval.segment import LEVELS
from retrieval.weights import K1

if TYPE_CHECKING:
    import numpy.typing as npt

    from retrieval.postings import Flags, Numbers, Postings, Scores

_BLOCK: Final = 32_768
"""Texts that are scored exactly at once."""
_BOUNDED: Final = 8_192
"""Texts whose bounds are added up at once: they and their impacts stay in the L2 cache."""
_EXACT: Final = 4_096
_ROUNDING: Final = 1e-4
"""Share of a bound that float32 sums may be off by, generously."""


class Scoring:
    """One question's terms, looked up once. Use within one question."""

    def __init__(self, postings: Postings, weighted: Iterable[tuple[str, float]]) -> None:
        self._postings = postings
        self._sparse: list[list[tuple[np.float32, int]]] = [[] for _ in postings.segments]
        self._dense: list[list[tuple[np.float32, int]]] = [[] for _ in postings.segments]
        for term, weight in weighted:
            factor = np.float32(weight * (K1 + 1))
            for number, segment in enumerate(postings.segments):
                at = segment.number_of(term)
                if at is None:
                    continue
                row = segment.dense.get(at)
                if row is None:
                    self._sparse[number].append((factor, at))
                else:
                    self._dense[number].append((factor, row))
        self._rare = self._rarely()
        self.matched = 0
        """Texts with at least one term, once `best` has looked."""

    def everywhere(self) -> Scores:
        """float32[size]: every text's score."""
        result = self._rare.copy()
        counts, under = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.float32)
        for number, segment in enumerate(self._postings.segments):
            first, damping = self._postings.firsts[number], self._postings.dampings[number]
            wanted = self._dense[number]
            for start in range(0, segment.texts if wanted else 0, _BLOCK):
                part = slice(start, min(start + _BLOCK, segment.texts))
                size = part.stop - start
                total, tf, below = result[first + start :][:size], counts[:size], under[:size]
                for factor, row in wanted:
                    np.copyto(tf, segment.rows[row, part])
                    np.add(tf, damping[part], out=below)
                    np.multiply(tf, factor, out=tf)
                    np.divide(tf, below, out=tf)
                    np.add(total, tf, out=total)
        return result

    def at(self, among: Numbers) -> Scores:
        """float32[len(among)]: the scores of some texts (ascending), as `everywhere` has them."""
        result = self._rare[among]
        for number, part, local in self._postings.parts(among):
            wanted = self._dense[number]
            if not wanted:
                continue
            rows = self._postings.segments[number].rows
            factors = np.array([factor for factor, _ in wanted], dtype=np.float32)[:, None]
            below = self._postings.dampings[number].take(local)
            for start in range(0, len(local), _EXACT):
                some = slice(start, start + _EXACT)
                chosen = np.array([row for _, row in wanted], dtype=np.intp)[:, None]
                tf = rows[chosen, local[some]].astype(np.float32)
                # One after the other, as `everywhere` does: numpy's own sum would pair them.
                total = result[part][some]
                for term in factors * tf / (tf + below[some]):
                    total += term
        return result

    def best(self, count: int, eligible: Flags | None = None) -> Numbers:
        """int32[<= count], ascending: the eligible texts (None: all) that score highest, above 0.

        Ties go to the lower position.
        """
        bound, slack = self._bounds()
        if eligible is not None:
            bound *= eligible
        self.matched = int(np.count_nonzero(bound))
        reached = max(_nth_highest(bound, count) - slack, 1e-9)
        found = np.flatnonzero(bound >= reached).astype(np.int32)
        exact = self.at(found)
        order = np.argsort(-exact, kind="stable")[:count]
        return np.sort(found[order[exact[order] > 0]])

    def _rarely(self) -> Scores:
        total = np.zeros(self._postings.size, dtype=np.float32)
        for number, segment in enumerate(self._postings.segments):
            first, damping = self._postings.firsts[number], self._postings.dampings[number]
            here = total[first : first + segment.texts]
            for factor, at in self._sparse[number]:
                numbers, counts = segment.sparse(at)
                where = numbers.astype(np.intp)
                tf = counts.astype(np.float32)
                below = damping.take(where)
                below += tf
                tf *= factor
                tf /= below
                here[where] += tf
        return total

    def _bounds(self) -> tuple[Scores, float]:
        """float32[size] no lower than the scores (but for the slack), and twice their excess."""
        postings, most = self._postings, 0.0
        result = self._rare.copy() if any(self._dense) else self._rare
        for number, segment in enumerate(postings.segments):
            wanted = self._dense[number]
            if not wanted:
                continue
            weights = np.array([factor for factor, _ in wanted], dtype=np.float32)
            # A count's share of its weight moves by at most a fourth of how far K moves.
            moved = (drift(segment.average, postings.average) - 1) / 4
            most = max(most, float(weights.sum()) * (1 / LEVELS + 2 * moved + _ROUNDING))
            first = postings.firsts[number]
            here = result[first : first + segment.texts]
            _add_products(here, weights / np.float32(LEVELS), segment.impacts, wanted)
        return result, most


def _add_products(
    here: Scores,
    weights: Scores,
    impacts: npt.NDArray[np.uint8],
    wanted: list[tuple[np.float32, int]],
) -> None:
    """Add to each text the weighted sum of its impacts."""
    block = np.empty((len(wanted), _BOUNDED), dtype=np.float32)
    for start in range(0, len(here), _BOUNDED):
        part = slice(start, min(start + _BOUNDED, len(here)))
        size = part.stop - start
        for at, (_, row) in enumerate(wanted):
            block[at, :size] = impacts[row, part]
        here[part] += weights @ block[:, :size]


def _nth_highest(scores: Scores, count: int) -> float:
    """No more than the `count`-th highest score, and close to it; 0 where there are fewer."""
    if len(scores) < 32 * count:
        if len(scores) <= count:
            return 0.0
        return float(np.partition(scores, len(scores) - count)[len(scores) - count])
    # Whole blocks are ruled out first: a partition of a vector full of zeros has a bad case.
    blocks = scores[: len(scores) // 16 * 16].reshape(16, -1).max(axis=0)
    return float(np.partition(blocks, len(blocks) - count)[len(blocks) - count])
