"""A whole recall over the resident arrays.

Order: what asks nothing is answered with nothing; eligibility masks every text before any ranking;
each question of the prompt is scored by all legs; one absolute score fuses them; the gate decides;
what is shown is read from the store and checked again. Read only, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from retrieval.ask import Ask
from retrieval.assembly import assemble
from retrieval.candidates import Candidate
from retrieval.dense import open_leg
from retrieval.exact import exact_scores
from retrieval.fusion import Basis, settled
from retrieval.lexical import WeighedQuestion, coverage, lexical_scores, weigh
from retrieval.matrix import NO_VECTOR
from retrieval.query import Query, parse_query
from retrieval.results import Leg, Recall, Scores, abstained
from storage.language import detect

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from retrieval.index import IndexSnapshot
    from retrieval.postings import Flags, Numbers
    from retrieval.postings import Scores as Floats
    from storage.authority.reads import Reads

SHORTLIST: Final = 64
"""Texts of one question that are judged in detail."""


def recall(
    index: IndexSnapshot,
    query: str,
    *,
    reads: Reads,
    now_at: int,
    encoder: Encoder | None = None,
    limit: int = 4,
    max_bytes: int = 2_200,
    as_of: int | None = None,
    namespaces: Collection[str] | None = None,
    kinds: Collection[str] | None = None,
    expansions: Sequence[str] = (),
) -> Recall:
    """What the memory has to say to a prompt, at most `limit` items whose block fits `max_bytes`.

    `as_of` asks about another instant than now. Up to four `expansions` are asked beside the
    prompt. An encoder that is not loaded is a gap, never a wait.
    """
    started = perf_counter()
    asked = parse_query(query, expansions=tuple(expansions)[:4])
    if asked.silent:
        return _timed(abstained(asked.silent, generation=index.generation), started)
    ask = Ask(
        at=now_at if as_of is None else as_of,
        limit=limit,
        max_bytes=max_bytes,
        namespaces=namespaces,
        kinds=kinds,
    )
    ranked, legs = rank(index, asked, ask, reads=reads, encoder=encoder)
    answer = assemble(ranked, reads, ask, generation=index.generation, legs=legs)
    return _timed(answer, started)


def rank(
    index: IndexSnapshot,
    query: Query,
    ask: Ask,
    *,
    reads: Reads,
    encoder: Encoder | None,
) -> tuple[list[Candidate], list[Leg]]:
    """Candidates of all questions, best first, each once; and what the legs did."""
    eligible = index.eligible(ask.at, namespaces=ask.namespaces, kinds=ask.kinds)
    if not eligible.any():
        return [], []
    clock = _Laps()
    exact = exact_scores(index, query, reads, eligible)
    legs = [Leg(name="exact", candidates=len(exact), ms=clock.lap())]
    texts = [question.text for question in query.questions]
    # Telling the language of a long prompt takes a while: ask only where it makes a difference.
    foreign = index.foreign is not None and is_foreign(query.text)
    dense = open_leg(index, encoder, texts, foreign=foreign)
    encode_ms = clock.lap()
    best: dict[int, Candidate] = {}
    spent = _Spent()
    for number, question in enumerate(query.questions):
        weighed = weigh(question, index.postings.frequency, index.size)
        lexical = lexical_scores(index.postings, weighed)
        lexical[~eligible] = 0
        spent.on_lexical(int(np.count_nonzero(lexical)), clock.lap())
        vector = dense.vectors[number] if dense.vectors else None
        cosines, compared = dense.cosines(vector, eligible)
        legs_of = _Legs(dense.basis(vector, weighed.maximum), lexical, cosines, dense.foreign)
        around = _around(index, legs_of.fused())
        shortlist = _shortlist(legs_of, around, eligible, exact)
        dense.fill(vector, cosines, _looked_at(index, shortlist))
        spent.on_dense(compared, clock.lap())
        for found in _judged(index, weighed, legs_of, around, shortlist, exact):
            held = best.get(found.rowid)
            if held is None or found.scores.fused > held.scores.fused:
                best[found.rowid] = found
    ranked = sorted(best.values(), key=lambda found: (-found.scores.fused, found.rowid))
    legs += spent.legs(dense.gap)
    if dense.vectors:
        legs.append(Leg(name="encode", candidates=len(dense.vectors), ms=encode_ms))
    return ranked, legs


class _Spent:
    """What the legs did, over all questions of a prompt."""

    def __init__(self) -> None:
        self._lexical, self._dense = (0, 0.0), (0, 0.0)

    def on_lexical(self, hits: int, ms: float) -> None:
        self._lexical = max(self._lexical[0], hits), self._lexical[1] + ms

    def on_dense(self, compared: int, ms: float) -> None:
        self._dense = max(self._dense[0], compared), self._dense[1] + ms

    def legs(self, gap: str) -> list[Leg]:
        lexical = Leg(name="lexical", candidates=self._lexical[0], ms=round(self._lexical[1], 3))
        dense = Leg(name="dense", candidates=self._dense[0], ms=round(self._dense[1], 3), gap=gap)
        return [lexical, dense]


@dataclass(frozen=True, slots=True, eq=False)
class _Legs:
    """What the legs say about every text, for one question."""

    basis: Basis
    lexical: Floats
    cosines: Floats | None
    foreign: bool

    def fused(self) -> Floats:
        return self.basis.fused_arrays(self.lexical, self.cosines)

    def cosine(self, at: int) -> float | None:
        value = NO_VECTOR if self.cosines is None else self.cosines[at]
        return None if value == NO_VECTOR else float(value)


@dataclass(frozen=True, slots=True, eq=False)
class _Around:
    """Every text's score by itself, and what its session makes of it."""

    own: Floats
    whole: Floats

    def gain(self, at: int) -> float:
        return float(self.whole[at] - self.own[at])


def _around(index: IndexSnapshot, own: Floats) -> _Around:
    return _Around(own, index.structure.spread(own) if index.structure else own)


def _shortlist(legs: _Legs, around: _Around, eligible: Flags, exact: dict[int, float]) -> Numbers:
    """int32[n], ascending: the texts worth a closer look."""
    chosen = top(around.whole, SHORTLIST)
    chosen = chosen[eligible[chosen]]
    if legs.cosines is not None and len(chosen):
        # A text that the 1-bit scan left out has only its lexical half yet.
        chosen = np.union1d(chosen, top(legs.lexical, SHORTLIST))
    if exact:
        chosen = np.union1d(chosen, np.fromiter(exact, dtype=np.int32))
    return np.sort(chosen).astype(np.int32)


def _looked_at(index: IndexSnapshot, shortlist: Numbers) -> Numbers:
    """The shortlist and the lines that stand before it in a session and ask something."""
    if index.structure is None:
        return shortlist
    asking = index.structure.asked_by[shortlist]
    return np.union1d(shortlist, asking[asking >= 0]).astype(np.int32)


def _judged(
    index: IndexSnapshot,
    weighed: WeighedQuestion,
    legs: _Legs,
    around: _Around,
    shortlist: Numbers,
    exact: dict[int, float],
) -> list[Candidate]:
    looked_at = _looked_at(index, shortlist)
    covered = coverage(index.postings, weighed, looked_at)
    asked_by = None if index.structure is None else index.structure.asked_by
    judged = {
        int(at): legs.basis.fused(
            Scores(
                fused=0.0,
                lexical=float(legs.lexical[at]),
                dense=legs.cosine(int(at)),
                coverage=float(covered.share[row]),
            )
        )
        for row, at in enumerate(looked_at)
    }
    words = dict(zip(looked_at.tolist(), covered.words.tolist(), strict=True))
    found = []
    for at in shortlist.tolist():
        unconfirmed = bool(index.unconfirmed[at])
        scores = replace(judged[at], fused=judged[at].fused + around.gain(at))
        found.append(
            Candidate(
                rowid=int(index.rowids[at]),
                scores=settled(scores, exact=exact.get(at, 0.0), unconfirmed=unconfirmed),
                asked=len(weighed.words),
                matched=words[at],
                unconfirmed=unconfirmed,
                background=legs.basis.mean if legs.cosines is not None else 0.0,
                foreign=legs.foreign,
                asked_by=None if asked_by is None else judged.get(int(asked_by[at])),
            )
        )
    return found


def top(scores: Floats, count: int) -> Numbers:
    """int32[<= count]: positions of the highest scores above 0, ascending; ties by position.

    A partition of a vector full of zeros has a bad case, so whole blocks are ruled out first.
    """
    if len(scores) < 32 * count:
        positive = np.flatnonzero(scores > 0)
    else:
        blocks = scores[: len(scores) // 16 * 16].reshape(16, -1).max(axis=0)
        cut = len(blocks) - count
        threshold = max(float(np.partition(blocks, cut)[cut]), 1e-9)
        positive = np.flatnonzero(scores >= threshold)
    order = np.argsort(-scores[positive], kind="stable")[:count]
    return np.sort(positive[order]).astype(np.int32)


def is_foreign(text: str) -> bool:
    """Whether a question is in another language than English, as far as it shows."""
    return not detect(text).english


class _Laps:
    """Milliseconds since the last look."""

    def __init__(self) -> None:
        self._last = perf_counter()

    def lap(self) -> float:
        now = perf_counter()
        passed, self._last = (now - self._last) * 1000, now
        return round(passed, 3)


def _timed(answer: Recall, started: float) -> Recall:
    return replace(answer, ms=round((perf_counter() - started) * 1000, 3))
