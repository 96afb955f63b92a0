"""Texts and vectors to measure with: made from a seed, so that every run sees the same.

Words follow Zipf's law (5,000 words, exponent 1), some 140 of them a document of 1,043 characters:
as frequent words as real text has, without anybody's text.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from storage.records import Document, RedactedText, Trust

WORDS: Final = 5_000
DOCUMENT_CHARS: Final = 1_043
DIMS: Final = 384
_LETTERS: Final = "etaoinshrdlucmfwypvbgkqjxz"


@dataclass(frozen=True, slots=True)
class Sample:
    """One document and the int8 vector of its only chunk."""

    document: Document
    vector: bytes


class Corpus:
    """An endless row of samples."""

    def __init__(self, seed: int = 20_240_607) -> None:
        self._chance = random.Random(seed)  # noqa: S311 -- repeatable on purpose
        words = {self._word() for _ in range(WORDS * 2)}
        self._words = sorted(words)[:WORDS]
        self._chance.shuffle(self._words)
        self._weights = list(itertools.accumulate(1 / rank for rank in range(1, WORDS + 1)))

    def text(self, chars: int = DOCUMENT_CHARS) -> RedactedText:
        """Words up to a length; nothing in it needs redaction."""
        wanted = chars // 4
        drawn = self._chance.choices(self._words, cum_weights=self._weights, k=wanted)
        return RedactedText(" ".join(drawn)[:chars].strip())

    def vector(self) -> bytes:
        """int8 components as a unit vector at the usual scale has them."""
        return self._chance.randbytes(DIMS)

    def samples(self, count: int, *, start: int = 0) -> Iterator[Sample]:
        """`count` documents whose names go on from `start`."""
        for number in range(start, start + count):
            document = Document(
                namespace="notes",
                external_id=f"notes/{number:06d}.md",
                source="notes",
                kind="note",
                text=self.text(),
                observed_at=1_700_000_000_000 + number,
                trust=Trust.USER,
                title=RedactedText(f"Note {number}"),
                adapter="notes",
            )
            yield Sample(document, self.vector())

    def _word(self) -> str:
        length = self._chance.randint(3, 11)
        return "".join(self._chance.choices(_LETTERS, k=length))
