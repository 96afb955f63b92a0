"""The dense leg: cosines of one question with the vectors of the encoder's own collection.

Every reason for doing without is a gap in words, never an exception: recall goes on lexically.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval.fusion import Basis
from retrieval.multilingual import foreign_of
from storage.errors import MemorydError

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from retrieval.index import IndexSnapshot
    from retrieval.matrix import Matrix
    from retrieval.postings import Flags, Numbers, Scores
    from retrieval.quantize import Floats


@dataclass(frozen=True, slots=True, eq=False)
class DenseLeg:
    """The matrix to search and the question vectors; or neither, and why."""

    matrix: Matrix | None
    vectors: Sequence[Floats]
    gap: str = ""
    foreign: bool = False
    """Whether the vectors are the multilingual ones."""

    def nearest(
        self, vector: Floats | None, eligible: Flags | None
    ) -> tuple[Numbers, Scores] | None:
        """(positions, cosines) of the eligible texts that were compared; None without a leg."""
        if self.matrix is None or vector is None:
            return None
        return self.matrix.nearest(vector, eligible=eligible)

    def at(self, vector: Floats | None, among: Numbers) -> Scores | None:
        """The cosines of some texts, whether or not the 1-bit scan chose them."""
        if self.matrix is None or vector is None:
            return None
        return self.matrix.at(vector, among)

    def basis(self, vector: Floats | None, maximum: float) -> Basis:
        """What the scores of one question are measured against."""
        if self.matrix is None or vector is None:
            return Basis(maximum)
        return Basis(maximum, *self.matrix.background.of(vector))


def open_leg(
    index: IndexSnapshot, encoder: Encoder | None, texts: Sequence[str], *, foreign: bool = False
) -> DenseLeg:
    """The leg for these questions; never waits for a model to load.

    A store without vectors has no gap: there is nothing that the leg could have found. A `foreign`
    question is compared with the multilingual vectors where there are some, else with the others.
    """
    if encoder is None or index.texts == 0:
        return DenseLeg(None, ())
    second = foreign_of(encoder) if foreign and index.foreign is not None else None
    if second is not None and second.ready:
        return _opened(index.foreign, second, texts, foreign=True)
    return _opened(index.matrix, encoder, texts, foreign=False)


def _opened(
    matrix: Matrix | None, encoder: Encoder, texts: Sequence[str], *, foreign: bool
) -> DenseLeg:
    if matrix is None:
        return DenseLeg(None, (), "no vectors yet")
    if matrix.collection != encoder.collection:
        return DenseLeg(None, (), "the vectors are of another model")
    if not encoder.ready:
        return DenseLeg(None, (), "the encoder is not loaded yet")
    try:
        return DenseLeg(matrix, list(encoder.encode(texts)), foreign=foreign)
    except MemorydError as problem:
        return DenseLeg(None, (), f"dense leg off: {problem}")
