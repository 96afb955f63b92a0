"""The nouns of memory, as frozen values.

Nothing here does I/O. Ids are derived (same content, same id), times are UTC milliseconds; valid
time is `valid_at`/`invalid_at`, transaction time `recorded_at`/`expired_at`; every interval is
half-open `[start, end)`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NewType, TypeAlias

JsonValue: TypeAlias = (
    bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"] | None
)

ProjectId = NewType("ProjectId", str)
FactId = NewType("FactId", str)
EvidenceId = NewType("EvidenceId", str)
DocumentKey = NewType("DocumentKey", str)
ChunkId = NewType("ChunkId", str)
RedactedText = NewType("RedactedText", str)
"""Text that `storage.redaction.redact` returned; nothing else may build one."""


class FactKind(StrEnum):
    """What sort of durable knowledge a fact is."""

    DECISION = "decision"
    FACT = "fact"
    CONSTRAINT = "constraint"
    FAILURE = "failure"
    CORRECTION = "correction"
    PROCEDURE = "procedure"
    PREFERENCE = "preference"
    LEARNING = "learning"


class Standing(StrEnum):
    """How far a fact is to be believed."""

    CANDIDATE = "candidate"
    SUPPORTED = "supported"
    NEEDS_REVIEW = "needs_review"
    CONTRADICTED = "contradicted"
    SUPERSEDED = "superseded"


TERMINAL_STANDINGS = frozenset({Standing.CONTRADICTED, Standing.SUPERSEDED})


class Origin(StrEnum):
    """Who said it."""

    HOST_OBSERVATION = "host_observation"
    USER_STATEMENT = "user_statement"
    AGENT_REPORT = "agent_report"
    IMPORTED_SOURCE = "imported_source"


class Provenance(StrEnum):
    """How it reached us, strongest first."""

    NATIVE_OBSERVATION = "native_observation"
    DECLARED = "declared"
    AGENT_REPORT = "agent_report"
    IMPORTED = "imported"


class Trust(StrEnum):
    """Whose word a document is."""

    HOST = "host"
    USER = "user"
    AGENT = "agent"
    IMPORTED = "imported"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRef:
    """Where a quote stands: adapter, locator (a path or URI) and 1-based line."""

    adapter: str
    locator: str
    line: int
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A literal, redacted quote and where it came from. Never rewritten, never translated."""

    evidence_id: EvidenceId
    origin: Origin
    provenance: Provenance
    excerpt: RedactedText
    content_hash: str
    observed_at: int
    source: SourceRef
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """A named thing that facts share."""

    name: str
    type: str = "thing"

    @property
    def entity_id(self) -> str:
        return "ent_" + digest_of(self.type, self.name.casefold())[:24]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One durable statement with its standing and both clocks."""

    fact_id: FactId
    kind: FactKind
    statement: RedactedText
    standing: Standing
    confidence: float
    valid_at: int
    recorded_at: int
    invalid_at: int | None = None
    expired_at: int | None = None
    subject: str = ""
    predicate: str = ""
    object: str = ""
    entities: tuple[Entity, ...] = ()
    supersedes: tuple[FactId, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    analyst: str = ""
    """Which analyst proposed it (`extractive`, `record`, a model name)."""

    def holds_at(self, at: int) -> bool:
        """Whether the fact is believed and valid at one instant."""
        if at < self.valid_at or (self.invalid_at is not None and at >= self.invalid_at):
            return False
        if self.standing in TERMINAL_STANDINGS:
            return self.invalid_at is not None
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The latest revision of one text owned by one adapter."""

    namespace: str
    external_id: str
    source: str
    kind: str
    text: RedactedText
    observed_at: int
    trust: Trust
    title: RedactedText = RedactedText("")
    uri: RedactedText = RedactedText("")
    version: str = ""
    valid_from: int | None = None
    valid_to: int | None = None
    adapter: str = ""
    revision: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)

    @property
    def key(self) -> DocumentKey:
        return document_key(self.namespace, self.external_id)

    @property
    def content_hash(self) -> str:
        return content_hash(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of a document; `rowid` is its number in every index."""

    rowid: int
    chunk_id: ChunkId
    document_key: DocumentKey
    ordinal: int
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Vectors that may be compared with each other: one model, size, fingerprint and scale.

    A stored component is `round(value * scale)` clamped to int8, of an L2-normalised vector.
    """

    model: str
    dims: int
    fingerprint: str
    scale: float

    @property
    def name(self) -> str:
        return digest_of(self.model, str(self.dims), self.fingerprint, f"{self.scale:g}")[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredStatement:
    """A declared statement that waits for translation; never recalled as it is."""

    statement_id: str
    kind: FactKind
    original: RedactedText
    lang: str
    evidence: Evidence
    deferred_at: int
    supersedes: tuple[FactId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCursor:
    """How far one source file has been read: everything before `offset` is in the authority."""

    adapter: str
    locator: str
    offset: int
    line: int
    observations: int = 0
    """Learnable observations seen so far (a running count, for people)."""
    skipped: int = 0
    """Lines that could not be read (torn, oversized, not JSON): recorded gaps."""
    state: str = ""
    """Adapter-private state that reading on needs (canonical JSON), "" at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStamp:
    """The job whose effect a commit is; the authority applies a stamp at most once."""

    job_id: str
    token: int


_CANONICAL: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def digest_of(*parts: str) -> str:
    """SHA-256 hex of the parts, unambiguously joined (each prefixed by its byte length)."""
    joined = "".join([f"{len(part)}:{part}" for part in parts])
    if joined.isascii():
        return hashlib.sha256(joined.encode("ascii")).hexdigest()
    raws = [part.encode("utf-8", "surrogatepass") for part in parts]
    return hashlib.sha256(b"".join([b"%d:%b" % (len(raw), raw) for raw in raws])).hexdigest()


def canonical_json(value: JsonValue) -> bytes:
    """One spelling for one value: sorted keys, no spaces, UTF-8, no NaN.

    Lone surrogates are escaped (ASCII output), so the bytes are always valid UTF-8.
    """
    return _CANONICAL.encode(value).encode("ascii")


def content_hash(text: str) -> str:
    """SHA-256 hex of a text alone."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def document_key(namespace: str, external_id: str) -> DocumentKey:
    """`<namespace>:<base64url(external_id)>`; round-trips any id."""
    raw = external_id.encode("utf-8", "surrogatepass")
    return DocumentKey(f"{namespace}:{base64.urlsafe_b64encode(raw).decode('ascii').rstrip('=')}")


def fact_document_key(fact_id: FactId) -> DocumentKey:
    """The document that makes a fact searchable (namespace `memory`)."""
    return document_key("memory", fact_id)


def evidence_id(source: SourceRef, excerpt: str) -> EvidenceId:
    """`ev_` + 32 hex over where and what: the same quote of the same line has one id."""
    return EvidenceId(
        "ev_" + digest_of(source.adapter, source.locator, str(source.line), excerpt)[:32]
    )


def statement_key(statement: str) -> str:
    """Wording without case, white space and end punctuation: what makes two statements the same."""
    return " ".join(statement.casefold().split()).rstrip(".!。！ ")


def fact_id(project: ProjectId, kind: FactKind, original: str) -> FactId:
    """`mem_` + 32 hex keyed on the original wording, so a translation keeps its identity."""
    return FactId("mem_" + digest_of(project, kind.value, statement_key(original))[:32])
