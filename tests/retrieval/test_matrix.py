"""Cosines over int8 rows, with and without the 1-bit scan."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval import matrix as module
from retrieval.matrix import NO_VECTOR, build_matrix, sign_codes
from retrieval.quantize import packed
from storage.records import Collection

COLLECTION = Collection(model="test", dims=96, fingerprint="f", scale=250.0)


def _rows(seed: int, count: int) -> npt.NDArray[np.float32]:
    random = np.random.default_rng(seed)
    centres = random.normal(size=(12, COLLECTION.dims))
    rows = centres[random.integers(0, 12, count)] + 0.9 * random.normal(
        size=(count, COLLECTION.dims)
    )
    unit: npt.NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(
        np.float32
    )
    return unit


@given(st.integers(0, 500), st.integers(1, 60))
def test_cosines_are_those_of_the_float_vectors(seed: int, count: int) -> None:
    """Each eligible text with a vector gets its cosine, every other text none."""
    rows = _rows(seed, count)
    owners = list(range(0, 2 * count, 2))
    eligible = np.random.default_rng(seed).random(2 * count) < 0.7
    found = build_matrix(COLLECTION, owners, packed(rows, COLLECTION.scale))

    cosines, compared = found.cosines(rows[0], texts=2 * count, eligible=eligible)

    assert compared == int(eligible[owners].sum())
    for at in range(2 * count):
        if at % 2 == 0 and eligible[at]:
            assert cosines[at] == pytest.approx(float(rows[at // 2] @ rows[0]), abs=0.02)
        else:
            assert cosines[at] == NO_VECTOR


def test_the_one_bit_scan_keeps_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the prefilter on, the exact top ten is found nearly whole, at its exact cosines."""
    monkeypatch.setattr(module, "PREFILTER_FROM", 2_000)
    rows = _rows(3, 6_000)
    whole = build_matrix(COLLECTION, range(6_000), packed(rows, COLLECTION.scale))
    everyone = np.ones(6_000, dtype=np.bool_)

    hits = 0
    for at in range(0, 6_000, 300):
        query = rows[at]
        cosines, compared = whole.cosines(query, texts=6_000, eligible=everyone)
        exact = rows @ query
        assert 1_000 <= compared < 6_000
        hits += len(set(np.argsort(-cosines)[:10]) & set(np.argsort(-exact)[:10]))

    assert hits >= 0.9 * 10 * 20


def test_half_of_a_code_rules_out_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked at in two stages, the same nearest rows are compared as in one."""
    wide = Collection(model="test", dims=384, fingerprint="f", scale=540.0)
    draw = np.random.default_rng(6)
    rows = (
        draw.normal(size=(40_000, 384))
        + 1.2 * draw.normal(size=(200, 384))[np.arange(40_000) % 200]
    )
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    whole = build_matrix(wide, range(40_000), packed(rows, wide.scale))
    eligible = draw.random(40_000) < 0.9
    once = [whole.nearest(rows[at], eligible=eligible) for at in range(20)]
    monkeypatch.setattr(module, "STAGED_FROM", 1_000)

    for at, (where, cosines) in enumerate(once):
        found, again = whole.nearest(rows[at], eligible=eligible)
        best = where[np.argsort(-cosines)[:10]]
        assert set(best.tolist()) <= set(found.tolist())
        assert eligible[found].all()
        assert len(again) < 2_000


def test_at_computes_what_the_scan_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text on a shortlist gets its cosine whether or not the scan chose it."""
    monkeypatch.setattr(module, "PREFILTER_FROM", 2_000)
    rows = _rows(4, 4_000)
    whole = build_matrix(COLLECTION, range(4_000), packed(rows, COLLECTION.scale), texts=4_010)
    cosines, _ = whole.cosines(rows[0], texts=4_010, eligible=np.ones(4_010, dtype=np.bool_))
    far = np.flatnonzero(cosines == NO_VECTOR)[-15:].astype(np.int32)

    found = whole.at(rows[0], far)

    assert far[-10:].tolist() == list(range(4_000, 4_010))
    assert np.allclose(found[:5], rows[far[:5]] @ rows[0], atol=0.02)
    assert (found[-10:] == NO_VECTOR).all(), "without a vector there is no cosine"


def test_sign_codes_count_differing_signs() -> None:
    """The Hamming distance of two codes is the number of components with unlike signs."""
    levels = np.random.default_rng(5).integers(-127, 128, size=(2, 96)).astype(np.int8)

    codes = sign_codes(levels)

    distance = int(np.bitwise_count(codes[:, 0] ^ codes[:, 1]).sum())
    assert distance == int(((levels[0] > 0) != (levels[1] > 0)).sum())
