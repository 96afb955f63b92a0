"""What each leg says about every text of a memory, for one question: the raw material of ranking.

The baselines of the table rank by one leg or by equal-weight reciprocal ranks (Cormack et al. 2009,
k = 60); the fit tries weights on them without running recall again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from retrieval.fusion import Basis
from retrieval.lexical import coverage, lexical_scores, weigh
from retrieval.names import external_id
from retrieval.query import parse_query

if TYPE_CHECKING:
    from ops.eval.memory import Shelf
    from retrieval.embedding import Encoder
    from retrieval.postings import Scores
    from retrieval.quantize import Floats

RRF_K: Final = 60
RRF_DEPTH: Final = 100
_LOOKED_AT: Final = 60
"""Chunks read for ten documents."""


@dataclass(frozen=True, slots=True, eq=False)
class Legs:
    """The legs' scores of all texts; a long prompt's questions are taken together by maximum."""

    lexical: Scores
    cosines: Scores
    coverage: Scores
    basis: Basis


def legs_of(shelf: Shelf, query: str, at: int, encoder: Encoder | None) -> Legs | None:
    """The legs for one question at one instant; None for a question that asks nothing."""
    index = shelf.index
    parsed = parse_query(query)
    if parsed.silent:
        return None
    eligible = index.eligible(at)
    everything = np.arange(index.size, dtype=np.int32)
    lexical, covered, cosines = (np.zeros(index.size, dtype=np.float32) for _ in range(3))
    maximum, mean, deviation = 0.0, 0.0, 1.0
    for question in parsed.questions:
        weighed = weigh(question, index.postings.frequency, index.size)
        maximum = max(maximum, weighed.maximum)
        lexical = np.maximum(lexical, lexical_scores(index.postings, weighed))
        covered = np.maximum(covered, coverage(index.postings, weighed, everything).share)
        if encoder is not None and index.matrix is not None:
            vector = encoder.encode_query(question.text)
            found, _ = index.matrix.cosines(vector, texts=index.size, eligible=eligible)
            cosines = np.maximum(cosines, found)
            mean, deviation = index.matrix.background.of(vector)
    for leg in (lexical, covered, cosines):
        leg[~eligible] = 0
    return Legs(lexical, cosines, covered, Basis(maximum, mean, deviation))


def reciprocal_ranks(*legs: Scores) -> Scores:
    """float32[texts]: the sum of 1 / (k + rank) over the legs' first hundred."""
    total = np.zeros(len(legs[0]), dtype=np.float32)
    for leg in legs:
        order = np.argsort(-leg, kind="stable")[:RRF_DEPTH]
        order = order[leg[order] > 0]
        total[order] += 1 / np.arange(RRF_K + 1, RRF_K + 1 + len(order), dtype=np.float32)
    return total


def hashed_vectors(shelf: Shelf, encoder: Encoder) -> Floats:
    """float32[texts, dims] of a model-free encoder, for the baseline."""
    return encoder.encode(chunk_texts(shelf))


def chunk_texts(shelf: Shelf) -> list[str]:
    """The texts as they are embedded."""
    found = []
    for rowid in shelf.index.rowids:
        chunk = shelf.reads.chunk(int(rowid))
        found.append("" if chunk is None else f"{chunk.title}\n{chunk.text}".strip())
    return found


def documents_of(shelf: Shelf) -> list[str]:
    """The external id behind each position."""
    found = []
    for rowid in shelf.index.rowids:
        chunk = shelf.reads.chunk(int(rowid))
        found.append("" if chunk is None else external_id(chunk.document_key))
    return found


def first_documents(scores: Scores, documents: Sequence[str], depth: int = 10) -> list[str]:
    """The documents of the highest scores above 0, each once, ties by position."""
    found: dict[str, None] = {}
    for at in np.argsort(-scores, kind="stable")[: _LOOKED_AT + depth]:
        if scores[at] <= 0 or len(found) == depth:
            break
        found.setdefault(documents[at])
    return list(found)
