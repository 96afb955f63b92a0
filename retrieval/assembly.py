"""From ranked candidates to the items of an answer: read, check again, thin out, fit.

Shared by the resident arrays and the serverless path. What is read here is checked against the
store as it is now: an index may be a moment old, and a fact that was just retracted must not be
shown for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from retrieval.abstain import accepted, margin, nearest
from retrieval.ask import Ask
from retrieval.candidates import Candidate
from retrieval.diversity import Seen
from retrieval.door import Admitted, Door
from retrieval.render import fit
from retrieval.results import Cut, Item, Left, Leg, Recall, Scores, Status
from storage.authority.reads import Reads
from storage.authority.searchable import owner_of
from storage.records import Chunk, DocumentKey, SourceRef

MAX_LEFT: Final = 8
"""What was left out is named up to here; `omitted` counts it all."""
MAX_READ: Final = 24
"""Texts read to fill the answer: where so many repeat each other, the next one will, too."""


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
    left: list[Left] = []
    seen, door = Seen(), Door(reads, ask)
    documents: set[DocumentKey] = set()
    omitted = 0
    for number, candidate in enumerate(convincing):
        if len(items) == ask.limit or number == MAX_READ:
            more = _beyond(convincing[number:], reads, documents, MAX_LEFT - len(left))
            omitted += more[0]
            left += more[1]
            break
        chunk = reads.chunk(candidate.rowid)
        if chunk is None or chunk.document_key in documents:
            continue
        found = door.look(chunk.document_key)
        documents.add(chunk.document_key)
        if found is None:
            left.append(_left(chunk.document_key, candidate, "ended"))
            continue
        item = _item(chunk, candidate, found, reads)
        if seen.is_new(item.text):
            items.append(item)
        else:
            omitted += 1
            left.append(_left(chunk.document_key, candidate, "repeats"))
    fitting = fit(items, max_bytes=ask.max_bytes)
    left += _without_room(items, fitting)
    left += _below(ranked, convincing, reads, door, documents)
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
        left=tuple(left[:MAX_LEFT]),
        gaps=gaps,
        reason=reason,
        legs=tuple(legs),
        generation=generation,
    )


def _beyond(
    rest: Sequence[Candidate], reads: Reads, documents: set[DocumentKey], named: int
) -> tuple[int, list[Left]]:
    """How many more there were, and the first of them by name; none of their texts is read."""
    seen = {hash(key) for key in documents}
    omitted, left = 0, list[Left]()
    for candidate in rest:
        if candidate.document in seen:
            continue
        seen.add(candidate.document)
        omitted += 1
        if len(left) < named:
            key = owner_of(reads, candidate.rowid)
            if key is not None:
                documents.add(key)
                left.append(_left(key, candidate, "limit"))
    return omitted, left


def _without_room(items: Sequence[Item], fitting: Sequence[Item]) -> list[Left]:
    shown = {item.document_key for item in fitting}
    return [
        Left(document_key=item.document_key, why="bytes", scores=item.scores)
        for item in items
        if item.document_key not in shown
    ]


def _below(
    ranked: Sequence[Candidate],
    convincing: Sequence[Candidate],
    reads: Reads,
    door: Door,
    documents: set[DocumentKey],
) -> list[Left]:
    """What came closest to the gate without passing it, of the documents not named yet."""
    below = []
    for candidate in nearest(ranked, convincing):
        key = owner_of(reads, candidate.rowid)
        if key is None or key in documents or not door.admits(key):
            continue
        documents.add(key)
        below.append(_left(key, candidate, "gate"))
    return below


def _left(key: DocumentKey, candidate: Candidate, why: Cut) -> Left:
    return Left(document_key=key, why=why, scores=_judged(candidate))


def _judged(candidate: Candidate) -> Scores:
    return replace(candidate.scores, margin=margin(candidate))


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
            scores=_judged(candidate),
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
        scores=_judged(candidate),
    )
