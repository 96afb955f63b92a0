"""The authority's bench: every figure is there, and the store it measured is sound."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from ops.bench.authority import Bench
from ops.bench.corpus import DOCUMENT_CHARS, Corpus
from ops.bench.timing import quantile
from ops.cli import cli
from storage.clock import SystemClock

FIGURES = {
    "compact_commit_p50_ms", "compact_commit_p95_ms", "compact_open_ms", "compact_bytes_100_facts",
    "indexed_single_docs_per_s", "indexed_batch_docs_per_s", "ingest_vs_raw_ratio",
    "single_vs_raw_ratio", "bytes_per_chunk", "wal_peak_bytes", "verify_events_per_s",
}  # fmt: skip


def test_every_figure_is_measured_on_a_sound_store(tmp_path: Path) -> None:
    """A small run gives a positive number for each, and the proof finds nothing wrong."""
    figures = Bench(tmp_path, SystemClock(), documents=64, singles=16).run()

    assert figures.keys() >= FIGURES
    assert all(isinstance(figures[name], int | float) and figures[name] for name in FIGURES)
    assert figures["verify_problems"] == 0


def test_the_same_seed_gives_the_same_texts() -> None:
    """A figure can be measured again."""
    first, second = (list(Corpus(7).samples(3)) for _ in range(2))

    assert first == second
    assert all(len(sample.document.text) in range(900, DOCUMENT_CHARS + 1) for sample in first)


def test_a_quantile_is_a_measured_value() -> None:
    """No value is made up between two others."""
    assert quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert quantile([1.0, 2.0], 0.95) == 2.0
    assert quantile([], 0.5) == 0.0


def test_the_verb_works_in_a_folder_of_its_own(tmp_path: Path) -> None:
    """Nothing stays behind, and standard output is one JSON object."""
    argv = ["bench", "authority", "--documents", "1000", "--singles", "16", "--json"]

    done = CliRunner().invoke(cli, [*argv, "--folder", str(tmp_path)])

    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["documents"] == 1000
    assert list(tmp_path.iterdir()) == []
