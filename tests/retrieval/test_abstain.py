"""The gate and the fusion: what convinces, what follows, and that no order of legs matters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from retrieval.abstain import ADMITTED, ADMITTED_BY_WORDS, FOLLOWS, accepted, margin
from retrieval.candidates import Candidate
from retrieval.fusion import SHARE, fused_score
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
) -> Candidate:
    """A candidate with these scores."""
    scores = Scores(fused=0.0, dense=dense, coverage=coverage, exact=exact)
    return Candidate(
        rowid=rowid, scores=scores, asked=asked, matched=matched, unconfirmed=unconfirmed
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


def test_words_alone_do_not_convince_against_meaning() -> None:
    """Every word there, and a cosine that says it is about something else: silence."""
    assert not accepted([a_candidate(dense=0.1, coverage=1.0)])


def test_without_a_vector_one_rare_word_is_not_enough() -> None:
    """One word of a longer question is chance; of a one-word question it is all of it."""
    assert not accepted([a_candidate(coverage=0.6, matched=1, asked=4)])
    assert accepted([a_candidate(coverage=1.0, matched=1, asked=1)])


def test_a_name_always_convinces() -> None:
    """Who asks for a thing by its name gets it."""
    assert accepted([a_candidate(exact=1.0, matched=0, asked=9)])


def test_what_nobody_vouched_for_must_match_better() -> None:
    """A score just enough for a supported fact is not enough for an unconfirmed one."""
    assert accepted([a_candidate(dense=0.44)])
    assert not accepted([a_candidate(dense=0.44, unconfirmed=True)])


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
    assert 0 < ADMITTED < ADMITTED_BY_WORDS < 1


@given(share, st.one_of(st.none(), share), st.sampled_from([0.0, 0.4, 1.0]))
def test_the_fused_score_is_absolute(lexical: float, dense: float | None, exact: float) -> None:
    """It depends on the text and the question alone; an unconfirmed text has less of it."""
    scores = Scores(fused=9.0, lexical=lexical, dense=dense, exact=exact)

    sure = fused_score(scores, unconfirmed=False).fused
    unsure = fused_score(scores, unconfirmed=True).fused

    plain = lexical if dense is None else SHARE * lexical + (1 - SHARE) * dense
    assert abs(sure - plain - 0.5 * exact) < 1e-9
    assert unsure <= sure
