"""Everything that can happen to a memory, as data, and the chain that makes history provable.

A draft says what happened; the authority that appends it adds writer, sequence and hash. The hash
of an event is SHA-256 over its canonical envelope, in which the payload stands as its own SHA-256:
so a payload can be erased for good and the chain still verifies. `previous_hash` links one writer's
events, "" for the first. `more` counts the events of the same batch that follow, so a reader of the
journal knows a batch that a crash cut short from a whole one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from json.encoder import encode_basestring_ascii as _quoted

from storage.errors import Corrupt, Invalid
from storage.records import JobStamp, JsonValue, canonical_json

SCHEMA_VERSION = 1
MAX_EVENT_BYTES = 65_536
MAX_DOCUMENT_EVENT_BYTES = 2_097_152


class EventType(StrEnum):
    """Closed list: the reducer knows each, and refuses any other."""

    DOCUMENT_UPSERTED = "document.upserted"
    DOCUMENT_DELETED = "document.deleted"
    FACT_RECORDED = "fact.recorded"
    FACT_CORROBORATED = "fact.corroborated"
    FACT_RESOLVED = "fact.resolved"
    STATEMENT_DEFERRED = "statement.deferred"
    STATEMENT_RELEASED = "statement.released"
    SOURCE_ADVANCED = "source.advanced"
    RETRIEVAL_FEEDBACK = "retrieval.feedback"
    GC_COMPACTED = "gc.compacted"
    JOB_APPLIED = "job.applied"
    MEMORY_RESTATED = "memory.restated"
    MEMORY_FORGOTTEN = "memory.forgotten"
    CHAIN_REPAIRED = "chain.repaired"


_PAYLOAD = b',"payload":'
_PAYLOAD_HASH = b',"payload_hash":"'
# Inside a JSON string a quote is escaped, so neither occurs there; keys stand in sorted order.

LARGE = frozenset({EventType.DOCUMENT_UPSERTED, EventType.MEMORY_RESTATED})
"""Events that may carry a whole document."""


@dataclass(frozen=True, slots=True)
class EventDraft:
    """One thing that happened; the payload is plain JSON that its type's reducer understands."""

    type: EventType
    payload: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A draft with its place in history."""

    event_id: str
    writer: str
    writer_seq: int
    recorded_at: int
    type: EventType
    previous_hash: str
    payload_hash: str
    hash: str
    payload: Mapping[str, JsonValue] | None
    """None once the payload was erased."""
    more: int = 0
    job: JobStamp | None = None
    _body: bytes | None = field(default=None, init=False, repr=False, compare=False)
    _spelled: tuple[str, str, str] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _proven: bool = field(default=False, init=False, repr=False, compare=False)
    # As `seal` or `parse_line` spelled and proved payload and envelope. `replace` leaves all three
    # behind: they would be others.

    def body(self) -> bytes:
        """The payload as canonical JSON."""
        return canonical_json(self.payload) if self._body is None else self._body

    def line(self) -> bytes:
        """The journal line (canonical JSON, no newline)."""
        first, middle, last = self._spelled or _envelope(self)
        opening = f'{first}"hash":{_quoted(self.hash)},{middle}"payload":'
        return b"%b%b,%b" % (opening.encode("ascii"), self.body(), last.encode("ascii"))


def seal(
    draft: EventDraft,
    *,
    event_id: str,
    writer: str,
    writer_seq: int,
    recorded_at: int,
    previous_hash: str,
    more: int,
    job: JobStamp | None,
) -> Event:
    """The event with its hash.

    Raises:
        Invalid: the payload is too large or not lossless JSON.
    """
    try:
        body = canonical_json(draft.payload)
    except (TypeError, ValueError) as cause:
        raise Invalid(f"{draft.type.value}: not plain JSON ({cause})") from cause
    limit = MAX_DOCUMENT_EVENT_BYTES if draft.type in LARGE else MAX_EVENT_BYTES
    if len(body) > limit:
        raise Invalid(f"{draft.type.value}: {len(body)} bytes, at most {limit} are allowed")
    event = Event(
        event_id=event_id,
        writer=writer,
        writer_seq=writer_seq,
        recorded_at=recorded_at,
        type=draft.type,
        previous_hash=previous_hash,
        payload_hash=hashlib.sha256(body).hexdigest(),
        hash="",
        payload=draft.payload,
        more=more,
        job=job,
    )
    # Nobody else has seen the event yet: it becomes immutable when it leaves here.
    spelled = _envelope(event)
    object.__setattr__(event, "hash", _hash_of(spelled))
    object.__setattr__(event, "_body", body)
    object.__setattr__(event, "_spelled", spelled)
    return event


def parse(document: JsonValue) -> Event:
    """The event of a decoded journal line, its hash checked.

    Raises:
        Corrupt: malformed, of unknown type or version, or not what its hash says.
    """
    event = _read(document)
    check(event)
    return event


def _read(document: JsonValue) -> Event:
    """The event that a decoded line describes, nothing of it proven."""
    if not isinstance(document, Mapping):
        raise Corrupt("an event is not a JSON object")
    try:
        if document["v"] != SCHEMA_VERSION:
            raise Corrupt(f"event version {document['v']!r} is not {SCHEMA_VERSION}")
        job = document.get("job")
        payload = document["payload"]
        if not (payload is None or isinstance(payload, Mapping)):
            raise Corrupt("an event's payload is not an object")
        if not (job is None or isinstance(job, Mapping)):
            raise Corrupt("an event's job is not an object")
        return Event(
            event_id=str(document["id"]),
            writer=str(document["writer"]),
            writer_seq=int(str(document["seq"])),
            recorded_at=int(str(document["at"])),
            type=EventType(str(document["type"])),
            previous_hash=str(document["previous"]),
            payload_hash=str(document["payload_hash"]),
            hash=str(document["hash"]),
            payload=payload,
            more=int(str(document["more"])),
            job=JobStamp(job_id=str(job["id"]), token=int(str(job["token"]))) if job else None,
        )
    except (KeyError, ValueError) as cause:
        raise Corrupt(f"a malformed event ({cause})") from cause


def parse_line(line: bytes) -> Event:
    """The event of a journal line (without its newline), proven byte by byte.

    The payload's hash is taken of the bytes as they stand, so they need not be spelled again.

    Raises:
        Corrupt: not JSON, not an event, or not in the bytes in which `line` writes it.
    """
    line = line.rstrip()
    start = line.find(_PAYLOAD) + len(_PAYLOAD)
    end = line.rfind(_PAYLOAD_HASH)
    try:
        document = json.loads(line)
    except (ValueError, RecursionError) as cause:
        raise Corrupt("a line that is not JSON") from cause
    event = _read(document)
    object.__setattr__(event, "_spelled", _envelope(event))
    if event.payload is not None and len(_PAYLOAD) <= start <= end:
        object.__setattr__(event, "_body", line[start:end])
    check(event)
    # Said in other bytes (an unknown key, another escape) it is not what was written.
    if event.line() != line:
        raise Corrupt(f"event {event.event_id}: not as it was written")
    object.__setattr__(event, "_proven", True)
    return event


def check(event: Event) -> None:
    """Prove one event against its own hashes (an erased payload has nothing left to prove).

    Raises:
        Corrupt: the envelope or the payload is not what the hash says.
    """
    if event._proven:
        return
    if event.payload is not None:
        found = hashlib.sha256(event.body()).hexdigest()
        if found != event.payload_hash:
            raise Corrupt(f"event {event.event_id}: its payload does not match its hash")
    if _hash_of(event._spelled or _envelope(event)) != event.hash:
        raise Corrupt(f"event {event.event_id}: its hash does not match its content")


def envelope_hash(event: Event) -> str:
    """SHA-256 hex over the canonical envelope."""
    return _hash_of(_envelope(event))


def _hash_of(envelope: tuple[str, str, str]) -> str:
    return hashlib.sha256("".join(envelope).encode("ascii")).hexdigest()


def _envelope(event: Event) -> tuple[str, str, str]:
    """Its canonical JSON, parted where a line also has `hash` and `payload`."""
    job = "null"
    if event.job is not None:
        job = f'{{"id":{_quoted(event.job.job_id)},"token":{event.job.token:d}}}'
    return (
        f'{{"at":{event.recorded_at:d},',
        f'"id":{_quoted(event.event_id)},"job":{job},"more":{event.more:d},',
        f'"payload_hash":{_quoted(event.payload_hash)},"previous":{_quoted(event.previous_hash)},'
        f'"seq":{event.writer_seq:d},"type":"{event.type.value}","v":{SCHEMA_VERSION},'
        f'"writer":{_quoted(event.writer)}}}',
    )
