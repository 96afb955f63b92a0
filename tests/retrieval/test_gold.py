"""Quality on real questions: better than BM25, and silent about what the memory does not know."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from retrieval.ask import Ask
from retrieval.embedding import Encoder, OnnxEncoder
from retrieval.index import IndexSnapshot, build_index
from retrieval.names import external_id
from retrieval.quantize import packed
from retrieval.query import parse_query
from retrieval.search import rank, recall
from storage.authority.reads import Reads
from storage.config import EncoderSettings
from storage.records import DocumentKey
from tests.retrieval.memories import SOME_AT, Text, in_memory

NOW = SOME_AT + 1_000


@dataclass(frozen=True)
class Gold:
    """A corpus with questions, their answers, and questions about other things."""

    index: IndexSnapshot
    reads: Reads
    encoder: Encoder
    names: list[str]
    questions: dict[str, str]
    answers: dict[str, set[str]]
    unrelated: list[str]

    def ranking(self, query: str, encoder: Encoder | None) -> list[str]:
        """Names of the first ten, without any gate."""
        found, _ = rank(
            self.index, parse_query(query), Ask(at=NOW), reads=self.reads, encoder=encoder
        )
        return [self.names[candidate.rowid - 1] for candidate in found[:10]]

    def shown(self, query: str, encoder: Encoder | None) -> set[str]:
        """Names of what would be injected."""
        answer = recall(self.index, query, reads=self.reads, now_at=NOW, encoder=encoder)
        return {external_id(DocumentKey(item.document_key)) for item in answer.items}


def _lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def gold(shared_dir: Path) -> Gold:
    """The first pi-memory's gold suite, embedded; questions of two other sets as unrelated ones."""
    folder = shared_dir / "data" / "retrieval"
    corpus = _lines(folder / "pimemory-gold" / "corpus.jsonl")
    encoder = OnnxEncoder(EncoderSettings())
    texts = [Text(text=row["text"], name=row["_id"]) for row in corpus]
    vectors = packed(encoder.encode([text.text for text in texts]), encoder.collection.scale)
    reads = in_memory(texts, collection=encoder.collection, vectors=vectors)
    answers: dict[str, set[str]] = {}
    for line in (folder / "pimemory-gold" / "qrels.tsv").read_text("utf-8").splitlines():
        query, document, *_ = line.split("\t")
        answers.setdefault(query, set()).add(document)
    unrelated = [
        row["text"]
        for name in ("cosqa-dev", "locomo-fixed", "med")
        for row in _lines(folder / name / "queries.jsonl")[:60]
    ]
    return Gold(
        index=build_index(reads, generation=1, collection=encoder.collection),
        reads=reads,
        encoder=encoder,
        names=[row["_id"] for row in corpus],
        questions={
            row["_id"]: row["text"] for row in _lines(folder / "pimemory-gold" / "queries.jsonl")
        },
        answers=answers,
        unrelated=unrelated,
    )


def ndcg(ranking: Sequence[str], relevant: set[str]) -> float:
    """nDCG@10 with gain 1 and ideal min(10, relevant)."""
    gains = sum(1 / math.log2(at + 2) for at, name in enumerate(ranking[:10]) if name in relevant)
    return gains / sum(1 / math.log2(at + 2) for at in range(min(10, len(relevant))))


def mean_ndcg(gold: Gold, encoder: Encoder | None) -> float:
    """Mean over all questions."""
    return sum(
        ndcg(gold.ranking(query, encoder), gold.answers[name])
        for name, query in gold.questions.items()
    ) / len(gold.questions)


def test_the_hybrid_ranking_beats_bm25_by_a_fifth(gold: Gold) -> None:
    """nDCG@10 of all legs is at least 1.2 times that of BM25 alone, and BM25 is no straw man."""
    lexical, hybrid = mean_ndcg(gold, None), mean_ndcg(gold, gold.encoder)

    assert lexical > 0.48
    assert hybrid > 1.2 * lexical


def test_unrelated_questions_inject_next_to_nothing(gold: Gold) -> None:
    """At most 4 % of 180 questions about other things inject anything, with and without vectors."""
    for encoder in (gold.encoder, None):
        false = [query for query in gold.unrelated if gold.shown(query, encoder)]

        assert len(false) <= 0.04 * len(gold.unrelated)


def test_most_answers_survive_the_gate(gold: Gold) -> None:
    """Two of three questions, all asked in other words than the answer's, still get it."""
    kept = [
        name
        for name, query in gold.questions.items()
        if gold.shown(query, gold.encoder) & gold.answers[name]
    ]

    assert len(kept) >= 0.65 * len(gold.questions)
