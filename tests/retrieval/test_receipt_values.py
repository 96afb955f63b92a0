"""A receipt holds ids and numbers, nobody's words, and comes back as it was written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.receipts import Found, Receipt, digest_of_prompt, found_in, from_json, to_json
from retrieval.results import Item, Left, Leg, Recall, Scores
from storage.errors import Invalid

number = st.integers(-9_999, 9_999).map(lambda n: n / 10_000)
scores = st.builds(
    Scores,
    fused=number,
    lexical=number,
    dense=st.one_of(st.none(), number),
    exact=number,
    coverage=number,
    margin=number,
)
found = st.builds(
    Found,
    document_key=st.text(),
    scores=scores,
    cut=st.sampled_from([None, "gate", "repeats", "limit", "bytes", "ended"]),
    truncated=st.booleans(),
)
legs = st.builds(Leg, name=st.text(), candidates=st.integers(0, 9), ms=number, gap=st.text())
receipts = st.builds(
    Receipt,
    receipt_id=st.text(),
    at=st.integers(0, 2**50),
    host=st.text(),
    session_id=st.text(),
    prompt_digest=st.text(),
    prompt_chars=st.integers(0, 9),
    status=st.sampled_from(["ok", "partial", "abstained"]),
    reason=st.text(),
    shadow=st.booleans(),
    by_server=st.booleans(),
    generation=st.integers(0, 99),
    ms=st.integers(0, 99).map(float),
    block_bytes=st.integers(0, 9_999),
    block_tokens=st.integers(0, 9_999),
    found=st.lists(found, max_size=3).map(tuple),
    omitted=st.integers(0, 9),
    gaps=st.lists(st.text(), max_size=2).map(tuple),
    legs=st.lists(legs, max_size=3).map(tuple),
)


@given(receipts)
def test_a_receipt_comes_back_as_it_was(receipt: Receipt) -> None:
    """Nothing is lost or changed on the way to the disk and back."""
    assert from_json(json.loads(json.dumps(to_json(receipt)))) == receipt


@pytest.mark.parametrize(
    "change",
    [{"v": 2}, {"found": "x"}, {"status": "fine"}, {"at": "now"}, {"legs": [[1]]}],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    """A newer version and a damaged line are errors with a name."""
    value = to_json(a_receipt())

    with pytest.raises(Invalid):
        from_json(json.loads(json.dumps({**value, **change})))


def test_a_receipt_holds_nobodys_words() -> None:
    """Statements, titles, excerpts and sources of an answer do not get into it."""
    item = Item(
        document_key="memory:bWVtXzE",
        fact_id="mem_1",
        kind="fact",
        text="the statement of somebody",
        title="their title",
        scores=Scores(fused=0.5, margin=0.1),
    )
    left = Left(document_key="memory:bWVtXzI", why="gate", scores=Scores(fused=0.2, margin=-0.1))
    answer = Recall(status="ok", items=(item,), left=(left,))

    kept = found_in(answer)

    assert [(one.document_key, one.cut) for one in kept] == [
        ("memory:bWVtXzE", None),
        ("memory:bWVtXzI", "gate"),
    ]
    assert "statement" not in repr(kept)
    assert "title" not in repr(kept)


def test_a_digest_tells_equal_prompts_and_nothing_else() -> None:
    """Sixteen hex characters, whatever the prompt holds."""
    assert digest_of_prompt("a") == digest_of_prompt("a") != digest_of_prompt("b")
    assert len(digest_of_prompt("\ud800")) == 16


def a_receipt() -> Receipt:
    """One that says little."""
    return Receipt(
        receipt_id="ab12",
        at=1,
        host="pi",
        session_id="s",
        prompt_digest="00",
        prompt_chars=1,
        status="abstained",
        legs=(Leg(name="exact", candidates=0, ms=0.1),),
    )
