"""`ops bench recall`: what a question costs a resident process, beside plain SQL in the same run.

Two vocabularies (`ops.bench.texts`), each asked questions of 30 and of 5 words. `hybrid` is a whole
recall (parse, eligibility, both legs, fusion, gate, reading and cutting the items) with the
question's vector at hand; encoding is measured apart. The headline figures are the worst of the
four. `speedup_vs_sql` is the smallest ratio of medians. Exactness is checked on sampled questions.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from hooks.holdings import Holdings
from hooks.snapshots import Snapshots
from ops.bench.recall_sql import ExactWords, PlainSql, exact_neighbours
from ops.bench.recall_world import World
from ops.bench.texts import (
    COLLECTION,
    PROMPT_WORDS,
    SAID_AT,
    SHORT_WORDS,
    VOCABULARIES,
    Asking,
    Texts,
)
from ops.bench.timing import Stopwatch
from retrieval.encoders import shared_encoder
from retrieval.index import build_index
from retrieval.lexical import Words, weigh
from retrieval.quantize import packed
from retrieval.query import parse_query
from retrieval.search import SHORTLIST, recall
from storage.authority import payloads as say
from storage.clock import Clock
from storage.config import EncoderSettings
from storage.errors import Unavailable
from storage.records import Collection, JsonValue

if TYPE_CHECKING:
    from retrieval.index import IndexSnapshot
    from retrieval.quantize import Floats
    from storage.authority.reads import Reads

T = TypeVar("T")
NOW: Final = SAID_AT + 10**10
WARM: Final = 5
WRITES: Final = 25
COLD: Final = 5
SERVED: Final = 60
EXACT: Final = 10
"""Questions of each length whose answers are compared with exact ones."""
LENGTHS: Final = {"prompt": PROMPT_WORDS, "short": SHORT_WORDS}
Figures = dict[str, JsonValue]


class GivenEncoder:
    """An encoder whose next answer is known beforehand: what it costs is measured apart."""

    ready = True

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.answer: Floats = np.zeros(collection.dims, dtype=np.float32)

    def warm(self) -> None:
        """There is nothing to load."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """The given vector, for each text."""
        return np.repeat(self.answer[None, :], len(texts), axis=0)

    def encode_query(self, _text: str) -> Floats:
        """The given vector."""
        return self.answer

    def close(self) -> None:
        """There is nothing to give back."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One run in one folder."""

    folder: Path
    clock: Clock
    documents: int = 20_000
    questions: int = 60

    def run(self, said: Callable[[str], None] = lambda _: None) -> Figures:
        """Every figure; `said` hears what is being measured."""
        encode_ms, collection = self._encoder()
        each: dict[str, Figures] = {}
        figures: Figures = {"documents": self.documents, "questions": self.questions}
        for vocabulary in VOCABULARIES:
            said(f"{self.documents:,} texts of the {vocabulary} vocabulary")
            world = World(
                self.folder / vocabulary,
                self.clock,
                vocabulary,
                documents=self.documents,
                collection=collection,
            )
            near = world.fill()
            found, shared = self._asked(world, near)
            each |= found
            if vocabulary == VOCABULARIES[0]:
                said("writes, a server and fresh processes")
                figures |= shared | self._written(world) | self._served(world)
        return {
            **_worst(each),
            "speedup_vs_sql": min(_number(found["speedup_vs_sql"]) for found in each.values()),
            **figures,
            "encode_p50_ms": encode_ms,
            "lexical_top10_identical": min(_number(f["lexical_exact"]) for f in each.values()),
            "dense_recall_at_10": min(_number(f["dense_recall"]) for f in each.values()),
            "each": {name: found for name, found in each.items()},  # noqa: C416 -- JSON's type
        }

    def _encoder(self) -> tuple[JsonValue, Collection]:
        """(median ms of encoding a question, the collection that a server here compares)."""
        with suppress(Unavailable):
            encoder = shared_encoder(EncoderSettings())
            if encoder is not None and encoder.collection.dims == COLLECTION.dims:
                watch, texts = Stopwatch(), Texts("zipf", seed=3)
                with closing(encoder):
                    encoder.warm()
                    near = texts.vectors(1)[0]
                    for _ in range(SERVED):
                        asked = texts.question(PROMPT_WORDS, near).text
                        watch.run(lambda: encoder.encode_query(asked))  # noqa: B023
                return watch.ms(0.5), encoder.collection
        return None, COLLECTION

    def _asked(self, world: World, near: Floats) -> tuple[dict[str, Figures], Figures]:
        build = Stopwatch()
        sql = PlainSql(self.folder / f"{world.vocabulary}.sqlite", world.collection.dims)
        with closing(world.opened()) as store, store.read() as reads, closing(sql):
            index = build.run(
                lambda: build_index(
                    reads, generation=store.generation(), collection=world.collection
                )
            )
            sql.fill(reads.vectors(world.collection))
            found: dict[str, Figures] = {}
            for name, words in LENGTHS.items():
                texts = Texts(world.vocabulary, seed=words)
                asked = [
                    texts.question(words, near[at % len(near)])
                    for at in range(self.questions + WARM)
                ]
                measured = _times(index, reads, sql, asked)
                measured |= _exactness(index, reads, asked[:EXACT], world)
                found[f"{world.vocabulary}_{name}"] = measured
        shared: Figures = {
            "snapshot_build_s": round(build.total_s, 3),
            "snapshot_bytes": index.nbytes,
        }
        return found, shared

    def _written(self, world: World) -> Figures:
        """From a commit to a snapshot that has it, in a resident process."""
        holdings = Holdings(world.paths, self.clock, {})
        snapshots = Snapshots(lambda: Holdings(world.paths, self.clock, {}))
        watch, texts = Stopwatch(), Texts(world.vocabulary, seed=9)
        most = 1 << 40
        with closing(holdings), closing(world.opened()) as writer:
            held = holdings.authority(world.project)
            snapshots.current(world.project, held, world.collection, max_bytes=most)
            snapshots.close()
            late = 0
            for document in texts.documents(WRITES, start=world.documents):
                writer.append([say.document_upserted(document)])
                found = watch.run(
                    lambda: snapshots.current(world.project, held, world.collection, max_bytes=most)
                )
                late += found is None or found.generation != held.authority.generation()
            snapshots.close()
        return {
            "refresh_after_write_ms": watch.ms(0.5),
            "refresh_after_write_p95_ms": watch.ms(0.95),
            "refreshes_late": late,
        }

    def _served(self, world: World) -> Figures:
        texts = Texts(world.vocabulary, seed=11)
        near = texts.vectors(1)[0]
        ping, served, cold = Stopwatch(), Stopwatch(), Stopwatch()
        place = [str(world.paths.home), str(world.checkout)]
        argv = [sys.executable, "-I", "-m", "ops.bench.recall_cold", *place]
        for _ in range(COLD):
            question = texts.question(PROMPT_WORDS, near).text
            cold.run(lambda: subprocess.run([*argv, question], check=True, capture_output=True))  # noqa: B023
        with world.served() as ask:
            for _ in range(SERVED):
                ping.run(lambda: ask("ping", {}))
                asked: dict[str, JsonValue] = {
                    "cwd": str(world.checkout),
                    "query": texts.question(PROMPT_WORDS, near).text,
                }
                served.run(lambda: ask("recall", asked))  # noqa: B023
            stats = ask("stats", {})
        return {
            "cold_process_ms": cold.ms(0.5),
            "socket_roundtrip_p50_ms": ping.ms(0.5),
            "served_p50_ms": served.ms(0.5),
            "served_p95_ms": served.ms(0.95),
            "server_rss_bytes": stats.get("rss_bytes", 0) if isinstance(stats, dict) else 0,
        }


def _times(index: IndexSnapshot, reads: Reads, sql: PlainSql, asked: Sequence[Asking]) -> Figures:
    """The whole, each leg and plain SQL: one after the other, all questions each."""
    assert index.matrix is not None
    matrix, encoder = index.matrix, GivenEncoder(index.matrix.collection)

    def hybrid(one: Asking) -> bool:
        encoder.answer = one.vector
        return bool(recall(index, one.text, reads=reads, now_at=NOW, encoder=encoder).items)

    def plain(one: Asking) -> list[str]:
        question = parse_query(one.text).questions[0]
        weighed = weigh(question, index.postings.frequency, index.texts)
        row = packed(one.vector[None, :], encoder.collection.scale)[0]
        return sql.recall(reads, weighed, row)

    whole, shown = _timed(hybrid, asked)
    watches = {
        "hybrid": whole,
        "lexical": _timed(lambda one: _by_words(index, one.text), asked)[0],
        "knn": _timed(lambda one: matrix.nearest(one.vector, eligible=None), asked)[0],
        "sql": _timed(plain, asked)[0],
    }
    figures: Figures = {}
    for name, watch in watches.items():
        figures |= {f"{name}_p50_ms": watch.ms(0.5), f"{name}_p95_ms": watch.ms(0.95)}
    figures["speedup_vs_sql"] = round(watches["sql"].ms(0.5) / whole.ms(0.5), 1)
    figures["answered"] = sum(shown)
    return figures


def _timed(call: Callable[[Asking], T], asked: Sequence[Asking]) -> tuple[Stopwatch, list[T]]:
    """Each question's time and result, after a few that warm up."""
    for one in asked[:WARM]:
        call(one)
    watch = Stopwatch()
    return watch, [watch.run(lambda: call(one)) for one in asked[WARM:]]  # noqa: B023


def _by_words(index: IndexSnapshot, text: str) -> list[int]:
    """The lexical leg alone: the best positions, best first."""
    question = parse_query(text).questions[0]
    weighed = weigh(question, index.postings.frequency, index.texts)
    words = Words(index.postings, weighed)
    best = words.best(SHORTLIST, None)
    scores = words.at(best)
    found: list[int] = best[np.argsort(-scores, kind="stable")].tolist()
    return found


def _exactness(
    index: IndexSnapshot, reads: Reads, asked: Sequence[Asking], world: World
) -> Figures:
    assert index.matrix is not None
    wanted = [parse_query(one.text).questions[0].distinct_terms() for one in asked]
    exact = ExactWords(reads, (term for some in wanted for term in some))
    same = [
        exact.is_top(some, _by_words(index, one.text))
        for some, one in zip(wanted, asked, strict=True)
    ]
    hits = 0
    for one, best in zip(asked, exact_neighbours(world.vectors(), asked), strict=True):
        where, cosines = index.matrix.nearest(one.vector, eligible=None)
        hits += len(best & set(where[np.argsort(-cosines)[:10]].tolist()))
    return {
        "lexical_exact": round(sum(same) / len(same), 3),
        "dense_recall": round(hits / (10 * len(asked)), 3),
    }


def _worst(each: dict[str, Figures]) -> Figures:
    names = [f"{leg}_p{share}_ms" for leg in ("lexical", "knn", "hybrid") for share in (50, 95)]
    return {name: max(_number(found[name]) for found in each.values()) for name in names}


def _number(value: JsonValue) -> float:
    assert isinstance(value, int | float)
    return value
