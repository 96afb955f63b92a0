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
    import numpy.typing as npt

    from retrieval.postings import Flags, Numbers, Scores
    from storage.records import Document

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
    session, order = document.metadata.get("session"), document.metadata.get("order")
    if not isinstance(session, str) or not session:
        return None
    number = order if isinstance(order, int | float) else document.observed_at
    return Place(f"{document.namespace}\0{document.source}\0{session}", float(number))


def asks(text: str) -> bool:
    """Whether the text ends with a question."""
    tail = text[-_TAIL:]
    return "?" in tail or "？" in tail or "؟" in tail


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """The texts that stand in sessions, session by session, each in order."""

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
        sessions = self.order.nbytes + self.starts.nbytes + self.asking.nbytes
        return sessions + self.asked_by.nbytes

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


class StructureBuilder:
    """Collects places in index order; `build` sorts them into sessions."""

    def __init__(self) -> None:
        self._sessions: dict[str, int] = {}
        self._rows: list[tuple[int, float, int, bool]] = []

    def add(self, position: int, place: Place | None, text: str) -> None:
        """The text at a position of the index."""
        if place is not None:
            number = self._sessions.setdefault(place.session, len(self._sessions))
            self._rows.append((number, place.order, position, asks(text)))

    def build(self, texts: int) -> Structure | None:
        """The structure of an index of so many texts; None when none stands in a session."""
        if not self._rows:
            return None
        rows = sorted(self._rows)
        numbers = np.array([number for number, _, _, _ in rows], dtype=np.int32)
        order = np.array([position for _, _, position, _ in rows], dtype=np.int32)
        asking = np.array([asking for _, _, _, asking in rows], dtype=np.bool_)
        replies = np.flatnonzero(asking[:-1] & (numbers[1:] == numbers[:-1])) + 1
        asked_by = np.full(texts, -1, dtype=np.int32)
        asked_by[order[replies]] = order[replies - 1]
        starts = np.flatnonzero(np.diff(numbers, prepend=-1)).astype(np.int32)
        return Structure(order, starts, asking, asked_by)
