"""A text that a path found, with what it takes to judge it. Values only, shared by both paths."""

from __future__ import annotations

from dataclasses import dataclass

from retrieval.results import Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One chunk, scored against the question that it fits best."""

    rowid: int
    scores: Scores
    asked: int
    """Informative words of that question."""
    matched: int
    """Those that the text has (by at least half of their weight)."""
    unconfirmed: bool = False
    background: float = 0.0
    """Mean cosine of that question with all texts: how much the store is about its subject."""
    foreign: bool = False
    """Whether the cosine is the multilingual encoder's, which lies on a scale of its own."""
    asked_by: Scores | None = None
    """The scores of the line right before it in its session, where that line asks something."""
