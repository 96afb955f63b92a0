"""The gate and the fusion: what convinces, what follows, and that no order of legs matters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from retrieval.abstain import FOLLOWS, accepted, margin
from retrieval.candidates import Candidate
from retrieval.fusion import EXACT_BONUS, SCALE, WEIGHTS, Basis, settled
from retrieval.results import Scores

share = st.floats(0, 1, allow_nan=False)


def a_candidate(
    *,
    dense: float | None = None,
    coverage: float = 0.0,
    exact: float = 0.0,
    matched: int = 3,
    asked: int = 4,
    unconfirmed: bool = False,
    rowid: int = 1,
    background: float = 0.08,
) -> Candidate:
    """A candidate with these scores."""
    scores = Scores(fused=0.0, dense=dense, coverage=coverage, exact=exact)
    return Candidate(
        rowid=rowid,
        scores=scores,
        asked=asked,
        matched=matched,
        unconfirmed=unconfirmed,
        background=background,
    )


candidates = st.builds(
    a_candidate,
    dense=st.one_of(st.none(), st.floats(-1, 1, allow_nan=False)),
    coverage=share,
    exact=st.sampled_from([0.0, 0.0, 0.4, 1.0]),
    matched=st.integers(0, 4),
    unconfirmed=st.booleans(),
    rowid=st.integers(1, 99),
)


def test_meaning_without_a_common_word_can_convince() -> None:
    """A near paraphrase passes; the same cosine a little lower does not."""
    assert accepted([a_candidate(dense=0.5)])
    assert not accepted([a_candidate(dense=0.4)])


def test_words_lower_the_cosine_that_is_needed() -> None:
    """With most of the question's words a weaker cosine is enough."""
    assert not accepted([a_candidate(dense=0.3)])
    assert accepted([a_candidate(dense=0.3, coverage=0.6)])


def test_a_question_about_the_subject_of_the_store_needs_less() -> None:
    """The same cosine convinces where all texts are near, up to a limit."""
    assert not accepted([a_candidate(dense=0.45, background=0.0)])
    assert accepted([a_candidate(dense=0.45, background=0.12)])
    assert not accepted([a_candidate(dense=0.2, background=0.9)])


def test_the_bar_rises_with_the_size_of_the_store() -> None:
    """Among many texts the best one that has nothing to say comes closer; up to a limit."""
    near = a_candidate(dense=0.44)
    heights = [margin(replace(near, texts=texts)) for texts in (1, 10, 300, 6_000, 10_000, 10**7)]

    assert heights == sorted(heights, reverse=True)
    assert accepted([replace(near, texts=10)])
    assert not accepted([replace(near, texts=6_000)])
    assert heights[0] == heights[1]
    assert heights[4] == heights[5]


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_name_or_words_alone_do_not_depend_on_the_size(one: int, other: int) -> None:
    """Only cosines come closer by chance: what is there literally is there."""
    for candidate in (a_candidate(exact=1.0), a_candidate(coverage=0.7, matched=3)):
        assert margin(replace(candidate, texts=one)) == margin(replace(candidate, texts=other))


def test_the_reply_to_what_was_asked_convinces() -> None:
    """A line that says nothing of the subject passes behind the line that asks about it."""
    asking = Scores(fused=0.0, dense=0.6, coverage=0.5)
    reply = replace(a_candidate(dense=0.05), asked_by=asking)

    assert accepted([reply])
    assert not accepted([replace(reply, asked_by=replace(asking, dense=0.1))])


def test_words_alone_do_not_convince_against_meaning() -> None:
    """Every word there, and a cosine that says it is about something else: silence."""
    assert not accepted([a_candidate(dense=0.05, coverage=1.0)])


def test_without_a_vector_one_rare_word_is_not_enough() -> None:
    """One word of a longer question is chance; of a one-word question it is all of it."""
    assert not accepted([a_candidate(coverage=0.6, matched=1, asked=4)])
    assert accepted([a_candidate(coverage=1.0, matched=1, asked=1)])


def test_a_name_always_convinces() -> None:
    """Who asks for a thing by its name gets it."""
    assert accepted([a_candidate(exact=1.0, matched=0, asked=9)])


def test_what_nobody_vouched_for_must_match_better() -> None:
    """A score just enough for a supported fact is not enough for an unconfirmed one."""
    assert accepted([a_candidate(dense=0.5)])
    assert not accepted([a_candidate(dense=0.5, unconfirmed=True)])


@given(st.lists(candidates, max_size=12))
def test_followers_need_a_leader(ranked: list[Candidate]) -> None:
    """Either nothing is accepted, or one is above the bar and all are close to it, in order."""
    kept = accepted(ranked)

    assert [item for item in ranked if item in kept] == [
        item for item in ranked if margin(item) >= -FOLLOWS and kept
    ]
    if any(margin(item) >= 0 for item in ranked):
        assert max(map(margin, kept)) >= 0
    else:
        assert kept == []


@given(candidates, share)
def test_more_agreement_never_hurts(candidate: Candidate, more: float) -> None:
    """A higher cosine or coverage never lowers the margin."""
    scores = candidate.scores
    better = a_candidate(
        dense=None if scores.dense is None else min(1.0, scores.dense + more),
        coverage=min(1.0, scores.coverage + more),
        exact=scores.exact,
        matched=candidate.matched,
        unconfirmed=candidate.unconfirmed,
    )

    assert margin(better) >= margin(candidate) - 1e-12


@given(share, share, st.one_of(st.none(), share), st.floats(1, 200))
def test_the_fused_score_is_absolute(
    lexical: float, coverage: float, dense: float | None, maximum: float
) -> None:
    """It depends on the text, the question and the store's background alone, never on ranks."""
    scores = Scores(fused=9.0, lexical=lexical, dense=dense, coverage=coverage)
    basis = Basis(maximum, mean=0.1, deviation=0.1)

    value = basis.fused(scores).fused

    z = 0.0 if dense is None else max(0.0, (dense - 0.1) / 0.1)
    meaning = WEIGHTS.near * z + WEIGHTS.far * z * z
    words = lexical * maximum + WEIGHTS.covered * coverage
    assert abs(value - (words + meaning) / (maximum + SCALE)) < 1e-9
    assert value >= basis.fused(replace(scores, dense=None)).fused


@given(st.lists(st.tuples(share, st.floats(-1, 1)), min_size=1, max_size=9), st.floats(1, 200))
def test_the_arrays_score_as_single_texts_do(pairs: list[tuple[float, float]], most: float) -> None:
    """The ranking pass over all texts and the closer look at a few use one formula."""
    basis = Basis(most, mean=0.1, deviation=0.1)
    lexical = np.array([pair[0] for pair in pairs], dtype=np.float32)
    cosines = np.array([pair[1] for pair in pairs], dtype=np.float32)

    fused = basis.fused_arrays(lexical, cosines)

    for at, value in enumerate(fused):
        alone = basis.fused(Scores(fused=0.0, lexical=float(lexical[at]), dense=float(cosines[at])))
        assert abs(float(value) - alone.fused) < 1e-4


@given(share, st.sampled_from([0.0, 0.4, 1.0]))
def test_an_exact_find_adds_and_doubt_takes_away(fused: float, exact: float) -> None:
    """A literal lifts the score; an unconfirmed text has less of it."""
    scores = Scores(fused=fused)

    sure = settled(scores, exact=exact).fused
    unsure = settled(scores, exact=exact, unconfirmed=True).fused

    assert abs(sure - fused - EXACT_BONUS * exact) < 1e-9
    assert unsure <= sure
