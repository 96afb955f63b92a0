"""What each event says: builders from records to drafts, and back.

Owns the spelling of every payload (plain JSON, times in UTC ms, enums by value). The reducer reads
payloads only through the `*_from` functions here. Leaves meaning to the reducer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, get_args

from storage.errors import Invalid
from storage.events import MAX_EVENT_BYTES, EventDraft, EventType
from storage.records import (
    DeferredStatement,
    Document,
    DocumentKey,
    Entity,
    Evidence,
    EvidenceId,
    Fact,
    FactId,
    FactKind,
    JsonValue,
    Origin,
    Provenance,
    RedactedText,
    SourceCursor,
    SourceRef,
    Standing,
    Trust,
    canonical_json,
)

Signal = Literal["used", "helpful", "wrong", "stale"]
SIGNALS: Final[tuple[Signal, ...]] = get_args(Signal)
Payload = Mapping[str, JsonValue]


def document_upserted(document: Document) -> EventDraft:
    """The latest revision of a document replaces the one before."""
    return EventDraft(EventType.DOCUMENT_UPSERTED, {"document": document_json(document)})


def document_deleted(key: DocumentKey, at: int) -> EventDraft:
    """The document is gone from its source since `at`; a tombstone stays."""
    return EventDraft(EventType.DOCUMENT_DELETED, {"key": key, "at": at})


def fact_recorded(fact: Fact, evidence: Sequence[Evidence] = ()) -> EventDraft:
    """A new fact with its quotes; an existing id with the same statement only gains the quotes.

    The fact's `recorded_at` becomes the event's time; its standing is settled by the reducer.
    """
    return EventDraft(
        EventType.FACT_RECORDED,
        {"fact": fact_json(fact), "evidence": [evidence_json(item) for item in evidence]},
    )


def fact_recorded_in_parts(fact: Fact, evidence: Sequence[Evidence]) -> tuple[EventDraft, ...]:
    """The same, with the quotes that do not fit one event as corroborations behind it."""
    room = MAX_EVENT_BYTES - len(canonical_json(fact_json(fact))) - 64
    fitting: list[Evidence] = []
    later: list[Evidence] = []
    for item in evidence:
        size = len(canonical_json(evidence_json(item))) + 1
        if not later and size <= room:
            fitting.append(item)
            room -= size
        else:
            later.append(item)
    rest = (fact_corroborated(fact.fact_id, item) for item in later)
    return (fact_recorded(fact, fitting), *rest)


def fact_corroborated(fact_id: FactId, evidence: Evidence) -> EventDraft:
    """One more quote says the same."""
    return EventDraft(
        EventType.FACT_CORROBORATED, {"fact": fact_id, "evidence": evidence_json(evidence)}
    )


def fact_resolved(
    fact_id: FactId,
    standing: Standing,
    at: int,
    rationale: RedactedText,
    replacement: FactId | None = None,
) -> EventDraft:
    """A judgement; a terminal standing ends the fact at `at`, or when its replacement starts."""
    return EventDraft(
        EventType.FACT_RESOLVED,
        {
            "fact": fact_id,
            "standing": standing.value,
            "at": at,
            "rationale": rationale,
            "replacement": replacement,
        },
    )


def statement_deferred(statement: DeferredStatement) -> EventDraft:
    """A declared statement waits for its translation."""
    return EventDraft(
        EventType.STATEMENT_DEFERRED,
        {
            "id": statement.statement_id,
            "kind": statement.kind.value,
            "original": statement.original,
            "lang": statement.lang,
            "evidence": evidence_json(statement.evidence),
            "at": statement.deferred_at,
            "supersedes": list(statement.supersedes),
        },
    )


def statement_released(statement_id: str, reason: str) -> EventDraft:
    """A waiting statement leaves (translated, or dropped for a reason)."""
    return EventDraft(EventType.STATEMENT_RELEASED, {"id": statement_id, "reason": reason})


def source_advanced(cursor: SourceCursor) -> EventDraft:
    """Everything before the cursor's offset is in the authority."""
    return EventDraft(
        EventType.SOURCE_ADVANCED,
        {
            "adapter": cursor.adapter,
            "locator": cursor.locator,
            "offset": cursor.offset,
            "line": cursor.line,
            "observations": cursor.observations,
            "skipped": cursor.skipped,
            "state": cursor.state,
        },
    )


def retrieval_feedback(fact_id: FactId, signal: Signal) -> EventDraft:
    """A recalled fact was used, helpful, wrong or stale."""
    return EventDraft(EventType.RETRIEVAL_FEEDBACK, {"fact": fact_id, "signal": signal})


def gc_compacted(
    *,
    facts: Sequence[FactId] = (),
    documents: Sequence[DocumentKey] = (),
    collections: Sequence[str] = (),
) -> EventDraft:
    """Cold projections go: facts' search documents, tombstones, vector collections.

    Facts and evidence themselves stay. A supported fact must have ended.
    """
    return EventDraft(
        EventType.GC_COMPACTED,
        {"facts": list(facts), "documents": list(documents), "collections": list(collections)},
    )


def job_applied(note: str = "") -> EventDraft:
    """A job whose whole effect is that it ran; `note` is a few words and counts."""
    return EventDraft(EventType.JOB_APPLIED, {"note": note})


def fact_json(fact: Fact) -> dict[str, JsonValue]:
    """The fact as its payload spells it."""
    return {
        "id": fact.fact_id,
        "kind": fact.kind.value,
        "statement": fact.statement,
        "standing": fact.standing.value,
        "confidence": fact.confidence,
        "valid_at": fact.valid_at,
        "invalid_at": fact.invalid_at,
        "subject": fact.subject,
        "predicate": fact.predicate,
        "object": fact.object,
        "entities": [[entity.name, entity.type] for entity in fact.entities],
        "supersedes": list(fact.supersedes),
        "tags": dict(fact.tags),
        "analyst": fact.analyst,
    }


def fact_from(payload: JsonValue, recorded_at: int) -> Fact:
    """The fact a payload describes, recorded at the event's time."""
    item = _object(payload)
    return Fact(
        fact_id=FactId(_text(item, "id")),
        kind=FactKind(_text(item, "kind")),
        statement=RedactedText(_text(item, "statement")),
        standing=Standing(_text(item, "standing")),
        confidence=_number(item, "confidence"),
        valid_at=_int(item, "valid_at"),
        invalid_at=_maybe_int(item, "invalid_at"),
        recorded_at=recorded_at,
        subject=_text(item, "subject"),
        predicate=_text(item, "predicate"),
        object=_text(item, "object"),
        entities=tuple(_entity(pair) for pair in _list(item, "entities")),
        supersedes=tuple(FactId(old) for old in texts(item, "supersedes")),
        tags={key: str(value) for key, value in _object(item.get("tags")).items()},
        analyst=_text(item, "analyst"),
    )


def _entity(pair: JsonValue) -> Entity:
    match pair:
        case [str(name), str(kind)]:
            return Entity(name=name, type=kind)
        case _:
            raise Invalid("an entity is not a pair of name and type")


def evidence_json(evidence: Evidence) -> dict[str, JsonValue]:
    """The quote as its payload spells it."""
    return {
        "id": evidence.evidence_id,
        "origin": evidence.origin.value,
        "provenance": evidence.provenance.value,
        "excerpt": evidence.excerpt,
        "content_hash": evidence.content_hash,
        "observed_at": evidence.observed_at,
        "adapter": evidence.source.adapter,
        "locator": evidence.source.locator,
        "line": evidence.source.line,
        "session_id": evidence.source.session_id,
        "tool_call_id": evidence.tool_call_id,
    }


def evidence_from(payload: JsonValue) -> Evidence:
    """The evidence a payload describes."""
    item = _object(payload)
    return Evidence(
        evidence_id=EvidenceId(_text(item, "id")),
        origin=Origin(_text(item, "origin")),
        provenance=Provenance(_text(item, "provenance")),
        excerpt=RedactedText(_text(item, "excerpt")),
        content_hash=_text(item, "content_hash"),
        observed_at=_int(item, "observed_at"),
        source=SourceRef(
            adapter=_text(item, "adapter"),
            locator=_text(item, "locator"),
            line=_int(item, "line"),
            session_id=_text(item, "session_id"),
        ),
        tool_call_id=_text(item, "tool_call_id"),
    )


def document_json(document: Document) -> dict[str, JsonValue]:
    """The document as its payload spells it."""
    return {
        "namespace": document.namespace,
        "external_id": document.external_id,
        "source": document.source,
        "kind": document.kind,
        "text": document.text,
        "observed_at": document.observed_at,
        "trust": document.trust.value,
        "title": document.title,
        "uri": document.uri,
        "version": document.version,
        "valid_from": document.valid_from,
        "valid_to": document.valid_to,
        "adapter": document.adapter,
        "revision": document.revision,
        "metadata": dict(document.metadata),
    }


def document_from(payload: JsonValue) -> Document:
    """The document a payload describes."""
    item = _object(payload)
    return Document(
        namespace=_text(item, "namespace"),
        external_id=_text(item, "external_id"),
        source=_text(item, "source"),
        kind=_text(item, "kind"),
        text=RedactedText(_text(item, "text")),
        observed_at=_int(item, "observed_at"),
        trust=Trust(_text(item, "trust")),
        title=RedactedText(_text(item, "title")),
        uri=RedactedText(_text(item, "uri")),
        version=_text(item, "version"),
        valid_from=_maybe_int(item, "valid_from"),
        valid_to=_maybe_int(item, "valid_to"),
        adapter=_text(item, "adapter"),
        revision=_text(item, "revision"),
        metadata=dict(_object(item.get("metadata"))),
    )


def deferred_from(payload: Payload) -> DeferredStatement:
    """The waiting statement a payload describes."""
    return DeferredStatement(
        statement_id=_text(payload, "id"),
        kind=FactKind(_text(payload, "kind")),
        original=RedactedText(_text(payload, "original")),
        lang=_text(payload, "lang"),
        evidence=evidence_from(payload.get("evidence")),
        deferred_at=_int(payload, "at"),
        supersedes=tuple(FactId(old) for old in texts(payload, "supersedes")),
    )


def cursor_from(payload: Payload) -> SourceCursor:
    """The cursor a payload describes."""
    return SourceCursor(
        adapter=_text(payload, "adapter"),
        locator=_text(payload, "locator"),
        offset=_int(payload, "offset"),
        line=_int(payload, "line"),
        observations=_int(payload, "observations"),
        skipped=_int(payload, "skipped"),
        state=_text(payload, "state"),
    )


def text_of(payload: Payload, key: str) -> str:
    """A text field."""
    return _text(payload, key)


def maybe_text_of(payload: Payload, key: str) -> str | None:
    """A text field that may be null."""
    return None if payload.get(key) is None else _text(payload, key)


def int_of(payload: Payload, key: str) -> int:
    """A whole-number field."""
    return _int(payload, key)


def maybe_int_of(payload: Payload, key: str) -> int | None:
    """A whole-number field that may be null."""
    return _maybe_int(payload, key)


def texts(payload: Payload, key: str) -> list[str]:
    """A list of texts."""
    found = _list(payload, key)
    if not all(isinstance(item, str) for item in found):
        raise Invalid(f"{key}: not a list of texts")
    return [str(item) for item in found]


def list_of(payload: Payload, key: str) -> Sequence[JsonValue]:
    """A list of anything."""
    return _list(payload, key)


def _object(value: JsonValue) -> Payload:
    if not isinstance(value, Mapping):
        raise Invalid("a payload part is not an object")
    return value


def _list(payload: Payload, key: str) -> Sequence[JsonValue]:
    value = payload.get(key)
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise Invalid(f"{key}: not a list")
    return value


def _text(payload: Payload, key: str) -> str:
    value = payload.get(key)
    if not isinstance(value, str):
        raise Invalid(f"{key}: not a text")
    return value


def _int(payload: Payload, key: str) -> int:
    value = payload.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f"{key}: not a whole number")
    return value


def _maybe_int(payload: Payload, key: str) -> int | None:
    return None if payload.get(key) is None else _int(payload, key)


def _number(payload: Payload, key: str) -> float:
    value = payload.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(f"{key}: not a number")
    return float(value)
