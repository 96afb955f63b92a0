"""int8 vectors keep the order of cosines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from retrieval.quantize import LIMIT, SCALE_384, packed, quantize, unpacked


def _unit_rows(seed: int, count: int, dims: int = 384) -> npt.NDArray[np.float32]:
    rows = np.random.default_rng(seed).normal(size=(count, dims))
    unit: npt.NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(
        np.float32
    )
    return unit


@given(st.integers(0, 10_000))
def test_packed_rows_come_back_as_they_were_quantised(seed: int) -> None:
    """Storing and loading changes no level."""
    rows = _unit_rows(seed, 3)

    stored = packed(rows, SCALE_384)

    assert [len(row) for row in stored] == [384, 384, 384]
    assert np.array_equal(unpacked(stored, 384), quantize(rows, SCALE_384))


def test_levels_are_clamped_symmetrically() -> None:
    """A component beyond the range takes the outermost level, never wraps around."""
    rows = np.array([[1.0, -1.0, 0.0]], dtype=np.float32)

    assert quantize(rows, SCALE_384).tolist() == [[LIMIT, -LIMIT, 0]]


def test_quantised_cosines_are_close_to_float_cosines() -> None:
    """At the collection's scale a cosine moves by less than 0.01."""
    rows = _unit_rows(1, 200)

    levels = quantize(rows, SCALE_384).astype(np.float32)
    levels /= np.linalg.norm(levels, axis=1, keepdims=True)

    assert float(np.abs(levels @ levels.T - rows @ rows.T).max()) < 0.01
