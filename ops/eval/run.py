"""Questions answered by the real pipeline, one line of result each.

`status` is the gate's verdict. `items` is the ranking, ten deep, each document once; it is empty
when the pipeline abstains, as an agent's prompt would be, unless the run is ungated: a ranking is
measured without the gate, the gate by the statuses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Final, Literal

from ops.eval.corpus import EvalQuery
from ops.eval.memory import EvalMemory, Shelf
from retrieval.names import external_id
from storage.records import DocumentKey

if TYPE_CHECKING:
    from pathlib import Path

    from retrieval.candidates import Candidate
    from retrieval.embedding import Encoder
    from retrieval.query import Query

Mode = Literal["auto", "lexical", "dense"]
MODES: Final[tuple[Mode, ...]] = ("auto", "lexical", "dense")
DEPTH: Final = 10
SHOWN_ITEMS: Final = 4
SHOWN_BYTES: Final = 2_200
"""What an agent's prompt is given by default: the gate's verdict is about that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One answered question."""

    id: str
    status: str
    items: tuple[tuple[str, float], ...]
    ms: float

    def line(self) -> str:
        """One line of the results file."""
        items = [{"id": name, "score": round(score, 6)} for name, score in self.items]
        value = {"id": self.id, "status": self.status, "items": items, "ms": round(self.ms, 3)}
        return json.dumps(value, ensure_ascii=False)


def answers(
    memory: EvalMemory,
    queries: Sequence[EvalQuery],
    *,
    encoder: Encoder | None,
    now_at: int,
    mode: Mode = "auto",
    ungated: bool = False,
) -> Iterator[Result]:
    """A result for every question, group by group."""
    by_group: dict[str, list[EvalQuery]] = {}
    for query in queries:
        by_group.setdefault(query.group, []).append(query)
    for group, members in by_group.items():
        with memory.opened(group) as shelf:
            for query in members:
                if shelf is None:
                    yield Result(id=query.id, status="abstained", items=(), ms=0.0)
                else:
                    used = None if mode == "lexical" else encoder
                    yield _answer(shelf, query, used, now_at, mode, ungated)


def _answer(
    shelf: Shelf,
    query: EvalQuery,
    encoder: Encoder | None,
    now_at: int,
    mode: Mode,
    ungated: bool,
) -> Result:
    from retrieval.ask import Ask
    from retrieval.assembly import assemble
    from retrieval.query import parse_query
    from retrieval.search import rank

    began = perf_counter()
    parsed = parse_query(query.query, expansions=query.expansions[:4])
    if parsed.silent:
        return Result(id=query.id, status="abstained", items=(), ms=_ms(began))
    if mode == "dense":
        parsed = by_meaning_alone(parsed)
    at = max(now_at, shelf.latest) if query.as_of is None else query.as_of
    ask = Ask(at=at, limit=SHOWN_ITEMS, max_bytes=SHOWN_BYTES)
    ranked, legs = rank(shelf.index, parsed, ask, reads=shelf.reads, encoder=encoder)
    answer = assemble(ranked, shelf.reads, ask, generation=shelf.index.generation, legs=legs)
    took = _ms(began)
    silent = answer.status == "abstained" and not ungated
    items = () if silent else tuple(_documents(shelf, ranked))
    return Result(id=query.id, status=answer.status, items=items, ms=took)


def by_meaning_alone(query: Query) -> Query:
    """The same question without words and literals: only the dense leg has something to find."""
    questions = tuple(replace(question, words=()) for question in query.questions)
    return replace(query, questions=questions, literals=())


def _documents(shelf: Shelf, ranked: Sequence[Candidate]) -> Iterator[tuple[str, float]]:
    """(external id, score) of the first DEPTH documents."""
    seen: set[str] = set()
    for candidate in ranked:
        chunk = shelf.reads.chunk(candidate.rowid)
        if chunk is None or chunk.document_key in seen:
            continue
        seen.add(chunk.document_key)
        yield external_id(DocumentKey(chunk.document_key)), candidate.scores.fused
        if len(seen) == DEPTH:
            return


def write_results(path: Path, results: Iterator[Result]) -> list[Result]:
    """The results, each on disk as soon as it is known."""
    kept = []
    with path.open("w", encoding="utf-8") as file:
        for result in results:
            file.write(result.line() + "\n")
            kept.append(result)
    return kept


def _ms(began: float) -> float:
    return (perf_counter() - began) * 1000
