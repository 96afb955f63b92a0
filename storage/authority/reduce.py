"""The reducer: one event's effect on the tables, the same in both containers.

Pure in (database, event): no clock, no randomness, no file; the same events give the same rows.
Works inside the caller's transaction. Leaves history itself to `history` and derived indexes to the
indexed container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final, Literal, assert_never

import apsw

from storage.authority import documents, facts, payloads, restated, tombstones
from storage.clock import DAY_MS
from storage.errors import Invalid
from storage.events import Event, EventType
from storage.records import (
    DocumentKey,
    FactId,
    JsonValue,
    Standing,
    canonical_json,
    fact_document_key,
)

INSERT_DEFERRED: Final = (
    "INSERT INTO deferred_statements (statement_id, kind, original, lang, evidence_id, supersedes,"
    " deferred_at) VALUES (?, ?, ?, ?, ?, json(?), ?) ON CONFLICT DO NOTHING"
)
DELETE_DEFERRED: Final = "DELETE FROM deferred_statements WHERE statement_id = ?"
UPSERT_CURSOR: Final = """
INSERT INTO source_cursors (adapter, locator, offset, line, observations, skipped, state,
  updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (adapter, locator) DO UPDATE SET
  offset = excluded.offset, line = excluded.line, observations = excluded.observations,
  skipped = excluded.skipped, state = excluded.state, updated_at = excluded.updated_at
"""
COUNT_SIGNAL: Final = {
    signal: f"INSERT INTO usefulness (fact_id, {signal}) VALUES (?, 1)"
    f" ON CONFLICT (fact_id) DO UPDATE SET {signal} = {signal} + 1"
    for signal in payloads.SIGNALS
}
SELECT_FACT_END: Final = "SELECT standing, invalid_at FROM facts WHERE fact_id = ?"
BURY_FACT_DOCUMENT: Final = (
    "UPDATE documents SET title = '', text = '', metadata = '{}', content_hash = '',"
    " deleted_at = ? WHERE document_key = ? AND deleted_at IS NULL"
)
DELETE_TOMBSTONE: Final = (
    "DELETE FROM documents WHERE document_key = ? AND deleted_at IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM slices s WHERE s.document_key = documents.document_key)"
)
DELETE_COLLECTION_VECTORS: Final = "DELETE FROM vectors WHERE collection = ?"
DELETE_COLLECTION: Final = "DELETE FROM collections WHERE name = ?"
FORGET_JOBS: Final = "DELETE FROM applied_jobs WHERE applied_at < ?"
JOB_MEMORY_MS: Final = 60 * DAY_MS
"""Applied jobs older than this are forgotten at a compaction; the queue forgets jobs far sooner."""


def apply(db: apsw.Connection, event: Event) -> None:
    """Change the tables as the event says; an erased event changes nothing.

    Raises:
        Invalid: the event breaks a rule; the caller must roll back.
    """
    if event.payload is None:
        return
    try:
        _apply(db, event, event.payload)
    except apsw.ConstraintError as cause:
        raise Invalid(f"{event.type.value}: breaks a rule of the tables ({cause})") from cause
    except (ValueError, OverflowError) as cause:
        raise Invalid(f"{event.type.value}: a malformed payload ({cause})") from cause


def apply_all(db: apsw.Connection, events: Iterable[Event]) -> None:
    """The same for many events, in order; documents that follow each other go in together.

    Raises:
        Invalid: an event breaks a rule, and which is not said; the caller must roll back.
    """
    for waits, group in groupby(events, _is_document):
        if not waits:
            for event in group:
                apply(db, event)
            continue
        try:
            rows = [_row(event) for event in group]
            documents.upsert_all(db, rows)
        except apsw.ConstraintError as cause:
            raise Invalid(f"a document breaks a rule of the tables ({cause})") from cause
        except (ValueError, OverflowError) as cause:
            raise Invalid(f"a malformed document ({cause})") from cause


def _is_document(event: Event) -> bool:
    return event.type is EventType.DOCUMENT_UPSERTED and event.payload is not None


def _row(event: Event) -> documents.Row:
    assert event.payload is not None
    return documents.row_from(event.payload.get("document"), event.recorded_at)


def _apply(db: apsw.Connection, event: Event, payload: Mapping[str, JsonValue]) -> None:
    at = event.recorded_at
    match event.type:
        case EventType.DOCUMENT_UPSERTED:
            documents.upsert(db, payloads.document_from(payload.get("document")), at)
        case EventType.DOCUMENT_DELETED:
            key = DocumentKey(payloads.text_of(payload, "key"))
            documents.bury(db, key, payloads.int_of(payload, "at"))
        case EventType.FACT_RECORDED:
            evidence = [payloads.evidence_from(e) for e in payloads.list_of(payload, "evidence")]
            facts.record(db, payloads.fact_from(payload.get("fact"), at), evidence)
        case EventType.FACT_CORROBORATED:
            fact_id = FactId(payloads.text_of(payload, "fact"))
            facts.corroborate(db, fact_id, payloads.evidence_from(payload.get("evidence")))
        case EventType.FACT_RESOLVED:
            _resolve(db, payload, at)
        case EventType.STATEMENT_DEFERRED | EventType.STATEMENT_RELEASED:
            _wait(db, event.type, payload)
        case EventType.SOURCE_ADVANCED:
            _advance(db, payload, at)
        case EventType.RETRIEVAL_FEEDBACK:
            _count(db, payload)
        case EventType.GC_COMPACTED:
            _compact(db, payload, at)
        case EventType.JOB_APPLIED:
            payloads.text_of(payload, "note")
        case EventType.MEMORY_RESTATED | EventType.MEMORY_FORGOTTEN | EventType.CHAIN_REPAIRED:
            _keep_up(db, event.type, payload, at)
        case _:
            assert_never(event.type)


def _keep_up(
    db: apsw.Connection,
    kind: Literal[EventType.MEMORY_RESTATED, EventType.MEMORY_FORGOTTEN, EventType.CHAIN_REPAIRED],
    payload: Mapping[str, JsonValue],
    at: int,
) -> None:
    """Events by which people look after a memory."""
    if kind is EventType.MEMORY_RESTATED:
        restated.apply(db, payload)
    elif kind is EventType.MEMORY_FORGOTTEN:
        tombstones.apply(db, payload, at)
    else:
        tombstones.check_repaired(payload)


def _resolve(db: apsw.Connection, payload: Mapping[str, JsonValue], recorded_at: int) -> None:
    replacement = payloads.maybe_text_of(payload, "replacement")
    facts.resolve(
        db,
        FactId(payloads.text_of(payload, "fact")),
        Standing(payloads.text_of(payload, "standing")),
        payloads.int_of(payload, "at"),
        None if replacement is None else FactId(replacement),
        recorded_at,
    )


def _wait(db: apsw.Connection, kind: EventType, payload: Mapping[str, JsonValue]) -> None:
    if kind is EventType.STATEMENT_RELEASED:
        db.execute(DELETE_DEFERRED, (payloads.text_of(payload, "id"),))
        return
    statement = payloads.deferred_from(payload)
    facts.add_evidence_row(db, statement.evidence)
    db.execute(
        INSERT_DEFERRED,
        (
            statement.statement_id,
            statement.kind.value,
            statement.original,
            statement.lang,
            statement.evidence.evidence_id,
            canonical_json(list(statement.supersedes)).decode("ascii"),
            statement.deferred_at,
        ),
    )


def _advance(db: apsw.Connection, payload: Mapping[str, JsonValue], recorded_at: int) -> None:
    cursor = payloads.cursor_from(payload)
    db.execute(
        UPSERT_CURSOR,
        (
            cursor.adapter,
            cursor.locator,
            cursor.offset,
            cursor.line,
            cursor.observations,
            cursor.skipped,
            cursor.state,
            recorded_at,
        ),
    )


def _count(db: apsw.Connection, payload: Mapping[str, JsonValue]) -> None:
    signal = payloads.text_of(payload, "signal")
    statement = COUNT_SIGNAL.get(signal)  # type: ignore[call-overload]
    if statement is None:
        raise Invalid(f"{signal!r} is not one of {', '.join(payloads.SIGNALS)}")
    db.execute(statement, (payloads.text_of(payload, "fact"),))


def _compact(db: apsw.Connection, payload: Mapping[str, JsonValue], at: int) -> None:
    for fact_id in payloads.texts(payload, "facts"):
        row = db.execute(SELECT_FACT_END, (fact_id,)).fetchone()
        if row is None:
            continue
        ended = isinstance(row[1], int) and row[1] <= at
        if row[0] == Standing.SUPPORTED.value and not ended:
            raise Invalid(f"{fact_id} is supported and has not ended; it is not compacted")
        key = fact_document_key(FactId(fact_id))
        documents.drop_chunks(db, key)
        db.execute(BURY_FACT_DOCUMENT, (at, key))
    for key_text in payloads.texts(payload, "documents"):
        if not key_text.startswith(documents.FACT_NAMESPACE + ":"):
            db.execute(DELETE_TOMBSTONE, (key_text,))
    for name in payloads.texts(payload, "collections"):
        db.execute(DELETE_COLLECTION_VECTORS, (name,))
        db.execute(DELETE_COLLECTION, (name,))
    db.execute(FORGET_JOBS, (at - JOB_MEMORY_MS,))
