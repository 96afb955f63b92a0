"""The read side of an authority: one set of queries over the one schema.

Both containers hand out this class over a connection inside a read transaction, so each answer of
one snapshot belongs to one moment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import apsw

from storage.records import (
    TERMINAL_STANDINGS,
    Chunk,
    ChunkId,
    Collection,
    DeferredStatement,
    Document,
    DocumentKey,
    Entity,
    Evidence,
    EvidenceId,
    Fact,
    FactId,
    FactKind,
    Origin,
    ProjectId,
    Provenance,
    RedactedText,
    SourceCursor,
    SourceRef,
    Standing,
    Trust,
    digest_of,
    fact_id,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Counts for people."""

    events: int
    documents: int
    chunks: int
    facts: int
    facts_current: int
    evidence: int
    deferred: int
    vectors: int
    sources: int
    observations: int


_FACT_COLUMNS: Final = (
    "fact_id, kind, statement, standing, confidence, valid_at, invalid_at, recorded_at,"
    " expired_at, subject, predicate, object, tags, analyst"
)
_EVIDENCE_COLUMNS: Final = (
    "e.evidence_id, e.origin, e.provenance, e.excerpt, e.content_hash, e.observed_at, e.adapter,"
    " e.locator, e.line, e.session_id, e.tool_call_id"
)
_DOCUMENT_COLUMNS: Final = (
    "namespace, external_id, source, kind, text, observed_at, trust, title, uri, version,"
    " valid_from, valid_to, adapter, revision, metadata"
)
SELECT_FACT: Final = f"SELECT {_FACT_COLUMNS} FROM facts WHERE fact_id = ?"
SELECT_FACTS: Final = f"SELECT {_FACT_COLUMNS} FROM facts ORDER BY recorded_at, fact_id"
SELECT_FACT_ENTITIES: Final = (
    "SELECT t.name, t.type FROM fact_entities f JOIN entities t USING (entity_id)"
    " WHERE f.fact_id = ? ORDER BY t.entity_id"
)
SELECT_SUPERSEDED: Final = (
    "SELECT to_id FROM fact_links WHERE from_id = ? AND link = 'supersedes' ORDER BY to_id"
)
SELECT_ALL_FACT_ENTITIES: Final = (
    "SELECT f.fact_id, t.name, t.type FROM fact_entities f JOIN entities t USING (entity_id)"
    " ORDER BY f.fact_id, t.entity_id"
)
SELECT_ALL_SUPERSEDED: Final = (
    "SELECT from_id, to_id FROM fact_links WHERE link = 'supersedes' ORDER BY from_id, to_id"
)
SELECT_EVIDENCE: Final = (
    f"SELECT {_EVIDENCE_COLUMNS} FROM fact_evidence f JOIN evidence e USING (evidence_id)"
    " WHERE f.fact_id = ? ORDER BY e.observed_at, e.evidence_id"
)
SELECT_DOCUMENT: Final = (
    f"SELECT {_DOCUMENT_COLUMNS} FROM documents WHERE document_key = ? AND deleted_at IS NULL"
)
SELECT_DOCUMENTS: Final = (
    f"SELECT {_DOCUMENT_COLUMNS} FROM documents WHERE deleted_at IS NULL ORDER BY document_key"
)
SELECT_CHUNKS: Final = (
    "SELECT rowid, chunk_id, document_key, ordinal, title, text FROM chunks"
    " WHERE rowid > ? ORDER BY rowid"
)
SELECT_CHUNK: Final = (
    "SELECT rowid, chunk_id, document_key, ordinal, title, text FROM chunks WHERE rowid = ?"
)
SELECT_MISSING_VECTORS: Final = (
    "SELECT rowid, chunk_id, document_key, ordinal, title, text FROM chunks c WHERE NOT EXISTS"
    " (SELECT 1 FROM vectors v WHERE v.collection = ? AND v.chunk = c.rowid)"
    " ORDER BY rowid LIMIT ?"
)
SELECT_VECTORS: Final = (
    "SELECT chunk, embedding FROM vectors WHERE collection = ? AND chunk > ? ORDER BY chunk"
)
SELECT_COLLECTIONS: Final = "SELECT model, dims, fingerprint, scale FROM collections ORDER BY name"
SELECT_CURSOR: Final = (
    "SELECT adapter, locator, offset, line, observations, skipped, state FROM source_cursors"
    " WHERE adapter = ? AND locator = ?"
)
SELECT_CURSORS: Final = (
    "SELECT adapter, locator, offset, line, observations, skipped, state FROM source_cursors"
    " ORDER BY adapter, locator"
)
SELECT_DEFERRED: Final = (
    f"SELECT d.statement_id, d.kind, d.original, d.lang, d.deferred_at, d.supersedes,"
    f" {_EVIDENCE_COLUMNS} FROM deferred_statements d JOIN evidence e USING (evidence_id)"
    " ORDER BY d.deferred_at, d.statement_id"
)
SELECT_APPLIED: Final = "SELECT 1 FROM applied_jobs WHERE job_id = ?"
SELECT_FORGOTTEN: Final = "SELECT 1 FROM forgotten WHERE id = ? LIMIT 1"
SELECT_USEFULNESS: Final = "SELECT used, helpful, wrong, stale FROM usefulness WHERE fact_id = ?"
SELECT_STATS: Final = (
    "SELECT (SELECT count(*) FROM events),"
    " (SELECT count(*) FROM documents WHERE deleted_at IS NULL),"
    " (SELECT count(*) FROM slices), (SELECT count(*) FROM facts),"
    " (SELECT count(*) FROM facts WHERE standing NOT IN ('contradicted', 'superseded')),"
    " (SELECT count(*) FROM evidence), (SELECT count(*) FROM deferred_statements),"
    " (SELECT count(*) FROM vectors), (SELECT count(*) FROM source_cursors),"
    " (SELECT coalesce(sum(observations), 0) FROM source_cursors)"
)


class Reads:
    """Queries over one snapshot; valid only inside the `with` that opened it."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        """For the retrieval legs (FTS5, vec0); read only."""

    def fact(self, fact_id: FactId) -> Fact | None:
        """The fact, whatever its standing."""
        row = self.db.execute(SELECT_FACT, (fact_id,)).fetchone()
        if row is None:
            return None
        entities = self.db.execute(SELECT_FACT_ENTITIES, (fact_id,)).fetchall()
        superseded = self.db.execute(SELECT_SUPERSEDED, (fact_id,)).fetchall()
        return _fact(
            row,
            tuple(Entity(name=str(name), type=str(kind)) for name, kind in entities),
            tuple(FactId(str(old)) for (old,) in superseded),
        )

    def fact_id_for(self, project: ProjectId, kind: FactKind, original: str) -> FactId:
        """The id under which to record a wording now.

        The wording's own id, unless a fact of that id has ended: an ended fact is never reopened,
        so saying it again later takes the next id of a fixed series.
        """
        base = fact_id(project, kind, original)
        candidate, turn = base, 1
        while (known := self.fact(candidate)) is not None and known.standing in TERMINAL_STANDINGS:
            turn += 1
            candidate = FactId("mem_" + digest_of(base, str(turn))[:32])
        return candidate

    def facts(self, *, as_of: int | None = None) -> list[Fact]:
        """All facts in the order they were recorded; with `as_of`, those that held at that time."""
        entities: dict[str, list[Entity]] = {}
        for key, name, kind in self.db.execute(SELECT_ALL_FACT_ENTITIES):
            entities.setdefault(str(key), []).append(Entity(name=str(name), type=str(kind)))
        superseded: dict[str, list[FactId]] = {}
        for key, old in self.db.execute(SELECT_ALL_SUPERSEDED):
            superseded.setdefault(str(key), []).append(FactId(str(old)))
        found = [
            _fact(row, tuple(entities.get(key, ())), tuple(superseded.get(key, ())))
            for row in self.db.execute(SELECT_FACTS)
            for key in (str(row[0]),)
        ]
        return found if as_of is None else [fact for fact in found if fact.holds_at(as_of)]

    def evidence(self, fact_id: FactId) -> list[Evidence]:
        """The quotes behind a fact, oldest first."""
        return [_evidence(row) for row in self.db.execute(SELECT_EVIDENCE, (fact_id,))]

    def document(self, key: DocumentKey) -> Document | None:
        """The latest revision, unless deleted."""
        row = self.db.execute(SELECT_DOCUMENT, (key,)).fetchone()
        return _document(row) if row else None

    def documents(self) -> Iterator[Document]:
        """Every live document."""
        return (_document(row) for row in self.db.execute(SELECT_DOCUMENTS))

    def chunks(self, *, after: int = 0) -> Iterator[Chunk]:
        """Chunks with a rowid above `after`, in rowid order."""
        return (_chunk(row) for row in self.db.execute(SELECT_CHUNKS, (after,)))

    def chunk(self, rowid: int) -> Chunk | None:
        """One chunk by its number."""
        row = self.db.execute(SELECT_CHUNK, (rowid,)).fetchone()
        return _chunk(row) if row else None

    def chunks_without_vector(self, collection: Collection, *, limit: int) -> list[Chunk]:
        """What the encoder still has to do."""
        rows = self.db.execute(SELECT_MISSING_VECTORS, (collection.name, limit))
        return [_chunk(row) for row in rows]

    def vectors(self, collection: Collection, *, after: int = 0) -> Iterator[tuple[int, bytes]]:
        """(chunk rowid, int8 bytes) in rowid order."""
        rows = self.db.execute(SELECT_VECTORS, (collection.name, after))
        return ((int(row[0]), bytes(row[1])) for row in rows)

    def collections(self) -> list[Collection]:
        """Every vector collection."""
        return [
            Collection(model=model, dims=dims, fingerprint=fingerprint, scale=scale)
            for model, dims, fingerprint, scale in self.db.execute(SELECT_COLLECTIONS)
        ]

    def cursor(self, adapter: str, locator: str) -> SourceCursor | None:
        """How far one source was read."""
        row = self.db.execute(SELECT_CURSOR, (adapter, locator)).fetchone()
        return _cursor(row) if row else None

    def cursors(self) -> list[SourceCursor]:
        """How far each source was read."""
        return [_cursor(row) for row in self.db.execute(SELECT_CURSORS)]

    def deferred(self) -> list[DeferredStatement]:
        """Statements that wait for translation, oldest first."""
        return [_deferred(row) for row in self.db.execute(SELECT_DEFERRED)]

    def is_applied(self, job_id: str) -> bool:
        """Whether this job's effect is already here."""
        return self.db.execute(SELECT_APPLIED, (job_id,)).fetchone() is not None

    def is_forgotten(self, identity: str) -> bool:
        """Whether a fact, document, quote or statement of this id was forgotten for good."""
        return self.db.execute(SELECT_FORGOTTEN, (identity,)).fetchone() is not None

    def counts(self, fact_id: FactId) -> tuple[int, int, int, int]:
        """How often a fact was used, helpful, wrong, stale."""
        row = self.db.execute(SELECT_USEFULNESS, (fact_id,)).fetchone()
        return (0, 0, 0, 0) if row is None else (row[0], row[1], row[2], row[3])

    def stats(self) -> Stats:
        """Counts."""
        row = self.db.execute(SELECT_STATS).fetchone()
        assert row is not None
        return Stats(
            events=row[0],
            documents=row[1],
            chunks=row[2],
            facts=row[3],
            facts_current=row[4],
            evidence=row[5],
            deferred=row[6],
            vectors=row[7],
            sources=row[8],
            observations=row[9],
        )


def _fact(
    row: apsw.SQLiteValues, entities: tuple[Entity, ...], supersedes: tuple[FactId, ...]
) -> Fact:
    return Fact(
        fact_id=FactId(str(row[0])),
        kind=FactKind(str(row[1])),
        statement=RedactedText(str(row[2])),
        standing=Standing(str(row[3])),
        confidence=_float(row[4]),
        valid_at=_int(row[5]),
        invalid_at=_maybe_int(row[6]),
        recorded_at=_int(row[7]),
        expired_at=_maybe_int(row[8]),
        subject=str(row[9]),
        predicate=str(row[10]),
        object=str(row[11]),
        entities=entities,
        supersedes=supersedes,
        tags=json.loads(str(row[12])),
        analyst=str(row[13]),
    )


def _evidence(row: apsw.SQLiteValues) -> Evidence:
    return Evidence(
        evidence_id=EvidenceId(str(row[0])),
        origin=Origin(str(row[1])),
        provenance=Provenance(str(row[2])),
        excerpt=RedactedText(str(row[3])),
        content_hash=str(row[4]),
        observed_at=_int(row[5]),
        source=SourceRef(
            adapter=str(row[6]), locator=str(row[7]), line=_int(row[8]), session_id=str(row[9])
        ),
        tool_call_id=str(row[10]),
    )


def _document(row: apsw.SQLiteValues) -> Document:
    return Document(
        namespace=str(row[0]),
        external_id=str(row[1]),
        source=str(row[2]),
        kind=str(row[3]),
        text=RedactedText(str(row[4])),
        observed_at=_int(row[5]),
        trust=Trust(str(row[6])),
        title=RedactedText(str(row[7])),
        uri=RedactedText(str(row[8])),
        version=str(row[9]),
        valid_from=_maybe_int(row[10]),
        valid_to=_maybe_int(row[11]),
        adapter=str(row[12]),
        revision=str(row[13]),
        metadata=json.loads(str(row[14])),
    )


def _chunk(row: apsw.SQLiteValues) -> Chunk:
    return Chunk(
        rowid=_int(row[0]),
        chunk_id=ChunkId(str(row[1])),
        document_key=DocumentKey(str(row[2])),
        ordinal=_int(row[3]),
        title=str(row[4]),
        text=str(row[5]),
    )


def _cursor(row: apsw.SQLiteValues) -> SourceCursor:
    return SourceCursor(
        adapter=str(row[0]),
        locator=str(row[1]),
        offset=_int(row[2]),
        line=_int(row[3]),
        observations=_int(row[4]),
        skipped=_int(row[5]),
        state=str(row[6]),
    )


def _deferred(row: apsw.SQLiteValues) -> DeferredStatement:
    return DeferredStatement(
        statement_id=str(row[0]),
        kind=FactKind(str(row[1])),
        original=RedactedText(str(row[2])),
        lang=str(row[3]),
        deferred_at=_int(row[4]),
        supersedes=tuple(FactId(old) for old in json.loads(str(row[5]))),
        evidence=_evidence(row[6:]),
    )


def _int(value: apsw.SQLiteValue) -> int:
    assert isinstance(value, int)
    return value


def _float(value: apsw.SQLiteValue) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _maybe_int(value: apsw.SQLiteValue) -> int | None:
    return None if value is None else _int(value)
