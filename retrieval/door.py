"""Eligibility of single documents, read when asked: the serverless path's and the last check.

The resident arrays hold the same rule as columns (`retrieval.index`); `retrieval.eligibility` is
the rule itself.
"""

from __future__ import annotations

from collections.abc import Collection as Names
from dataclasses import dataclass
from typing import Final

from retrieval.ask import Ask
from retrieval.eligibility import Interval, document_interval, fact_interval
from storage.authority.reads import Reads
from storage.records import Document, DocumentKey, Fact, FactId, Standing

MEMORY_NAMESPACE: Final = "memory"
UNCONFIRMED: Final = frozenset({Standing.CANDIDATE, Standing.NEEDS_REVIEW})
"""Standings that nobody vouched for yet."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A document that may be shown; with its fact when it stands for one."""

    document: Document
    fact: Fact | None
    interval: Interval

    @property
    def unconfirmed(self) -> bool:
        return self.fact is not None and self.fact.standing in UNCONFIRMED


class Door:
    """Looks each document up once for one question."""

    def __init__(self, reads: Reads, ask: Ask) -> None:
        self._reads, self._ask = reads, ask
        self._known: dict[DocumentKey, Admitted | None] = {}

    def admits(self, key: DocumentKey) -> bool:
        """Whether the document may be shown."""
        return self.look(key) is not None

    def is_unconfirmed(self, key: DocumentKey) -> bool:
        """Whether it stands for a fact that nobody vouched for."""
        found = self.look(key)
        return found is not None and found.unconfirmed

    def look(self, key: DocumentKey) -> Admitted | None:
        """The document, if it is of the wanted sort and holds at the asked instant."""
        if key not in self._known:
            self._known[key] = self._judged(key)
        return self._known[key]

    def _judged(self, key: DocumentKey) -> Admitted | None:
        document = self._reads.document(key)
        ask = self._ask
        if document is None or not _wanted(document.namespace, ask.namespaces):
            return None
        fact = None
        if document.namespace == MEMORY_NAMESPACE:
            fact = self._reads.fact(FactId(document.external_id))
        kind = document.kind if fact is None else fact.kind.value
        interval = document_interval(document) if fact is None else fact_interval(fact)
        if interval is None or not interval.holds(ask.at) or not _wanted(kind, ask.kinds):
            return None
        return Admitted(document, fact, interval)


def _wanted(name: str, wanted: Names[str] | None) -> bool:
    return wanted is None or name in wanted
