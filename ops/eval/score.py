"""Scores of rankings and of the gate, with bootstrap confidence intervals.

nDCG@10 has gain 1 and the ideal of min(10, answers) (Jarvelin & Kekalainen 2002); Recall@10 is
found / answers; MRR@10 the reciprocal rank of the first answer; hit@10 whether there is one.
Intervals are percentile bootstraps over questions (Efron 1979) with a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from storage.records import JsonValue

CUT: Final = 10
RESAMPLES: Final = 2_000
SEED: Final = 20_260
LEVEL: Final = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over questions and its confidence interval."""

    mean: float
    low: float
    high: float

    def json(self) -> dict[str, JsonValue]:
        return {"mean": round(self.mean, 4), "ci95": [round(self.low, 4), round(self.high, 4)]}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingScores:
    """How good rankings are."""

    questions: int
    ndcg: Estimate
    recall: Estimate
    mrr: Estimate
    hit: Estimate

    def json(self) -> dict[str, JsonValue]:
        return {
            "questions": self.questions,
            "ndcg@10": self.ndcg.json(),
            "recall@10": self.recall.json(),
            "mrr@10": self.mrr.json(),
            "hit@10": self.hit.json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GateScores:
    """How the gate decided."""

    answerable: int
    unanswerable: int
    abstained_answerable: float
    """Share of questions with an answer that got silence."""
    injected_unanswerable: float
    """Share of questions without one that got something: false injection."""

    def json(self) -> dict[str, JsonValue]:
        return {
            "answerable": self.answerable,
            "unanswerable": self.unanswerable,
            "abstained_answerable": round(self.abstained_answerable, 4),
            "false_injection": round(self.injected_unanswerable, 4),
        }


@dataclass(frozen=True, slots=True)
class PerQuestion:
    """The four figures of one ranking."""

    ndcg: float
    recall: float
    mrr: float
    hit: float


def judge(ranking: Sequence[str], relevant: Collection[str]) -> PerQuestion:
    """One ranking against its answers; `relevant` must not be empty."""
    found = [at for at, name in enumerate(ranking[:CUT]) if name in relevant]
    ideal = sum(1 / math.log2(at + 2) for at in range(min(CUT, len(relevant))))
    return PerQuestion(
        ndcg=sum(1 / math.log2(at + 2) for at in found) / ideal,
        recall=len(found) / len(relevant),
        mrr=1 / (found[0] + 1) if found else 0.0,
        hit=float(bool(found)),
    )


def ranking_scores(
    rankings: Mapping[str, Sequence[str]], qrels: Mapping[str, Collection[str]]
) -> RankingScores:
    """Scores over every question that has answers; one without a ranking found nothing."""
    judged = [judge(rankings.get(query, ()), relevant) for query, relevant in qrels.items()]
    return RankingScores(
        questions=len(judged),
        ndcg=estimate([one.ndcg for one in judged]),
        recall=estimate([one.recall for one in judged]),
        mrr=estimate([one.mrr for one in judged]),
        hit=estimate([one.hit for one in judged]),
    )


def gate_scores(
    statuses: Mapping[str, str], qrels: Mapping[str, Collection[str]], unanswerable: Collection[str]
) -> GateScores:
    """The gate's errors on both sides; questions that are neither count on none."""
    answerable = [query for query in statuses if query in qrels]
    others = [query for query in statuses if query in unanswerable]
    silent = sum(statuses[query] == "abstained" for query in answerable)
    false = sum(statuses[query] != "abstained" for query in others)
    return GateScores(
        answerable=len(answerable),
        unanswerable=len(others),
        abstained_answerable=silent / len(answerable) if answerable else 0.0,
        injected_unanswerable=false / len(others) if others else 0.0,
    )


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and percentile interval of independent values; zeros for none."""
    import numpy as np

    if not values:
        return Estimate(0.0, 0.0, 0.0)
    sample = np.asarray(values, dtype=np.float64)
    draw = np.random.default_rng(SEED)
    means = [
        float(sample[draw.integers(0, len(sample), len(sample))].mean()) for _ in range(RESAMPLES)
    ]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Estimate(float(sample.mean()), float(low), float(high))
