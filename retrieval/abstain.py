"""Whether a candidate is good enough to be put in front of a model; silence is the default.

A cosine floor alone is no abstention (unrelated questions reach the cosines of right answers), so
the gate asks for agreement: an absolute fused score, or a text that literally has most of the
question. The thresholds are operating points, see `DENSE_FUSED`.
"""

from __future__ import annotations

from typing import Final

from retrieval.candidates import Candidate
from retrieval.exact import NAMED

DENSE_FUSED: Final = 0.21
DENSE_COSINE: Final = 0.2
LEXICAL_COVERAGE: Final = 0.45
LEXICAL_WORDS: Final = 2
LITERAL_COVERAGE: Final = 0.2


def accepts(candidate: Candidate) -> bool:
    """Whether the text may be shown for the question."""
    scores = candidate.scores
    if scores.exact >= NAMED:
        return True
    if scores.dense is not None:
        return scores.fused >= DENSE_FUSED and scores.dense >= DENSE_COSINE
    if scores.exact > 0 and scores.coverage >= LITERAL_COVERAGE:
        return True
    enough = candidate.matched >= min(LEXICAL_WORDS, candidate.asked)
    return enough and candidate.scores.coverage >= LEXICAL_COVERAGE
