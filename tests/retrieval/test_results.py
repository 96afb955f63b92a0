"""An answer crosses the socket unchanged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.results import Item, Leg, Recall, Scores, from_json
from storage.errors import Invalid
from storage.records import SourceRef

number = st.floats(0, 1, allow_nan=False)
scores = st.builds(
    Scores,
    fused=number,
    lexical=number,
    dense=st.one_of(st.none(), number),
    exact=number,
    coverage=number,
)
sources = st.builds(
    SourceRef, adapter=st.text(), locator=st.text(), line=st.integers(0, 9), session_id=st.text()
)
items = st.builds(
    Item,
    document_key=st.text(),
    fact_id=st.text(),
    kind=st.text(),
    text=st.text(),
    title=st.text(),
    standing=st.text(),
    unconfirmed=st.booleans(),
    valid_at=st.integers(0, 2**50),
    invalid_at=st.one_of(st.none(), st.integers(0, 2**50)),
    sources=st.lists(sources, max_size=2).map(tuple),
    truncated=st.booleans(),
    scores=scores,
)
legs = st.builds(Leg, name=st.text(), candidates=st.integers(0, 9), ms=number, gap=st.text())
recalls = st.builds(
    Recall,
    status=st.sampled_from(["ok", "partial", "abstained"]),
    items=st.lists(items, max_size=3).map(tuple),
    omitted=st.integers(0, 9),
    gaps=st.lists(st.text(), max_size=2).map(tuple),
    reason=st.text(),
    ms=st.integers(0, 99).map(float),
    legs=st.lists(legs, max_size=3).map(tuple),
    generation=st.integers(0, 99),
)


@given(recalls)
def test_json_and_back_is_the_same_answer(answer: Recall) -> None:
    """Nothing is lost or changed on the way."""
    assert from_json(json.loads(json.dumps(answer.to_json()))) == answer


@pytest.mark.parametrize(
    "value", [None, [], "x", {}, {"status": "fine"}, {"status": "ok", "items": 3}, {"items": []}]
)
def test_anything_else_is_refused(value: object) -> None:
    """What a server of another kind sends is an error with a name."""
    with pytest.raises(Invalid):
        from_json(json.loads(json.dumps(value)))
