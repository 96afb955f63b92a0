"""Recall without the resident server: one process, one question, apsw only.

The same questions, weights, gate and answer as `retrieval.search`, lexical alone. A small store is
scanned whole; a large one lets FTS5 pick candidates, which are then scored by the same formula.
Imports neither numpy nor a model: a fresh interpreter pays for every import.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final

from retrieval.ask import Ask
from retrieval.assembly import assemble
from retrieval.candidates import Candidate
from retrieval.door import Door
from retrieval.exact import NAMED, add_literal, is_specific, names_in
from retrieval.fulltext import FulltextShelf, has_fulltext, holds_more_than
from retrieval.fusion import Basis, settled
from retrieval.lexical import WeighedQuestion, weigh
from retrieval.pages import Page, ScannedShelf, Shelf
from retrieval.query import Query, parse_query
from retrieval.results import Leg, Recall, Scores, abstained
from retrieval.weights import damping, saturated
from storage.authority.reads import Reads
from storage.terms import terms

SHORTLIST: Final = 64
MAX_SCANNED: Final = 1_000
"""Chunks that are read whole; the compact container never holds more."""


def recall(
    reads: Reads,
    query: str,
    *,
    generation: int,
    now_at: int,
    limit: int = 4,
    max_bytes: int = 2_200,
    as_of: int | None = None,
    namespaces: Collection[str] | None = None,
    kinds: Collection[str] | None = None,
    expansions: Sequence[str] = (),
    shelf: Callable[[Reads], Shelf] | None = None,
) -> Recall:
    """What the memory has to say to a prompt, by words alone; as `retrieval.search.recall`."""
    started = perf_counter()
    asked = parse_query(query, expansions=tuple(expansions)[:4])
    if asked.silent:
        return _timed(abstained(asked.silent, generation=generation), started)
    ask = Ask(
        at=now_at if as_of is None else as_of,
        limit=limit,
        max_bytes=max_bytes,
        namespaces=namespaces,
        kinds=kinds,
    )
    opened = (shelf or open_shelf)(reads)
    ranked = _rank(opened, asked, Door(reads, ask))
    legs = [Leg(name="sqlite", candidates=len(ranked), ms=_ms(started))]
    return _timed(assemble(ranked, reads, ask, generation=generation, legs=legs), started)


def open_shelf(reads: Reads) -> Shelf:
    """The whole store while it is small, else its full-text index."""
    if holds_more_than(reads, MAX_SCANNED) and has_fulltext(reads):
        return FulltextShelf(reads)
    return ScannedShelf(reads.chunks())


def _rank(shelf: Shelf, query: Query, door: Door) -> list[Candidate]:
    pages: dict[int, Page] = {}
    judged: dict[int, Candidate] = {}
    for question in query.questions:
        weighed = weigh(question, shelf.frequency, shelf.texts)
        scored = []
        for page in shelf.pages(weighed.terms()):
            if door.admits(page.chunk.document_key):
                pages[page.chunk.rowid] = page
                scored.append((_lexical(page, weighed, shelf.average), page))
        scored.sort(key=lambda pair: (-pair[0], pair[1].chunk.rowid))
        for lexical, page in scored[:SHORTLIST]:
            found = _judge(page, weighed, lexical)
            held = judged.get(found.rowid)
            if held is None or found.scores.fused > held.scores.fused:
                judged[found.rowid] = found
    exact = _exact(shelf, query, pages, door)
    final = []
    for at in judged.keys() | exact.keys():
        unconfirmed = door.is_unconfirmed(pages[at].chunk.document_key)
        found = judged.get(at) or _unmatched(pages[at])
        scores = settled(found.scores, exact=exact.get(at, 0.0), unconfirmed=unconfirmed)
        final.append(replace(found, scores=scores, unconfirmed=unconfirmed))
    return sorted(final, key=lambda found: (-found.scores.fused, found.rowid))


def _lexical(page: Page, weighed: WeighedQuestion, average: float) -> float:
    k = damping(page.length, average)
    total = sum(
        weight * saturated(page.counts[term], k)
        for term, weight in weighed.terms().items()
        if term in page.counts
    )
    return total / weighed.maximum if weighed.maximum > 0 else 0.0


def _judge(page: Page, weighed: WeighedQuestion, lexical: float) -> Candidate:
    share = 0.0
    matched = 0
    for word in weighed.words:
        part = sum(weight for term, weight in word.terms if term in page.counts)
        share += part
        matched += 2 * part >= word.weight
    covered = share / weighed.weight if weighed.weight > 0 else 0.0
    return Candidate(
        rowid=page.chunk.rowid,
        document=hash(page.chunk.document_key),
        scores=Basis(weighed.maximum).fused(Scores(fused=0.0, lexical=lexical, coverage=covered)),
        asked=len(weighed.words),
        matched=matched,
    )


def _unmatched(page: Page) -> Candidate:
    document = hash(page.chunk.document_key)
    return Candidate(
        rowid=page.chunk.rowid, document=document, scores=Scores(fused=0.0), asked=1, matched=0
    )


def _exact(shelf: Shelf, query: Query, pages: dict[int, Page], door: Door) -> dict[int, float]:
    """Rowid to a score, for the texts that are named or contain a literal."""
    found: dict[int, float] = {}
    for page in shelf.named(names_in(query)):
        if door.admits(page.chunk.document_key):
            pages[page.chunk.rowid] = page
            found[page.chunk.rowid] = NAMED
    for literal in query.literals:
        wanted = tuple(dict.fromkeys(terms(literal)))
        if is_specific((shelf.frequency(term) for term in wanted), shelf.texts):
            holding = {
                at: f"{page.chunk.title}\n{page.chunk.text}"
                for at, page in pages.items()
                if page.counts.keys() >= set(wanted)
            }
            add_literal(found, literal, holding)
    return found


def _ms(started: float) -> float:
    return round((perf_counter() - started) * 1000, 3)


def _timed(answer: Recall, started: float) -> Recall:
    return replace(answer, ms=_ms(started))
