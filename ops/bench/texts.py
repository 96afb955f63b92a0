"""Corpora to measure recall with: two vocabularies and vectors with neighbours, from one seed.

`zipf`: 5,000 words by Zipf's law (exponent 1), some 140 tokens a text of 1,043 characters. `sixty`:
as long, but only 60 words, all as frequent: no word is rare, the worst case of any inverted index.
Vectors lie around topics and spread unevenly over their dimensions, as those of texts do.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ops.bench.corpus import DIMS, DOCUMENT_CHARS
from retrieval.quantize import SCALE_384
from storage.records import Collection, Document, RedactedText, Trust

if TYPE_CHECKING:
    from retrieval.quantize import Floats

Vocabulary = Literal["zipf", "sixty"]
VOCABULARIES: Final[tuple[Vocabulary, ...]] = ("zipf", "sixty")
WORDS: Final[dict[Vocabulary, int]] = {"zipf": 5_000, "sixty": 60}
COLLECTION: Final = Collection(model="bench", dims=DIMS, fingerprint="bench", scale=SCALE_384)
PROMPT_WORDS: Final = 30
SHORT_WORDS: Final = 5
SAID_AT: Final = 1_700_000_000_000
_SEED: Final = 20_240_607
"""Of words, topics and axes: what is asked must be of the same world as what is stored."""
_TOPICS: Final = 512
_OWN: Final = 0.8
"""How far a text lies from its topic, in lengths of the topic's own vector."""
_ASKED: Final = 0.6
"""How far a question lies from the text that it is about."""
_LETTERS: Final = "etaoinshrdlucmfwypvbgkqjxz"


@dataclass(frozen=True, slots=True)
class Asking:
    """A question and its unit vector."""

    text: str
    vector: Floats


class Texts:
    """An endless row of documents and vectors over one vocabulary."""

    def __init__(self, vocabulary: Vocabulary, *, seed: int = 1) -> None:
        self.vocabulary = vocabulary
        self._chance = random.Random(_SEED)  # noqa: S311 -- repeatable on purpose
        count = WORDS[vocabulary]
        made = {self._word() for _ in range(count * 2)}
        self._words = sorted(made)[:count]
        self._chance.shuffle(self._words)
        self._chance.seed(seed)
        shares = (1 / rank if vocabulary == "zipf" else 1.0 for rank in range(1, count + 1))
        self._weights = list(itertools.accumulate(shares))
        self._space = np.random.default_rng(_SEED)
        spread = np.arange(1, DIMS + 1, dtype=np.float32) ** np.float32(-0.4)
        turned = np.linalg.qr(self._space.normal(size=(DIMS, DIMS)))[0].astype(np.float32)
        self._axes: Floats = (turned * spread).T.copy()
        self._topics = self._drawn(_TOPICS)
        self._space = np.random.default_rng(seed)

    def documents(self, count: int, *, start: int = 0) -> Iterator[Document]:
        """`count` documents whose names go on from `start`."""
        for number in range(start, start + count):
            yield Document(
                namespace="notes",
                external_id=f"notes/{number:07d}.md",
                source="notes",
                kind="note",
                text=self.text(DOCUMENT_CHARS),
                observed_at=SAID_AT + number,
                trust=Trust.USER,
                adapter="notes",
            )

    def vectors(self, count: int) -> Floats:
        """float32[count, DIMS]: unit vectors around the topics."""
        topics = self._topics[self._space.integers(0, _TOPICS, count)]
        return _unit(topics + np.float32(_OWN) * self._drawn(count))

    def text(self, chars: int) -> RedactedText:
        """Words up to a length; nothing in it needs redaction."""
        drawn = self._chance.choices(self._words, cum_weights=self._weights, k=chars // 4)
        return RedactedText(" ".join(drawn)[:chars].rpartition(" ")[0])

    def question(self, words: int, near: Floats) -> Asking:
        """So many words of the vocabulary, about a text with this vector."""
        drawn = self._chance.choices(self._words, cum_weights=self._weights, k=words)
        vector = _unit(near[None, :] + np.float32(_ASKED) * _unit(self._drawn(1)))
        return Asking(" ".join(drawn), vector[0])

    def _drawn(self, count: int) -> Floats:
        drawn: Floats = self._space.standard_normal((count, DIMS), dtype=np.float32) @ self._axes
        return drawn

    def _word(self) -> str:
        length = self._chance.randint(3, 11)
        return "".join(self._chance.choices(_LETTERS, k=length))


def _unit(rows: Floats) -> Floats:
    unit: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
