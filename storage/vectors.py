"""Vectors at rest: int8 components of an L2-normalised vector at the collection's fixed scale.

Plain Python on purpose: the hooks' cold path compares a handful of vectors without numpy. Bulk
arithmetic belongs to retrieval. Leaves what a vector means to its encoder.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from operator import mul
from typing import Final

from storage.errors import Invalid

DEFAULT_SCALE: Final = 512.0
"""For unit vectors of some hundred dimensions: clips almost nothing, keeps cosine's order."""
MIN_DIMS: Final = 8
MAX_DIMS: Final = 8_192


def quantize(values: Sequence[float], scale: float = DEFAULT_SCALE) -> bytes:
    """`round(value * scale)` of the normalised vector, clamped to int8, one byte a component.

    Raises:
        Invalid: too few or too many dimensions, not finite, or a zero vector.
    """
    if not MIN_DIMS <= len(values) <= MAX_DIMS:
        raise Invalid(f"a vector of {len(values)} dimensions; {MIN_DIMS} to {MAX_DIMS} are allowed")
    norm = math.sqrt(math.fsum(float(value) * float(value) for value in values))
    if not math.isfinite(norm) or norm == 0.0:
        raise Invalid("a vector that is zero or not finite")
    factor = scale / norm
    return array("b", [max(-127, min(127, round(value * factor))) for value in values]).tobytes()


def components(stored: bytes) -> list[int]:
    """The int8 components of stored bytes."""
    return array("b", stored).tolist()


def cosine(first: bytes, second: bytes) -> float:
    """Cosine of two stored vectors of one collection; 0 for a zero vector.

    Raises:
        Invalid: different lengths.
    """
    if len(first) != len(second):
        raise Invalid("two vectors of different sizes")
    a, b = array("b", first), array("b", second)
    norms = math.sqrt(sum(map(mul, a, a)) * sum(map(mul, b, b)))
    return sum(map(mul, a, b)) / norms if norms else 0.0
