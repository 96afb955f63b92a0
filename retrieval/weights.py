"""The lexical formula, once, for the arrays and for the serverless scan alike.

BM25 (Robertson & Zaragoza 2009) with k1 = 1.2, b = 0.75 and titles counted `TITLE_WEIGHT` times:
`idf * tf * (k1 + 1) / (tf + K)`, K = k1 * (1 - b + b * length / average length). Divided by the sum
of `idf * (k1 + 1)` over the query, unseen terms included, it means the same for every query.
"""

from __future__ import annotations

import math
from typing import Final

K1: Final = 1.2
B: Final = 0.75
TITLE_WEIGHT: Final = 2
SMALL_STORE: Final = 100
"""Frequencies are judged as if the store held at least so many texts: among three facts every word
is in a third of all texts, which says nothing about the word."""


def idf(df: int, texts: int) -> float:
    """How rare a term is: above 0 always, and highest for a term that was never seen."""
    counted = max(texts, SMALL_STORE)
    return math.log(1 + (counted - df + 0.5) / (df + 0.5))


def damping(length: float, average: float) -> float:
    """K of a text with `length` terms."""
    return K1 * (1 - B + B * length / average) if average > 0 else K1


def saturated(tf: float, k: float) -> float:
    """A term's share of its idf in one text: 0 to k1 + 1."""
    return tf * (K1 + 1) / (tf + k)
