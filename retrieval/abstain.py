"""Whether anything is good enough to be put in front of a model; silence is the default.

A cosine floor alone is no abstention: unrelated questions reach the cosines of right answers. So a
text must agree in meaning and in words (`0.2 * coverage + 0.8 * cosine`); without a vector it must
literally have most of the question's rare words. One text has to convince; only then may texts that
are nearly as good come along.

Operating point, measured on six development corpora (80 to 420 texts) with their own questions and
with 1,435 questions of the other corpora: unrelated questions inject something in 1.6 % of cases
(worst corpus 4.8 %: encyclopedia paragraphs) while 96 % of the questions whose answer was among the
first five keep it (79 % on short project statements asked in quite other words). By words alone:
1.8 % and 53 %. Tried and worse at equal false injections: cosine alone, the fused ranking score, a
margin over the mean or over the next ten texts of the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from retrieval.candidates import Candidate
from retrieval.exact import NAMED
from retrieval.fusion import UNCONFIRMED
from retrieval.results import Scores

WORDS: Final = 0.27
MEANING: Final = 0.73
TOPIC: Final = 2.14
TOPIC_CAP: Final = 0.15
"""A store may be about one thing alone: then its subject by itself must not convince."""
ADMITTED: Final = 0.51
"""What the best text must reach when there is a cosine."""
ADMITTED_BY_WORDS: Final = 0.45
"""Coverage that the best text must reach when there is none."""
LEAST_WORDS: Final = 2
"""So many words of the question must be there, unless it has fewer: one rare word is a chance."""
LITERAL: Final = 0.3
"""What a literal found as it stands adds, times its exact score."""
FOLLOWS: Final = 0.12
"""How far below the bar a text may stay once another one has convinced."""
REPLIES: Final = 0.05
"""How much less an answer convinces than the line of its session that asks what was asked."""


def accepted(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that may be shown, in their order; none unless one of them convinces."""
    margins = [margin(candidate) for candidate in ranked]
    if max(margins, default=-1.0) < 0:
        return []
    return [candidate for candidate, held in zip(ranked, margins, strict=True) if held >= -FOLLOWS]


def margin(candidate: Candidate) -> float:
    """How far the candidate is above the bar (0 = just enough)."""
    if candidate.scores.exact >= NAMED:
        return 1.0
    own = _margin(candidate, candidate.scores)
    if candidate.asked_by is None:
        return own
    return max(own, _margin(candidate, candidate.asked_by) - REPLIES)


def _margin(candidate: Candidate, scores: Scores) -> float:
    trust = UNCONFIRMED if candidate.unconfirmed else 1.0
    literal = LITERAL * scores.exact
    if scores.dense is not None:
        topic = TOPIC * min(max(candidate.background, 0.0), TOPIC_CAP)
        agreed = WORDS * scores.coverage + MEANING * max(0.0, scores.dense) + topic
        return (agreed + literal) * trust - ADMITTED
    enough = candidate.matched >= min(LEAST_WORDS, candidate.asked) or scores.exact > 0
    return (scores.coverage + literal) * trust - ADMITTED_BY_WORDS if enough else -1.0
