"""Fits the constants of fusion, structure and gate on development questions, and prints them.

Run it as `python -m ops.eval.fit --cache DIR` in a checkout, then write what it prints into
`retrieval/fusion.py`, `retrieval/structure.py` and `retrieval/abstain.py`. Own test questions are
never looked at. Ranking: coordinate descent on the macro mean of nDCG@10, a set that falls more
than 2 % below its better leg costing what it lacks. Gate: weighted logistic regression (iteratively
reweighted least squares) of "the text answers" on coverage, cosine and background, then the lowest
bar that lets at most 1 % of unrelated questions through.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ops.eval.legs import Legs, documents_of, first_documents, legs_of
from ops.eval.memory import EvalMemory
from ops.eval.score import judge
from ops.eval.sets import EvalSet, own_set, shared_sets, strangers
from retrieval.abstain import TOPIC_CAP
from retrieval.fusion import SCALE, WEIGHTS, Weights
from retrieval.structure import REACH, Reach, Structure
from storage.clock import SystemClock

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from retrieval.postings import Scores

FALSE_INJECTION: Final = 0.01
TOLERATED: Final = 0.98
GRIDS: Final[dict[str, Sequence[float]]] = {
    "near": (0, 0.5, 1, 1.5, 2, 2.5, 3),
    "far": (0, 0.2, 0.35, 0.5, 0.7, 0.9),
    "covered": (0, 0.5, 1, 2, 4),
    "question": (0.3, 0.4, 0.5, 0.6),
    "before": (0, 0.05, 0.1, 0.2),
    "after": (0, 0.05, 0.1, 0.15, 0.2),
    "session": (0, 0.2, 0.4, 0.6),
    "asking": (0.4, 0.5, 0.65, 0.8, 1),
}


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One development question with everything its ranking depends on."""

    legs: Legs
    relevant: frozenset[str]
    documents: Sequence[str]
    structure: Structure | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One set: its questions, and the legs of questions that nothing in it answers."""

    name: str
    asked: list[Asked]
    unrelated: list[Legs]


def gather(sets: Sequence[EvalSet], encoder: Encoder) -> Iterator[Material]:
    """Ingest each set and take its legs."""
    clock = SystemClock()
    for one in sets:
        others = strangers(one, sets)
        others += [
            replace(query, group=one.texts[0].group)
            for query in one.queries
            if query.kind == "unrelated" and query.lang in {"", "en"}
        ]
        memory = EvalMemory(one.texts, clock=clock, encoder=encoder)
        asked: list[Asked] = []
        unrelated: list[Legs] = []
        groups = sorted({text.group for text in one.texts})
        for group in groups:
            with memory.opened(group) as shelf:
                if shelf is None:
                    continue
                now, documents = max(clock.now_ms(), shelf.latest), documents_of(shelf)
                for query in one.queries:
                    relevant = one.qrels.get(query.id)
                    if query.group != group or not relevant or query.lang not in {"", "en"}:
                        continue
                    at = now if query.as_of is None else query.as_of
                    if legs := legs_of(shelf, query.query, at, encoder):
                        asked.append(Asked(legs, relevant, documents, shelf.index.structure))
                asking = [query.query for query in others if query.group == group]
                found = (legs_of(shelf, text, now, encoder) for text in asking)
                unrelated += [legs for legs in found if legs is not None]
        memory.close()
        yield Material(name=one.name, asked=asked, unrelated=unrelated)


def fused(one: Asked, weights: Weights, reach: Reach) -> Scores:
    """float32[texts]: as recall ranks, under other constants."""
    basis = replace(one.legs.basis, weights=weights)
    scores = basis.fused_arrays(one.legs.lexical, one.legs.cosines)
    scores += one.legs.coverage * np.float32(weights.covered / (basis.maximum + SCALE))
    return scores if one.structure is None else one.structure.spread(scores, reach)


def mean_ndcg(material: Material, ranked: Callable[[Asked], Scores]) -> float:
    """Over the set's questions."""
    return float(
        np.mean(
            [
                judge(first_documents(ranked(one), one.documents), one.relevant).ndcg
                for one in material.asked
            ]
        )
    )


def fit_ranking(materials: Sequence[Material]) -> tuple[Weights, Reach]:
    """The constants that coordinate descent ends at, from the ones in use."""
    best_leg = {
        one.name: max(
            mean_ndcg(one, lambda asked: asked.legs.lexical),
            mean_ndcg(one, lambda asked: asked.legs.cosines),
        )
        for one in materials
    }

    def objective(weights: Weights, reach: Reach) -> float:
        figures = {
            one.name: mean_ndcg(one, lambda asked: fused(asked, weights, reach))
            for one in materials
        }
        lacking = sum(max(0.0, TOLERATED * best_leg[name] - figures[name]) for name in figures)
        return float(np.mean(list(figures.values()))) - lacking

    weights, reach = WEIGHTS, REACH
    reached = objective(weights, reach)
    for _ in range(2):
        for name, grid in GRIDS.items():
            for value in grid:
                mine = replace(weights, **{name: value}) if hasattr(weights, name) else weights
                theirs = replace(reach, **{name: value}) if hasattr(reach, name) else reach
                tried = objective(mine, theirs)
                if tried > reached + 1e-5:
                    weights, reach, reached = mine, theirs, tried
        print(f"objective {reached:.4f}: {weights} {reach}", file=sys.stderr)
    return weights, reach


@dataclass(frozen=True, slots=True)
class GateFit:
    """`words * coverage + meaning * cosine + topic * background >= bar`; the first two add to 1."""

    words: float
    meaning: float
    topic: float
    bar: float


def fit_gate(materials: Sequence[Material], weights: Weights, reach: Reach) -> GateFit:
    """The gate's weights and bar."""
    rows: list[tuple[float, ...]] = []
    labels: list[float] = []
    counts: list[float] = []
    for one in materials:
        good = [row for asked in one.asked for row in _answering(asked, weights, reach)]
        bad = [_features(legs, _agreeing(legs)) for legs in one.unrelated]
        for found, label in ((good, 1.0), (bad, 0.0)):
            rows += found
            labels += [label] * len(found)
            counts += [1 / max(1, len(found))] * len(found)
    slopes = _logistic(np.array(rows), np.array(labels), np.array(counts) / np.mean(counts))
    words, meaning, topic = (float(slope / (slopes[0] + slopes[1])) for slope in slopes[:3])

    def agreed(legs: Legs) -> float:
        share = words * legs.coverage + meaning * legs.cosines
        return float(share.max(initial=0.0)) + topic * _topic(legs)

    highest = [agreed(legs) for one in materials for legs in one.unrelated]
    bar = float(np.quantile(highest, 1 - FALSE_INJECTION))
    return GateFit(words, meaning, topic, bar)


def _answering(asked: Asked, weights: Weights, reach: Reach) -> list[tuple[float, ...]]:
    """Features of the answers among the first four."""
    order = np.argsort(-fused(asked, weights, reach), kind="stable")[:4]
    return [_features(asked.legs, int(at)) for at in order if asked.documents[at] in asked.relevant]


def _agreeing(legs: Legs) -> int:
    return int(np.argmax(0.25 * legs.coverage + 0.75 * legs.cosines))


def _features(legs: Legs, at: int) -> tuple[float, ...]:
    return float(legs.coverage[at]), float(legs.cosines[at]), _topic(legs)


def _topic(legs: Legs) -> float:
    return min(max(legs.basis.mean, 0.0), TOPIC_CAP)


def _logistic(
    rows: np.typing.NDArray[np.float64],
    labels: np.typing.NDArray[np.float64],
    counts: np.typing.NDArray[np.float64],
) -> np.typing.NDArray[np.float64]:
    """Slopes and intercept."""
    design = np.hstack([rows, np.ones((len(rows), 1))])
    slopes = np.zeros(design.shape[1])
    for _ in range(40):
        chance = 1 / (1 + np.exp(-design @ slopes))
        slope = design.T @ (counts * (labels - chance)) - 0.01 * slopes
        curve = (design * (counts * chance * (1 - chance))[:, None]).T @ design
        slopes += np.linalg.solve(curve + 0.01 * np.eye(len(slopes)), slope)
    return slopes


def main(argv: Sequence[str]) -> int:
    """Fit and print."""
    from ops.eval.cache import CachedEncoder
    from retrieval.embedding import OnnxEncoder
    from storage.config import EncoderSettings

    parser = argparse.ArgumentParser(prog="python -m ops.eval.fit", description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps vectors")
    parser.add_argument("--shared", type=Path, help="folder of the shared sets")
    chosen = parser.parse_args(argv)
    encoder = CachedEncoder(OnnxEncoder(EncoderSettings()), chosen.cache)
    sets = [own_set().only("dev"), *(shared_sets(chosen.shared) if chosen.shared else ())]
    materials = list(gather(sets, encoder))
    weights, reach = fit_ranking(materials)
    print(weights)
    print(reach)
    print(fit_gate(materials, weights, reach))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
