"""`ops eval`: the files, the figures, and a corpus answered through the real pipeline."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from ops.cli import main
from ops.eval.cache import CachedEncoder
from ops.eval.corpus import read_corpus, read_qrels, read_queries
from ops.eval.memory import EvalMemory
from ops.eval.run import answers
from ops.eval.score import estimate, gate_scores, judge, ranking_scores
from ops.eval.sets import load_set, own_set, split_of
from ops.eval.table import compare, markdown
from retrieval.embedding import HashEncoder
from retrieval.query import parse_query
from storage.errors import Invalid
from tests.support import ManualClock

TEXTS = [
    {"id": "db", "text": "Orders live in a PostgreSQL cluster.", "observed_at": "2024-01-01"},
    {"id": "tests", "text": "The test suite is started with just test."},
    {"id": "ask", "text": "Which supplier broke the import?", "session": "s", "order": 1},
    {"id": "reply", "text": "Nordholm did, last night.", "session": "s", "order": 2},
    {"id": "old", "text": "Releases leave on Monday.", "valid_to": "2024-05-05"},
]
QUERIES = [
    {"id": "q1", "query": "Where do orders live, in which PostgreSQL cluster?"},
    {"id": "q2", "query": "What is the capital of Mongolia?"},
    {"id": "q3", "query": "ok, continue"},
    {"id": "q4", "query": "On which day do releases leave?", "as_of": "2024-02-02"},
    {"id": "q5", "query": "On which day do releases leave?"},
]
QRELS = "q1\tdb\t1\nq4\told\t1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small set on disk."""
    for name, rows in (("corpus", TEXTS), ("queries", QUERIES)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines, "utf-8")
    (tmp_path / "qrels.tsv").write_text(QRELS, "utf-8")
    return tmp_path


def ran(folder: Path, *more: str) -> dict[str, dict[str, object]]:
    """Results of `ops eval run`, by question."""
    out = folder / "results.jsonl"
    files = ["--corpus", str(folder / "corpus.jsonl"), "--queries", str(folder / "queries.jsonl")]

    assert main(["eval", "run", *files, "--out", str(out), "--mode", "lexical", *more]) == 0

    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    return {row["id"]: row for row in rows}


def test_a_run_writes_one_line_a_question(folder: Path) -> None:
    """Found, unknown, assent, then and now: status, items and time of each."""
    found = ran(folder)

    assert list(found) == ["q1", "q2", "q3", "q4", "q5"]
    assert {frozenset(row) for row in found.values()} == {
        frozenset({"id", "status", "items", "ms"})
    }
    assert [item["id"] for item in found["q1"]["items"]][:1] == ["db"]  # type: ignore[attr-defined]
    assert [found[name]["status"] for name in ("q1", "q2", "q3", "q4", "q5")] == [
        "ok", "abstained", "abstained", "ok", "abstained",
    ]  # fmt: skip
    assert found["q2"]["items"] == []


def test_an_ungated_run_lists_what_the_gate_held_back(folder: Path) -> None:
    """The status stays the gate's verdict; an acknowledgement has no ranking even so."""
    found = ran(folder, "--ungated")

    assert found["q3"]["items"] == []
    assert found["q2"]["status"] == "abstained"


def test_scores_are_printed_and_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`ops eval score --json`: the four figures with intervals, and the gate's two errors."""
    ran(folder)
    capsys.readouterr()

    files = ["--results", str(folder / "results.jsonl"), "--qrels", str(folder / "qrels.tsv")]
    assert main(["eval", "score", *files, "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["ndcg@10"] == {"mean": 1.0, "ci95": [1.0, 1.0]}
    assert told["abstention"] == {
        "answerable": 2, "unanswerable": 3, "abstained_answerable": 0.0, "false_injection": 0.0,
    }  # fmt: skip


def test_the_figures_are_those_of_the_books() -> None:
    """nDCG, recall, reciprocal rank and hit of a ranking judged by hand."""
    found = judge(["x", "a", "y", "b"], {"a", "b", "c"})

    gains = 1 / math.log2(3) + 1 / math.log2(5)
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert found.ndcg == pytest.approx(gains / ideal)
    assert found.recall == pytest.approx(2 / 3)
    assert found.mrr == pytest.approx(1 / 2)
    assert found.hit == 1.0
    assert judge([str(at) for at in range(10)] + ["a"], {"a"}).hit == 0.0


def test_a_question_without_a_ranking_counts_as_a_miss() -> None:
    """Leaving out what was not answered would flatter."""
    found = ranking_scores({"q": ["a"]}, {"q": {"a"}, "r": {"b"}})

    assert found.questions == 2
    assert found.recall.mean == 0.5


def test_the_interval_holds_the_mean_and_is_repeatable() -> None:
    """Seeded: the same figures on every machine; wider for fewer questions."""
    few, many = estimate([0.0, 1.0] * 5), estimate([0.0, 1.0] * 200)

    assert few == estimate([0.0, 1.0] * 5)
    assert few.low < few.mean < few.high
    assert many.high - many.low < few.high - few.low


def test_the_gate_is_judged_on_both_sides() -> None:
    """Silence where there is an answer, words where there is none."""
    statuses = {"a": "ok", "b": "abstained", "c": "ok", "d": "abstained"}

    found = gate_scores(statuses, {"a": {"x"}, "b": {"y"}}, {"c", "d"})

    assert (found.abstained_answerable, found.injected_unanswerable) == (0.5, 0.5)


@pytest.mark.parametrize(
    "line", ["no json", "[1]", '{"text": "no id"}', '{"id": "a", "text": "x", "observed_at": true}']
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    """File and line number stand in the sentence."""
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": "fine", "text": "x"}\n' + line + "\n", "utf-8")

    with pytest.raises(Invalid, match=r"corpus\.jsonl:2"):
        read_corpus(path)


def test_an_id_stands_once(tmp_path: Path) -> None:
    """Two questions of one id could not be told apart in the results."""
    path = tmp_path / "queries.jsonl"
    path.write_text('{"id": "a", "query": "x"}\n{"_id": "a", "text": "y"}\n', "utf-8")

    with pytest.raises(Invalid, match="twice"):
        read_queries(path)


def test_grade_nought_is_no_answer(tmp_path: Path) -> None:
    """A judged but irrelevant document is left out."""
    path = tmp_path / "qrels.tsv"
    path.write_text("q\ta\t1\nq\tb\t0\n", "utf-8")

    assert read_qrels(path) == {"q": frozenset({"a"})}


def test_meaning_alone_ranks_without_words(folder: Path) -> None:
    """Mode `dense`: the lexical leg has no part in any score."""
    encoder, clock = HashEncoder(), ManualClock()
    memory = EvalMemory(read_corpus(folder / "corpus.jsonl"), clock=clock, encoder=encoder)

    queries = read_queries(folder / "queries.jsonl")[:1]
    results = list(
        answers(memory, queries, encoder=encoder, now_at=clock.now_ms(), mode="dense", ungated=True)
    )
    memory.close()

    assert results[0].items[0][0] == "db"
    assert not parse_query(queries[0].query).silent


def test_the_table_compares_all_systems(folder: Path) -> None:
    """Every system on one set, one row, and no home left behind."""
    said: list[str] = []

    found = compare(
        load_set(folder, "small"), clock=ManualClock(), encoder=HashEncoder(), say=said.append
    )

    assert set(found.systems) == {"bm25", "dense", "rrf", "hashed", "memoryd"}
    assert found.systems["memoryd"].ndcg.mean == 1.0
    assert len(markdown([found])) == 3
    assert markdown([found, found])[-1].startswith("| macro mean")
    assert said[0].startswith("small: 5 texts")


def test_vectors_survive_a_torn_write(tmp_path: Path) -> None:
    """A cut-off record is dropped, the ones before it are used, and the file grows on."""
    encoder = HashEncoder(64)
    first = CachedEncoder(encoder, tmp_path).encode(["one", "two"])
    path = next(tmp_path.iterdir())
    whole = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(whole - 5)

    again = CachedEncoder(encoder, tmp_path).encode(["two", "one"])

    assert np.array_equal(again[::-1], first)
    assert path.stat().st_size == whole


def test_the_gold_suite_is_what_it_claims() -> None:
    """Size, kinds, languages, references and the split of the project's own suite."""
    gold = own_set()
    ids = {text.id for text in gold.texts}
    kinds = Counter(query.kind for query in gold.queries)

    assert len(gold.texts) >= 300
    assert len(gold.queries) >= 150
    assert {name for found in gold.qrels.values() for name in found} <= ids
    assert kinds["near-miss"] + kinds["unrelated"] >= 40
    assert {query.lang for query in gold.queries if query.kind == "foreign"} == {
        "es", "pt", "fr", "de", "zh", "ja", "ru", "ko",
    }  # fmt: skip
    silent = {"near-miss", "unrelated", "acknowledgement"}
    assert {query.kind for query in gold.queries if query.id in gold.unanswerable} == silent
    dev, test = gold.only("dev"), gold.only("test")
    assert len(dev.queries) + len(test.queries) == len(gold.queries)
    assert min(len(dev.queries), len(test.queries)) > 100
    assert split_of(dev.queries[0].id) == "dev"


def test_no_acknowledgement_of_the_gold_suite_gets_an_answer() -> None:
    """In twelve languages and more, silence, before any search."""
    acknowledged = [query for query in own_set().queries if query.kind == "acknowledgement"]

    assert len({query.lang for query in acknowledged}) >= 12
    assert [query.query for query in acknowledged if not parse_query(query.query).silent] == []


def test_own_words_beat_nothing_less_than_bm25() -> None:
    """Lexically, on the own suite: fusing coverage and sessions in does not lose to BM25 alone."""
    found = compare(own_set().only("test"), clock=ManualClock(), encoder=None, say=lambda _: None)

    assert found.systems["memoryd"].ndcg.mean >= found.systems["bm25"].ndcg.mean
    assert found.systems["memoryd"].recall.mean >= found.systems["bm25"].recall.mean
