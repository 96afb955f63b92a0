"""From ranked candidates to the items of an answer: read, check again, thin out, fit.

Shared by the resident arrays and the serverless path. What is read here is checked against the
store as it is now: an index may be a moment old, and a fact that was just retracted must not be
shown for that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from retrieval.abstain import accepts
from retrieval.candidates import Candidate
from retrieval.diversity import Seen
from retrieval.eligibility import document_interval, fact_interval
from retrieval.render import fit
from retrieval.results import Item, Leg, Recall, Status
from storage.authority.reads import Reads
from storage.records import (
    Chunk,
    Document,
    Fact,
    FactId,
    SourceRef,
    Standing,
)

MEMORY_NAMESPACE: Final = "memory"
_UNCONFIRMED: Final = (Standing.CANDIDATE, Standing.NEEDS_REVIEW)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What an answer must respect."""

    at: int
    """The instant at which items must hold, UTC ms."""
    limit: int = 4
    max_bytes: int = 2_200
    namespaces: Collection[str] | None = None
    """None: every one."""
    kinds: Collection[str] | None = None


def assemble(
    ranked: Sequence[Candidate],
    reads: Reads,
    ask: Ask,
    *,
    generation: int,
    legs: Sequence[Leg],
) -> Recall:
    """The answer: the best accepted candidates that still hold, within limit and bytes."""
    accepted = [candidate for candidate in ranked if accepts(candidate)]
    items: list[Item] = []
    seen = Seen()
    documents: set[str] = set()
    omitted = 0
    for candidate in accepted:
        chunk = reads.chunk(candidate.rowid)
        if chunk is None or chunk.document_key in documents:
            continue
        item = _item(chunk, candidate, reads, ask)
        if item is None:
            continue
        documents.add(chunk.document_key)
        if len(items) == ask.limit or not seen.is_new(item.text):
            omitted += 1
        else:
            items.append(item)
    fitting = fit(items, max_bytes=ask.max_bytes)
    gaps = tuple(leg.gap for leg in legs if leg.gap)
    cut = len(fitting) < len(items) or any(item.truncated for item in fitting)
    status: Status = "partial" if gaps or cut else "ok"
    reason = ""
    if not fitting:
        status = "abstained"
        reason = _why_nothing(ranked, accepted, items)
    return Recall(
        status=status,
        items=fitting,
        omitted=omitted + len(items) - len(fitting),
        gaps=gaps,
        reason=reason,
        legs=tuple(legs),
        generation=generation,
    )


def _why_nothing(
    ranked: Sequence[Candidate], accepted: Sequence[Candidate], items: Sequence[Item]
) -> str:
    if items:
        return "nothing fits into the byte budget"
    if accepted:
        return "what matched no longer holds"
    return "nothing is close enough" if ranked else "nothing matches"


def _item(chunk: Chunk, candidate: Candidate, reads: Reads, ask: Ask) -> Item | None:
    document = reads.document(chunk.document_key)
    if document is None or (
        ask.namespaces is not None and document.namespace not in ask.namespaces
    ):
        return None
    if document.namespace == MEMORY_NAMESPACE:
        fact = reads.fact(FactId(document.external_id))
        if fact is not None:
            return _fact_item(fact, document, candidate, reads, ask)
    interval = document_interval(document)
    if interval is None or not interval.holds(ask.at):
        return None
    if ask.kinds is not None and document.kind not in ask.kinds:
        return None
    source = SourceRef(adapter=document.adapter, locator=document.uri or document.source, line=0)
    return Item(
        document_key=document.key,
        fact_id="",
        kind=document.kind,
        text=chunk.text,
        title=chunk.title,
        valid_at=interval.start,
        invalid_at=document.valid_to,
        sources=(source,),
        scores=candidate.scores,
    )


def _fact_item(
    fact: Fact, document: Document, candidate: Candidate, reads: Reads, ask: Ask
) -> Item | None:
    interval = fact_interval(fact)
    if interval is None or not interval.holds(ask.at):
        return None
    if ask.kinds is not None and fact.kind.value not in ask.kinds:
        return None
    return Item(
        document_key=document.key,
        fact_id=fact.fact_id,
        kind=fact.kind.value,
        text=fact.statement,
        standing=fact.standing.value,
        unconfirmed=fact.standing in _UNCONFIRMED,
        valid_at=fact.valid_at,
        invalid_at=fact.invalid_at,
        sources=tuple(quote.source for quote in reads.evidence(fact.fact_id)),
        scores=candidate.scores,
    )
