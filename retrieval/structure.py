"""What stands around a text: its neighbours in a session, and what the session is about.

In a dialogue the line that answers a question rarely repeats its words: they stand in the line
before. `Structure` knows which texts follow each other in one session of one source, and lets a
text's score reach the next one, more so when the text asks something. Documents say where they
stand in their metadata (`session`, `order`); all others are untouched. Immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from retrieval.postings import Flags, Numbers, Scores
    from storage.records import Document, JsonValue

    Floats32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reach:
    """How far scores reach in a session (fitted by `ops/eval/fit.py`)."""

    question: float = 0.5
    """Share of a question's score that the text after it receives."""
    before: float = 0.2
    after: float = 0.05
    session: float = 0.4
    """Share of the session's best score that every text of it receives."""
    asking: float = 0.5
    """What a text that asks keeps of its own: it is about the subject, but does not know."""


REACH: Final = Reach()
_TAIL: Final = 25
"""Characters at the end of a text where a question mark makes it a question."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a document stands."""

    session: str
    order: float


def place_of(document: Document) -> Place | None:
    """The place that a document's metadata names, within its source; None without one."""
    return place_named(document.metadata, document.namespace, document.source, document.observed_at)


def place_named(
    metadata: Mapping[str, JsonValue], namespace: str, source: str, observed_at: int
) -> Place | None:
    """The same of a document's parts."""
    session, order = metadata.get("session"), metadata.get("order")
    if not isinstance(session, str) or not session:
        return None
    number = order if isinstance(order, int | float) else observed_at
    return Place(f"{namespace}\0{source}\0{session}", float(number))


def asks(text: str) -> bool:
    """Whether the text ends with a question."""
    tail = text[-_TAIL:]
    return "?" in tail or "？" in tail or "؟" in tail


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The texts that stand in sessions, session by session, each in order."""

    sessions: npt.NDArray[np.int64]
    """int64[m], ascending: the session of each line, by hash."""
    orders: npt.NDArray[np.float64]
    """float64[m]: its place within the session, ascending in each."""
    order: Numbers
    """int32[m]: positions in the index."""
    starts: Numbers
    """int32[sessions]: where each session begins in `order`."""
    asking: Flags
    """bool[m]: which of them ask something."""
    asked_by: Numbers
    """int32[texts]: position of the line right before a text, where that line asks; else -1."""

    @property
    def nbytes(self) -> int:
        keys = self.sessions.nbytes + self.orders.nbytes
        sessions = self.order.nbytes + self.starts.nbytes + self.asking.nbytes
        return keys + sessions + self.asked_by.nbytes

    def spread(self, scores: Scores, reach: Reach = REACH) -> Scores:
        """float32[texts]: the scores with what neighbours and session add to them.

        A session's best text keeps its scale, so texts without a session compete fairly.
        """
        own = scores[self.order]
        before = np.concatenate((np.zeros(1, own.dtype), own[:-1]))
        after = np.concatenate((own[1:], np.zeros(1, own.dtype)))
        asked = np.concatenate((np.zeros(1, np.bool_), self.asking[:-1]))
        before[self.starts] = 0
        after[self.starts[1:] - 1] = 0
        best = np.maximum.reduceat(own, self.starts)
        lengths = np.diff(self.starts, append=len(own))
        spread = own * np.where(self.asking, np.float32(reach.asking), np.float32(1))
        spread += before * np.where(asked, np.float32(reach.question), np.float32(reach.before))
        spread += after * np.float32(reach.after)
        spread += np.repeat(best, lengths) * np.float32(reach.session)
        result = scores.copy()
        result[self.order] = spread / np.float32(1 + reach.session)
        return result

    def changed(
        self, texts: int, added: Sequence[tuple[int, Line]], gone: Sequence[int]
    ) -> Structure | None:
        """The structure of an index of so many texts, some of them new, others gone.

        A text whose line changed is both.
        """
        left = np.flatnonzero(~np.isin(self.order, np.array(gone, dtype=np.int32)))
        sessions, orders, positions, asking = _arrays(added)
        return _structure(
            np.concatenate((self.sessions[left], sessions)),
            np.concatenate((self.orders[left], orders)),
            np.concatenate((self.order[left], positions)),
            np.concatenate((self.asking[left], asking)),
            texts,
        )


@dataclass(frozen=True, slots=True)
class Line:
    """What a structure keeps of one text that stands in a session."""

    session: int
    order: float
    asks: bool


def line_of(place: Place | None, text: str) -> Line | None:
    """The line of a text; None where it stands in no session."""
    return None if place is None else Line(hash(place.session), place.order, asks(text))


class StructureBuilder:
    """Collects places in index order; `build` sorts them into sessions."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, Line]] = []

    def add(self, position: int, place: Place | None, text: str) -> None:
        """The text at a position of the index."""
        line = line_of(place, text)
        if line is not None:
            self._lines.append((position, line))

    def build(self, texts: int) -> Structure | None:
        """The structure of an index of so many texts; None when none stands in a session."""
        return structure_of(self._lines, texts)


def structure_of(lines: Sequence[tuple[int, Line]], texts: int) -> Structure | None:
    """The structure of these lines at their positions; None without any."""
    return _structure(*_arrays(lines), texts)


def _arrays(
    lines: Sequence[tuple[int, Line]],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], Numbers, Flags]:
    """Sessions, orders, positions and what asks; the types hold for no lines at all, too."""
    return (
        np.array([line.session for _, line in lines], dtype=np.int64),
        np.array([line.order for _, line in lines], dtype=np.float64),
        np.array([at for at, _ in lines], dtype=np.int32),
        np.array([line.asks for _, line in lines], dtype=np.bool_),
    )


def _structure(
    sessions: npt.NDArray[np.int64],
    orders: npt.NDArray[np.float64],
    positions: Numbers,
    asking: Flags,
    texts: int,
) -> Structure | None:
    if not len(positions):
        return None
    sorting = np.lexsort((positions, orders, sessions))
    session = sessions[sorting]
    order = positions[sorting]
    asked = asking[sorting]
    replies = np.flatnonzero(asked[:-1] & (session[1:] == session[:-1])) + 1
    asked_by = np.full(texts, -1, dtype=np.int32)
    asked_by[order[replies]] = order[replies - 1]
    starts = np.flatnonzero(np.diff(session, prepend=~session[:1])).astype(np.int32)
    return Structure(session, orders[sorting], order, starts, asked, asked_by)
