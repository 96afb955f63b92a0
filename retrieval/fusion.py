"""One absolute score from the legs, without rank: it means the same for every question.

`SHARE * lexical + (1 - SHARE) * max(0, cosine)`, both in [0, 1]; an exact find adds `EXACT_BONUS`.
Equal-weight rank fusion was rejected: on four of ten development sets it falls below its better
leg, and a rank cannot abstain. Without a vector the lexical score stands alone, on its own scale.
Unseen words of the question count in the lexical maximum, so a question about something else stays
low however well its common words match.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from retrieval.results import Scores

if TYPE_CHECKING:
    from retrieval.postings import Scores as Floats

SHARE: Final = 0.5
"""nDCG@10 is flat between 0.4 and 0.6 on six development sets (a script of `ops eval` fits it)."""
EXACT_BONUS: Final = 0.5
UNCONFIRMED: Final = 0.85
"""What nobody vouched for must match better to be shown, and ranks below what is supported."""


def fuse_arrays(lexical: Floats, cosines: Floats | None) -> Floats:
    """float32[texts] of float32[texts] legs; `cosines` may hold -1 where nothing was compared."""
    if cosines is None:
        return lexical
    import numpy as np

    fused = np.float32(SHARE) * lexical
    fused += np.float32(1 - SHARE) * np.maximum(cosines, np.float32(0))
    return fused


def fused_score(scores: Scores, *, unconfirmed: bool) -> Scores:
    """The scores with `fused` computed from the legs."""
    value = scores.lexical
    if scores.dense is not None:
        value = SHARE * scores.lexical + (1 - SHARE) * max(0.0, scores.dense)
    value += EXACT_BONUS * scores.exact
    return replace(scores, fused=value * (UNCONFIRMED if unconfirmed else 1.0))
