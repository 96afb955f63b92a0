"""A text that a path found, with what it takes to judge it. Values only, shared by both paths."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from retrieval.results import Scores

USUAL_TEXTS: Final = 300
"""A store of this size has the gate's bars as they stand there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One chunk, scored against the question that it fits best."""

    rowid: int
    scores: Scores
    asked: int
    """Informative words of that question."""
    matched: int
    """Those that the text has (by at least half of their weight)."""
    document: int = 0
    """Hash of the key of its document, within this process."""
    unconfirmed: bool = False
    background: float = 0.0
    """Mean cosine of that question with all texts: how much the store is about its subject."""
    texts: int = USUAL_TEXTS
    """How many texts the store has: the more, the closer comes one that has nothing to say."""
    foreign: bool = False
    """Whether the cosine is the multilingual encoder's, which lies on a scale of its own."""
    asked_by: Scores | None = None
    """The scores of the line right before it in its session, where that line asks something."""
