"""Whether anything is good enough to be put in front of a model; silence is the default.

A cosine floor alone is no abstention: unrelated questions reach the cosines of right answers. So a
text must agree in meaning and in words, and the question in subject with the store: a weighted sum
of cosine, coverage and the mean cosine of the question with all texts. The bar for that sum rises
with the logarithm of the store's size: of many texts that have nothing to say, the best one comes
closer. Without a vector a text must literally have most of the question's rare words. One text has
to convince; only then may texts that are nearly as good come along. In a session, the line after a
question stands on what was asked.

`ops/eval/fit.py` fits weights, rise and bar on development questions, so that about 1 % of
unrelated questions get something; `ops eval compare` prints what that costs. It cannot tell a
question about a thing that the memory knows from one about a property of it that the memory does
not know. Tried and no better at equal false injections: cosine alone, the fused ranking score, a
margin over the next ten texts, agreement of the legs, the number of words, the length of the text.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from retrieval.candidates import USUAL_TEXTS, Candidate
from retrieval.exact import NAMED
from retrieval.fusion import UNCONFIRMED
from retrieval.results import Scores


@dataclass(frozen=True, slots=True)
class Bar:
    """What the best text must reach when there is a cosine, and what counts towards it."""

    words: float
    meaning: float
    topic: float
    admitted: float
    """In a store of `USUAL_TEXTS`."""
    rise: float
    """For each e-fold of the store's size."""

    def at(self, texts: int) -> float:
        """What must be reached in a store of so many texts."""
        counted = min(max(texts, FEWEST_TEXTS), MOST_TEXTS)
        return self.admitted + self.rise * math.log(counted / USUAL_TEXTS)


ENGLISH: Final = Bar(words=0.25, meaning=0.75, topic=1.3, admitted=0.475, rise=0.025)
"""One hundredth above the fit, which knows neither names nor replies."""
FOREIGN: Final = Bar(words=0.2, meaning=0.8, topic=0.5, admitted=0.31, rise=0.03)
"""For the multilingual encoder, whose cosines lie on a scale of their own."""
FEWEST_TEXTS: Final = 10
MOST_TEXTS: Final = 10_000
"""The rise was measured between these sizes."""
TOPIC_CAP: Final = 0.15
"""A store may be about one thing alone: then its subject by itself must not convince."""
ADMITTED_BY_WORDS: Final = 0.45
"""Coverage that the best text must reach when there is none."""
LEAST_WORDS: Final = 2
"""So many words of the question must be there, unless it has fewer: one rare word is a chance."""
LITERAL: Final = 0.6
"""What a literal found as it stands adds, times its exact score."""
FOLLOWS: Final = 0.12
"""How far below the bar a text may stay once another one has convinced."""
NEAREST: Final = 4
"""So many of those that stay below are named, for whoever asks why."""
REPLIES: Final = 0.05
"""How much less an answer convinces than the line of its session that asks what was asked."""


def accepted(ranked: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that may be shown, in their order; none unless one of them convinces."""
    margins = [margin(candidate) for candidate in ranked]
    if max(margins, default=-1.0) < 0:
        return []
    return [candidate for candidate, held in zip(ranked, margins, strict=True) if held >= -FOLLOWS]


def nearest(ranked: Sequence[Candidate], shown: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that were not accepted, closest to the bar first; a few of them."""
    rowids = {candidate.rowid for candidate in shown}
    rest = [candidate for candidate in ranked if candidate.rowid not in rowids]
    return heapq.nlargest(NEAREST, rest, key=margin)


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
        bar = FOREIGN if candidate.foreign else ENGLISH
        topic = bar.topic * min(max(candidate.background, 0.0), TOPIC_CAP)
        agreed = bar.words * scores.coverage + bar.meaning * max(0.0, scores.dense) + topic
        return (agreed + literal) * trust - bar.at(candidate.texts)
    enough = candidate.matched >= min(LEAST_WORDS, candidate.asked) or scores.exact > 0
    return (scores.coverage + literal) * trust - ADMITTED_BY_WORDS if enough else -1.0
