"""The recall bench: every figure is there, and what it measured was exact."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ops.bench.corpus import DOCUMENT_CHARS
from ops.bench.recall_sql import exact_neighbours
from ops.bench.texts import VOCABULARIES, WORDS, Asking, Texts, Vocabulary
from ops.cli import cli

FIGURES = {
    "lexical_p50_ms", "lexical_p95_ms", "knn_p50_ms", "knn_p95_ms", "hybrid_p50_ms",
    "hybrid_p95_ms", "cold_process_ms", "socket_roundtrip_p50_ms", "refresh_after_write_ms",
    "server_rss_bytes", "snapshot_build_s", "encode_p50_ms", "speedup_vs_sql",
}  # fmt: skip


@pytest.mark.slow
def test_every_figure_is_measured_and_the_answers_are_exact(tmp_path: Path) -> None:
    """A small run: each figure positive, words exact, nothing left behind."""
    argv = ["bench", "recall", "--docs", "300", "--questions", "10", "--json"]

    done = CliRunner().invoke(cli, [*argv, "--folder", str(tmp_path)])

    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)
    assert figures.keys() >= FIGURES
    assert all(figures[name] > 0 for name in FIGURES - {"encode_p50_ms"})
    assert figures["lexical_top10_identical"] == 1.0
    assert figures["dense_recall_at_10"] >= 0.98
    assert figures["refreshes_late"] == 0
    assert set(figures["each"]) == {"zipf_prompt", "zipf_short", "sixty_prompt", "sixty_short"}
    worst = max(found["hybrid_p95_ms"] for found in figures["each"].values())
    assert figures["hybrid_p95_ms"] == worst
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_what_is_asked_is_of_the_same_world(vocabulary: Vocabulary) -> None:
    """Questions use the stored words, lie near their text, and come out the same every time."""
    stored, asking = Texts(vocabulary), Texts(vocabulary, seed=5)
    documents = list(stored.documents(50))
    words = {word for document in documents for word in document.text.split()}
    near = stored.vectors(20)

    asked = asking.question(30, near[7])

    assert len(words) <= WORDS[vocabulary]
    assert all(len(document.text) <= DOCUMENT_CHARS for document in documents)
    assert len(set(asked.text.split()) & words) >= 10
    assert int(np.argmax(near @ asked.vector)) == 7
    assert list(Texts(vocabulary).documents(50)) == documents


def test_exact_neighbours_are_found_across_batches() -> None:
    """The ten nearest of all batches together, numbered as they were stored."""
    rows = Texts("zipf").vectors(90)
    whole = rows @ rows[3]

    found = exact_neighbours([rows[:40], rows[40:]], [Asking("", rows[3])])

    assert found == [set(np.argsort(-whole)[:10].tolist())]
