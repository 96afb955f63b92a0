"""The background of cosines: as if all texts had been compared, without comparing them."""

from __future__ import annotations

import numpy as np
import pytest

from retrieval.background import SAMPLE, USUAL_DEVIATION, USUAL_MEAN, background_of
from retrieval.quantize import quantize


def rows_of(count: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """int8 rows that lean one way, their lengths, and a unit query."""
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(count, 64)).astype(np.float32) + 0.3
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    query = draw.normal(size=64).astype(np.float32) + 0.3
    packed = quantize(rows, 540.0)
    lengths = np.linalg.norm(packed.astype(np.float32), axis=1)
    return packed, lengths, query / np.float32(np.linalg.norm(query))


def test_it_knows_mean_and_deviation_of_all_cosines() -> None:
    """On a store within the sample both are those of the compared cosines."""
    packed, lengths, query = rows_of(1_500)
    cosines = packed.astype(np.float32) @ query / lengths

    mean, deviation = background_of(packed, lengths).of(query)

    assert mean == pytest.approx(float(cosines.mean()), abs=0.01)
    assert deviation == pytest.approx(float(cosines.std()), abs=0.01)


def test_a_large_store_is_sampled_evenly() -> None:
    """Beyond the sample it is an estimate, close to the truth."""
    packed, lengths, query = rows_of(3 * SAMPLE)
    cosines = packed.astype(np.float32) @ query / lengths

    mean, deviation = background_of(packed, lengths).of(query)

    assert mean == pytest.approx(float(cosines.mean()), abs=0.02)
    assert deviation == pytest.approx(float(cosines.std()), abs=0.02)


def test_few_texts_are_no_background() -> None:
    """One text does not decide what is usual."""
    packed, lengths, _ = rows_of(1)
    query = packed[0].astype(np.float32) / lengths[0]

    mean, deviation = background_of(packed, lengths).of(query)

    assert abs(mean - USUAL_MEAN) < 0.05
    assert deviation > USUAL_DEVIATION
