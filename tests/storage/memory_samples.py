"""Records and stores for the authority's tests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from storage.authority import ProjectAuthority, open_authority
from storage.authority.port import Container
from storage.authority.proof import DERIVED_TABLES
from storage.authority.reads import Reads
from storage.config import StorageSettings
from storage.paths import HomePaths, ProjectPaths
from storage.records import (
    Collection,
    Document,
    Evidence,
    Fact,
    FactId,
    FactKind,
    Origin,
    ProjectId,
    Provenance,
    RedactedText,
    SourceRef,
    Standing,
    Trust,
    evidence_id,
    fact_id,
)

PROJECT = ProjectId("p_0123456789ab")
T0 = 1_700_000_000_000
COLLECTION = Collection(model="test", dims=8, fingerprint="f1", scale=100.0)
ROOMY = StorageSettings(
    compact_max_raw_bytes=1 << 30, compact_max_stored_bytes=1 << 30, compact_max_chunks=1 << 30
)


class StepClock:
    """A clock that a test moves."""

    def __init__(self, at: int = T0) -> None:
        self.at = at

    def now_ms(self) -> int:
        return self.at

    def boot_ms(self) -> int:
        return self.at

    def boot_id(self) -> str:
        return "test-boot"


def paths_in(home: Path, project: ProjectId = PROJECT) -> ProjectPaths:
    return HomePaths(home).project(project)


def opened(
    home: Path,
    container: Container = "compact",
    *,
    clock: StepClock | None = None,
    settings: StorageSettings = ROOMY,
    create: bool = True,
    project: ProjectId = PROJECT,
    busy_ms: int = 5_000,
) -> ProjectAuthority:
    return open_authority(
        paths_in(home, project),
        project,
        clock=clock or StepClock(),
        settings=settings,
        create=create,
        create_container=container,
        busy_ms=busy_ms,
    )


def a_quote(
    text: str = "we use pnpm", *, provenance: Provenance = Provenance.DECLARED, line: int = 1
) -> Evidence:
    origins = {
        Provenance.NATIVE_OBSERVATION: Origin.HOST_OBSERVATION,
        Provenance.DECLARED: Origin.USER_STATEMENT,
        Provenance.AGENT_REPORT: Origin.AGENT_REPORT,
        Provenance.IMPORTED: Origin.IMPORTED_SOURCE,
    }
    source = SourceRef(adapter="pi", locator="/sessions/a.jsonl", line=line, session_id="s1")
    return Evidence(
        evidence_id=evidence_id(source, text),
        origin=origins[provenance],
        provenance=provenance,
        excerpt=RedactedText(text),
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        observed_at=T0,
        source=source,
    )


def a_fact(
    statement: str = "The project uses pnpm.",
    *,
    valid_at: int = T0,
    invalid_at: int | None = None,
    supersedes: Iterable[FactId] = (),
    standing: Standing = Standing.SUPPORTED,
    kind: FactKind = FactKind.DECISION,
    recorded_at: int = T0,
) -> Fact:
    return Fact(
        fact_id=fact_id(PROJECT, kind, statement),
        kind=kind,
        statement=RedactedText(statement),
        standing=standing,
        confidence=0.85,
        valid_at=valid_at,
        invalid_at=invalid_at,
        recorded_at=recorded_at,
        supersedes=tuple(supersedes),
    )


def a_document(
    text: str = "How we deploy.\n\nRun the script.",
    *,
    name: str = "deploy.md",
    adapter: str = "notes",
    title: str = "Deploying",
) -> Document:
    return Document(
        namespace="notes",
        external_id=name,
        source="notes",
        kind="note",
        text=RedactedText(text),
        observed_at=T0,
        trust=Trust.USER,
        title=RedactedText(title),
        adapter=adapter,
    )


def dump(reads: Reads) -> dict[str, list[object]]:
    """Every row that history decides."""
    return {
        table: list(reads.db.execute(f"SELECT * FROM {table} ORDER BY {order}").fetchall())
        for table, order in DERIVED_TABLES.items()
    }
