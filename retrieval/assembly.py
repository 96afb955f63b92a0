"""From ranked candidates to the items of an answer: read, check again, thin out, fit.

Shared by the resident arrays and the serverless path. What is read here is checked against the
store as it is now: an index may be a moment old, and a fact that was just retracted must not be
shown for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from retrieval.abstain import accepted
from retrieval.ask import Ask
from retrieval.candidates import Candidate
from retrieval.diversity import Seen
from retrieval.door import Admitted, Door
from retrieval.render import fit
from retrieval.results import Item, Leg, Recall, Status
from storage.authority.reads import Reads
from storage.records import Chunk, SourceRef


def assemble(
    ranked: Sequence[Candidate],
    reads: Reads,
    ask: Ask,
    *,
    generation: int,
    legs: Sequence[Leg],
) -> Recall:
    """The answer: the best accepted candidates that still hold, within limit and bytes."""
    convincing = accepted(ranked)
    items: list[Item] = []
    seen, door = Seen(), Door(reads, ask)
    documents: set[str] = set()
    omitted = 0
    for candidate in convincing:
        chunk = reads.chunk(candidate.rowid)
        if chunk is None or chunk.document_key in documents:
            continue
        found = door.look(chunk.document_key)
        if found is None:
            continue
        item = _item(chunk, candidate, found, reads)
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
        reason = _why_nothing(ranked, convincing, items)
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
    ranked: Sequence[Candidate], convincing: Sequence[Candidate], items: Sequence[Item]
) -> str:
    if items:
        return "nothing fits into the byte budget"
    if convincing:
        return "what matched no longer holds"
    return "nothing is close enough" if ranked else "nothing matches"


def _item(chunk: Chunk, candidate: Candidate, found: Admitted, reads: Reads) -> Item:
    document, fact = found.document, found.fact
    if fact is None:
        locator = document.uri or document.source
        return Item(
            document_key=document.key,
            fact_id="",
            kind=document.kind,
            text=chunk.text,
            title=chunk.title,
            valid_at=found.interval.start,
            invalid_at=document.valid_to,
            sources=(SourceRef(adapter=document.adapter, locator=locator, line=0),),
            scores=candidate.scores,
        )
    return Item(
        document_key=document.key,
        fact_id=fact.fact_id,
        kind=fact.kind.value,
        text=fact.statement,
        standing=fact.standing.value,
        unconfirmed=found.unconfirmed,
        valid_at=fact.valid_at,
        invalid_at=fact.invalid_at,
        sources=tuple(quote.source for quote in reads.evidence(fact.fact_id)),
        scores=candidate.scores,
    )
