"""A memory as JSON lines that any program can read, and back: one object a line.

The first line says what follows (format, schema, project, counts); then come facts with their
quotes, documents, waiting statements, and the history as it happened (for people and other tools;
an import does not replay it). Import appends `memory.restated` events, which keep every time and
standing, to the memory of any project (facts get the ids that `adoption` finds for them there);
what is there already stays as it is. Cursors are left out: they belong to one machine's files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from storage import adoption
from storage.authority import ProjectAuthority, payloads, restated
from storage.authority.reads import Reads
from storage.authority.restated import WholeFact
from storage.authority.standing import Standings
from storage.clock import iso
from storage.errors import Invalid
from storage.events import Event, EventDraft
from storage.records import (
    DeferredStatement,
    Document,
    JsonValue,
    ProjectId,
)
from storage.redaction import is_clean

FORMAT: Final = "memoryd-export"
FORMAT_VERSION: Final = 1
BATCH: Final = 100
MAX_LINE_BYTES: Final = 4_194_304


@dataclass(slots=True)
class Imported:
    """What an import brought."""

    facts: int = 0
    documents: int = 0
    deferred: int = 0
    known: int = 0
    """What was there already, and stayed as it is."""
    forgotten: int = 0
    """What this project was told to forget, and does not take back."""


@dataclass(slots=True)
class Parcel:
    """A whole export, read and checked before anything is written."""

    project: ProjectId
    facts: list[WholeFact] = field(default_factory=list)
    documents: list[tuple[Document, int]] = field(default_factory=list)
    deferred: list[DeferredStatement] = field(default_factory=list)


def export(
    authority: ProjectAuthority, *, now: int, history: bool = True
) -> Iterator[Mapping[str, JsonValue]]:
    """Every line of an export, from one snapshot."""
    with authority.snapshot() as (reads, events):
        standings = Standings.of(reads)
        yield {
            "type": "header",
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "project": authority.project,
            "exported_at": iso(now),
            "facts": len(standings.facts),
            "documents": len(standings.documents),
            "deferred": len(standings.deferred),
        }
        for fact in standings.facts:
            yield {"type": "fact", **restated.whole_json(fact)}
        for document, recorded_at in standings.documents:
            yield {
                "type": "document",
                "document": payloads.document_json(document),
                "recorded_at": recorded_at,
            }
        for statement in standings.deferred:
            yield {"type": "deferred", **payloads.statement_deferred(statement).payload}
        if history:
            yield from (history_line(event) for event in events)


def history_line(event: Event) -> dict[str, JsonValue]:
    """One event as people and programs read it."""
    return {
        "type": "event",
        "event": event.event_id,
        "what": event.type.value,
        "at": event.recorded_at,
        "writer": event.writer,
        "number": event.writer_seq,
        "job": None if event.job is None else event.job.job_id,
        "hash": event.hash,
        "payload": event.payload,
    }


def parse(lines: Iterable[bytes]) -> Parcel:
    """The whole export.

    Raises:
        Invalid: not an export, of a newer version, cut short, or with a line that means nothing.
    """
    parcel: Parcel | None = None
    counts: Mapping[str, JsonValue] = {}
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        item = _object(raw, number)
        if parcel is None:
            parcel, counts = _header(item), item
            continue
        try:
            _take(parcel, item)
        except (ValueError, KeyError, TypeError, OverflowError, Invalid) as cause:
            raise Invalid(f"line {number}: {cause}") from cause
    if parcel is None:
        raise Invalid("the file is empty")
    found = (len(parcel.facts), len(parcel.documents), len(parcel.deferred))
    if found != tuple(counts.get(name) for name in ("facts", "documents", "deferred")):
        raise Invalid("the file is not whole: its first line promises something else")
    return parcel


def take_in(authority: ProjectAuthority, parcel: Parcel) -> Imported:
    """Append what is not there yet, in batches; running it again takes in the rest.

    Raises:
        Invalid: something of it breaks a rule of the tables.
    """
    done = Imported()
    with authority.read() as reads:
        drafts = list(_drafts(reads, authority.project, parcel, done))
    for at in range(0, len(drafts), BATCH):
        authority.append(drafts[at : at + BATCH])
    return done


def _drafts(
    reads: Reads, project: ProjectId, parcel: Parcel, done: Imported
) -> Iterator[EventDraft]:
    ids = adoption.ids_here(parcel.facts, parcel.project, project)
    for given in parcel.facts:
        fact = adoption.moved(given, ids)
        names = {given.fact.fact_id, fact.fact.fact_id}
        if any(reads.fact(name) is not None for name in names):
            done.known += 1
        elif any(map(reads.is_forgotten, names)):
            done.forgotten += 1
        else:
            done.facts += 1
            # A quote that was forgotten here does not come back with another fact.
            quotes = tuple(q for q in fact.evidence if not reads.is_forgotten(q.evidence_id))
            yield from restated.restated_fact(replace(fact, evidence=quotes))
    for document, recorded_at in parcel.documents:
        if reads.document(document.key) is not None:
            done.known += 1
        elif reads.is_forgotten(document.key):
            done.forgotten += 1
        else:
            done.documents += 1
            yield restated.restated_document(document, recorded_at)
    waiting = {item.statement_id for item in reads.deferred()}
    for waits in parcel.deferred:
        statement = adoption.moved_statement(waits, ids)
        if statement.statement_id in waiting:
            done.known += 1
        elif any(map(reads.is_forgotten, (statement.statement_id, statement.evidence.evidence_id))):
            done.forgotten += 1
        else:
            done.deferred += 1
            yield payloads.statement_deferred(statement)


def _header(item: Mapping[str, JsonValue]) -> Parcel:
    if item.get("type") != "header" or item.get("format") != FORMAT:
        raise Invalid("not an export of memoryd")
    version = item.get("version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise Invalid(f"export version {version!r} is newer than this memoryd ({FORMAT_VERSION})")
    return Parcel(ProjectId(str(item.get("project", ""))))


def _take(parcel: Parcel, item: Mapping[str, JsonValue]) -> None:
    match item.get("type"):
        case "fact":
            fact = restated.whole_from(item)
            _must_be_clean(fact.fact.statement, *(quote.excerpt for quote in fact.evidence))
            parcel.facts.append(fact)
        case "document":
            document = payloads.document_from(item.get("document"))
            _must_be_clean(document.title, document.text, document.uri)
            parcel.documents.append((document, payloads.int_of(item, "recorded_at")))
        case "deferred":
            statement = payloads.deferred_from(item)
            _must_be_clean(statement.original, statement.evidence.excerpt)
            parcel.deferred.append(statement)
        case "event":
            str(item["event"])
        case other:
            raise Invalid(f"{other!r} is nothing that an export holds")


def _must_be_clean(*texts: str) -> None:
    """An export holds redacted text; a file that anybody wrote may not bring a credential in."""
    if not all(is_clean(text) for text in texts):
        raise Invalid("it holds text that looks like a credential")


def _object(raw: bytes, number: int) -> dict[str, JsonValue]:
    if len(raw) > MAX_LINE_BYTES:
        raise Invalid(f"line {number} is longer than any that an export holds")
    try:
        item = json.loads(raw)
    except (ValueError, RecursionError) as cause:
        raise Invalid(f"line {number} is not JSON") from cause
    if not isinstance(item, dict):
        raise Invalid(f"line {number} is not a JSON object")
    return item


def lines_of(items: Iterable[Mapping[str, JsonValue]]) -> Iterator[bytes]:
    """The lines as bytes."""
    for item in items:
        yield json.dumps(item, ensure_ascii=True, separators=(",", ":")).encode("ascii") + b"\n"
