"""One part of the inverted index: up to 65,536 texts whose postings lie together.

A rare term's postings are a CSR slice (uint16 text numbers, uint8 counts). A term in more than a
tenth of the texts is two dense rows: its counts, and its impact (the saturated count in 255ths,
rounded up), which bounds scores from above at a fraction of their cost. Counts decide, impacts only
preselect. Immutable.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from retrieval.weights import K1, TITLE_WEIGHT, B

if TYPE_CHECKING:
    import numpy.typing as npt

    Counts: TypeAlias = npt.NDArray[np.uint8]
    Scores: TypeAlias = npt.NDArray[np.float32]
    Locals: TypeAlias = npt.NDArray[np.uint16]
    Keys: TypeAlias = npt.NDArray[np.int64]

MAX_TEXTS: Final = 65_536
DENSE_SHARE: Final = 0.1
DENSE_FROM: Final = 2_048
"""Below so many texts a scatter is as fast, and rows would only cost memory."""
LEVELS: Final = 255
_MAX_COUNT: Final = 255
_AT_ONCE: Final = 512
"""Texts whose terms are counted by one sort."""
_ROWS_AT_ONCE: Final = 8_192


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Texts numbered from 0, and who has which term how often."""

    texts: int
    vocabulary: Mapping[str, int]
    """May be shared by segments, and know terms that this one lacks."""
    frequencies: npt.NDArray[np.int32]
    """int32[terms]: in how many texts each term stands."""
    offsets: npt.NDArray[np.int64]
    """int64[terms + 1] into `numbers` and `counts`; a dense term has none there."""
    numbers: Locals
    counts: Counts
    dense: Mapping[int, int]
    """Term to its row in `rows` and `impacts`."""
    rows: Counts
    """uint8[dense, texts]: counts."""
    impacts: Counts
    """uint8[dense, texts]: 255 * count / (count + K), rounded up, for the average below."""
    lengths: Scores
    """float32[texts]: terms of each text, titles counted twice."""
    average: float
    """The average length for which `impacts` were computed."""

    @property
    def nbytes(self) -> int:
        """Memory of the arrays (the vocabulary may be shared)."""
        sparse = self.frequencies.nbytes + self.offsets.nbytes + self.numbers.nbytes
        dense = self.rows.nbytes + self.impacts.nbytes
        return sparse + self.counts.nbytes + dense + self.lengths.nbytes

    def number_of(self, term: str) -> int | None:
        """The term's number; None when no text here has it."""
        at = self.vocabulary.get(term)
        if at is None or at >= len(self.frequencies) or not self.frequencies[at]:
            return None
        return at

    def sparse(self, at: int) -> tuple[Locals, Counts]:
        """The CSR slice of a term."""
        part = slice(int(self.offsets[at]), int(self.offsets[at + 1]))
        return self.numbers[part], self.counts[part]

    def holders(self, at: int) -> Locals:
        """uint16[n]: the texts that have a term, ascending."""
        row = self.dense.get(at)
        if row is None:
            return self.sparse(at)[0]
        return np.flatnonzero(self.rows[row]).astype(np.uint16)

    def counts_at(self, at: int, among: npt.NDArray[np.intp]) -> Counts:
        """uint8[len(among)]: how often each of those texts has the term."""
        row = self.dense.get(at)
        if row is not None:
            whole: Counts = self.rows[row].take(among)
            return whole
        where, counts = self.sparse(at)
        spot = np.searchsorted(where, among.astype(np.uint16))
        found: Counts = counts.take(spot, mode="clip")
        found *= where.take(spot, mode="clip") == among
        return found

    def for_average(self, average: float) -> Segment:
        """The same texts with impacts for this average length."""
        impacts = _impacts(self.rows, damping_of(self.lengths, average))
        return replace(self, impacts=impacts, average=average)


def damping_of(lengths: Scores, average: float) -> Scores:
    """float32[texts]: BM25's K of each text."""
    share = lengths / np.float32(average) if average > 0 else np.zeros_like(lengths)
    return (K1 * (1 - B + B * share)).astype(np.float32)


class SegmentBuilder:
    """Collects up to `MAX_TEXTS` texts, as term numbers of a vocabulary; `build` inverts them."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        # Machine integers: ten million Python ones would take the memory of the whole server.
        self._terms = array("i")
        self._sizes = array("i")
        self._lengths = array("i")
        self._counted: list[Keys] = []
        self._first = 0

    @property
    def texts(self) -> int:
        return len(self._lengths)

    def add(self, body: Sequence[int], title: Sequence[int] = ()) -> None:
        """The next text: the terms of its body, and of its title, which count double."""
        before = len(self._terms)
        self._terms.extend(body)
        for _ in range(TITLE_WEIGHT if title else 0):
            self._terms.extend(title)
        size = len(self._terms) - before
        self._sizes.append(size)
        self._lengths.append(size)
        if len(self._sizes) == _AT_ONCE:
            self._count()

    def build(self) -> Segment:
        """The segment of everything added; the vocabulary must not change any more in between."""
        self._count()
        postings = np.sort(np.concatenate(self._counted)) if self._counted else _NO_KEYS
        lengths = np.array(self._lengths, dtype=np.float32)
        return _segment(postings, lengths, self._vocabulary)

    def _count(self) -> None:
        """Turn the tokens of the last texts into (term, text, count), one integer each."""
        if not self._sizes:
            return
        texts = np.arange(self._first, self._first + len(self._sizes), dtype=np.int64)
        keys = np.repeat(texts, np.frombuffer(self._sizes, dtype=np.int32))
        keys |= np.frombuffer(self._terms, dtype=np.int32).astype(np.int64) << 16
        keys.sort()
        starts = np.flatnonzero(np.diff(keys, prepend=-1))
        counts = np.minimum(np.diff(starts, append=len(keys)), _MAX_COUNT)
        self._counted.append((keys[starts] << 8) | counts)
        self._first += len(self._sizes)
        self._terms, self._sizes = array("i"), array("i")


_NO_KEYS: Final = np.zeros(0, dtype=np.int64)


def joined(segments: Sequence[Segment]) -> Segment:
    """One segment of the texts of several, in their order; together at most `MAX_TEXTS`."""
    vocabulary: dict[str, int] = dict(segments[0].vocabulary)
    parts, first = [], 0
    for segment in segments:
        renamed = np.zeros(len(segment.frequencies), dtype=np.int64)
        for term, at in segment.vocabulary.items():
            if at < len(renamed) and segment.frequencies[at]:
                renamed[at] = vocabulary.setdefault(term, len(vocabulary))
        parts.append(_packed(segment, renamed, first))
        first += segment.texts
    lengths = np.concatenate([segment.lengths for segment in segments])
    return _segment(np.sort(np.concatenate(parts)), lengths, vocabulary)


def _packed(segment: Segment, renamed: Keys, first: int) -> Keys:
    """Every posting as term << 24 | text << 8 | count."""
    sparse = np.diff(segment.offsets)
    terms = np.repeat(renamed, sparse) << 24
    parts = [terms | ((segment.numbers.astype(np.int64) + first) << 8) | segment.counts]
    for at, row in segment.dense.items():
        where = np.flatnonzero(segment.rows[row])
        key = (int(renamed[at]) << 24) | ((where + first) << 8)
        parts.append(key | segment.rows[row][where])
    return np.concatenate(parts)


def _segment(postings: Keys, lengths: Scores, vocabulary: Mapping[str, int]) -> Segment:
    """The segment of sorted packed postings."""
    texts = len(lengths)
    terms = postings >> 24
    frequencies = np.bincount(terms, minlength=len(vocabulary)).astype(np.int32)
    numbers = ((postings >> 8) & 0xFFFF).astype(np.uint16)
    counts = (postings & 0xFF).astype(np.uint8)
    average = float(lengths.mean(dtype=np.float64)) if texts else 0.0
    many = frequencies > DENSE_SHARE * texts
    if texts < DENSE_FROM or not many.any():
        rows = np.zeros((0, texts), dtype=np.uint8)
        offsets = _offsets(frequencies)
        return Segment(
            texts, vocabulary, frequencies, offsets, numbers, counts, {}, rows, rows, lengths,
            average,
        )  # fmt: skip
    dense = {int(at): row for row, at in enumerate(np.flatnonzero(many))}
    rows = np.zeros((len(dense), texts), dtype=np.uint8)
    whole = _offsets(frequencies)
    for at, row in dense.items():
        part = slice(int(whole[at]), int(whole[at + 1]))
        rows[row, numbers[part]] = counts[part]
    kept = ~many[terms]
    offsets = _offsets(np.where(many, 0, frequencies))
    impacts = _impacts(rows, damping_of(lengths, average))
    return Segment(
        texts, vocabulary, frequencies, offsets, numbers[kept], counts[kept], dense, rows, impacts,
        lengths, average,
    )  # fmt: skip


def _offsets(frequencies: Iterable[int] | npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    sizes = np.asarray(frequencies, dtype=np.int64)
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def _impacts(rows: Counts, damping: Scores) -> Counts:
    impacts = np.empty_like(rows)
    for start in range(0, rows.shape[1], _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        counts = rows[:, part].astype(np.float32)
        impacts[:, part] = np.ceil(LEVELS * counts / (counts + damping[part]))
    return impacts
