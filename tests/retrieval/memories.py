"""Small memories for tests: facts and documents, in a real store or in an in-memory one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.authority import open_authority
from storage.authority.payloads import document_upserted, fact_recorded
from storage.authority.port import Authority
from storage.authority.reads import Reads
from storage.clock import Clock
from storage.config import StorageSettings
from storage.connection import open_memory
from storage.paths import HomePaths
from storage.records import (
    Collection,
    Document,
    Evidence,
    Fact,
    FactKind,
    Origin,
    ProjectId,
    Provenance,
    RedactedText,
    SourceRef,
    Standing,
    Trust,
    document_key,
    evidence_id,
    fact_id,
)
from storage.schema import migrate

PROJECT = ProjectId("p_test")
SOME_AT = 1_700_000_000_000

FACTS = (
    "The project uses SQLite as its durable local database.",
    "Tests are started with `make check`, never with bare pytest.",
    "Release branches are cut from main every second Tuesday.",
    "The payment service must never log card numbers.",
    "Flaky network tests are retried three times before they count as failed.",
    "Use pnpm instead of npm for the web client.",
    "The deploy script needs AWS_PROFILE set to staging.",
    "Cache keys carry the schema version so that a migration invalidates them.",
    "Generated protobuf files under src/gen are not edited by hand.",
    "The image resizer runs out of memory above 40 megapixels.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """One document of an in-memory store."""

    text: str
    name: str = ""
    title: str = ""
    kind: str = "note"
    valid_from: int | None = None
    valid_to: int | None = None
    trust: Trust = Trust.USER
    namespace: str = "docs"


def a_fact(
    statement: str,
    *,
    kind: FactKind = FactKind.FACT,
    standing: Standing = Standing.SUPPORTED,
    valid_at: int = SOME_AT,
    invalid_at: int | None = None,
) -> Fact:
    """A fact with this statement."""
    return Fact(
        fact_id=fact_id(PROJECT, kind, statement),
        kind=kind,
        statement=RedactedText(statement),
        standing=standing,
        confidence=0.9,
        valid_at=valid_at,
        invalid_at=invalid_at,
        recorded_at=valid_at,
    )


def quote(statement: str, *, provenance: Provenance = Provenance.DECLARED) -> Evidence:
    """A user's own words for a statement."""
    source = SourceRef(adapter="pi", locator="session.jsonl", line=3)
    return Evidence(
        evidence_id=evidence_id(source, statement),
        origin=Origin.USER_STATEMENT,
        provenance=provenance,
        excerpt=RedactedText(statement),
        content_hash=hashlib.sha256(statement.encode()).hexdigest(),
        observed_at=SOME_AT,
        source=source,
    )


def remember(authority: Authority, facts: Iterable[Fact]) -> None:
    """Record facts, each with a quote that vouches for a supported one."""
    authority.append(
        [
            fact_recorded(
                fact, [quote(fact.statement)] if fact.standing is Standing.SUPPORTED else []
            )
            for fact in facts
        ]
    )


def add_texts(authority: Authority, texts: Sequence[Text]) -> None:
    """Put documents into a store."""
    authority.append([document_upserted(document_of(text, at)) for at, text in enumerate(texts)])


def document_of(text: Text, at: int) -> Document:
    """The document of a text."""
    return Document(
        namespace=text.namespace,
        external_id=text.name or f"text-{at}",
        source="test",
        kind=text.kind,
        text=RedactedText(text.text),
        observed_at=SOME_AT,
        trust=text.trust,
        title=RedactedText(text.title),
        valid_from=text.valid_from,
        valid_to=text.valid_to,
        adapter="test",
        revision="1",
    )


def a_store(home: Path, clock: Clock, *, project: ProjectId = PROJECT) -> Authority:
    """A new, empty memory of a project under a home."""
    paths = HomePaths(home)
    return open_authority(
        paths.project(project), project, clock=clock, settings=StorageSettings(), create=True
    )


def in_memory(
    texts: Sequence[Text],
    *,
    collection: Collection | None = None,
    vectors: Sequence[bytes] = (),
) -> Reads:
    """Reads over an in-memory store with one chunk a text; no events behind them."""
    db = open_memory()
    migrate(db, "memory")
    db.execute("BEGIN")
    if collection is not None:
        row = (collection.name, collection.model, collection.dims, collection.fingerprint)
        db.execute("INSERT INTO collections VALUES (?, ?, ?, ?, ?, 0)", (*row, collection.scale))
    for at, text in enumerate(texts):
        document = document_of(text, at)
        key = document_key(document.namespace, document.external_id)
        db.execute(
            "INSERT INTO documents (document_key, namespace, external_id, source, kind, title,"
            " text, uri, version, content_hash, observed_at, valid_from, valid_to, trust, adapter,"
            " revision, metadata, recorded_at)"
            " VALUES (?, ?, ?, 'test', ?, ?, ?, '', '', '', ?, ?, ?, ?, 'test', '1', '{}', 0)",
            (
                key,
                document.namespace,
                document.external_id,
                document.kind,
                document.title,
                document.text,
                document.observed_at,
                document.valid_from,
                document.valid_to,
                document.trust.value,
            ),
        )
        db.execute(
            "INSERT INTO slices VALUES (?, ?, ?, 0, 0, ?)",
            (at + 1, f"chk_{at:032x}", key, len(document.text.encode())),
        )
        if collection is not None:
            db.execute(
                "INSERT INTO vectors VALUES (?, ?, ?)", (collection.name, at + 1, vectors[at])
            )
    db.execute("COMMIT")
    return Reads(db)
