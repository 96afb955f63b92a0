"""What cosines usually are in one store: the background that a near text has to stand out from.

An encoder puts all texts of one subject close together, and of another far apart, so a cosine by
itself says little. `Background` knows mean and deviation of the cosines of any question without
comparing all texts, from the first two moments of a sample of the rows. Immutable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from retrieval.postings import Scores
    from retrieval.quantize import Bytes, Floats

SAMPLE: Final = 2_048
USUAL_MEAN: Final = 0.06
USUAL_DEVIATION: Final = 0.09
"""Mean and deviation over eight development sets: what a store is like before it has texts."""
USUAL_WEIGHT: Final = 32
"""Counted as so many texts: the cosines of three facts are no background."""


@dataclass(frozen=True, slots=True, eq=False)
class Background:
    """The first two moments of a store's vectors."""

    texts: int
    """Vectors of the store."""
    sampled: int
    """How many of them the moments are of."""
    mean: Floats
    """float32[dims]: mean of the normalised rows."""
    moment: Floats
    """float32[dims, dims]: mean of their outer products."""

    @property
    def nbytes(self) -> int:
        return self.mean.nbytes + self.moment.nbytes

    def of(self, query: Floats) -> tuple[float, float]:
        """(mean, standard deviation) of the query's cosines with all texts."""
        first = float(self.mean @ query)
        second = float(query @ (self.moment @ query))
        known = self.texts / (self.texts + USUAL_WEIGHT)
        mean = known * first + (1 - known) * USUAL_MEAN
        usual = USUAL_DEVIATION**2 + USUAL_MEAN**2
        spread = known * second + (1 - known) * usual - mean**2
        return mean, max(spread, 1e-4) ** 0.5

    def beside(self, rows: Bytes, lengths: Scores) -> Background:
        """The background with more rows: they enter the moments as long as these are of all."""
        whole = self.sampled == self.texts and self.texts + len(rows) <= SAMPLE
        return self._moved(rows, lengths, 1, whole=whole)

    def without(self, rows: Bytes, lengths: Scores) -> Background:
        """The background without some rows; a sample stays what it was."""
        return self._moved(rows, lengths, -1, whole=self.sampled == self.texts)

    def _moved(self, rows: Bytes, lengths: Scores, sign: int, *, whole: bool) -> Background:
        if not len(rows):
            return self
        texts = self.texts + sign * len(rows)
        if not whole:
            return replace(self, texts=texts)
        unit = rows.astype(np.float32) / lengths[:, None]
        before, after = np.float32(self.texts), np.float32(max(texts, 1))
        mean = (self.mean * before + np.float32(sign) * unit.sum(axis=0)) / after
        moment = (self.moment * before + np.float32(sign) * (unit.T @ unit)) / after
        return Background(texts, texts, mean.astype(np.float32), moment.astype(np.float32))


def background_of(rows: Bytes, lengths: Scores, *, texts: int | None = None) -> Background:
    """The background of int8 rows with these Euclidean lengths, from an even sample.

    `texts`: how many rows there are where these are a sample already.
    """
    step = -(-len(rows) // SAMPLE) or 1
    unit = rows[::step].astype(np.float32) / lengths[::step, None]
    count = max(len(unit), 1)
    mean: Floats = (unit.sum(axis=0) / count).astype(np.float32)
    moment: Floats = (unit.T @ unit / count).astype(np.float32)
    return Background(len(rows) if texts is None else texts, len(unit), mean, moment)
