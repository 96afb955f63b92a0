"""Without a server: the same answer from SQLite alone, and nothing heavy imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval import fulltext, search, sqlite_search
from retrieval.index import build_index
from retrieval.pages import ScannedShelf
from retrieval.results import Recall
from tests.retrieval.memories import FACTS, SOME_AT, Text, a_fact, a_store, in_memory, remember
from tests.support import ManualClock

NOW = SOME_AT + 1_000
WORDS = [
    "cache",
    "build",
    "deploy",
    "queue",
    "SQLite",
    "retry",
    "token",
    "branch",
    "main_v2",
    "数据库",
]
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)


def shown(answer: Recall) -> list[tuple[str, float, float]]:
    """What and how well, to four digits (the arrays are float32)."""
    return [
        (item.text, round(item.scores.fused, 4), round(item.scores.coverage, 4))
        for item in answer.items
    ]


@settings(max_examples=80)
@given(st.lists(sentences, min_size=1, max_size=25), sentences)
def test_scan_and_arrays_answer_alike(texts: list[str], query: str) -> None:
    """One formula, two implementations: the same items with the same scores."""
    reads = in_memory([Text(text=text) for text in texts])
    index = build_index(reads, generation=1)

    scanned = sqlite_search.recall(reads, query, generation=1, now_at=NOW, limit=8)
    arrays = search.recall(index, query, reads=reads, now_at=NOW, limit=8)

    assert shown(scanned) == shown(arrays)
    assert (scanned.status, scanned.reason) == (arrays.status, arrays.reason)


def test_a_fact_is_found_by_words_and_by_its_id(home: Path) -> None:
    """The compact store answers both ways."""
    store = a_store(home, ManualClock())
    facts = [a_fact(text) for text in FACTS]
    remember(store, facts)

    with store.read() as reads:
        by_words = sqlite_search.recall(reads, "which local database", generation=1, now_at=NOW)
        by_name = sqlite_search.recall(reads, f"why {facts[3].fact_id}?", generation=1, now_at=NOW)
    store.close()

    assert by_words.items[0].text == FACTS[0]
    assert [item.text for item in by_name.items] == [FACTS[3]]


def test_the_full_text_index_finds_what_a_scan_finds(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store too large to scan is searched through FTS5: same first item, same silence."""
    store = a_store(home, ManualClock())
    remember(store, [a_fact(text) for text in FACTS])
    store.promote()
    monkeypatch.setattr(sqlite_search, "MAX_SCANNED", 3)
    queries = [
        "which local database",
        "AWS_PROFILE for deploy script",
        "who edits generated protobuf files",
        "what is the capital of Mongolia",
    ]

    with store.read() as reads:
        assert isinstance(sqlite_search.open_shelf(reads), fulltext.FulltextShelf)
        through_index = [
            sqlite_search.recall(reads, query, generation=1, now_at=NOW) for query in queries
        ]
        scanned = [
            sqlite_search.recall(
                reads,
                query,
                generation=1,
                now_at=NOW,
                shelf=lambda reads: ScannedShelf(reads.chunks()),
            )
            for query in queries
        ]
    store.close()

    for found, expected in zip(through_index, scanned, strict=True):
        assert [item.text for item in found.items][:1] == [item.text for item in expected.items][:1]
        assert found.status == expected.status
    assert through_index[-1].status == "abstained"


def test_frequent_terms_of_a_large_store_do_not_ask(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A term in most texts is left out of the match while rarer ones are there."""
    store = a_store(home, ManualClock())
    remember(
        store,
        [a_fact(f"common words here: item{at} kind{at % 30}") for at in range(60)],
    )
    store.promote()
    monkeypatch.setattr(fulltext, "LARGE_STORE", 10)
    monkeypatch.setattr(fulltext, "KEPT_TERMS", 1)

    with store.read() as reads:
        shelf = fulltext.FulltextShelf(reads)
        pages = list(shelf.pages({"common": 1.0, "item7": 1.0, "kind7": 1.0}))
    store.close()

    assert shelf.frequency("common") == 60
    assert sorted(page.chunk.text for page in pages) == [
        "common words here: item37 kind7",
        "common words here: item7 kind7",
    ]


def test_the_path_imports_nothing_heavy() -> None:
    """A fresh interpreter that recalls from SQLite has no numpy, model, queue or event loop."""
    code = (
        "import sys\n"
        "import hooks.recall_client, hooks.hosting, retrieval.render, retrieval.sqlite_search\n"
        "from storage.connection import open_memory\n"
        "from storage.schema import migrate\n"
        "from storage.authority.reads import Reads\n"
        "db = open_memory(); migrate(db, 'memory')\n"
        "retrieval.sqlite_search.recall(Reads(db), 'which database', generation=0, now_at=1)\n"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'huey', 'asyncio', 'sqlite_vec'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
