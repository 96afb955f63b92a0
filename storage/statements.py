"""Statements by what they say: light rows for rules that compare one fact with the others.

Owns the queries that the learning tasks need beyond `storage.authority.reads`: current facts as
plain rows, those that mention a term, those that reject one, and ended ones that are still
searchable. Read only; every row belongs to the caller's snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import apsw

from storage.authority.reads import Reads
from storage.records import FactId, FactKind, Standing

REJECTS_TAG: Final = "rejects"
"""Fact tag: the terms a statement rejects, joined by `|`."""


@dataclass(frozen=True, slots=True)
class Row:
    """A current fact, without its evidence."""

    fact_id: FactId
    kind: FactKind
    statement: str
    standing: Standing
    valid_at: int
    remedy: str


_COLUMNS: Final = (
    "SELECT fact_id, kind, statement, standing, valid_at, json_extract(tags, '$.remedy') FROM facts"
    " WHERE standing NOT IN ('contradicted', 'superseded') AND invalid_at IS NULL"
)
SELECT_CURRENT: Final = f"{_COLUMNS} ORDER BY recorded_at, fact_id"
SELECT_MENTIONING: Final = (
    f"{_COLUMNS} AND instr(lower(statement), ?1) > 0 ORDER BY recorded_at, fact_id"
)
SELECT_REJECTING: Final = (
    f"{_COLUMNS} AND json_extract(tags, '$.{REJECTS_TAG}') IS NOT NULL AND valid_at > ?1"
    " ORDER BY valid_at, fact_id"
)
SELECT_ENDED: Final = (
    "SELECT f.fact_id FROM facts f JOIN documents d ON d.namespace = 'memory'"
    " AND d.external_id = f.fact_id AND d.deleted_at IS NULL"
    " WHERE f.standing IN ('contradicted', 'superseded') AND f.invalid_at <= ?1"
    " AND coalesce(f.expired_at, f.invalid_at) <= ?1 ORDER BY f.fact_id LIMIT ?2"
)
COUNT_EVIDENCE: Final = "SELECT count(*) FROM fact_evidence WHERE fact_id = ?"


def current(reads: Reads) -> Iterator[Row]:
    """Every current fact, in the order they were recorded."""
    return map(_row, reads.db.execute(SELECT_CURRENT))


def mentioning(reads: Reads, term: str) -> list[Row]:
    """Current facts whose statement contains a folded term."""
    return [_row(row) for row in reads.db.execute(SELECT_MENTIONING, (term,))]


def rejecting(reads: Reads, after: int) -> list[Row]:
    """Current facts valid since later than `after` that reject some term, oldest first."""
    return [_row(row) for row in reads.db.execute(SELECT_REJECTING, (after,))]


def ended(reads: Reads, before: int, *, limit: int) -> list[FactId]:
    """Facts that ended up to `before` and can still be found by search."""
    return [FactId(str(row[0])) for row in reads.db.execute(SELECT_ENDED, (before, limit))]


def evidence_count(reads: Reads, fact_id: FactId) -> int:
    """How many quotes stand behind a fact."""
    row = reads.db.execute(COUNT_EVIDENCE, (fact_id,)).fetchone()
    return int(str(row[0])) if row else 0


def _row(row: apsw.SQLiteValues) -> Row:
    fact_id, kind, statement, standing, valid_at, remedy = row
    return Row(
        FactId(str(fact_id)),
        FactKind(str(kind)),
        str(statement),
        Standing(str(standing)),
        int(str(valid_at)),
        str(remedy or ""),
    )
