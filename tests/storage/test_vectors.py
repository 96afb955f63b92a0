"""Vectors at rest."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Invalid
from storage.vectors import components, cosine, quantize

numbers = st.floats(-10, 10, allow_nan=False).filter(lambda value: abs(value) > 1e-3)
vectors = st.lists(numbers, min_size=16, max_size=16)


@given(vectors, vectors)
def test_stored_cosine_is_close_to_the_real_one(first: list[float], second: list[float]) -> None:
    """Quantising keeps the angle within a few hundredths (at a scale that does not clip)."""
    dot = sum(a * b for a, b in zip(first, second, strict=True))
    real = dot / (math.hypot(*first) * math.hypot(*second))

    stored = cosine(quantize(first, 127), quantize(second, 127))

    assert abs(stored - real) < 0.05


@given(vectors, st.floats(0.01, 100))
def test_length_does_not_matter(values: list[float], factor: float) -> None:
    """A vector and its multiple are stored almost alike."""
    one, other = quantize(values), quantize([value * factor for value in values])

    assert all(abs(a - b) <= 1 for a, b in zip(components(one), components(other), strict=True))


def test_components_are_clamped() -> None:
    """A scale that overshoots saturates at 127."""
    assert components(quantize([1.0, -1.0, *[0.0] * 6], 512.0)) == [127, -127, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    "values", [[1.0] * 7, [0.0] * 8, [math.nan] * 8, [math.inf] * 8, [1.0] * 8_193]
)
def test_what_is_no_direction_is_invalid(values: list[float]) -> None:
    """Too short, too long, zero, or not finite."""
    with pytest.raises(Invalid):
        quantize(values)


def test_vectors_of_different_sizes_do_not_compare() -> None:
    """A mismatch is an error, not a number."""
    with pytest.raises(Invalid):
        cosine(bytes(8), bytes(9))
    assert cosine(bytes(8), bytes([1] * 8)) == 0.0
