"""The one door for text: what comes in here is redacted, bounded and stamped with its provenance.

Hosts, adapters and analysts hand in strings; what comes back are records that storage may keep.
`native_observation` is built by `admit_tool_result` alone, `declared` by `admit_declaration` alone
and only for words that stand in the person's prompt. Nothing is cut in silence: text beyond a bound
is refused with the reason (excerpts of tool output, whose middle may go, say what was left out).
Leaves language to the caller (`storage.language`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from storage.bounded import (
    MAX_NAME_CHARS,
    clean,
    instant,
    interval,
    is_storable,
    shortened,
    within_bytes,
)
from storage.errors import Refused
from storage.records import (
    TERMINAL_STANDINGS,
    Document,
    Entity,
    Evidence,
    Fact,
    FactId,
    FactKind,
    JsonValue,
    Origin,
    Provenance,
    RedactedText,
    SourceRef,
    Standing,
    Trust,
    canonical_json,
    evidence_id,
)
from storage.redaction import is_clean, redact, redact_json

__all__ = [
    "Declaration",
    "admit_declaration",
    "admit_document",
    "admit_evidence",
    "admit_fact",
    "admit_statement",
    "admit_tool_result",
    "quotes",
]

MAX_STATEMENT_BYTES: Final = 8_192
MAX_EXCERPT_BYTES: Final = 8_192
MAX_DOCUMENT_BYTES: Final = 1_000_000
MAX_DOCUMENT_JSON_BYTES: Final = 2_000_000
"""As the journal spells it: text beyond ASCII takes up to three times its bytes there."""
MAX_LOCATOR_CHARS: Final = 4_096
MAX_TITLE_CHARS: Final = 1_024
MAX_URI_CHARS: Final = 4_096
MAX_ENTITIES: Final = 24
MAX_EVIDENCE: Final = 32
"""Quotes that a fact is recorded with; later ones corroborate it."""
MAX_SUPERSEDES: Final = 32
MAX_TAGS: Final = 64
MAX_TAG_KEY_CHARS: Final = 64
MAX_TAG_VALUE_CHARS: Final = 512
MAX_METADATA_FIELDS: Final = 64

_FACT_ID: Final = re.compile(r"mem_[A-Za-z0-9_-]{4,60}")
_NAMESPACE: Final = re.compile(r"[a-z][a-z0-9._-]{0,63}")
_QUOTE_MARKS: Final = re.compile(r"[\"'`´‘’‚‛“”„‟«»‹›「」『』＂＇*_]+")
_SPACES: Final = re.compile(r"\s+")
_URI_PARTS: Final = re.compile(r"([?&#=;])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A person's own words, admitted: the statement and the quote behind it."""

    statement: RedactedText
    evidence: Evidence


def admit_statement(text: str) -> RedactedText:
    """A statement to keep, redacted.

    Raises:
        Refused: empty, or longer than 8,192 bytes.
    """
    statement = redact(clean(text).strip())
    within_bytes("a statement", statement, MAX_STATEMENT_BYTES)
    return statement


def admit_evidence(
    excerpt: str,
    *,
    origin: Origin,
    source: SourceRef,
    observed_at: int,
    tool_call_id: str = "",
) -> Evidence:
    """A quote from an agent or an imported source; it can only make a fact `needs_review`.

    Raises:
        Refused: out of bounds, or an origin whose provenance this door does not give.
    """
    provenances = {
        Origin.AGENT_REPORT: Provenance.AGENT_REPORT,
        Origin.IMPORTED_SOURCE: Provenance.IMPORTED,
    }
    provenance = provenances.get(origin)
    if provenance is None:
        raise Refused(f"evidence of origin {origin.value} comes through its own door")
    return _evidence(excerpt, origin, provenance, source, observed_at, tool_call_id)


def admit_tool_result(
    output: str, *, source: SourceRef, tool_call_id: str, observed_at: int
) -> Evidence:
    """What a tool really printed, from the host that ran it; a long output loses its middle.

    Only host code that saw the tool call itself may call this.

    Raises:
        Refused: no output, or no id of the call that produced it.
    """
    if not tool_call_id.strip():
        raise Refused("a tool result needs the id of its call")
    return _evidence(
        shortened(redact(clean(output)).strip(), MAX_EXCERPT_BYTES),
        Origin.HOST_OBSERVATION,
        Provenance.NATIVE_OBSERVATION,
        source,
        observed_at,
        tool_call_id,
    )


def admit_declaration(
    statement: str, prompt: str, *, source: SourceRef, observed_at: int
) -> Declaration:
    """What a person declared, if the words stand in the prompt (white space and quote marks aside).

    Raises:
        Refused: the words are not in the prompt, or they hold something credential-shaped.
    """
    words = clean(statement).strip()
    within_bytes("a statement", words, MAX_STATEMENT_BYTES)
    if not quotes(words, clean(prompt)):
        raise Refused("the statement does not stand in the prompt")
    if redact(words) != words:
        raise Refused("a statement that holds something credential-shaped is not kept")
    evidence = _evidence(words, Origin.USER_STATEMENT, Provenance.DECLARED, source, observed_at, "")
    return Declaration(statement=RedactedText(words), evidence=evidence)


def admit_fact(
    *,
    fact_id: FactId,
    kind: FactKind,
    statement: str,
    evidence: Sequence[Evidence],
    valid_at: int,
    recorded_at: int,
    invalid_at: int | None = None,
    confidence: float | None = None,
    standing: Standing = Standing.SUPPORTED,
    subject: str = "",
    predicate: str = "",
    object: str = "",
    entities: Sequence[Entity] = (),
    supersedes: Sequence[FactId] = (),
    tags: Mapping[str, str] | None = None,
    analyst: str = "",
) -> Fact:
    """A fact within its bounds; without strong evidence it is `needs_review` at best.

    Raises:
        Refused: out of bounds, inverted in time, or recorded as already ended.
    """
    if standing in TERMINAL_STANDINGS:
        raise Refused("a fact cannot be recorded as already ended")
    for named in (fact_id, *supersedes):
        if not _FACT_ID.fullmatch(named):
            raise Refused(f"{named[:80]!r} is not the id of a fact")
    if len(evidence) > MAX_EVIDENCE:
        raise Refused(f"a fact is recorded with at most {MAX_EVIDENCE} quotes")
    if len(supersedes) > MAX_SUPERSEDES:
        raise Refused(f"a fact supersedes at most {MAX_SUPERSEDES} others")
    if fact_id in supersedes:
        raise Refused("a fact cannot supersede itself")
    interval("a fact", valid_at, invalid_at)
    triple = _triple(subject, predicate, object)
    strong = any(
        item.provenance in (Provenance.NATIVE_OBSERVATION, Provenance.DECLARED) for item in evidence
    )
    if confidence is None:
        confidence = 0.85 if evidence else 0.5
    if not (math.isfinite(confidence) and 0.0 <= confidence <= 1.0):
        raise Refused("confidence lies between 0 and 1")
    return Fact(
        fact_id=fact_id,
        kind=kind,
        statement=admit_statement(statement),
        standing=Standing.NEEDS_REVIEW
        if standing is Standing.SUPPORTED and not strong
        else standing,
        confidence=confidence,
        valid_at=valid_at,
        recorded_at=instant("recorded_at", recorded_at),
        invalid_at=invalid_at,
        subject=triple[0],
        predicate=triple[1],
        object=triple[2],
        entities=_entities(entities),
        supersedes=tuple(supersedes),
        tags=_tags(tags or {}),
        analyst=_short("analyst", analyst),
    )


def admit_document(
    *,
    namespace: str,
    external_id: str,
    source: str,
    kind: str,
    text: str,
    observed_at: int,
    trust: Trust,
    title: str = "",
    uri: str = "",
    version: str = "",
    valid_from: int | None = None,
    valid_to: int | None = None,
    adapter: str = "",
    revision: str = "",
    metadata: Mapping[str, JsonValue] | None = None,
) -> Document:
    """A source's text, redacted in every field.

    Raises:
        Refused: out of bounds, a malformed namespace, or inverted in time.
    """
    if not _NAMESPACE.fullmatch(namespace):
        raise Refused(f"{namespace[:80]!r} is not a namespace ([a-z][a-z0-9._-]*, at most 64)")
    if not 1 <= len(external_id) <= MAX_NAME_CHARS or not is_storable(external_id):
        raise Refused(f"an external id has 1 to {MAX_NAME_CHARS} characters")
    if not is_clean(external_id):
        raise Refused("an external id that holds something credential-shaped is not kept")
    fields = metadata or {}
    if len(fields) > MAX_METADATA_FIELDS:
        raise Refused(f"a document has at most {MAX_METADATA_FIELDS} metadata fields")
    if valid_from is not None or valid_to is not None:
        interval("a document", valid_from or 0, valid_to)
    body = redact(clean(text))
    within_bytes("a document", body, MAX_DOCUMENT_BYTES)
    document = Document(
        namespace=namespace,
        external_id=external_id,
        source=_short("source", source),
        kind=_short("kind", kind),
        text=body,
        observed_at=instant("observed_at", observed_at),
        trust=trust,
        title=RedactedText(_short("title", title, MAX_TITLE_CHARS)),
        uri=_uri(uri),
        version=_short("version", version),
        valid_from=valid_from,
        valid_to=valid_to,
        adapter=_short("adapter", adapter, 256),
        revision=_short("revision", revision),
        metadata=_json_object(fields),
    )
    written = canonical_json([document.text, dict(document.metadata)])
    if len(written) > MAX_DOCUMENT_JSON_BYTES:
        raise Refused(f"a document takes at most {MAX_DOCUMENT_JSON_BYTES} bytes in the journal")
    return document


def quotes(words: str, prompt: str) -> bool:
    """Whether the words stand whole in the prompt, white space, quote marks and case aside."""
    wanted, where = _plain(words), _plain(prompt)
    at = where.find(wanted) if wanted else -1
    while at >= 0:
        if not (_joined(where, at) or _joined(where, at + len(wanted))):
            return True
        at = where.find(wanted, at + 1)
    return False


def _joined(text: str, at: int) -> bool:
    """Whether a position lies inside an ASCII word (other scripts need no space)."""
    around = text[max(0, at - 1) : at + 1]
    return len(around) == 2 and around.isascii() and around.isalnum()


def _evidence(
    excerpt: str,
    origin: Origin,
    provenance: Provenance,
    source: SourceRef,
    observed_at: int,
    tool_call_id: str,
) -> Evidence:
    kept = redact(clean(excerpt).strip())
    within_bytes("an excerpt", kept, MAX_EXCERPT_BYTES)
    where = SourceRef(
        adapter=_short("adapter", source.adapter, 256),
        locator=_short("locator", source.locator, MAX_LOCATOR_CHARS),
        line=source.line,
        session_id=_short("session id", source.session_id),
    )
    if where.line < 0:
        raise Refused("a line number is not negative")
    return Evidence(
        evidence_id=evidence_id(where, kept),
        origin=origin,
        provenance=provenance,
        excerpt=kept,
        content_hash=hashlib.sha256(kept.encode("utf-8")).hexdigest(),
        observed_at=instant("observed_at", observed_at),
        source=where,
        tool_call_id=_short("tool call id", tool_call_id),
    )


def _plain(text: str) -> str:
    return _SPACES.sub(" ", _QUOTE_MARKS.sub("", text)).strip().casefold()


def _short(what: str, text: str, max_chars: int = MAX_NAME_CHARS) -> str:
    kept = redact(clean(text))
    if len(kept) > max_chars:
        raise Refused(f"{what}: {len(kept)} characters, at most {max_chars} are kept")
    return kept


def _triple(subject: str, predicate: str, object_: str) -> tuple[str, str, str]:
    kept = (
        _short("subject", subject),
        _short("predicate", predicate),
        _short("object", object_),
    )
    if not is_clean(" ".join(kept)):
        # A name and its value, which apart are ordinary words.
        raise Refused("the parts of a fact together hold something credential-shaped")
    return kept


def _entities(entities: Iterable[Entity]) -> tuple[Entity, ...]:
    kept = {
        entity.entity_id: Entity(
            name=_short("an entity", entity.name), type=_short("an entity's type", entity.type)
        )
        for entity in entities
        if entity.name.strip()
    }
    if len(kept) > MAX_ENTITIES:
        raise Refused(f"a fact names at most {MAX_ENTITIES} entities")
    return tuple(kept.values())


def _tags(tags: Mapping[str, str]) -> dict[str, str]:
    if len(tags) > MAX_TAGS:
        raise Refused(f"a fact has at most {MAX_TAGS} tags")
    # As one structure: a value's name can be what makes it a credential.
    kept = redact_json({clean(key): clean(value) for key, value in tags.items()})
    assert isinstance(kept, Mapping)
    return {
        _short("a tag", key, MAX_TAG_KEY_CHARS): _short("a tag", str(value), MAX_TAG_VALUE_CHARS)
        for key, value in kept.items()
    }


def _uri(text: str) -> RedactedText:
    """An address, redacted as a whole and part by part: a query's value can be a sentence."""
    whole = _short("uri", text, MAX_URI_CHARS)
    parts = (redact(part) for part in _URI_PARTS.split(whole))
    return RedactedText(_short("uri", "".join(parts), MAX_URI_CHARS))


def _json_object(fields: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    try:
        canonical_json(dict(fields))
    except (TypeError, ValueError) as cause:
        raise Refused("metadata is not plain JSON") from cause
    kept = redact_json(dict(fields))
    assert isinstance(kept, Mapping)
    return kept
