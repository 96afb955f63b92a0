"""The arrays answer as a plain loop over the formula would."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from retrieval.postings import Postings, PostingsBuilder
from retrieval.segment import DENSE_FROM

WORDS = [f"w{number}" for number in range(30)]
text = st.lists(st.sampled_from(WORDS), max_size=25)


def naive_bm25(
    texts: Sequence[Sequence[str]], titles: Sequence[Sequence[str]], query: Sequence[str]
) -> list[float]:
    """BM25 (k1 1.2, b 0.75) by the book, titles counted twice, idf floored at 100 texts."""
    bags = [
        Counter(body) + Counter(list(head) * 2) for body, head in zip(texts, titles, strict=True)
    ]
    lengths = [sum(bag.values()) for bag in bags]
    average = sum(lengths) / len(lengths)
    frequency = {term: sum(term in bag for bag in bags) for term in query}
    scores = []
    for bag, length in zip(bags, lengths, strict=True):
        total = 0.0
        for term in dict.fromkeys(query):
            df = frequency[term]
            weight = math.log(1 + (max(len(bags), 100) - df + 0.5) / (df + 0.5))
            if bag[term]:
                k = 1.2 * (0.25 + 0.75 * length / average)
                total += weight * bag[term] * 2.2 / (bag[term] + k)
        scores.append(total)
    return scores


def built(texts: Sequence[Sequence[str]], titles: Sequence[Sequence[str]]) -> Postings:
    """The index of these texts."""
    builder = PostingsBuilder()
    for body, head in zip(texts, titles, strict=True):
        builder.add(body, head)
    return builder.build()


@settings(max_examples=150)
@given(st.lists(st.tuples(text, text), min_size=1, max_size=40), text)
def test_scores_equal_the_formula(
    pairs: list[tuple[list[str], list[str]]], query: list[str]
) -> None:
    """Every score of every text is the naive BM25."""
    texts, titles = [list(pair) for pair in zip(*pairs, strict=True)]

    index = built(texts, titles)
    scores = index.scores((term, index.idf(term)) for term in dict.fromkeys(query))

    assert np.allclose(scores, naive_bm25(texts, titles, query), rtol=1e-4, atol=1e-5)


def test_the_top_ten_equals_the_formula_with_dense_rows_too() -> None:
    """Above the size where frequent terms become dense rows, the top ten is still the naive one."""
    random = np.random.default_rng(7)
    shares = 1 / np.arange(1, 201)
    vocabulary = np.array([f"t{number}" for number in range(200)])
    texts = [
        list(random.choice(vocabulary, size=20, p=shares / shares.sum()))
        for _ in range(DENSE_FROM + 100)
    ]
    index = built(texts, [[]] * len(texts))
    assert index.segments[0].dense

    for start in (0, 3, 50):
        query = [f"t{number}" for number in range(start, start + 6)]
        scores = index.scores((term, index.idf(term)) for term in query)
        expected = np.array(naive_bm25(texts, [[]] * len(texts), query))
        assert np.allclose(scores, expected, rtol=1e-4, atol=1e-5)
        best = np.argsort(-scores, kind="stable")[:10]
        assert np.allclose(np.sort(expected)[::-1][:10], expected[best], rtol=1e-4)


@given(st.lists(text, min_size=1, max_size=30), st.sampled_from(WORDS))
def test_contains_and_frequency_agree_with_the_texts(texts: list[list[str]], term: str) -> None:
    """Look-ups say what stands in the texts, for known and unknown terms."""
    index = built(texts, [[]] * len(texts))
    everyone = np.arange(len(texts), dtype=np.int32)

    assert index.contains(term, everyone).tolist() == [term in body for body in texts]
    assert index.frequency(term) == sum(term in body for body in texts)
    assert index.frequency("unknown") == 0
    assert not index.contains("unknown", everyone).any()


@given(st.lists(text, min_size=1, max_size=30), st.lists(st.sampled_from(WORDS), max_size=4))
def test_having_all_finds_exactly_the_texts_with_every_term(
    texts: list[list[str]], wanted: list[str]
) -> None:
    """An intersection over postings equals a filter over texts; no term finds nothing."""
    index = built(texts, [[]] * len(texts))

    expected = [at for at, body in enumerate(texts) if wanted and set(wanted) <= set(body)]

    assert index.having_all(tuple(dict.fromkeys(wanted))).tolist() == expected


def test_an_empty_index_answers_nothing() -> None:
    """No text, no score, no error."""
    index = built([], [])

    assert index.scores([("a", 1.0)]).tolist() == []
    assert index.frequency("a") == 0
