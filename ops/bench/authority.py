"""`ops bench authority`: what the authority's writes, opens and proofs cost, beside a bare loop.

Batches and single documents alternate with the bare loop over the same samples, so that a busy
machine slows both. Vectors are stored as the embed task does: a batch's with the batch, those of
single documents sixteen at a time. Ratios are the loop's time over ours: 1 is as fast as the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from ops.bench.corpus import DIMS, Corpus, Sample
from ops.bench.raw import RawLoop
from ops.bench.timing import Stopwatch
from storage.authority import Container, ProjectAuthority, marker, open_authority
from storage.authority import payloads as say
from storage.clock import Clock
from storage.config import StorageSettings
from storage.connection import open_readonly
from storage.events import EventDraft
from storage.paths import HomePaths, ProjectPaths
from storage.records import (
    Collection,
    Evidence,
    Fact,
    FactKind,
    JsonValue,
    Origin,
    ProjectId,
    Provenance,
    RedactedText,
    SourceRef,
    Standing,
    evidence_id,
    fact_id,
)

PROJECT: Final = ProjectId("p_benchmark0000")
COLLECTION: Final = Collection(model="bench", dims=DIMS, fingerprint="bench", scale=512.0)
BATCH: Final = 1_000
EMBEDDED_AT_ONCE: Final = 16
FACTS: Final = 100
COMMITS: Final = 60
OPENS: Final = 30
ROOMY: Final = StorageSettings(
    compact_max_raw_bytes=1 << 30, compact_max_stored_bytes=1 << 30, compact_max_chunks=1 << 30
)
Figures = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Bench:
    """One run in one folder."""

    folder: Path
    clock: Clock
    documents: int = 100_000
    singles: int = 1_000

    def run(self, said: Callable[[str], None] = lambda _: None) -> Figures:
        """Every figure; `said` hears what is being measured."""
        figures: Figures = {"documents": self.documents, "singles": self.singles}
        said("the compact container")
        figures |= self._compact()
        said(f"{self.singles:,} single documents")
        figures |= self._single()
        said(f"{self.documents:,} documents in batches of {BATCH:,}")
        figures |= self._batch()
        return figures

    def _compact(self) -> Figures:
        store, paths = self._store("compact", "compact")
        facts = _facts(FACTS + COMMITS)
        vector = Corpus(3).vector
        with closing(store):
            for _ in range(FACTS):
                store.append([next(facts)])
            store.store_vectors(COLLECTION, [(n, vector()) for n in range(1, FACTS + 1)])
            stored = _row_bytes(paths)
            opens = self._opens(paths)
            commits = Stopwatch()
            for draft in facts:
                commits.run(lambda draft=draft: store.append([draft]))  # type: ignore[misc]
        return {
            "compact_commit_p50_ms": commits.ms(0.5),
            "compact_commit_p95_ms": commits.ms(0.95),
            "compact_open_ms": opens.ms(0.5),
            "compact_open_p95_ms": opens.ms(0.95),
            "compact_bytes_100_facts": stored,
        }

    def _single(self) -> Figures:
        store, _ = self._store("single", "indexed")
        raw = RawLoop(self.folder / "single-raw")
        journalled = RawLoop(self.folder / "single-raw-journal", journal=True)
        ours, bare, bare_journalled = Stopwatch(), Stopwatch(), Stopwatch()
        waiting: list[bytes] = []
        with closing(store), closing(raw), closing(journalled):
            for number, sample in enumerate(Corpus().samples(self.singles), start=1):
                ours.run(lambda: store.append([say.document_upserted(sample.document)]))  # noqa: B023
                bare.run(lambda: raw.write([sample]))  # noqa: B023
                bare_journalled.run(lambda: journalled.write([sample]))  # noqa: B023
                waiting.append(sample.vector)
                if len(waiting) == EMBEDDED_AT_ONCE:
                    rows = [(number - 15 + at, found) for at, found in enumerate(waiting)]
                    ours.run(lambda: store.store_vectors(COLLECTION, rows))  # noqa: B023
                    waiting.clear()
        return {
            "indexed_single_docs_per_s": round(self.singles / ours.total_s),
            "raw_single_docs_per_s": round(self.singles / bare.total_s),
            "single_vs_raw_ratio": round(bare.total_s / ours.total_s, 3),
            "single_vs_raw_with_journal_ratio": round(bare_journalled.total_s / ours.total_s, 3),
        }

    def _batch(self) -> Figures:
        store, paths = self._store("batch", "indexed")
        raw = RawLoop(self.folder / "batch-raw")
        ours, bare, wal = Stopwatch(), Stopwatch(), 0
        corpus = Corpus()
        ratios: list[float] = []
        with closing(store), closing(raw):
            for start in range(0, self.documents, BATCH):
                samples = list(corpus.samples(min(BATCH, self.documents - start), start=start))
                bare.run(lambda: raw.write(samples))  # noqa: B023
                ours.run(lambda: _ingest(store, samples, start + 1))  # noqa: B023
                wal = max(wal, _wal_bytes(paths))
                ratios.append(bare.times_s[-1] / ours.times_s[-1])
            loose = sum(_bytes_at_rest(paths))
            proof, packing = Stopwatch(), Stopwatch()
            # What maintenance does every day: files that nobody adds to any more are packed.
            packing.run(store.pack)
            report = proof.run(store.verify)
        opens = self._opens(paths)
        at_rest = _bytes_at_rest(paths)
        return {
            "indexed_batch_docs_per_s": round(self.documents / ours.total_s),
            "raw_batch_docs_per_s": round(self.documents / bare.total_s),
            "ingest_vs_raw_ratio": round(bare.total_s / ours.total_s, 3),
            "ingest_vs_raw_median_ratio": round(median(ratios), 3),
            "bytes_per_chunk": round(sum(at_rest) / self.documents),
            "bytes_per_chunk_unpacked": round(loose / self.documents),
            "pack_seconds": round(packing.total_s, 2),
            "bytes_per_chunk_database": round(at_rest[0] / self.documents),
            "bytes_per_chunk_journal": round(at_rest[1] / self.documents),
            "wal_peak_bytes": wal,
            "indexed_open_ms": opens.ms(0.5),
            "indexed_open_p95_ms": opens.ms(0.95),
            "verify_events_per_s": round(report.events / proof.total_s),
            "verify_problems": len(report.problems),
        }

    def _store(self, name: str, container: Container) -> tuple[ProjectAuthority, ProjectPaths]:
        home = self.folder / name
        home.mkdir(mode=0o700)
        paths = HomePaths(home).project(PROJECT)
        return self._opened(paths, create=True, container=container), paths

    def _opened(
        self, paths: ProjectPaths, *, create: bool = False, container: Container = "compact"
    ) -> ProjectAuthority:
        return open_authority(
            paths,
            PROJECT,
            clock=self.clock,
            settings=ROOMY,
            create=create,
            create_container=container,
        )

    def _opens(self, paths: ProjectPaths) -> Stopwatch:
        """Opening and a first read, by a handle that has nothing cached."""
        watch = Stopwatch()
        for _ in range(OPENS):
            watch.run(lambda: self._look(paths)).close()
        return watch

    def _look(self, paths: ProjectPaths) -> ProjectAuthority:
        store = self._opened(paths)
        with store.read() as reads:
            reads.chunk(1)
        return store


def _ingest(store: ProjectAuthority, samples: list[Sample], first: int) -> None:
    store.append([say.document_upserted(sample.document) for sample in samples])
    store.store_vectors(
        COLLECTION, [(first + at, sample.vector) for at, sample in enumerate(samples)]
    )


def _facts(count: int) -> Iterator[EventDraft]:
    corpus = Corpus(2)
    for number in range(count):
        statement = RedactedText(f"Rule {number}: {corpus.text(180)}.")
        quote = RedactedText(corpus.text(240))
        source = SourceRef(adapter="pi", locator="/sessions/bench.jsonl", line=number + 1)
        evidence = Evidence(
            evidence_id=evidence_id(source, quote),
            origin=Origin.USER_STATEMENT,
            provenance=Provenance.DECLARED,
            excerpt=quote,
            content_hash="",
            observed_at=1_700_000_000_000,
            source=source,
        )
        fact = Fact(
            fact_id=fact_id(PROJECT, FactKind.DECISION, statement),
            kind=FactKind.DECISION,
            statement=statement,
            standing=Standing.SUPPORTED,
            confidence=0.8,
            valid_at=1_700_000_000_000,
            recorded_at=1_700_000_000_000,
        )
        yield say.fact_recorded(fact, [evidence])


def _row_bytes(paths: ProjectPaths) -> int:
    with closing(open_readonly(paths.database)) as db:
        _, stored = marker.load(db, PROJECT)
    assert stored is not None
    return len(stored.state) + len(stored.vectors or b"")


def _wal_bytes(paths: ProjectPaths) -> int:
    wal = paths.database.with_name(paths.database.name + "-wal")
    return wal.stat().st_size if wal.exists() else 0


def _bytes_at_rest(paths: ProjectPaths) -> tuple[int, int]:
    """(database, journal) once everything is closed."""
    journal = sum(file.stat().st_size for file in paths.events.rglob("*") if file.is_file())
    return paths.database.stat().st_size, journal
