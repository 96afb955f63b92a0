"""What the tables of a store say, as values: to say it again where history has lost it.

Owns gathering everything that history decides (facts with their quotes, documents, waiting
statements, cursors) and the events that bring another store to the same. Used by repair, export and
import. Leaves appending to its callers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from storage.authority import payloads, restated
from storage.authority.reads import Reads
from storage.authority.restated import WholeFact
from storage.errors import Invalid
from storage.events import EventDraft
from storage.records import (
    TERMINAL_STANDINGS,
    DeferredStatement,
    Document,
    RedactedText,
    SourceCursor,
)

SELECT_RECORDED: Final = "SELECT recorded_at FROM documents WHERE document_key = ?"
FACT_NAMESPACE: Final = "memory"
_AGAIN: Final = RedactedText("said again after a repair")


@dataclass(frozen=True, slots=True)
class Standings:
    """Everything of one store, at one moment."""

    facts: tuple[WholeFact, ...] = ()
    documents: tuple[tuple[Document, int], ...] = ()
    """(document, recorded_at); the documents of facts are left out."""
    deferred: tuple[DeferredStatement, ...] = ()
    cursors: tuple[SourceCursor, ...] = ()

    @classmethod
    def of(cls, reads: Reads) -> Standings:
        """What a snapshot holds."""
        return cls(
            facts=tuple(restated.whole(reads, fact) for fact in reads.facts()),
            documents=tuple(_documents(reads)),
            deferred=tuple(reads.deferred()),
            cursors=tuple(reads.cursors()),
        )

    def missing(self, reads: Reads, now: int) -> list[EventDraft]:
        """Events that bring a store, which lost some, back to these values."""
        drafts = list(self._facts_missing(reads, now))
        for document, recorded_at in self.documents:
            there = reads.document(document.key)
            if there is None:
                drafts.append(restated.restated_document(document, recorded_at))
            elif there != document:
                drafts.append(payloads.document_upserted(document))
        gone = {document.key for document, _ in self.documents}
        if self.documents or self.facts:
            drafts += [
                payloads.document_deleted(document.key, now)
                for document, _ in _documents(reads)
                if document.key not in gone
            ]
        waiting = {item.statement_id for item in reads.deferred()}
        drafts += [
            payloads.statement_deferred(item)
            for item in self.deferred
            if item.statement_id not in waiting
        ]
        drafts += [
            payloads.source_advanced(cursor)
            for cursor in self.cursors
            if reads.cursor(cursor.adapter, cursor.locator) != cursor
        ]
        return drafts

    def _facts_missing(self, reads: Reads, now: int) -> Iterator[EventDraft]:
        for item in self.facts:
            fact = item.fact
            there = reads.fact(fact.fact_id)
            if there is None:
                yield from restated.restated_fact(item)
                continue
            known = {quote.evidence_id for quote in reads.evidence(fact.fact_id)}
            for quote in item.evidence:
                if quote.evidence_id not in known:
                    yield restated.restated_quote(fact.fact_id, quote)
            if there.standing is not fact.standing and there.standing not in TERMINAL_STANDINGS:
                at = now if fact.invalid_at is None else fact.invalid_at
                yield payloads.fact_resolved(fact.fact_id, fact.standing, at, _AGAIN)


def _documents(reads: Reads) -> Iterator[tuple[Document, int]]:
    for document in reads.documents():
        if document.namespace == FACT_NAMESPACE:
            continue
        yield document, recorded_at_of(reads, document)


def recorded_at_of(reads: Reads, document: Document) -> int:
    """When a document of this snapshot was recorded."""
    row = reads.db.execute(SELECT_RECORDED, (document.key,)).fetchone()
    if row is None or not isinstance(row[0], int):
        raise Invalid("a document without a time")
    return row[0]
