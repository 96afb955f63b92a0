"""Fits the constants of fusion, structure and gate on development questions, and prints them.

Run it as `python -m ops.eval.fit --cache DIR` in a checkout, then write what it prints into
`retrieval/fusion.py`, `retrieval/structure.py` and `retrieval/abstain.py`. Own test questions are
never looked at. Ranking: coordinate descent on the macro mean of nDCG@10, a set that falls more
than 2 % below its better leg costing what it lacks. Gate: the weights under which most answered
questions pass, each set judged by the bar that the others' unrelated questions give; then the bar
that all of these give together. It knows neither names nor replies nor other languages.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from ops.eval.legs import Legs, documents_of, first_documents, legs_of
from ops.eval.memory import EvalMemory
from ops.eval.score import judge
from ops.eval.sets import EvalSet, own_set, shared_sets, strangers
from retrieval.abstain import FEWEST_TEXTS, MOST_TEXTS, TOPIC_CAP, Bar
from retrieval.candidates import USUAL_TEXTS
from retrieval.fusion import SCALE, WEIGHTS, Weights
from retrieval.structure import REACH, Reach, Structure
from storage.clock import SystemClock

if TYPE_CHECKING:
    import numpy.typing as npt

    from retrieval.embedding import Encoder
    from retrieval.postings import Scores

    Floats64 = npt.NDArray[np.float64]

FALSE_INJECTION: Final = 0.01
AIMED_AT: Final = 0.009
"""A little less, because a bar lets more through on a set that it was not fitted on."""
FALSE_COSTS: Final = 10.0
"""What a share of false injections beyond that costs, in shares of answered questions kept."""
SHOWN: Final = 4
GATE_GRIDS: Final[dict[str, Sequence[float]]] = {
    "meaning": (0.65, 0.7, 0.75, 0.8, 0.85),
    "topic": (0.5, 1.0, 1.3, 1.5, 1.8, 2.1),
    "rise": (0.0, 0.01, 0.015, 0.02, 0.025, 0.03),
}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFit:
    """A bar and how it did on sets that it was not fitted on."""

    bar: Bar
    kept: float
    """Answered questions that pass: mean over sets."""
    false: float
    """Unrelated questions that pass."""


@dataclass(frozen=True, slots=True)
class _Passing:
    """One set's questions as the gate sees them: the sum of words and meaning, topic, size."""

    answered: Floats64
    unrelated: Floats64

    def heights(self, topic: float, rise: float) -> tuple[Floats64, Floats64]:
        """How high each question stands, in a store of the usual size."""
        factors = np.array([1.0, topic, -rise])
        return self.answered @ factors, self.unrelated @ factors


def fit_gate(materials: Sequence[Material], weights: Weights, reach: Reach) -> GateFit:
    """The gate's weights, rise and bar."""
    best: GateFit | None = None
    for meaning in GATE_GRIDS["meaning"]:
        sets = [_passing(one, meaning, weights, reach) for one in materials]
        for topic, rise in product(GATE_GRIDS["topic"], GATE_GRIDS["rise"]):
            found = _left_out([one.heights(topic, rise) for one in sets])
            bar = Bar(
                words=round(1 - meaning, 3),
                meaning=meaning,
                topic=topic,
                admitted=found.admitted,
                rise=rise,
            )
            tried = GateFit(bar=bar, kept=found.kept, false=found.false)
            if best is None or _worth(tried) > _worth(best):
                best = tried
    assert best is not None
    return best


def _worth(one: GateFit) -> float:
    return one.kept - FALSE_COSTS * max(0.0, one.false - FALSE_INJECTION)


@dataclass(frozen=True, slots=True)
class _Judged:
    admitted: float
    kept: float
    false: float


def _left_out(heights: Sequence[tuple[Floats64, Floats64]]) -> _Judged:
    """Each set under the bar of the others; and the bar of all."""
    kept, passed = [], 0
    for at, (answered, unrelated) in enumerate(heights):
        others = np.concatenate([low for number, (_, low) in enumerate(heights) if number != at])
        bar = np.quantile(others, 1 - AIMED_AT)
        kept += [float(np.mean(answered >= bar))] if len(answered) else []
        passed += int(np.sum(unrelated >= bar))
    everything = np.concatenate([low for _, low in heights])
    return _Judged(
        admitted=float(np.quantile(everything, 1 - AIMED_AT)),
        kept=float(np.mean(kept)),
        false=passed / len(everything),
    )


def _passing(one: Material, meaning: float, weights: Weights, reach: Reach) -> _Passing:
    answered = [asked.legs for asked in one.asked if _is_answered(asked, weights, reach)]
    return _Passing(
        np.array([_height(legs, meaning) for legs in answered]).reshape(-1, 3),
        np.array([_height(legs, meaning) for legs in one.unrelated]).reshape(-1, 3),
    )


def _is_answered(asked: Asked, weights: Weights, reach: Reach) -> bool:
    """Whether an answer is among the first few."""
    order = np.argsort(-fused(asked, weights, reach), kind="stable")[:SHOWN]
    return any(asked.documents[at] in asked.relevant for at in order)


def _height(legs: Legs, meaning: float) -> tuple[float, float, float]:
    """Words and meaning of the text that agrees most; topic; how much the store's size counts."""
    agreed = (1 - meaning) * legs.coverage + meaning * np.maximum(legs.cosines, 0)
    topic = min(max(legs.basis.mean, 0.0), TOPIC_CAP)
    texts = min(max(len(legs.coverage), FEWEST_TEXTS), MOST_TEXTS)
    return float(agreed.max(initial=0.0)), topic, math.log(texts / USUAL_TEXTS)


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
