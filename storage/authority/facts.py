"""What events do to facts and their evidence (SQL over the shared tables).

The temporal rules live here. Intervals are half-open; an end is set once and never postponed; a
superseded fact ends when its replacement starts, so a future replacement retires nothing early; a
terminal fact is never reopened; an id keeps its statement. Every fact has one document, whose
validity and standing follow the fact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import apsw

from storage.authority import documents
from storage.authority.reads import Reads
from storage.errors import Invalid
from storage.records import (
    TERMINAL_STANDINGS,
    Document,
    Evidence,
    Fact,
    FactId,
    Provenance,
    Standing,
    Trust,
    canonical_json,
    fact_document_key,
)

STRONG: Final = frozenset({Provenance.NATIVE_OBSERVATION, Provenance.DECLARED})
"""Provenance that makes a fact supported."""

_TRUST: Final = {
    Provenance.NATIVE_OBSERVATION: Trust.HOST,
    Provenance.DECLARED: Trust.USER,
    Provenance.AGENT_REPORT: Trust.AGENT,
    Provenance.IMPORTED: Trust.IMPORTED,
}
_BY_STRENGTH: Final = tuple(Provenance)

INSERT_FACT: Final = """
INSERT INTO facts (fact_id, kind, statement, standing, confidence, valid_at, invalid_at,
  recorded_at, expired_at, subject, predicate, object, tags, analyst)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, ?)
"""
UPDATE_STANDING: Final = "UPDATE facts SET standing = ? WHERE fact_id = ?"
END_FACT: Final = "UPDATE facts SET standing = ?, invalid_at = ?, expired_at = ? WHERE fact_id = ?"
INSERT_EVIDENCE: Final = (
    "INSERT INTO evidence (evidence_id, origin, provenance, excerpt, content_hash, observed_at,"
    " adapter, locator, line, session_id, tool_call_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    # A quote whose first event was erased comes back blank; a later event that has it fills it.
    " ON CONFLICT (evidence_id) DO UPDATE SET excerpt = excluded.excerpt,"
    " content_hash = excluded.content_hash WHERE excerpt = '' AND excluded.excerpt <> ''"
)
LINK_EVIDENCE: Final = (
    "INSERT INTO fact_evidence (fact_id, evidence_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
)
INSERT_ENTITY: Final = (
    "INSERT INTO entities (entity_id, type, name) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
)
LINK_ENTITY: Final = (
    "INSERT INTO fact_entities (fact_id, entity_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
)
LINK_FACTS: Final = (
    "INSERT INTO fact_links (from_id, to_id, link, recorded_at) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)


def record(db: apsw.Connection, fact: Fact, evidence: Iterable[Evidence]) -> None:
    """A new fact enters, or a known one gains evidence.

    Raises:
        Invalid: its id stands for another statement, it enters already ended, it supersedes
            itself, or it is inverted in time.
    """
    known = Reads(db).fact(fact.fact_id)
    if known is not None:
        if (known.statement, known.kind) != (fact.statement, fact.kind):
            raise Invalid(f"{fact.fact_id} stands for another statement; ids are immutable")
        for item in evidence:
            corroborate(db, known.fact_id, item)
        if known.standing not in TERMINAL_STANDINGS:
            # Said again to replace something: the old holds until this was said, not only until
            # the wording was first heard.
            start = max(known.valid_at, fact.valid_at)
            _supersede(db, known.fact_id, start, fact.supersedes, fact.recorded_at)
        return
    if fact.standing in TERMINAL_STANDINGS:
        raise Invalid("a fact cannot be recorded as already ended")
    if fact.invalid_at is not None and fact.invalid_at < fact.valid_at:
        raise Invalid("a fact that ends before it starts")
    insert(db, fact)
    for item in evidence:
        add_evidence(db, fact.fact_id, item)
    if fact.standing is Standing.SUPPORTED and not _has_strong(db, fact.fact_id):
        db.execute(UPDATE_STANDING, (Standing.NEEDS_REVIEW.value, fact.fact_id))
    _supersede(db, fact.fact_id, fact.valid_at, fact.supersedes, fact.recorded_at)
    _follow(db, fact.fact_id, fact.recorded_at)


def corroborate(db: apsw.Connection, fact_id: FactId, evidence: Evidence) -> None:
    """One more quote; a strong one lifts a fact that is not ended to supported.

    Raises:
        Invalid: there is no such fact.
    """
    fact = _known(db, fact_id)
    add_evidence(db, fact_id, evidence)
    if fact.standing in TERMINAL_STANDINGS:
        return
    if fact.standing is not Standing.SUPPORTED and evidence.provenance in STRONG:
        db.execute(UPDATE_STANDING, (Standing.SUPPORTED.value, fact_id))
    _follow(db, fact_id, fact.recorded_at)


def resolve(
    db: apsw.Connection,
    fact_id: FactId,
    standing: Standing,
    at: int,
    replacement: FactId | None,
    recorded_at: int,
) -> None:
    """A judgement; ending an ended fact again changes nothing but its links.

    Raises:
        Invalid: there is no such fact, it replaces itself, or it is ended and would be reopened.
    """
    fact = _known(db, fact_id)
    if replacement == fact_id:
        raise Invalid("a fact cannot replace itself")
    if standing not in TERMINAL_STANDINGS:
        if fact.standing in TERMINAL_STANDINGS:
            raise Invalid(f"{fact_id} has ended; an ended fact is never reopened")
        db.execute(UPDATE_STANDING, (standing.value, fact_id))
        _follow(db, fact_id, fact.recorded_at)
        return
    successor = Reads(db).fact(replacement) if replacement is not None else None
    cut = at if successor is None else max(at, successor.valid_at)
    _end(db, fact, standing, cut, recorded_at)
    if replacement is not None:
        link = "supersedes" if standing is Standing.SUPERSEDED else "resolves"
        db.execute(LINK_FACTS, (replacement, fact_id, link, recorded_at))


def add_evidence_row(db: apsw.Connection, evidence: Evidence) -> None:
    """The quote itself, once."""
    source = evidence.source
    db.execute(
        INSERT_EVIDENCE,
        (
            evidence.evidence_id,
            evidence.origin.value,
            evidence.provenance.value,
            evidence.excerpt,
            evidence.content_hash,
            evidence.observed_at,
            source.adapter,
            source.locator,
            source.line,
            source.session_id,
            evidence.tool_call_id,
        ),
    )


def document_of(fact: Fact, evidence: Iterable[Evidence]) -> Document:
    """The document that makes a fact searchable."""
    found = {item.provenance for item in evidence}
    strongest = next((p for p in _BY_STRENGTH if p in found), Provenance.IMPORTED)
    return Document(
        namespace=documents.FACT_NAMESPACE,
        external_id=fact.fact_id,
        source=documents.FACT_NAMESPACE,
        kind=fact.kind.value,
        text=fact.statement,
        observed_at=fact.recorded_at,
        trust=_TRUST[strongest],
        valid_from=fact.valid_at,
        valid_to=fact.invalid_at,
        revision=hashlib.sha256(fact.statement.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        metadata={"fact_id": fact.fact_id, "standing": fact.standing.value},
    )


def insert(db: apsw.Connection, fact: Fact) -> None:
    """The fact's row and its entities, as open as it was recorded."""
    db.execute(
        INSERT_FACT,
        (
            fact.fact_id,
            fact.kind.value,
            fact.statement,
            fact.standing.value,
            fact.confidence,
            fact.valid_at,
            fact.invalid_at,
            fact.recorded_at,
            fact.subject,
            fact.predicate,
            fact.object,
            canonical_json(fact.tags).decode("ascii"),
            fact.analyst,
        ),
    )
    for entity in fact.entities:
        db.execute(INSERT_ENTITY, (entity.entity_id, entity.type, entity.name))
        db.execute(LINK_ENTITY, (fact.fact_id, entity.entity_id))


def _supersede(
    db: apsw.Connection,
    fact_id: FactId,
    valid_at: int,
    superseded: Iterable[FactId],
    recorded_at: int,
) -> None:
    for old in superseded:
        if old == fact_id:
            raise Invalid("a fact cannot supersede itself")
        db.execute(LINK_FACTS, (fact_id, old, "supersedes", recorded_at))
        fact = Reads(db).fact(old)
        if fact is not None:
            _end(db, fact, Standing.SUPERSEDED, valid_at, recorded_at)


def _end(db: apsw.Connection, fact: Fact, standing: Standing, cut: int, recorded_at: int) -> None:
    if fact.standing in TERMINAL_STANDINGS:
        return
    end = max(cut, fact.valid_at)
    if fact.invalid_at is not None:
        end = min(end, fact.invalid_at)
    db.execute(END_FACT, (standing.value, end, recorded_at, fact.fact_id))
    _follow(db, fact.fact_id, fact.recorded_at)


def _follow(db: apsw.Connection, fact_id: FactId, recorded_at: int) -> None:
    """Bring the fact's document in line; that of an ended fact, once compacted, stays away."""
    reads = Reads(db)
    fact = _known(db, fact_id)
    document = document_of(fact, reads.evidence(fact_id))
    row = db.execute(documents.SELECT_OWNER, (fact_document_key(fact_id),)).fetchone()
    if row is not None and row[1] is not None and fact.standing in TERMINAL_STANDINGS:
        return
    documents.store(db, document, recorded_at)


def add_evidence(db: apsw.Connection, fact_id: FactId, evidence: Evidence) -> None:
    """A quote behind a fact; judges nothing."""
    add_evidence_row(db, evidence)
    db.execute(LINK_EVIDENCE, (fact_id, evidence.evidence_id))


def _has_strong(db: apsw.Connection, fact_id: FactId) -> bool:
    return any(item.provenance in STRONG for item in Reads(db).evidence(fact_id))


def _known(db: apsw.Connection, fact_id: FactId) -> Fact:
    fact = Reads(db).fact(fact_id)
    if fact is None:
        raise Invalid(f"there is no fact {fact_id}")
    return fact
