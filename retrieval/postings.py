"""BM25 over arrays: every term of the query, every text of the project, in about a millisecond.

The texts lie in segments, each with its own numbers (`retrieval.segment`); texts that are gone stay
where they are until their segment is made anew, and count in no frequency, number or average.
Counts are stored, not scores, so all of those may change without touching them. Immutable.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from retrieval.segment import MAX_TEXTS, SegmentBuilder, damping_of, joined
from retrieval.weights import idf
from storage.terms import terms

if TYPE_CHECKING:
    import numpy.typing as npt

    from retrieval.segment import Segment

    Numbers: TypeAlias = npt.NDArray[np.int32]
    Scores: TypeAlias = npt.NDArray[np.float32]
    Flags: TypeAlias = npt.NDArray[np.bool_]

DRIFTED: Final = 1.05
"""How far the average length may move before impacts are computed again."""
FOLD_SHARE: Final = 4
"""A segment is joined with those behind it once they hold a fourth of its texts together."""
FOLDED_AT_ONCE: Final = 512
"""So many texts are joined while a question waits: two milliseconds."""
_MEMORY: Final = 65_536


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """One project's inverted index."""

    segments: tuple[Segment, ...]
    firsts: tuple[int, ...]
    """Position of each segment's first text."""
    dampings: tuple[Scores, ...]
    """K of each segment's texts."""
    gone: Numbers
    """int32[n], ascending: positions that no longer count."""
    size: int
    """Positions, those that are gone included."""
    texts: int
    """Texts that count."""
    average: float
    """Their mean length."""
    _gone_with: dict[str, int] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory held, the vocabularies estimated."""
        arrays = sum(segment.nbytes for segment in self.segments) + 4 * self.size
        known = {id(segment.vocabulary): segment.vocabulary for segment in self.segments}
        return arrays + self.gone.nbytes + 110 * sum(len(one) for one in known.values())

    def frequency(self, term: str) -> int:
        """In how many texts the term stands."""
        found = 0
        for segment in self.segments:
            at = segment.number_of(term)
            found += 0 if at is None else int(segment.frequencies[at])
        if found and len(self.gone):
            if term not in self._gone_with:
                self._gone_with[term] = int(np.count_nonzero(self.contains(term, self.gone)))
            found -= self._gone_with[term]
        return found

    def idf(self, term: str) -> float:
        """How rare the term is here."""
        return idf(self.frequency(term), self.texts)

    def parts(self, among: Numbers) -> Iterator[tuple[int, slice, npt.NDArray[np.intp]]]:
        """(segment, where in `among`, numbers within the segment) of ascending positions."""
        if len(self.segments) == 1:
            yield 0, slice(0, len(among)), among.astype(np.intp)
            return
        edges = np.searchsorted(among, (*self.firsts, self.size))
        for at, first in enumerate(self.firsts):
            part = slice(int(edges[at]), int(edges[at + 1]))
            if part.start < part.stop:
                yield at, part, among[part].astype(np.intp) - first

    def contains(self, term: str, among: Numbers) -> Flags:
        """bool[len(among)]: whether each of those texts (ascending) has the term."""
        return self.holding((term,), among)[term]

    def holding(self, wanted: Iterable[str], among: Numbers) -> dict[str, Flags]:
        """The same of several terms."""
        result = {term: np.zeros(len(among), dtype=np.bool_) for term in wanted}
        for number, part, local in self.parts(among):
            segment = self.segments[number]
            for term, flags in result.items():
                at = segment.number_of(term)
                if at is not None:
                    flags[part] = segment.counts_at(at, local)
        return result

    def having_all(self, wanted: Sequence[str]) -> Numbers:
        """int32[n]: the texts that have every one of the terms, ascending."""
        found = []
        for segment, first in zip(self.segments, self.firsts, strict=True):
            numbers = [segment.number_of(term) for term in wanted]
            known = [at for at in numbers if at is not None]
            if not known or len(known) < len(numbers):
                continue
            known.sort(key=lambda at: int(segment.frequencies[at]))
            common = segment.holders(known[0]).astype(np.intp)
            for at in known[1:]:
                common = common[segment.counts_at(at, common) > 0]
            found.append((common + first).astype(np.int32))
        whole = np.concatenate(found) if found else np.zeros(0, dtype=np.int32)
        return whole[~np.isin(whole, self.gone)] if len(self.gone) else whole

    def scores(self, weighted: Iterable[tuple[str, float]]) -> Scores:
        """float32[size]: the sum of weight x saturated count over (term, weight)."""
        from retrieval.scoring import Scoring

        return Scoring(self, weighted).everywhere()

    def changed(self, added: Segment | None, gone: Iterable[int]) -> Postings:
        """These postings with some texts more at their end, and some that no longer count."""
        segments = (*self.segments, added) if added is not None else self.segments
        made = postings_of(segments, np.union1d(self.gone, list(gone)).astype(np.int32))
        folding = fold(made, at_most=FOLDED_AT_ONCE)
        return made if folding is None else made.folded(*folding)

    def folding(self) -> int:
        """How many segments at the end should become one; 0 while they are few and small."""
        behind, found = 0, 0
        for count, segment in enumerate(reversed(self.segments), start=1):
            if behind + segment.texts > MAX_TEXTS:
                break
            if count > 1 and segment.texts <= FOLD_SHARE * behind:
                found = count
            behind += segment.texts
        return found

    def folded(self, parts: Sequence[Segment], whole: Segment) -> Postings:
        """These postings with `whole` in place of the segments that it was joined from.

        Where those are not all here any more, nothing changes.
        """
        kept = list(self.segments)
        for at in range(len(kept) - len(parts) + 1):
            if all(one is other for one, other in zip(kept[at:], parts, strict=False)):
                kept[at : at + len(parts)] = [whole]
                return postings_of(tuple(kept), self.gone)
        return self


def postings_of(segments: tuple[Segment, ...], gone: Numbers) -> Postings:
    """The index of these segments, in order."""
    firsts = (0, *accumulate(segment.texts for segment in segments))
    size = firsts[-1]
    whole = [segment.lengths for segment in segments]
    length = sum(int(part.sum(dtype=np.int64)) for part in whole)
    if len(gone):
        length -= int(np.concatenate(whole)[gone].sum(dtype=np.int64))
    texts = size - len(gone)
    average = length / texts if texts else 0.0
    fresh = tuple(_fitting(segment, average) for segment in segments)
    dampings = tuple(damping_of(part, average) for part in whole)
    return Postings(fresh, firsts[:-1], dampings, gone, size, texts, average)


def _fitting(segment: Segment, average: float) -> Segment:
    if not segment.dense or drift(segment.average, average) < DRIFTED:
        return segment
    return segment.for_average(average)


def drift(one: float, other: float) -> float:
    """By what factor two averages differ, at least 1."""
    if one <= 0 or other <= 0:
        return 1.0
    return max(one / other, other / one)


class PostingsBuilder:
    """Collects texts in order; `build` inverts them."""

    def __init__(self, analyzer: Callable[[str], list[str]] = terms) -> None:
        self._vocabulary: dict[str, int] = {}
        self._known = _Numbered(self._vocabulary, analyzer)
        self._segments: list[Segment] = []
        self._open = SegmentBuilder(self._vocabulary)

    def add(self, body: Sequence[str], title: Sequence[str] = ()) -> None:
        """The next text, as the terms of its body and of its title."""
        number = self._known.number
        self._add([number(term) for term in body], [number(term) for term in title])

    def add_text(self, body: str, title: str = "") -> None:
        """The next text, as it stands in the store."""
        self._add(self._known.numbers(body), self._known.numbers(title) if title else ())

    def build(self) -> Postings:
        """The index of everything added."""
        return postings_of(self.segments(), np.zeros(0, dtype=np.int32))

    def segments(self) -> tuple[Segment, ...]:
        """Everything added, segment by segment."""
        if self._open.texts:
            self._segments.append(self._open.build())
            self._open = SegmentBuilder(self._vocabulary)
        return tuple(self._segments)

    def _add(self, body: Sequence[int], title: Sequence[int]) -> None:
        if self._open.texts == MAX_TEXTS:
            self._segments.append(self._open.build())
            self._open = SegmentBuilder(self._vocabulary)
        self._open.add(body, title)


class _Numbered:
    """Texts to numbers of terms, each stretch without white space analysed once."""

    def __init__(self, vocabulary: dict[str, int], analyzer: Callable[[str], list[str]]) -> None:
        self._vocabulary, self._analyzer = vocabulary, analyzer
        self._parts = _Remembered(self.analysed)

    def number(self, term: str) -> int:
        """The term's number, a new one for a new term."""
        return self._vocabulary.setdefault(term, len(self._vocabulary))

    def numbers(self, text: str) -> Sequence[int]:
        """The numbers of a text's terms, in order."""
        # An ASCII text's terms never reach across white space (see `storage.terms`).
        if text.isascii():
            return array("i", chain.from_iterable(map(self._parts.__getitem__, text.split())))
        return self.analysed(text)

    def analysed(self, text: str) -> tuple[int, ...]:
        """The same without memory."""
        return tuple(map(self.number, self._analyzer(text)))


class _Remembered(dict[str, tuple[int, ...]]):
    """A bounded memory of what a function gave for short texts."""

    def __init__(self, function: Callable[[str], tuple[int, ...]]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, part: str) -> tuple[int, ...]:
        given = self._function(part)
        if len(part) <= 64:
            if len(self) >= _MEMORY:
                self.clear()
            self[part] = given
        return given


def fold(
    postings: Postings, *, at_most: int = MAX_TEXTS
) -> tuple[tuple[Segment, ...], Segment] | None:
    """The segments at the end that should become one, and that one; None while none should.

    None, too, where it would have more than `at_most` texts.
    """
    count = postings.folding()
    parts = postings.segments[len(postings.segments) - count :]
    if not parts or sum(part.texts for part in parts) > at_most:
        return None
    return parts, joined(parts)
