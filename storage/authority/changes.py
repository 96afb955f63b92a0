"""What changed since a moment in history: the documents whose search entries must be read again.

Nothing changes a memory but events, so the events since a mark name everything that a derived index
must look at. The compact container keeps payloads beside the events; the indexed one keeps them in
the journal, of which only the bytes since the mark are read. Whatever cannot be told apart for
certain (an erased payload, another history, too much at once) is None: derive anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from storage.authority import journal, payloads
from storage.authority.journal import Stream
from storage.authority.reads import Reads
from storage.clock import utc_day
from storage.errors import Invalid, MemorydError
from storage.events import EventType
from storage.records import DocumentKey, FactId, JsonValue, document_key, fact_document_key

MAX_EVENTS: Final = 2_000
"""More at once is a bulk: reading it all again is as fast."""
MAX_BYTES: Final = 4_194_304
"""Of journal that is read for one look."""

SELECT_LAST: Final = "SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1"
SELECT_HASH: Final = "SELECT hash FROM events WHERE seq = ?"
SELECT_SINCE: Final = (
    "SELECT seq, hash, event_id, writer, recorded_at, type, payload FROM events WHERE seq > ?"
    " ORDER BY seq LIMIT ?"
)
HAS_JOURNAL: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'journals'"
SELECT_ANCHORS: Final = "SELECT day, writer, bytes FROM journals"
SELECT_ANCHOR: Final = "SELECT bytes FROM journals WHERE day = ? AND writer = ?"

Payload = Mapping[str, JsonValue]
_NO_ENTRY: Final = frozenset(
    {
        EventType.STATEMENT_DEFERRED,
        EventType.STATEMENT_RELEASED,
        EventType.SOURCE_ADVANCED,
        EventType.RETRIEVAL_FEEDBACK,
        EventType.JOB_APPLIED,
        EventType.CHAIN_REPAIRED,
    }
)
"""Events that no search entry depends on."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment in history."""

    seq: int = 0
    hash: str = ""
    anchors: Mapping[Stream, int] = field(default_factory=dict)
    """Journal bytes whose events are before the mark; a stream that is not named has none."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The documents that events since a mark may have changed, and the mark after them."""

    documents: frozenset[DocumentKey]
    mark: Mark


@dataclass(frozen=True, slots=True)
class _Row:
    event_id: str
    stream: Stream
    type: EventType
    payload: Payload | None


def mark(reads: Reads) -> Mark:
    """Where the history of this snapshot ends."""
    row = reads.db.execute(SELECT_LAST).fetchone()
    if row is None:
        return Mark()
    anchors: dict[Stream, int] = {}
    if reads.db.execute(HAS_JOURNAL).fetchone() is not None:
        for day, writer, size in reads.db.execute(SELECT_ANCHORS):
            anchors[Stream(str(day), str(writer))] = int(str(size))
    return Mark(int(str(row[0])), str(row[1]), anchors)


def changes_since(reads: Reads, events: Path, since: Mark) -> Changes | None:
    """What this snapshot has that the mark had not; None when that cannot be told.

    `events` is the folder of the project's journal.
    """
    if since.seq:
        row = reads.db.execute(SELECT_HASH, (since.seq,)).fetchone()
        if row is None or row[0] != since.hash:
            return None
    raw = reads.db.execute(SELECT_SINCE, (since.seq, MAX_EVENTS + 1)).fetchall()
    if not raw:
        return Changes(frozenset(), since)
    if len(raw) > MAX_EVENTS:
        return None
    try:
        rows = [
            _Row(str(event_id), _stream(recorded_at, writer), EventType(str(kind)), _decoded(body))
            for _, _, event_id, writer, recorded_at, kind, body in raw
        ]
        told = _from_journal(reads, events, rows, since)
        if told is None:
            return None
        found, anchors = told
        keys: set[DocumentKey] = set()
        for one in rows:
            if one.type in _NO_ENTRY:
                continue
            payload = found.get(one.event_id) if one.payload is None else one.payload
            named = None if payload is None else _touched(one.type, payload)
            if named is None:
                return None
            keys.update(named)
    except (ValueError, MemorydError):
        # Whoever derives anew, or proves the store, gives what is wrong its name.
        return None
    last = raw[-1]
    return Changes(frozenset(keys), Mark(int(str(last[0])), str(last[1]), anchors))


def _from_journal(
    reads: Reads, events: Path, rows: Iterable[_Row], since: Mark
) -> tuple[dict[str, Payload], dict[Stream, int]] | None:
    """Payloads by event id, of the events whose row has none; and the anchors after them."""
    found: dict[str, Payload] = {}
    anchors = dict(since.anchors)
    if reads.db.execute(HAS_JOURNAL).fetchone() is None:
        return found, anchors
    left = MAX_BYTES
    for stream in dict.fromkeys(row.stream for row in rows):
        anchored = reads.db.execute(SELECT_ANCHOR, (stream.day, stream.writer)).fetchone()
        end, start = int(str(anchored[0])) if anchored else 0, since.anchors.get(stream, 0)
        left -= end - start
        if left < 0:
            return None
        for item in journal.read(events, stream, start=start, limit=end):
            if item.event.payload is not None:
                found[item.event.event_id] = item.event.payload
        anchors[stream] = end
    return found, anchors


def _touched(kind: EventType, payload: Payload) -> set[DocumentKey] | None:
    """The documents whose entries the event may change; None when that could be any."""
    match kind:
        case EventType.DOCUMENT_UPSERTED:
            return {_named(payload.get("document"))}
        case EventType.DOCUMENT_DELETED:
            return {DocumentKey(payloads.text_of(payload, "key"))}
        case EventType.FACT_RECORDED:
            return _recorded(payload.get("fact"))
        case EventType.FACT_CORROBORATED | EventType.FACT_RESOLVED:
            return {fact_document_key(FactId(payloads.text_of(payload, "fact")))}
        case EventType.GC_COMPACTED:
            if payloads.texts(payload, "collections"):
                return None
            return {fact_document_key(FactId(one)) for one in payloads.texts(payload, "facts")}
        case EventType.MEMORY_FORGOTTEN:
            facts = {fact_document_key(FactId(one)) for one in payloads.texts(payload, "facts")}
            return facts | {DocumentKey(one) for one in payloads.texts(payload, "documents")}
        case EventType.MEMORY_RESTATED:
            if payloads.text_of(payload, "what") == "document":
                return {_named(payload.get("document"))}
            return None
        case _:
            return None


def _named(document: JsonValue) -> DocumentKey:
    if not isinstance(document, Mapping):
        raise Invalid("a document event without a document")
    namespace, name = payloads.text_of(document, "namespace"), document.get("external_id")
    return document_key(namespace, str(name))


def _recorded(fact: JsonValue) -> set[DocumentKey]:
    """The fact itself, and what it replaces."""
    if not isinstance(fact, Mapping):
        raise Invalid("a fact event without a fact")
    names = [payloads.text_of(fact, "id"), *payloads.texts(fact, "supersedes")]
    return {fact_document_key(FactId(name)) for name in names}


def _stream(recorded_at: object, writer: object) -> Stream:
    return Stream(utc_day(int(str(recorded_at))), str(writer))


def _decoded(body: object) -> Payload | None:
    if not isinstance(body, bytes):
        return None
    given = json.loads(body)
    return given if isinstance(given, dict) else None
