"""Choosing what a request to forget takes along, from one snapshot and its history.

Owns the closure (facts and documents that hold the forgotten statement word for word go too; a
quote goes when no other fact rests on it) and the skeleton of every event that carries the text.
Changes nothing. Leaves the effect to `tombstones`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from storage.authority import payloads, restated, tombstones
from storage.authority.needles import in_text
from storage.authority.reads import Reads
from storage.authority.tombstones import Forgetting
from storage.errors import Invalid
from storage.events import Event, EventDraft, EventType
from storage.records import (
    DocumentKey,
    EvidenceId,
    FactId,
    JsonValue,
)

Payload = Mapping[str, JsonValue]
PLACEHOLDER: Final = "(forgotten)"
MIN_NEEDLE: Final = 8
"""Shorter texts are looked for nowhere but where an id says that they are."""

SELECT_PREFIX: Final = (
    "SELECT fact_id FROM facts WHERE substr(fact_id, 1, ?1) = ?2 UNION ALL SELECT document_key"
    " FROM documents WHERE namespace <> 'memory' AND (substr(document_key, 1, ?1) = ?2"
    " OR external_id = ?2) LIMIT 2"
)
SELECT_HOLDING_FACTS: Final = "SELECT fact_id, statement FROM facts WHERE instr(statement, ?) > 0"
SELECT_HOLDING_DOCUMENTS: Final = (
    "SELECT document_key, title || char(10) || text FROM documents"
    " WHERE namespace <> 'memory' AND deleted_at IS NULL"
    " AND (instr(text, ?1) > 0 OR instr(title, ?1) > 0)"
)
SELECT_USERS: Final = "SELECT fact_id FROM fact_evidence WHERE evidence_id = ?"
SELECT_EVIDENCE_USES: Final = (
    "SELECT f.evidence_id, f.fact_id FROM fact_evidence f WHERE f.evidence_id IN"
    " (SELECT evidence_id FROM fact_evidence WHERE fact_id = ?)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be forgotten, for people to see before and after."""

    target: str
    facts: tuple[FactId, ...]
    documents: tuple[DocumentKey, ...]
    evidence: tuple[EvidenceId, ...]
    shared: tuple[tuple[EvidenceId, FactId], ...]
    """Quotes that stay, because another fact rests on them."""
    drafts: tuple[EventDraft, ...]
    events: int


@dataclass(slots=True)
class _Chosen:
    facts: set[FactId] = field(default_factory=set)
    documents: set[DocumentKey] = field(default_factory=set)
    statements: set[str] = field(default_factory=set)
    evidence: set[EvidenceId] = field(default_factory=set)
    shared: dict[EvidenceId, FactId] = field(default_factory=dict)
    needles: set[str] = field(default_factory=set)


def resolve_target(reads: Reads, given: str) -> str:
    """The whole id of the one fact or document that `given` (an id, its start, a name) means.

    Raises:
        Invalid: nothing, or more than one thing, has it.
    """
    rows = reads.db.execute(SELECT_PREFIX, (len(given), given)).fetchall() if given else []
    if not rows:
        raise Invalid(f"there is no fact and no document {given!r}")
    if len(rows) > 1 and rows[0] != rows[1]:
        raise Invalid(f"{given!r} is the start of more than one id; give more of it")
    return str(rows[0][0])


def plan(
    reads: Reads,
    history: Iterable[Event],
    targets: Sequence[str],
    *,
    quotes: Iterable[str] = (),
    statements: Iterable[str] = (),
) -> Plan:
    """Everything that forgetting the targets (whole ids) takes along.

    `quotes` and `statements` are ids that were forgotten elsewhere, in a later store of the same
    memory: they go too, whether or not something that is to be forgotten rests on them here.
    """
    chosen = _closure(reads, targets, quotes, statements)
    erased: dict[str, Payload | None] = {}
    carriers: set[str] = set()
    cursors: set[tuple[str, str]] = set()
    for event in history:
        if event.payload is None:
            continue
        touched, skeleton = _skeleton(event, event.payload, chosen)
        if touched:
            erased[event.event_id] = skeleton
        else:
            carriers.update(_quoted(event.payload))
        if event.type is EventType.SOURCE_ADVANCED and touched:
            cursor = payloads.cursor_from(event.payload)
            cursors.add((cursor.adapter, cursor.locator))
    what = Forgetting(
        facts=tuple(sorted(chosen.facts)),
        documents=tuple(sorted(chosen.documents)),
        evidence=tuple(sorted(chosen.evidence)),
        statements=tuple(sorted(chosen.statements)),
        cursors=tuple(sorted(cursors)),
        erased=erased,
    )
    return Plan(
        target=targets[0] if targets else "",
        facts=what.facts,
        documents=what.documents,
        evidence=what.evidence,
        shared=tuple(sorted(chosen.shared.items())),
        drafts=(*_said_again(reads, chosen, carriers), *tombstones.drafts(what)),
        events=len(erased),
    )


def _closure(
    reads: Reads, targets: Sequence[str], quotes: Iterable[str], statements: Iterable[str]
) -> _Chosen:
    chosen = _Chosen(statements=set(statements))
    waiting = list(targets)
    while waiting:
        item = waiting.pop()
        fact = reads.fact(FactId(item))
        if fact is not None and fact.fact_id not in chosen.facts:
            chosen.facts.add(fact.fact_id)
            chosen.needles.add(fact.statement)
            waiting += _holding(reads, fact.statement)
        elif fact is None and DocumentKey(item) not in chosen.documents:
            chosen.documents.add(DocumentKey(item))
            document = reads.document(DocumentKey(item))
            if document is not None:
                chosen.needles |= {document.text, document.title}
    _choose_quotes(reads, chosen)
    for quote_id in quotes:
        users = {FactId(str(row[0])) for row in reads.db.execute(SELECT_USERS, (quote_id,))}
        if users <= chosen.facts:
            chosen.evidence.add(EvidenceId(quote_id))
    chosen.needles = {text for text in chosen.needles if len(text) >= MIN_NEEDLE}
    for waiting_statement in reads.deferred():
        quote = waiting_statement.evidence
        known = waiting_statement.statement_id in chosen.statements
        quoted = quote.evidence_id in chosen.evidence
        if known or quoted or _holds(waiting_statement.original, chosen):
            chosen.statements.add(waiting_statement.statement_id)
            if quote.evidence_id not in chosen.shared:
                chosen.evidence.add(quote.evidence_id)
    return chosen


def _choose_quotes(reads: Reads, chosen: _Chosen) -> None:
    """A quote goes unless a fact that stays rests on it too."""
    for fact_id in chosen.facts:
        for evidence_id, user in reads.db.execute(SELECT_EVIDENCE_USES, (fact_id,)).fetchall():
            if user not in chosen.facts:
                chosen.shared[EvidenceId(str(evidence_id))] = FactId(str(user))
    for fact_id in chosen.facts:
        for quote in reads.evidence(fact_id):
            if quote.evidence_id not in chosen.shared:
                chosen.evidence.add(quote.evidence_id)
                chosen.needles.add(quote.excerpt)


def _holding(reads: Reads, statement: str) -> list[str]:
    """Ids of everything that holds a statement word for word."""
    rows = reads.db.execute(SELECT_HOLDING_FACTS, (statement,)).fetchall()
    if len(statement) < MIN_NEEDLE:
        return [str(fact_id) for fact_id, other in rows if other == statement]
    rows += reads.db.execute(SELECT_HOLDING_DOCUMENTS, (statement,)).fetchall()
    return [str(found) for found, text in rows if in_text(str(text), (statement,))]


def _said_again(reads: Reads, chosen: _Chosen, carriers: set[str]) -> list[EventDraft]:
    """Quotes that stay, but whose every event goes: they are said once more."""
    found: list[EventDraft] = []
    for evidence_id, user in sorted(chosen.shared.items()):
        if evidence_id not in carriers:
            quotes = {quote.evidence_id: quote for quote in reads.evidence(user)}
            found.append(restated.restated_quote(user, quotes[evidence_id]))
    return found


def _skeleton(event: Event, payload: Payload, chosen: _Chosen) -> tuple[bool, Payload | None]:
    """Whether the event carries the text, and what stays of it then."""
    match event.type:
        case EventType.FACT_RECORDED | EventType.MEMORY_RESTATED if "fact" in payload:
            return _fact_skeleton(payload, chosen)
        case EventType.DOCUMENT_UPSERTED | EventType.MEMORY_RESTATED if "document" in payload:
            document = payloads.document_from(payload.get("document"))
            return document.key in chosen.documents, None
        case EventType.FACT_CORROBORATED if payload.get("fact") in chosen.facts:
            return True, {**payload, "evidence": _blank_quote(payload.get("evidence"))}
        case EventType.MEMORY_RESTATED if payload.get("of") in chosen.facts:
            return True, {**payload, "evidence": _blank_quote(payload.get("evidence"))}
        case EventType.FACT_RESOLVED:
            told = payloads.text_of(payload, "rationale")
            mine = payload.get("fact") in chosen.facts and told != ""
            return mine or _holds(told, chosen), {**payload, "rationale": ""}
        case EventType.STATEMENT_DEFERRED:
            return _statement_skeleton(payload, chosen)
        case EventType.SOURCE_ADVANCED:
            state = payloads.text_of(payload, "state")
            return _holds(state, chosen), {**payload, "state": ""}
        case EventType.STATEMENT_RELEASED:
            told = payloads.text_of(payload, "reason")
            return _holds(told, chosen), {**payload, "reason": ""}
        case EventType.JOB_APPLIED:
            return _holds(payloads.text_of(payload, "note"), chosen), {"note": ""}
        case _:
            return False, None


def _fact_skeleton(payload: Payload, chosen: _Chosen) -> tuple[bool, Payload | None]:
    body = payload.get("fact")
    if not isinstance(body, Mapping) or body.get("id") not in chosen.facts:
        return False, None
    blank: dict[str, JsonValue] = {
        **body,
        "statement": PLACEHOLDER,
        **dict.fromkeys(("subject", "predicate", "object"), ""),
        "entities": [],
        "tags": {},
    }
    quotes: list[JsonValue] = [_blank_quote(item) for item in payloads.list_of(payload, "evidence")]
    return True, {**payload, "fact": blank, "evidence": quotes}


def _statement_skeleton(payload: Payload, chosen: _Chosen) -> tuple[bool, Payload | None]:
    quote = payload.get("evidence")
    quoted = isinstance(quote, Mapping) and quote.get("id") in chosen.evidence
    touched = (
        quoted
        or payload.get("id") in chosen.statements
        or _holds(payloads.text_of(payload, "original"), chosen)
    )
    return touched, {**payload, "original": "", "evidence": _blank_quote(quote)}


def _blank_quote(item: JsonValue) -> JsonValue:
    if not isinstance(item, Mapping):
        raise Invalid("a quote is not an object")
    return {**item, "excerpt": "", "content_hash": ""}


def _quoted(payload: Payload) -> list[str]:
    """Ids of the quotes whose words a payload holds."""
    listed = payload.get("evidence")
    items = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else [listed]
    return [str(item["id"]) for item in items if isinstance(item, Mapping) and item.get("excerpt")]


def _holds(text: str, chosen: _Chosen) -> bool:
    """Whether a text holds one of the needles, as it is or as JSON inside it."""
    return bool(text) and in_text(text, chosen.needles)


def texts_of(event: Event, payload: Payload, gone: frozenset[str]) -> set[str]:
    """The texts that an event to be erased still holds; `gone` are the forgotten evidence ids."""
    found: set[str] = set()
    listed = payload.get("evidence")
    quotes = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else [listed]
    for quote in quotes:
        if isinstance(quote, Mapping) and quote.get("id") in gone:
            found.add(str(quote.get("excerpt", "")))
    body = payload.get("fact")
    if isinstance(body, Mapping):
        found.add(str(body.get("statement", "")))
    document = payload.get("document")
    if isinstance(document, Mapping):
        found |= {str(document.get("text", "")), str(document.get("title", ""))}
    if event.type is EventType.STATEMENT_DEFERRED:
        found.add(payloads.text_of(payload, "original"))
    return {text for text in found if len(text) >= MIN_NEEDLE}


def places_of(payload: Payload, gone: frozenset[str]) -> list[tuple[str, int]]:
    """(file, line) of the forgotten quotes in an event to be erased."""
    listed = payload.get("evidence")
    quotes = listed if isinstance(listed, Sequence) and not isinstance(listed, str) else [listed]
    return [
        (str(quote["locator"]), int(str(quote["line"])))
        for quote in quotes
        if isinstance(quote, Mapping) and quote.get("id") in gone
    ]
