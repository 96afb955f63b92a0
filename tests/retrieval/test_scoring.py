"""The best texts without scoring all: the same ones, at the same scores, as scoring all gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval import segment as module
from retrieval.postings import Postings, PostingsBuilder, fold, postings_of
from retrieval.scoring import Scoring
from retrieval.segment import Segment, SegmentBuilder, joined

NOBODY = np.zeros(0, dtype=np.int32)


def an_index(seed: int, texts: int, *, parts: int = 1) -> Postings:
    """Texts of a small, uneven vocabulary, so that many terms are dense and many scores tie."""
    draw = np.random.default_rng(seed)
    shares = 1 / np.arange(1, 41)
    segments: list[Segment] = []
    for _ in range(parts):
        builder = PostingsBuilder()
        for _ in range(texts):
            size = int(draw.integers(1, 30))
            builder.add([f"t{n}" for n in draw.choice(40, size=size, p=shares / shares.sum())])
        segments += builder.segments()
    return postings_of(tuple(segments), NOBODY)


@pytest.fixture(autouse=True)
def _dense_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense rows in small segments too."""
    monkeypatch.setattr(module, "DENSE_FROM", 1)


@settings(max_examples=60)
@given(
    st.integers(0, 1_000),
    st.integers(1, 400),
    st.integers(1, 3),
    st.lists(st.integers(0, 45), min_size=1, max_size=12, unique=True),
    st.integers(1, 30),
    st.booleans(),
)
def test_the_best_are_those_of_all_scores(
    seed: int, texts: int, parts: int, wanted: list[int], count: int, masked: bool
) -> None:
    """Bounds lose no text, ties go to the lower position, and the scores are the exact ones."""
    index = an_index(seed, texts, parts=parts)
    weighed = [(f"t{number}", index.idf(f"t{number}")) for number in wanted]
    eligible = np.random.default_rng(seed).random(index.size) < 0.6 if masked else None
    scoring = Scoring(index, weighed)
    everywhere = scoring.everywhere()
    allowed = everywhere if eligible is None else np.where(eligible, everywhere, 0)
    order = np.argsort(-allowed, kind="stable")[:count]
    expected = np.sort(order[allowed[order] > 0])

    best = scoring.best(count, eligible)

    assert best.tolist() == expected.tolist()
    assert np.array_equal(scoring.at(best), everywhere[best])
    assert scoring.matched == int(np.count_nonzero(allowed))


@given(st.integers(0, 100), st.floats(0.5, 3.0))
def test_impacts_of_another_average_still_bound(seed: int, factor: float) -> None:
    """A segment whose impacts are of an older average loses nothing."""
    index = an_index(seed, 300)
    old = index.segments[0].for_average(index.average * factor)
    moved = Postings(
        (old,), index.firsts, index.dampings, NOBODY, index.size, index.texts, index.average
    )
    weighed = [(f"t{number}", moved.idf(f"t{number}")) for number in range(0, 40, 4)]
    scoring = Scoring(moved, weighed)
    everywhere = scoring.everywhere()

    best = scoring.best(10)

    assert best.tolist() == np.sort(np.argsort(-everywhere, kind="stable")[:10]).tolist()


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=4), st.integers(0, 100))
def test_joined_segments_hold_what_their_parts_held(sizes: list[int], seed: int) -> None:
    """Joining changes no frequency, no score and no look-up."""
    parts = tuple(an_index(seed + number, size).segments[0] for number, size in enumerate(sizes))
    before = postings_of(parts, NOBODY)
    after = postings_of((joined(parts),), NOBODY)
    terms = [f"t{number}" for number in range(40)]

    weighed = [(term, before.idf(term)) for term in terms]

    assert [before.frequency(term) for term in terms] == [after.frequency(t) for t in terms]
    assert np.allclose(before.scores(weighed), after.scores(weighed), rtol=1e-5)
    assert before.having_all(("t0", "t3")).tolist() == after.having_all(("t0", "t3")).tolist()


def test_full_segments_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is joined beyond a segment's bound, and what is gone counts nowhere."""
    monkeypatch.setattr("retrieval.postings.MAX_TEXTS", 100)
    index = an_index(1, 60, parts=2)

    assert fold(index) is None
    shorter = index.changed(None, range(60))
    assert shorter.texts == 60
    assert shorter.frequency("t0") == postings_of(index.segments[1:], NOBODY).frequency("t0")


def test_an_empty_builder_makes_an_empty_segment() -> None:
    """No text, no posting."""
    empty = SegmentBuilder({}).build()

    assert (empty.texts, len(empty.numbers)) == (0, 0)
