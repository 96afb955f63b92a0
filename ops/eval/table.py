"""The table of README's evaluation section: memoryd beside what it has to beat, set by set.

Every system ranks the same chunks of the same throw-away memories. BM25 is memoryd's own lexical
leg alone (stemming and stop words on its side too), dense the encoder alone, RRF their equal-weight
reciprocal ranks, hashed the cosine of model-free hashed vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ops.eval.legs import (
    chunk_texts,
    documents_of,
    first_documents,
    legs_of,
    reciprocal_ranks,
)
from ops.eval.memory import EvalMemory, Shelf
from ops.eval.run import Result, answers
from ops.eval.score import GateScores, RankingScores, gate_scores, ranking_scores
from retrieval.embedding import HashEncoder

if TYPE_CHECKING:
    from ops.eval.corpus import EvalQuery
    from ops.eval.sets import EvalSet
    from retrieval.embedding import Encoder
    from storage.clock import Clock
    from storage.records import JsonValue

SYSTEMS: Final = ("bm25", "dense", "rrf", "hashed", "memoryd")
Rankings = dict[str, dict[str, list[str]]]
"""System to question to documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One set, measured."""

    name: str
    documents: int
    systems: Mapping[str, RankingScores]
    gate: GateScores
    kept: float
    """Share of the questions answered among the first four that stay answered behind the gate."""
    strangers: tuple[int, float] = (0, 0.0)
    """Questions of other sets, and the share of them that got something: false injection."""
    gate_by_kind: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    """Kind of question to how many there are and what share got silence."""

    def json(self) -> dict[str, JsonValue]:
        return {
            "set": self.name,
            "documents": self.documents,
            "systems": {name: scores.json() for name, scores in self.systems.items()},
            "gate": {**self.gate.json(), "kept": round(self.kept, 4)},
            "strangers": {
                "questions": self.strangers[0],
                "false_injection": round(self.strangers[1], 4),
            },
            "silence": {
                kind: {"questions": count, "share": round(share, 4)}
                for kind, (count, share) in self.gate_by_kind.items()
            },
        }


def compare(
    one: EvalSet,
    *,
    clock: Clock,
    encoder: Encoder | None,
    say: Callable[[str], None],
    unrelated: Sequence[EvalQuery] = (),
) -> Compared:
    """All systems on one set; the gate also on questions that have no business there."""
    say(f"{one.name}: {len(one.texts):,} texts, {len(one.queries):,} questions")
    memory = EvalMemory(one.texts, clock=clock, encoder=encoder, say=say)
    try:
        now = clock.now_ms()
        results = list(answers(memory, one.queries, encoder=encoder, now_at=now, ungated=True))
        rankings = _baselines(memory, one, now, encoder)
        strange = list(answers(memory, unrelated, encoder=encoder, now_at=now))
    finally:
        memory.close()
    rankings["memoryd"] = {result.id: [name for name, _ in result.items] for result in results}
    statuses = {result.id: result.status for result in results}
    return Compared(
        name=one.name,
        documents=len(one.texts),
        systems={name: ranking_scores(found, one.qrels) for name, found in rankings.items()},
        gate=gate_scores(statuses, one.qrels, one.unanswerable),
        kept=_kept(results, one.qrels),
        strangers=(len(strange), _spoken(strange)),
        gate_by_kind=_silence(one.queries, statuses),
    )


def _baselines(memory: EvalMemory, one: EvalSet, now: int, encoder: Encoder | None) -> Rankings:
    names = SYSTEMS[:-1] if encoder is not None else ("bm25", "hashed")
    rankings: Rankings = {name: {} for name in names}
    by_group: dict[str, list[EvalQuery]] = {}
    for query in one.queries:
        if query.id in one.qrels:
            by_group.setdefault(query.group, []).append(query)
    for group, members in by_group.items():
        with memory.opened(group) as shelf:
            if shelf is not None:
                for system, query_id, found in _ranked(shelf, members, now, encoder):
                    rankings[system][query_id] = found
    return rankings


def _ranked(
    shelf: Shelf, queries: Sequence[EvalQuery], now: int, encoder: Encoder | None
) -> Iterator[tuple[str, str, list[str]]]:
    documents = documents_of(shelf)
    hashing = HashEncoder()
    hashed = hashing.encode(chunk_texts(shelf))
    for query in queries:
        at = max(now, shelf.latest) if query.as_of is None else query.as_of
        legs = legs_of(shelf, query.query, at, encoder)
        if legs is None:
            continue
        cosines = hashed @ hashing.encode_query(query.query)
        cosines[~shelf.index.eligible(at)] = 0
        scored = {"bm25": legs.lexical, "hashed": cosines}
        if encoder is not None:
            scored["dense"] = legs.cosines
            scored["rrf"] = reciprocal_ranks(legs.lexical, legs.cosines)
        for system, scores in scored.items():
            yield system, query.id, first_documents(scores, documents)


def _kept(results: Sequence[Result], qrels: Mapping[str, frozenset[str]]) -> float:
    answered = [
        result
        for result in results
        if any(name in qrels.get(result.id, ()) for name, _ in result.items[:4])
    ]
    kept = sum(result.status != "abstained" for result in answered)
    return kept / len(answered) if answered else 0.0


def _spoken(results: Sequence[Result]) -> float:
    spoken = sum(result.status != "abstained" for result in results)
    return spoken / len(results) if results else 0.0


def _silence(
    queries: Sequence[EvalQuery], statuses: Mapping[str, str]
) -> dict[str, tuple[int, float]]:
    by_kind: dict[str, list[bool]] = {}
    for query in queries:
        if query.kind:
            by_kind.setdefault(query.kind, []).append(statuses.get(query.id) == "abstained")
    return {kind: (len(silent), sum(silent) / len(silent)) for kind, silent in by_kind.items()}


def markdown(compared: Sequence[Compared]) -> list[str]:
    """The table as README shows it."""
    lines = [
        "| set (texts / questions) | BM25 | dense | equal RRF | hashed | memoryd, 95 % interval"
        " | Recall@10: BM25, memoryd | MRR@10: BM25, memoryd |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [_row(one) for one in compared]
    if len(compared) > 1:
        lines.append(_mean_row(compared))
    return lines


def _row(one: Compared) -> str:
    ours, words = one.systems["memoryd"], one.systems["bm25"]
    cells = [
        f"{one.name} ({one.documents:,} / {ours.questions:,})",
        *(_cell(one, name) for name in SYSTEMS[:-1]),
        f"**{ours.ndcg.mean:.3f}** ({ours.ndcg.low:.3f} to {ours.ndcg.high:.3f})",
        f"{words.recall.mean:.3f}, {ours.recall.mean:.3f}",
        f"{words.mrr.mean:.3f}, {ours.mrr.mean:.3f}",
    ]
    return f"| {' | '.join(cells)} |"


def _cell(one: Compared, name: str) -> str:
    found = one.systems.get(name)
    return "-" if found is None else f"{found.ndcg.mean:.3f}"


def _mean_row(compared: Sequence[Compared]) -> str:
    means = {name: macro(compared, name) for name in SYSTEMS}
    ours, words = means["memoryd"], means["bm25"]
    ratio = ours / words if words else 0.0
    cells = [
        "macro mean",
        *(f"{means[name]:.3f}" for name in SYSTEMS[:-1]),
        f"**{ours:.3f}** ({ratio:.2f} x BM25)",
        "",
        "",
    ]
    return f"| {' | '.join(cells)} |"


def gate_markdown(compared: Sequence[Compared]) -> list[str]:
    """The gate's operating point: what passes, and what should not."""
    lines = [
        "| set | answered questions that pass the gate | unrelated questions | false injection |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one.name} | {one.kept:.1%} | {one.strangers[0]:,} | {one.strangers[1]:.1%} |"
        for one in compared
    ]
    asked = sum(one.strangers[0] for one in compared)
    false = sum(one.strangers[0] * one.strangers[1] for one in compared)
    kept = sum(one.kept for one in compared) / len(compared) if compared else 0.0
    share = false / asked if asked else 0.0
    lines.append(f"| all | {kept:.1%} (mean of sets) | {asked:,} | {share:.1%} |")
    return lines


def macro(compared: Sequence[Compared], system: str) -> float:
    """Mean of nDCG@10 over the sets; 0 for a system that ran on none."""
    found = [one.systems[system].ndcg.mean for one in compared if system in one.systems]
    return sum(found) / len(found) if found else 0.0
