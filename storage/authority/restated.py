"""A memory said again as it stands: rows with their own times, when history cannot tell them.

Owns the spelling and the effect of `memory.restated`, which import and repair append: a fact with
its quotes, links and counts, a quote alone, a document. A restated row is taken as it is: no rule
of time ends or lifts anything, and what is there already stays. Leaves choosing to its callers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import apsw

from storage.authority import documents, facts, payloads
from storage.authority.reads import Reads
from storage.errors import Invalid
from storage.events import MAX_EVENT_BYTES, EventDraft, EventType
from storage.records import (
    Document,
    Evidence,
    Fact,
    FactId,
    JsonValue,
    canonical_json,
    fact_document_key,
)

Payload = Mapping[str, JsonValue]
COUNTS: Final = ("used", "helpful", "wrong", "stale")

SELECT_LINKS: Final = (
    "SELECT to_id, link, recorded_at FROM fact_links WHERE from_id = ? ORDER BY to_id, link"
)
SELECT_COUNTS: Final = "SELECT used, helpful, wrong, stale FROM usefulness WHERE fact_id = ?"
SELECT_DOCUMENT_TIME: Final = "SELECT recorded_at, deleted_at FROM documents WHERE document_key = ?"
INSERT_COUNTS: Final = (
    "INSERT INTO usefulness (fact_id, used, helpful, wrong, stale) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
SET_TIMES: Final = "UPDATE facts SET standing = ?, invalid_at = ?, expired_at = ? WHERE fact_id = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFact:
    """A fact with everything that hangs on it."""

    fact: Fact
    evidence: tuple[Evidence, ...]
    links: tuple[tuple[str, str, int], ...]
    """(other fact, link, recorded_at) for each link from this fact."""
    counts: tuple[int, int, int, int]
    searchable: bool
    """False once a compaction took its document away."""


def whole(reads: Reads, fact: Fact) -> WholeFact:
    """The fact as it stands in a snapshot."""
    db = reads.db
    key = fact_document_key(fact.fact_id)
    links = db.execute(SELECT_LINKS, (fact.fact_id,)).fetchall()
    counts = db.execute(SELECT_COUNTS, (fact.fact_id,)).fetchone() or (0, 0, 0, 0)
    document = db.execute(SELECT_DOCUMENT_TIME, (key,)).fetchone()
    return WholeFact(
        fact=fact,
        evidence=tuple(reads.evidence(fact.fact_id)),
        links=tuple((str(to), str(link), int(str(at))) for to, link, at in links),
        counts=(int(counts[0]), int(counts[1]), int(counts[2]), int(counts[3])),
        searchable=document is not None and document[1] is None,
    )


def whole_json(item: WholeFact) -> dict[str, JsonValue]:
    """The fact as plain JSON, its quotes included."""
    fact = item.fact
    return {
        "what": "fact",
        "fact": {
            **payloads.fact_json(fact),
            "recorded_at": fact.recorded_at,
            "expired_at": fact.expired_at,
        },
        "evidence": [payloads.evidence_json(quote) for quote in item.evidence],
        "links": [list(link) for link in item.links],
        "counts": list(item.counts),
        "searchable": item.searchable,
    }


def whole_from(payload: Payload) -> WholeFact:
    """The fact that plain JSON describes.

    Raises:
        Invalid: it describes none.
    """
    body = payload.get("fact")
    if not isinstance(body, Mapping):
        raise Invalid("a restated fact without a fact")
    fact = replace(
        payloads.fact_from(body, payloads.int_of(body, "recorded_at")),
        expired_at=payloads.maybe_int_of(body, "expired_at"),
    )
    counts = [int(str(item)) for item in payloads.list_of(payload, "counts")]
    if len(counts) != len(COUNTS) or min(counts) < 0:
        raise Invalid("a restated fact without its counts")
    return WholeFact(
        fact=fact,
        evidence=tuple(payloads.evidence_from(q) for q in payloads.list_of(payload, "evidence")),
        links=tuple(_link(item) for item in payloads.list_of(payload, "links")),
        counts=(counts[0], counts[1], counts[2], counts[3]),
        searchable=bool(payload.get("searchable")),
    )


def restated_fact(item: WholeFact) -> tuple[EventDraft, ...]:
    """The fact, and the quotes that do not fit one event behind it."""
    room = MAX_EVENT_BYTES - len(canonical_json(whole_json(replace(item, evidence=())))) - 64
    fitting: list[Evidence] = []
    later: list[Evidence] = []
    for quote in item.evidence:
        size = len(canonical_json(payloads.evidence_json(quote))) + 1
        if not later and size <= room:
            fitting.append(quote)
            room -= size
        else:
            later.append(quote)
    first = EventDraft(
        EventType.MEMORY_RESTATED, whole_json(replace(item, evidence=tuple(fitting)))
    )
    return (first, *(restated_quote(item.fact.fact_id, quote) for quote in later))


def restated_quote(fact_id: FactId, quote: Evidence) -> EventDraft:
    """A quote behind a fact, which keeps its standing."""
    return EventDraft(
        EventType.MEMORY_RESTATED,
        {"what": "evidence", "of": fact_id, "evidence": payloads.evidence_json(quote)},
    )


def restated_document(document: Document, recorded_at: int) -> EventDraft:
    """A document with the time at which it was recorded."""
    return EventDraft(
        EventType.MEMORY_RESTATED,
        {
            "what": "document",
            "document": payloads.document_json(document),
            "recorded_at": recorded_at,
        },
    )


def apply(db: apsw.Connection, payload: Payload) -> None:
    """Put what is restated into the tables, beside what is there.

    Raises:
        Invalid: it is malformed, or breaks a rule of the tables.
    """
    what = payloads.text_of(payload, "what")
    if what == "fact":
        _apply_fact(db, whole_from(payload))
    elif what == "evidence":
        fact_id = FactId(payloads.text_of(payload, "of"))
        if Reads(db).fact(fact_id) is not None:
            facts.add_evidence(db, fact_id, payloads.evidence_from(payload.get("evidence")))
    elif what == "document":
        document = payloads.document_from(payload.get("document"))
        if Reads(db).document(document.key) is None:
            documents.upsert(db, document, payloads.int_of(payload, "recorded_at"))
    else:
        raise Invalid(f"{what!r} cannot be restated")


def _apply_fact(db: apsw.Connection, item: WholeFact) -> None:
    fact = item.fact
    if Reads(db).fact(fact.fact_id) is not None:
        return
    facts.insert(db, fact)
    db.execute(SET_TIMES, (fact.standing.value, fact.invalid_at, fact.expired_at, fact.fact_id))
    for quote in item.evidence:
        facts.add_evidence(db, fact.fact_id, quote)
    for to, link, at in item.links:
        db.execute(facts.LINK_FACTS, (fact.fact_id, to, link, at))
    if any(item.counts):
        db.execute(INSERT_COUNTS, (fact.fact_id, *item.counts))
    if item.searchable:
        documents.store(db, facts.document_of(fact, item.evidence), fact.recorded_at)


def _link(item: JsonValue) -> tuple[str, str, int]:
    match item:
        case [str(to), str(link), int(at)]:
            return to, link, at
        case _:
            raise Invalid("a link is not (fact, link, time)")


def drafts_of(items: Sequence[WholeFact]) -> list[EventDraft]:
    """All of these facts, each with its quotes."""
    return [draft for item in items for draft in restated_fact(item)]
