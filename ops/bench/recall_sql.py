"""What recall is measured against: the plain SQL way, and answers that are exact by construction.

The plain way: FTS5's rank over the question's 12 most selective terms, sqlite-vec's neighbours over
int8, equal reciprocal ranks of both (Cormack et al. 2009, k = 60), four texts read. The exact way:
BM25 in float64 over counts taken from the texts again, and float32 cosines of unrounded vectors.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw
import numpy as np

from retrieval.weights import K1, B, idf
from storage.connection import load_vectors
from storage.terms import terms

if TYPE_CHECKING:
    from ops.bench.texts import Asking
    from retrieval.lexical import WeighedQuestion
    from retrieval.quantize import Floats
    from storage.authority.reads import Reads

SELECTIVE: Final = 12
DEPTH: Final = 50
SHOWN: Final = 4
RRF_K: Final = 60
CREATE: Final = "CREATE VIRTUAL TABLE near USING vec0 (row int8[{}])"
INSERT: Final = "INSERT INTO near (rowid, row) VALUES (?, vec_int8(?))"
NEAREST: Final = "SELECT rowid FROM near WHERE row MATCH vec_int8(?) AND k = ? ORDER BY distance"
RANKED: Final = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? ORDER BY rank LIMIT ?"


class PlainSql:
    """Recall as two SQL statements and a merge."""

    def __init__(self, path: Path, dims: int) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("mmap_size", 1 << 32)
        load_vectors(self._db)
        self._db.execute(CREATE.format(dims))

    def fill(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Put the vectors into a vec0 table."""
        with self._db:
            self._db.executemany(INSERT, rows)

    def recall(self, reads: Reads, weighed: WeighedQuestion, vector: bytes) -> list[str]:
        """The texts of the best four."""
        rarest = heapq.nlargest(SELECTIVE, weighed.terms().items(), key=lambda pair: pair[1])
        match = " OR ".join(f'"{term}"' for term, _ in rarest)
        ranked = [row[0] for row in reads.db.execute(RANKED, (match, DEPTH))]
        near = [row[0] for row in self._db.execute(NEAREST, (vector, DEPTH))]
        total: Counter[int] = Counter()
        for leg in (ranked, near):
            for rank, rowid in enumerate(leg, start=1):
                total[int(str(rowid))] += 1 / (RRF_K + rank)  # type: ignore[assignment]
        chunks = [reads.chunk(rowid) for rowid, _ in total.most_common(SHOWN)]
        return [chunk.text for chunk in chunks if chunk is not None]

    def close(self) -> None:
        """Close the vectors' file."""
        self._db.close()


class ExactWords:
    """BM25 of some terms in float64, over counts that are taken from the stored texts."""

    def __init__(self, reads: Reads, wanted: Iterable[str]) -> None:
        self._numbers = {term: at for at, term in enumerate(sorted(set(wanted)))}
        counts: list[tuple[int, int, int]] = []
        lengths: list[int] = []
        for text, chunk in enumerate(reads.chunks()):
            found = terms(chunk.text)
            lengths.append(len(found))
            tally = Counter(term for term in found if term in self._numbers)
            counts += [(self._numbers[term], text, count) for term, count in tally.items()]
        self._tf = np.zeros((len(self._numbers), len(lengths)), dtype=np.float64)
        for term, text, count in counts:
            self._tf[term, text] = count
        length = np.array(lengths, dtype=np.float64)
        self._damping = K1 * (1 - B + B * length / length.mean())

    def scores(self, wanted: Iterable[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """float64[texts]: the BM25 of a question of these terms."""
        total = np.zeros(self._tf.shape[1], dtype=np.float64)
        for term in wanted:
            tf = self._tf[self._numbers[term]]
            weight = idf(int(np.count_nonzero(tf)), len(tf))
            total += weight * (K1 + 1) * tf / (tf + self._damping)
        return total

    def is_top(self, wanted: Iterable[str], found: Sequence[int], count: int = 10) -> bool:
        """Whether these positions are the best `count`, in order; equal scores may swap."""
        scores = self.scores(wanted)
        best = np.sort(scores)[::-1][:count]
        given = scores[list(found[:count])]
        positive = int(np.count_nonzero(best > 0))
        return len(given) >= positive and np.allclose(
            given[:positive], best[:positive], rtol=1e-6, atol=0
        )


def exact_neighbours(
    batches: Iterable[Floats], asked: Sequence[Asking], count: int = 10
) -> list[set[int]]:
    """For each question, the positions of the nearest vectors by float cosine."""
    questions = np.stack([one.vector for one in asked])
    best: list[list[tuple[float, int]]] = [[] for _ in asked]
    start = 0
    for rows in batches:
        for number, cosines in enumerate(questions @ rows.T):
            for at in np.argpartition(-cosines, min(count, len(rows) - 1))[:count].tolist():
                best[number].append((float(cosines[at]), start + at))
            best[number] = heapq.nlargest(count, best[number])
        start += len(rows)
    return [{at for _, at in found} for found in best]
