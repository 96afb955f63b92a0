"""Times of repeated calls, and what to say about them: medians and 95th percentiles."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Adds up the wall time of many calls and keeps each."""

    def __init__(self) -> None:
        self.times_s: list[float] = []

    def run(self, call: Callable[[], T]) -> T:
        """The call's result; its time is kept."""
        started = time.perf_counter()
        given = call()
        self.times_s.append(time.perf_counter() - started)
        return given

    @property
    def total_s(self) -> float:
        return math.fsum(self.times_s)

    def ms(self, share: float) -> float:
        """A quantile of the times, in milliseconds."""
        return round(quantile(self.times_s, share) * 1_000, 3)


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; 0 for none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
