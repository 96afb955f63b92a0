"""The lexical leg: which terms of a question count, how much, and what a text has of them.

`weigh` is the one place where a question meets term frequencies; arrays, FTS5 and the serverless
scan all score with its weights, so a score means the same on every path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retrieval.query import Question, Word
from retrieval.weights import K1, idf

if TYPE_CHECKING:
    from retrieval.postings import Flags, Numbers, Postings, Scores


@dataclass(frozen=True, slots=True)
class WeighedWord:
    """A word's terms, each with its share of the question."""

    terms: tuple[tuple[str, float], ...]
    weight: float
    """Sum over the terms."""


@dataclass(frozen=True, slots=True)
class WeighedQuestion:
    """A question with weights."""

    words: tuple[WeighedWord, ...]
    weight: float

    @property
    def maximum(self) -> float:
        """The BM25 of a text that repeats every term without end."""
        return self.weight * (K1 + 1)

    def terms(self) -> dict[str, float]:
        """Each term once, with its highest weight."""
        result: dict[str, float] = {}
        for word in self.words:
            for term, weight in word.terms:
                result[term] = max(weight, result.get(term, 0.0))
        return result


def weigh(question: Question, frequency: Callable[[str], int], texts: int) -> WeighedQuestion:
    """The question's words, weighed by how rare their terms are in this store."""
    words = tuple(_weigh_word(word, frequency, texts) for word in question.words)
    return WeighedQuestion(words, sum(word.weight for word in words))


def _weigh_word(word: Word, frequency: Callable[[str], int], texts: int) -> WeighedWord:
    if len(word.terms) == 1:
        weight = idf(frequency(word.terms[0]), texts)
        return WeighedWord(((word.terms[0], weight),), weight)
    # An identifier comes whole and in parts. The whole counts only where it is known; its parts
    # together weigh at most two words, or a long path would outvote the rest of the question.
    whole, *parts = word.terms
    weighed: list[tuple[str, float]] = []
    if known := frequency(whole):
        weighed.append((whole, idf(known, texts)))
    share = min(1.0, 2 / len(parts))
    weighed += [(part, idf(frequency(part), texts) * share) for part in parts]
    return WeighedWord(tuple(weighed), sum(weight for _, weight in weighed))


def lexical_scores(postings: Postings, question: WeighedQuestion) -> Scores:
    """float32[texts] in [0, 1]: BM25 over all terms, as a share of the question's maximum."""
    return Words(postings, question).everywhere()


class Words:
    """The lexical leg of one question: the same scores, of the best texts or of any."""

    def __init__(self, postings: Postings, question: WeighedQuestion) -> None:
        from retrieval.scoring import Scoring

        self._scoring = Scoring(postings, question.terms().items())
        self._maximum = question.maximum or 1.0

    @property
    def matched(self) -> int:
        """Texts with at least one of the words, once `best` has looked."""
        return self._scoring.matched

    def everywhere(self) -> Scores:
        """As `lexical_scores`."""
        return self._shares(self._scoring.everywhere())

    def best(self, count: int, eligible: Flags | None) -> Numbers:
        """int32[<= count], ascending: the eligible texts (None: all) that score highest."""
        return self._scoring.best(count, eligible)

    def at(self, among: Numbers) -> Scores:
        """float32[len(among)] in [0, 1], of some texts (ascending)."""
        return self._shares(self._scoring.at(among))

    def _shares(self, scores: Scores) -> Scores:
        scores /= scores.dtype.type(self._maximum)
        return scores


def coverage(postings: Postings, question: WeighedQuestion, among: Numbers) -> Coverage:
    """What each of some texts has of the question's words."""
    import numpy as np

    share = np.zeros(len(among), dtype=np.float32)
    count = np.zeros(len(among), dtype=np.int32)
    known = postings.holding({term for word in question.words for term, _ in word.terms}, among)
    for word in question.words:
        part = np.zeros(len(among), dtype=np.float32)
        for term, weight in word.terms:
            part += known[term] * np.float32(weight)
        share += part
        count += 2 * part >= word.weight
    if question.weight > 0:
        share /= np.float32(question.weight)
    return Coverage(share, count)


@dataclass(frozen=True, slots=True, eq=False)
class Coverage:
    """Per text: the weighted share of the question found in it, and how many words (by half)."""

    share: Scores
    words: Numbers
