"""Forgetting inside history: what a tombstone says, what it does, and what it leaves of others.

`memory.forgotten` names ids and holds no text. For each event whose payload is erased it keeps a
skeleton (the same payload, every text blank), so that history replayed has the same effects on what
stays: a fact that the forgotten one replaced stays ended. `chain.repaired` does the same for events
that a damaged file took: nothing is left of those but their place. Works inside the caller's
transaction. Leaves choosing what to forget to `forgetting`, and the bytes to `erasure`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import apsw

from storage.authority import documents, payloads
from storage.errors import Corrupt
from storage.events import MAX_EVENT_BYTES, Event, EventDraft, EventType
from storage.records import (
    DocumentKey,
    EvidenceId,
    FactId,
    JsonValue,
    canonical_json,
    fact_document_key,
)

Payload = Mapping[str, JsonValue]
ERASING: Final = "erasing"
"""The `meta` key that stands while texts of forgotten memories may still lie somewhere."""
NOTE_ROOM: Final = MAX_EVENT_BYTES - 4_096
KEPT_TYPES: Final = frozenset({EventType.MEMORY_FORGOTTEN, EventType.CHAIN_REPAIRED})
"""Events without anybody's words: their payloads stay in the events table in both containers."""

SELECT_NOTES: Final = (
    "SELECT type, payload FROM events WHERE type IN ('memory.forgotten', 'chain.repaired')"
    " ORDER BY seq"
)
SELECT_FORGOTTEN: Final = "SELECT forgotten_at FROM forgotten WHERE id = ? AND what = ?"
ANY_FORGOTTEN: Final = "SELECT 1 FROM forgotten LIMIT 1"
INSERT_FORGOTTEN: Final = (
    "INSERT INTO forgotten (id, what, forgotten_at) VALUES (?, ?, ?)"
    " ON CONFLICT (id, what) DO UPDATE SET forgotten_at = max(forgotten_at, excluded.forgotten_at)"
)
MARK_ERASING: Final = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT DO NOTHING"
IS_ERASING: Final = "SELECT 1 FROM meta WHERE key = 'erasing'"
CLEAR_ERASING: Final = "DELETE FROM meta WHERE key = 'erasing'"
SELECT_FACT: Final = "SELECT 1 FROM facts WHERE fact_id = ?"
BLANK_CURSOR: Final = "UPDATE source_cursors SET state = '' WHERE adapter = ? AND locator = ?"
DELETE_DOCUMENT: Final = "DELETE FROM documents WHERE document_key = ?"
DELETE_FACT: Final = (
    "DELETE FROM fact_evidence WHERE fact_id = ?",
    "DELETE FROM fact_entities WHERE fact_id = ?",
    "DELETE FROM fact_links WHERE ? IN (from_id, to_id)",
    "DELETE FROM usefulness WHERE fact_id = ?",
    "DELETE FROM facts WHERE fact_id = ?",
)
DELETE_LONELY_ENTITIES: Final = (
    "DELETE FROM entities WHERE entity_id NOT IN (SELECT entity_id FROM fact_entities)"
)
DELETE_STATEMENT: Final = "DELETE FROM deferred_statements WHERE statement_id = ?"
DELETE_EVIDENCE: Final = (
    "DELETE FROM evidence WHERE evidence_id = ?1"
    " AND NOT EXISTS (SELECT 1 FROM fact_evidence f WHERE f.evidence_id = ?1)"
    " AND NOT EXISTS (SELECT 1 FROM deferred_statements d WHERE d.evidence_id = ?1)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """What one `ops forget` takes away, by id."""

    facts: tuple[FactId, ...] = ()
    documents: tuple[DocumentKey, ...] = ()
    evidence: tuple[EvidenceId, ...] = ()
    statements: tuple[str, ...] = ()
    cursors: tuple[tuple[str, str], ...] = ()
    """Sources whose carried state held some of the text; they are read again from their start."""
    erased: Mapping[str, Payload | None] = field(default_factory=dict)
    """Event id -> its skeleton; None where the event has no effect on anything that stays."""


def drafts(what: Forgetting) -> list[EventDraft]:
    """The tombstone, in as many events as its length needs; the ids come with the last."""
    parts: list[list[JsonValue]] = [[]]
    size = 0
    for event_id, skeleton in what.erased.items():
        pair: JsonValue = [event_id, skeleton]
        length = len(canonical_json(pair)) + 1
        if size + length > NOTE_ROOM // 2 and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(pair)
        size += length
    ids = _id_lists(what)
    head = [EventDraft(EventType.MEMORY_FORGOTTEN, _body({}, part)) for part in parts]
    return [*head, *(EventDraft(EventType.MEMORY_FORGOTTEN, _body(some, [])) for some in ids)]


def repaired(
    file: str,
    offset: int,
    length: int,
    sha256: str,
    *,
    lost: Sequence[str] = (),
    kept: bool = True,
) -> list[EventDraft]:
    """What a repair cut out of a file; `lost` events have no payload, or no effect, any more."""
    batches = [lost[at : at + 800] for at in range(0, len(lost), 800)] or [()]
    return [
        EventDraft(
            EventType.CHAIN_REPAIRED,
            {
                "file": file,
                "offset": offset,
                "bytes": length,
                "sha256": sha256,
                "quarantined": kept,
                "lost": list(batch),
            },
        )
        for batch in batches
    ]


def apply(db: apsw.Connection, payload: Payload, at: int) -> None:
    """Take what the tombstone names out of every table; the indexes follow.

    Raises:
        Invalid: it is malformed.
    """
    for key in payloads.texts(payload, "documents"):
        _forget_document(db, DocumentKey(key))
        db.execute(INSERT_FORGOTTEN, (key, "document", at))
    for fact_id in payloads.texts(payload, "facts"):
        _forget_document(db, fact_document_key(FactId(fact_id)))
        for statement in DELETE_FACT:
            db.execute(statement, (fact_id,))
        db.execute(INSERT_FORGOTTEN, (fact_id, "fact", at))
    db.execute(DELETE_LONELY_ENTITIES)
    for statement_id in payloads.texts(payload, "statements"):
        db.execute(DELETE_STATEMENT, (statement_id,))
        db.execute(INSERT_FORGOTTEN, (statement_id, "statement", at))
    for evidence_id in payloads.texts(payload, "evidence"):
        db.execute(DELETE_EVIDENCE, (evidence_id,))
        db.execute(INSERT_FORGOTTEN, (evidence_id, "evidence", at))
    for pair in payloads.list_of(payload, "cursors"):
        match pair:
            case [str(adapter), str(locator)]:
                db.execute(BLANK_CURSOR, (adapter, locator))
    db.execute(MARK_ERASING, (ERASING, at))


def check_repaired(payload: Payload) -> None:
    """A repair's note is well-formed; it changes no table.

    Raises:
        Invalid: it is not.
    """
    payloads.text_of(payload, "file")
    payloads.text_of(payload, "sha256")
    payloads.int_of(payload, "offset")
    payloads.int_of(payload, "bytes")
    payloads.texts(payload, "lost")


class Skeletons:
    """What to apply in place of events that were erased or lost."""

    def __init__(self, found: Mapping[str, Payload | None], lost: frozenset[str]) -> None:
        self.found = found
        self.lost = lost

    def __contains__(self, event_id: str) -> bool:
        return event_id in self.found

    def effective(self, event: Event) -> Event:
        """The event as its effect is: a skeleton in place of what is gone."""
        if event.event_id in self.found:
            return replace(event, payload=self.found[event.event_id])
        return event

    def fault(self, event: Event) -> str | None:
        """What is wrong with an event's payload being there, or not being there."""
        if event.event_id in self.found:
            if event.payload is not None and event.event_id not in self.lost:
                return f"event {event.event_id} was forgotten, and its text is not erased yet"
        elif event.payload is None:
            return f"event {event.event_id} has no payload, and nothing says that it was forgotten"
        return None


def skeletons(db: apsw.Connection) -> Skeletons:
    """Of every event that some tombstone or repair names.

    Raises:
        Corrupt: one of their payloads is not readable.
    """
    found: dict[str, Payload | None] = {}
    lost: set[str] = set()
    for kind, body in db.execute(SELECT_NOTES).fetchall():
        try:
            payload = json.loads(body) if isinstance(body, bytes) else None
            if not isinstance(payload, dict):
                raise Corrupt(f"a {kind} event has lost its payload")
            if kind == EventType.CHAIN_REPAIRED.value:
                lost |= set(payloads.texts(payload, "lost"))
            else:
                found.update({str(pair[0]): pair[1] for pair in payload["erased"]})
        except (ValueError, KeyError, TypeError, IndexError) as cause:
            raise Corrupt(f"a {kind} event is malformed") from cause
    # What was erased later than it was lost keeps its skeleton.
    return Skeletons({**dict.fromkeys(lost), **found}, frozenset(lost))


def sieve(db: apsw.Connection, batch: Iterable[EventDraft]) -> list[EventDraft]:
    """The batch without what was forgotten: no source line is learned a second time.

    The same words said anew, on another line and after the forgetting, are a new memory.
    """
    if db.execute(ANY_FORGOTTEN).fetchone() is None:
        return list(batch)
    kept = (_sieved(db, draft) for draft in batch)
    return [draft for draft in kept if draft is not None]


def _sieved(db: apsw.Connection, draft: EventDraft) -> EventDraft | None:
    body = draft.payload
    match draft.type:
        case EventType.DOCUMENT_UPSERTED:
            document = payloads.document_from(body.get("document"))
            return None if _at(db, document.key, "document") else draft
        case EventType.FACT_RECORDED:
            fact_id = payloads.fact_from(body.get("fact"), 0).fact_id
            given = payloads.list_of(body, "evidence")
            quotes = [quote for quote in given if _is_new(db, quote, fact_id)]
            if len(quotes) == len(given) and (given or not _at(db, fact_id, "fact")):
                return draft
            return replace(draft, payload={**body, "evidence": quotes}) if quotes else None
        case EventType.FACT_CORROBORATED:
            fact_id = FactId(payloads.text_of(body, "fact"))
            fresh = _is_new(db, body.get("evidence"), fact_id) and _is_there(db, fact_id)
            return draft if fresh else None
        case EventType.FACT_RESOLVED | EventType.RETRIEVAL_FEEDBACK:
            return draft if _is_there(db, FactId(payloads.text_of(body, "fact"))) else None
        case EventType.STATEMENT_DEFERRED:
            gone = _at(db, payloads.text_of(body, "id"), "statement")
            return draft if gone is None and _is_new(db, body.get("evidence"), "") else None
        case _:
            return draft


def _is_new(db: apsw.Connection, quote: JsonValue, fact_id: str) -> bool:
    evidence = payloads.evidence_from(quote)
    if _at(db, evidence.evidence_id, "evidence") is not None:
        return False
    at = _at(db, fact_id, "fact")
    return at is None or evidence.observed_at > at


def _is_there(db: apsw.Connection, fact_id: FactId) -> bool:
    """Whether the fact may be spoken of: only a forgotten one that did not come back may not."""
    known = db.execute(SELECT_FACT, (fact_id,)).fetchone() is not None
    return known or _at(db, fact_id, "fact") is None


def _at(db: apsw.Connection, identity: str, what: str) -> int | None:
    row = db.execute(SELECT_FORGOTTEN, (identity, what)).fetchone()
    return int(str(row[0])) if row else None


def _forget_document(db: apsw.Connection, key: DocumentKey) -> None:
    documents.drop_chunks(db, key)
    db.execute(DELETE_DOCUMENT, (key,))


def _id_lists(what: Forgetting) -> list[dict[str, JsonValue]]:
    """The ids in lists that fit an event: facts before their evidence, which they hold."""
    tagged: list[tuple[str, JsonValue]] = [
        *(("facts", item) for item in what.facts),
        *(("documents", item) for item in what.documents),
        *(("statements", item) for item in what.statements),
        *(("evidence", item) for item in what.evidence),
        *(("cursors", list(item)) for item in what.cursors),
    ]
    found: list[dict[str, JsonValue]] = []
    for at in range(0, len(tagged), 400):
        part: dict[str, list[JsonValue]] = {}
        for name, item in tagged[at : at + 400]:
            part.setdefault(name, []).append(item)
        found.append(dict(part))
    return found


def _body(ids: Mapping[str, JsonValue], erased: Sequence[JsonValue]) -> dict[str, JsonValue]:
    empty: dict[str, JsonValue] = {
        name: [] for name in ("facts", "documents", "evidence", "statements", "cursors")
    }
    return {**empty, **ids, "erased": list(erased)}
