"""FTS5 as a shelf: candidates for the serverless path when the store is too large to scan.

FTS5 ranks every matching row, so its cost is the number of matches: on a large store frequent terms
are left out of the match and at most `MATCH_TERMS` of the rarest ask. The few rows that come back
are read and scored by the common formula, with every term.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from storage.records import FactId, fact_document_key

if TYPE_CHECKING:
    from retrieval.pages import Page
    from storage.authority.reads import Reads

MATCH_TERMS: Final = 12
CANDIDATES: Final = 96
LARGE_STORE: Final = 5_000
FREQUENT_SHARE: Final = 0.05
KEPT_TERMS: Final = 3
"""However frequent, so many terms ask: a question of common words is still a question."""

COUNT_CHUNKS: Final = "SELECT count(*) FROM (SELECT 1 FROM chunks LIMIT ?)"
HAS_FULLTEXT: Final = "SELECT 1 FROM sqlite_master WHERE name = 'chunks_fts'"
HIGHEST_CHUNK: Final = "SELECT coalesce(max(rowid), 0) FROM chunks"
COUNT_MATCHES: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)"
)
BEST_MATCHES: Final = (
    # Nothing but the rowid is selected: the top-N sorter then keeps N rows instead of all.
    "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?"
    " ORDER BY bm25(chunks_fts, 2.0, 1.0) LIMIT ?"
)
CHUNKS_OF: Final = "SELECT rowid FROM chunks WHERE document_key = ? OR chunk_id = ? LIMIT 8"


def holds_more_than(reads: Reads, chunks: int) -> bool:
    """Whether the store has more chunks than that; counts no further."""
    row = reads.db.execute(COUNT_CHUNKS, (chunks + 1,)).fetchone()
    return row is not None and int(str(row[0])) > chunks


def has_fulltext(reads: Reads) -> bool:
    """Whether this container keeps a full-text index."""
    return reads.db.execute(HAS_FULLTEXT).fetchone() is not None


class FulltextShelf:
    """A large store behind its full-text index."""

    def __init__(self, reads: Reads) -> None:
        from retrieval.pages import read_page

        self._reads = reads
        self._read_page = read_page
        row = reads.db.execute(HIGHEST_CHUNK).fetchone()
        # Deleted chunks leave holes, which makes every term look a little rarer than it is.
        self._texts = int(str(row[0])) if row else 0
        self._frequency: dict[str, int] = {}
        self._average = 0.0

    @property
    def texts(self) -> int:
        return self._texts

    @property
    def average(self) -> float:
        """Mean length of the candidates so far: the index does not tell that of all texts."""
        return self._average

    def frequency(self, term: str) -> int:
        """Exact up to a tenth of the store, then "a tenth": its weight hardly falls any more."""
        if term not in self._frequency:
            most = max(1_000, self._texts // 10)
            row = self._reads.db.execute(COUNT_MATCHES, (_quoted(term), most)).fetchone()
            self._frequency[term] = int(str(row[0])) if row else 0
        return self._frequency[term]

    def pages(self, weights: Mapping[str, float]) -> Iterable[Page]:
        asking = self._selective(weights)
        if not asking:
            return []
        match = " OR ".join(_quoted(term) for term in asking)
        rows = self._reads.db.execute(BEST_MATCHES, (match, CANDIDATES)).fetchall()
        found = [page for (rowid,) in rows if (page := self._page(rowid))]
        if found:
            self._average = sum(page.length for page in found) / len(found)
        return found

    def named(self, names: Sequence[str]) -> Iterable[Page]:
        found = []
        for name in names:
            if name.startswith(("mem_", "chk_")):
                key = fact_document_key(FactId(name))
                rows = self._reads.db.execute(CHUNKS_OF, (key, name)).fetchall()
                found += [page for (rowid,) in rows if (page := self._page(rowid))]
        return found

    def _page(self, rowid: object) -> Page | None:
        return self._read_page(self._reads, int(str(rowid)))

    def _selective(self, weights: Mapping[str, float]) -> list[str]:
        known = [term for term in weights if self.frequency(term)]
        rarest = sorted(known, key=lambda term: (self.frequency(term), term))
        if self._texts > LARGE_STORE:
            most = FREQUENT_SHARE * self._texts
            rare = [term for term in rarest if self.frequency(term) <= most]
            rarest = rare if len(rare) >= KEPT_TERMS else rarest[:KEPT_TERMS]
        return rarest[:MATCH_TERMS]


def _quoted(term: str) -> str:
    """The term as an FTS5 string."""
    return '"' + term.replace('"', '""') + '"'
