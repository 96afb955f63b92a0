"""One absolute score from the legs, without rank: it means the same for every question.

Each leg is evidence in the same unit, and evidence adds up:

- words: the plain BM25 sum, so a question of many rare words leans on them by itself;
- meaning: `near * z + far * z**2`, z being how many standard deviations the cosine lies above this
  question's background in this store: a leg that singles nothing out says next to nothing;
- `covered` times the share of the question's words that the text has.

Divided by the question's maximum plus `SCALE` (the meaning of a text about seven deviations out),
this is a mean of two shares, weighted by how much the question says in words. An exact find adds
`EXACT_BONUS`. Equal-weight rank fusion was rejected: on four of eight development sets it falls
below its better leg, and a rank cannot abstain. `ops/eval/fit.py` fits the three weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from retrieval.results import Scores

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from retrieval.postings import Scores as Floats

    Doubles = npt.NDArray[np.float64]

SCALE: Final = 45.0
EXACT_BONUS: Final = 0.5
UNCONFIRMED: Final = 0.85
"""What nobody vouched for must match better to be shown, and ranks below what is supported."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the evidence of each kind weighs beside a unit of BM25."""

    near: float = 2.5
    far: float = 0.5
    covered: float = 1.0


WEIGHTS: Final = Weights()


@dataclass(frozen=True, slots=True)
class Basis:
    """What the scores of one question are measured against."""

    maximum: float
    """The BM25 that a text repeating every word without end would reach."""
    mean: float = 0.0
    deviation: float = 1.0
    """Of the question's cosines in this store (see `retrieval.background`)."""
    weights: Weights = WEIGHTS

    def outlying(self, cosine: float) -> float:
        """z of a cosine, 0 for one below the mean."""
        return max(0.0, (cosine - self.mean) / self.deviation)

    def fused(self, scores: Scores) -> Scores:
        """The scores with `fused` computed from words and meaning."""
        weights = self.weights
        evidence = scores.lexical * self.maximum + weights.covered * scores.coverage
        if scores.dense is not None:
            z = self.outlying(scores.dense)
            evidence += weights.near * z + weights.far * z * z
        return replace(scores, fused=evidence / (self.maximum + SCALE))

    def fused_arrays(self, lexical: Floats, cosines: Floats | None) -> Floats:
        """float32[texts]: the same of words and meaning, for all texts at once.

        `cosines` may hold -1 where nothing was compared.
        """
        import numpy as np

        fused = lexical * np.float32(self.maximum / (self.maximum + SCALE))
        if cosines is not None:
            above = np.flatnonzero(cosines > self.mean)
            z = (cosines[above] - np.float32(self.mean)) / np.float32(self.deviation)
            meaning = z * (np.float32(self.weights.near) + np.float32(self.weights.far) * z)
            fused[above] += meaning / np.float32(self.maximum + SCALE)
        return fused

    def fused_at(self, lexical: Floats, cosines: Floats | None, coverage: Floats) -> Doubles:
        """float64[n]: `fused` of some texts at once; a cosine of -1 is none."""
        import numpy as np

        weights = self.weights
        evidence = lexical.astype(np.float64) * self.maximum
        evidence += weights.covered * coverage.astype(np.float64)
        if cosines is not None:
            z = (cosines.astype(np.float64) - self.mean) / self.deviation
            z = np.where(cosines == -1, 0.0, np.maximum(z, 0.0))
            evidence += weights.near * z + weights.far * z * z
        return evidence / (self.maximum + SCALE)


def settled_value(fused: float, exact: float, *, unconfirmed: bool) -> float:
    """A fused score with an exact find added, and less of it where nobody vouched for the text."""
    return (fused + EXACT_BONUS * exact) * (UNCONFIRMED if unconfirmed else 1.0)


def settled(scores: Scores, *, exact: float = 0.0, unconfirmed: bool = False) -> Scores:
    """Fused scores with an exact find added, and less of them where nobody vouched for the text."""
    value = settled_value(scores.fused, exact, unconfirmed=unconfirmed)
    return replace(scores, exact=exact, fused=value)
