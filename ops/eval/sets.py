"""The sets recall is measured on: the project's own gold suite and, where present, shared ones.

Owns which they are and how each is split. Own questions belong to `dev` or `test` by the parity of
their id's digest, so a new question moves no other; constants are fitted on `dev` alone. Shared
sets are development sets throughout.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from ops.eval.corpus import CorpusText, EvalQuery, read_corpus, read_qrels, read_queries

Split = Literal["dev", "test"]
OWN: Final = "gold"
SHARED: Final = ("pimemory-gold", "locomo-fixed", "cosqa-dev", "cran", "med", "adi", "xquad")
BORROWED: Final = 40
"""Questions of each other set that are asked as unrelated ones."""
KINDRED: Final = frozenset({"gold", "pimemory-gold"})
"""Both are about one sort of project: a question about one may have its answer in the other."""
XQUAD_EVERY: Final = 4
"""One of so many questions: four thousand about 240 paragraphs say no more than a thousand."""
_TURN: Final = re.compile(r"^(?P<talk>.+)/D(?P<session>\d+):(?P<turn>\d+)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalSet:
    """A corpus with questions; a question without answers must get silence."""

    name: str
    texts: Sequence[CorpusText]
    queries: Sequence[EvalQuery]
    qrels: Mapping[str, frozenset[str]]

    @property
    def unanswerable(self) -> frozenset[str]:
        return frozenset(query.id for query in self.queries if query.id not in self.qrels)

    def only(self, split: Split) -> EvalSet:
        """The set with the questions of one split."""
        kept = [query for query in self.queries if split_of(query.id) == split]
        names = {query.id for query in kept}
        qrels = {name: found for name, found in self.qrels.items() if name in names}
        return replace(self, name=f"{self.name} ({split})", queries=kept, qrels=qrels)


def strangers(one: EvalSet, sets: Sequence[EvalSet]) -> list[EvalQuery]:
    """English questions of the other sets, which nothing in this one answers, over its groups."""
    draw = random.Random(7)  # noqa: S311 -- a sample, not a secret
    groups = sorted({text.group for text in one.texts})
    found: list[EvalQuery] = []
    for other in sets:
        pair = {one.name.split(" ")[0], other.name.split(" ")[0]}
        if len(pair) == 1 or pair <= KINDRED:
            continue
        asked = [
            query
            for query in other.queries
            if query.id in other.qrels and query.lang in {"", "en"} and query.as_of is None
        ]
        found += draw.sample(asked, min(BORROWED, len(asked)))
    return [
        replace(query, id=f"stranger-{at}", group=groups[at % len(groups)], kind="stranger")
        for at, query in enumerate(found)
    ]


def split_of(query_id: str) -> Split:
    """`dev` or `test`, by the first byte of the id's SHA-256."""
    return "test" if hashlib.sha256(query_id.encode("utf-8")).digest()[0] % 2 else "dev"


def own_set() -> EvalSet:
    """The gold suite that lies beside this file."""
    return load_set(Path(__file__).parent / "gold", OWN)


def shared_sets(folder: Path, names: Sequence[str] = SHARED) -> list[EvalSet]:
    """The sets found under a folder of shared data."""
    found = []
    for name in names:
        path = folder / "data" / "retrieval" / name
        if path.is_dir():
            found.append(load_set(path, name))
    return found


def load_set(folder: Path, name: str) -> EvalSet:
    """A folder with corpus.jsonl, queries.jsonl and qrels.tsv.

    Raises:
        Invalid: a file is not as it should be.
    """
    texts = [_placed(text) for text in read_corpus(folder / "corpus.jsonl")]
    queries = read_queries(folder / "queries.jsonl")
    if name == "xquad":
        queries = queries[::XQUAD_EVERY]
    names = {query.id for query in queries}
    qrels = read_qrels(folder / "qrels.tsv")
    answers = {query: found for query, found in qrels.items() if query in names}
    return EvalSet(name=name, texts=texts, queries=queries, qrels=answers)


def _placed(text: CorpusText) -> CorpusText:
    """A turn whose id names its session and number, placed there."""
    match = None if text.session else _TURN.match(text.id)
    if match is None:
        return text
    return replace(
        text,
        source=match["talk"],
        session=f"D{match['session']}",
        order=int(match["turn"]),
    )
