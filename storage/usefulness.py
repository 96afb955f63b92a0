"""What became of a recalled fact: counted, and looked at again when it was wrong or stale."""

from __future__ import annotations

from typing import Final

from storage.authority import ProjectAuthority, payloads
from storage.authority.payloads import Signal
from storage.errors import Invalid
from storage.records import TERMINAL_STANDINGS, Fact, FactId, RedactedText, Standing

DOUBTS: Final[frozenset[Signal]] = frozenset({"wrong", "stale"})
_REASONS: Final = {
    "wrong": RedactedText("reported as wrong"),
    "stale": RedactedText("reported as stale"),
}


def give_feedback(authority: ProjectAuthority, fact_id: FactId, signal: Signal, now: int) -> Fact:
    """Count a signal; `wrong` and `stale` make a fact that still holds one to be reviewed.

    Returns the fact as it is afterwards.

    Raises:
        Invalid: there is no such fact.
    """
    with authority.read() as reads:
        fact = reads.fact(fact_id)
    if fact is None:
        raise Invalid(f"there is no fact {fact_id}")
    drafts = [payloads.retrieval_feedback(fact_id, signal)]
    if signal in DOUBTS and fact.standing not in TERMINAL_STANDINGS:
        reason = _REASONS[signal]
        drafts.append(payloads.fact_resolved(fact_id, Standing.NEEDS_REVIEW, now, reason))
    authority.append(drafts)
    with authority.read() as reads:
        after = reads.fact(fact_id)
    return fact if after is None else after
