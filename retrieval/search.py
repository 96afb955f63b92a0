"""A whole recall over the resident arrays.

Order: what asks nothing is answered with nothing; eligibility masks every text before any ranking;
each question of the prompt is scored by all legs; one absolute score fuses them; the gate decides;
what is shown is read from the store and checked again. Read only, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from retrieval.ask import Ask
from retrieval.assembly import assemble
from retrieval.candidates import Candidate
from retrieval.dense import open_leg
from retrieval.exact import exact_scores
from retrieval.fusion import Basis, settled_value
from retrieval.lexical import Coverage, WeighedQuestion, Words, coverage, weigh
from retrieval.matrix import NO_VECTOR
from retrieval.query import Query, parse_query
from retrieval.results import Leg, Recall, Scores, abstained
from storage.language import detect

if TYPE_CHECKING:
    import numpy.typing as npt

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
    # None: every text may be shown, and nothing needs to be masked.
    allowed = None if eligible.all() else eligible
    for number, question in enumerate(query.questions):
        weighed = weigh(question, index.postings.frequency, index.texts)
        vector = dense.vectors[number] if dense.vectors else None
        near = dense.nearest(vector, allowed)
        spent.on_dense(0 if near is None else len(near[0]), clock.lap())
        field = _field(index, weighed, near, exact, allowed)
        spent.on_lexical(field.matched, clock.lap())
        basis = dense.basis(vector, weighed.maximum)
        around = _around(index, basis.fused_arrays(field.lexical, field.cosines))
        shortlist = _shortlist(field, around, eligible, exact)
        looked_at = _looked_at(index, shortlist)
        judged = _Judged(
            weighed,
            basis,
            looked_at,
            field.lexical[field.rows(looked_at)],
            dense.at(vector, looked_at),
            coverage(index.postings, weighed, looked_at),
            foreign=dense.foreign,
        )
        for found in _candidates(index, judged, field, around, shortlist, exact):
            held = best.get(found.rowid)
            if held is None or found.scores.fused > held.scores.fused:
                best[found.rowid] = found
        spent.on_dense(0, clock.lap())
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
class _Field:
    """What the legs say about some texts, for one question: all that can come into the answer."""

    among: Numbers
    """int32[n], ascending: their positions."""
    lexical: Floats
    """float32[n]"""
    cosines: Floats | None
    """float32[n], NO_VECTOR where none was computed; None without a dense leg."""
    matched: int
    """Texts with a word of the question, over the whole index."""

    def rows(self, positions: Numbers) -> npt.NDArray[np.intp]:
        """Where these positions (all of the field) stand in the arrays."""
        return np.searchsorted(self.among, positions)


def _field(
    index: IndexSnapshot,
    weighed: WeighedQuestion,
    near: tuple[Numbers, Floats] | None,
    exact: dict[int, float],
    allowed: Flags | None,
) -> _Field:
    """The best by words, the nearest by meaning, the exact finds; all where sessions pass on.

    A text that is none of these is below the best by words, and has no cosine that would lift it.
    """
    words = Words(index.postings, weighed)
    if index.structure is not None:
        among = np.arange(index.size, dtype=np.int32)
        lexical = words.everywhere()
        if allowed is not None:
            lexical *= allowed
        matched = int(np.count_nonzero(lexical))
    else:
        among = words.best(SHORTLIST, allowed)
        if near is not None:
            among = _merged(among, near[0])
        if exact:
            among = _merged(among, np.fromiter(exact, dtype=np.int32))
        lexical, matched = words.at(among), words.matched
    cosines = None
    if near is not None:
        cosines = np.full(len(among), NO_VECTOR, dtype=np.float32)
        cosines[np.searchsorted(among, near[0])] = near[1]
    return _Field(among, lexical, cosines, matched)


@dataclass(frozen=True, slots=True, eq=False)
class _Around:
    """Every text's score by itself, and what its session makes of it."""

    own: Floats
    whole: Floats


def _around(index: IndexSnapshot, own: Floats) -> _Around:
    return _Around(own, index.structure.spread(own) if index.structure else own)


def _shortlist(field: _Field, around: _Around, eligible: Flags, exact: dict[int, float]) -> Numbers:
    """int32[n], ascending: the texts worth a closer look."""
    chosen = field.among[top(around.whole, SHORTLIST)]
    chosen = chosen[eligible[chosen]]
    if field.cosines is not None and len(chosen):
        # A text that the 1-bit scan left out has only its lexical half yet.
        chosen = _merged(chosen, field.among[top(field.lexical, SHORTLIST)])
    if exact:
        chosen = _merged(chosen, np.fromiter(exact, dtype=np.int32))
    return np.sort(chosen)


def _looked_at(index: IndexSnapshot, shortlist: Numbers) -> Numbers:
    """The shortlist and the lines that stand before it in a session and ask something."""
    if index.structure is None:
        return shortlist
    asking = index.structure.asked_by[shortlist]
    return _merged(shortlist, asking[asking >= 0])


def _merged(one: Numbers, other: Numbers) -> Numbers:
    """Every position once, ascending (`union1d` hashes, which takes ten times as long here)."""
    both = np.concatenate((one, other))
    both.sort()
    return both[np.diff(both, prepend=-1) > 0]


class _Judged:
    """Some texts in detail: every leg's score of each, and what they make together."""

    def __init__(
        self,
        weighed: WeighedQuestion,
        basis: Basis,
        looked_at: Numbers,
        lexical: Floats,
        cosines: Floats | None,
        covered: Coverage,
        *,
        foreign: bool,
    ) -> None:
        self.asked, self.foreign = len(weighed.words), foreign
        self.background = basis.mean if cosines is not None else 0.0
        fused = basis.fused_at(lexical, cosines, covered.share)
        near = [None] * len(looked_at) if cosines is None else _cosines(cosines)
        self._rows = {at: row for row, at in enumerate(looked_at.tolist())}
        self.words = covered.words.tolist()
        self._values = list(
            zip(lexical.tolist(), near, covered.share.tolist(), fused.tolist(), strict=True)
        )

    def row(self, at: int) -> int:
        """Where a text stands."""
        return self._rows[at]

    def fused(self, at: int) -> float:
        """A text's score by itself."""
        return float(self._values[self._rows[at]][3])

    def scores(
        self, at: int, *, gain: float = 0.0, exact: float = 0.0, doubt: bool = False
    ) -> Scores:
        """The scores of a text, with what its session and an exact find add."""
        lexical, dense, covered, fused = self._values[self._rows[at]]
        return Scores(
            fused=settled_value(fused + gain, exact, unconfirmed=doubt),
            lexical=lexical,
            dense=dense,
            exact=exact,
            coverage=covered,
        )


def _cosines(cosines: Floats) -> list[float | None]:
    none = float(NO_VECTOR)
    return [None if value == none else value for value in cosines.tolist()]


def _candidates(
    index: IndexSnapshot,
    judged: _Judged,
    field: _Field,
    around: _Around,
    shortlist: Numbers,
    exact: dict[int, float],
) -> Iterator[Candidate]:
    rows = field.rows(shortlist)
    gains = (around.whole[rows] - around.own[rows]).tolist()
    if len(shortlist) > SHORTLIST:
        fused = [judged.fused(at) + gains[number] for number, at in enumerate(shortlist.tolist())]
        order = sorted(range(len(fused)), key=lambda number: (-fused[number], number))
        kept = sorted(
            order[:SHORTLIST] + [n for n in order[SHORTLIST:] if int(shortlist[n]) in exact]
        )
        shortlist, gains = shortlist[kept], [gains[number] for number in kept]
    doubts = index.unconfirmed[shortlist].tolist()
    rowids = index.rowids[shortlist].tolist()
    documents = index.columns.owners[shortlist].tolist()
    asked_by = None if index.structure is None else index.structure.asked_by[shortlist].tolist()
    for number, at in enumerate(shortlist.tolist()):
        before = -1 if asked_by is None else asked_by[number]
        yield Candidate(
            rowid=rowids[number],
            document=documents[number],
            scores=judged.scores(
                at, gain=gains[number], exact=exact.get(at, 0.0), doubt=doubts[number]
            ),
            asked=judged.asked,
            matched=judged.words[judged.row(at)],
            unconfirmed=doubts[number],
            background=judged.background,
            texts=index.size,
            foreign=judged.foreign,
            asked_by=None if before < 0 else judged.scores(before),
        )


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
