"""Under which names a text is found: chunk ids, external ids, fact ids and addresses.

Names are kept as 64-bit hashes beside positions, sorted: twelve bytes a name in place of a string
and an array. Among a million names one look-up in 10^13 meets another name's hash. Hashes hold
within one process. Immutable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from retrieval.postings import Numbers

    Hashes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Case-folded names to positions."""

    hashes: Hashes
    """int64[n], ascending."""
    positions: Numbers
    """int32[n]"""

    @property
    def nbytes(self) -> int:
        return self.hashes.nbytes + self.positions.nbytes

    def get(self, name: str) -> Numbers:
        """int32[n], ascending: where the name leads."""
        return self.find((name,))

    def find(self, names: Sequence[str]) -> Numbers:
        """int32[n], ascending: where any of these names leads."""
        wanted = np.array([hash(name.casefold()) for name in names], dtype=np.int64)
        first = np.searchsorted(self.hashes, wanted)
        last = np.searchsorted(self.hashes, wanted, side="right")
        parts = [self.positions[first[at] : last[at]] for at in np.flatnonzero(last > first)]
        return np.unique(np.concatenate(parts)) if parts else self.positions[:0]

    def changed(self, added: Iterable[tuple[str, int]], gone: Sequence[int]) -> Names:
        """The names with more of them, and without those that led to some positions."""
        hashes, positions = self.hashes, self.positions
        if gone:
            left = ~np.isin(positions, np.array(gone, dtype=np.int32))
            hashes, positions = hashes[left], positions[left]
        fresh = names_of(added)
        spots = np.searchsorted(hashes, fresh.hashes)
        return Names(
            np.insert(hashes, spots, fresh.hashes), np.insert(positions, spots, fresh.positions)
        )


def names_of(pairs: Iterable[tuple[str, int]]) -> Names:
    """The names that lead to these positions."""
    hashes: list[int] = []
    positions: list[int] = []
    for name, at in pairs:
        hashes.append(hash(name.casefold()))
        positions.append(at)
    return named(hashes, positions)


def named(hashes: Sequence[int], positions: Sequence[int]) -> Names:
    """The same of hashes that were taken already."""
    keys = np.array(hashes, dtype=np.int64)
    order = np.argsort(keys, kind="stable")
    return Names(keys[order], np.array(positions, dtype=np.int32)[order])
