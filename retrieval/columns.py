"""What is known of each text beside its words and its vector, as columns.

Position i of every column belongs to the i-th chunk in rowid order. A text that is gone keeps its
position and an empty interval, so that it is eligible at no instant. Immutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from storage.clock import MAX_AT

if TYPE_CHECKING:
    from collections.abc import Collection as Names

    import numpy.typing as npt

    from retrieval.postings import Flags
    from retrieval.shelving import Shelved

    Instants = npt.NDArray[np.int64]
    Sorts = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns."""

    rowids: Instants
    owners: Instants
    """int64[n]: hash of each chunk's document key, within this process."""
    starts: Instants
    ends: Instants
    """Valid time [start, end) of each chunk's fact or document; MAX_INSTANT is open."""
    unconfirmed: Flags
    spaces: Sorts
    """Namespace number of each chunk."""
    space_names: tuple[str, ...]
    kinds: Sorts
    kind_names: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.rowids)

    @property
    def nbytes(self) -> int:
        times = self.starts.nbytes + self.ends.nbytes
        sorts = self.unconfirmed.nbytes + self.spaces.nbytes + self.kinds.nbytes
        return self.rowids.nbytes + self.owners.nbytes + times + sorts

    def eligible(
        self, at: int, *, namespaces: Names[str] | None = None, kinds: Names[str] | None = None
    ) -> Flags:
        """bool[size]: valid at one instant, and of the wanted namespaces and kinds."""
        # An open end holds at every instant, the last representable one included.
        instant = min(max(at, 0), MAX_AT)
        mask: Flags = self.starts <= instant
        mask &= self.ends > instant
        if namespaces is not None:
            mask &= np.isin(self.spaces, _numbers(self.space_names, namespaces))
        if kinds is not None:
            mask &= np.isin(self.kinds, _numbers(self.kind_names, kinds))
        return mask

    def of_document(self, key: str) -> list[int]:
        """The positions of a document's chunks that are not gone."""
        found: list[int] = np.flatnonzero(self.owners == hash(key)).tolist()
        return found

    def changed(
        self, kept: Sequence[tuple[int, Shelved]], added: Columns, gone: Sequence[int]
    ) -> Columns:
        """These columns with some texts judged anew, others gone, and more at their end."""
        spaces, kinds = _numbered(self.space_names), _numbered(self.kind_names)
        made = Columns(
            rowids=np.concatenate((self.rowids, added.rowids)),
            owners=np.concatenate((self.owners, added.owners)),
            starts=np.concatenate((self.starts, added.starts)),
            ends=np.concatenate((self.ends, added.ends)),
            unconfirmed=np.concatenate((self.unconfirmed, added.unconfirmed)),
            spaces=np.concatenate((self.spaces, _renamed(added.spaces, added.space_names, spaces))),
            space_names=(),
            kinds=np.concatenate((self.kinds, _renamed(added.kinds, added.kind_names, kinds))),
            kind_names=(),
        )
        for at, one in kept:
            made.starts[at], made.ends[at] = one.interval.start, one.interval.end
            made.unconfirmed[at] = one.unconfirmed
            made.spaces[at] = _number(one.namespace, spaces)
            made.kinds[at] = _number(one.kind, kinds)
        made.starts[list(gone)] = made.ends[list(gone)] = 0
        made.owners[list(gone)] = 0
        return Columns(
            made.rowids, made.owners, made.starts, made.ends, made.unconfirmed, made.spaces,
            tuple(spaces), made.kinds, tuple(kinds),
        )  # fmt: skip


class ColumnsBuilder:
    """The growing columns."""

    def __init__(self) -> None:
        self.rowids: list[int] = []
        self._owners: list[int] = []
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._unconfirmed: list[bool] = []
        self._spaces: list[int] = []
        self._kinds: list[int] = []
        self._space_names: dict[str, int] = {}
        self._kind_names: dict[str, int] = {}

    def add(self, rowid: int, document: str, one: Shelved) -> None:
        """The next chunk."""
        self.rowids.append(rowid)
        self._owners.append(hash(document))
        self._starts.append(one.interval.start)
        self._ends.append(one.interval.end)
        self._unconfirmed.append(one.unconfirmed)
        self._spaces.append(_number(one.namespace, self._space_names))
        self._kinds.append(_number(one.kind, self._kind_names))

    def build(self) -> Columns:
        """The columns of everything added."""
        return Columns(
            rowids=np.array(self.rowids, dtype=np.int64),
            owners=np.array(self._owners, dtype=np.int64),
            starts=np.array(self._starts, dtype=np.int64),
            ends=np.array(self._ends, dtype=np.int64),
            unconfirmed=np.array(self._unconfirmed, dtype=np.bool_),
            spaces=np.array(self._spaces, dtype=np.int16),
            space_names=tuple(self._space_names),
            kinds=np.array(self._kinds, dtype=np.int16),
            kind_names=tuple(self._kind_names),
        )


def _number(name: str, names: dict[str, int]) -> int:
    """The name's number, a new one for a new name."""
    return names.setdefault(name, len(names))


def _numbered(names: tuple[str, ...]) -> dict[str, int]:
    return {name: at for at, name in enumerate(names)}


def _renamed(sorts: Sorts, known: tuple[str, ...], names: dict[str, int]) -> Sorts:
    table = np.array([_number(name, names) for name in known], dtype=np.int16)
    return table[sorts] if len(sorts) else sorts


def _numbers(known: tuple[str, ...], wanted: Names[str]) -> Sorts:
    return np.array([at for at, name in enumerate(known) if name in wanted], dtype=np.int16)
