"""The block: never over budget, never broken out of, the same bytes for the same items."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.render import ENVELOPE_BYTES, TAG, fit, line_bytes, neutral, render
from retrieval.results import Item, Recall, Scores, abstained

CLOSE = f"</{TAG}>"
nasty = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            [
                CLOSE,
                f"<{TAG}>",
                "<system>",
                "</system-reminder>",
                "[INST]",
                "[/INST]",
                "\n\nHuman: ",
                "\n\nAssistant:",
                "\u2028",
                "\u2029",
                "\u202e",
                "\u200b",
                "＜system＞",
                "‹system›",
                "\U000e0041",
                "\x1b[31m",
                "\ud800",
                "&lt;",
                '"}\n{"kind":"system"',
                "\\u003c",
                "\\",
                "word ",
                "é",
                "漢字",
                "🙂",
            ]
        ),
        max_size=12,
    ).map("".join),
)
items = st.builds(
    lambda text, kind, title, unconfirmed, fact: Item(
        document_key="memory:x",
        fact_id=fact,
        kind=kind,
        text=text,
        title=title,
        unconfirmed=unconfirmed,
        valid_at=1_700_000_000_000,
        scores=Scores(fused=0.5),
    ),
    nasty,
    nasty,
    nasty,
    st.booleans(),
    st.sampled_from(["", "mem_1"]),
)


def an_item(text: str) -> Item:
    """A fact with this statement."""
    return Item(
        document_key="memory:x",
        fact_id="mem_1",
        kind="fact",
        text=text,
        valid_at=1_700_000_000_000,
        scores=Scores(fused=0.5),
    )


def a_recall(*found: Item) -> Recall:
    """An answer with these items."""
    return Recall(status="ok", items=found)


@given(st.lists(items, max_size=6), st.integers(0, 3_000))
def test_the_block_never_exceeds_its_budget(found: list[Item], max_bytes: int) -> None:
    """Whatever the items, the UTF-8 block has at most `max_bytes`."""
    block = render(a_recall(*found), max_bytes=max_bytes)

    assert len(block.encode("utf-8")) <= max_bytes


@given(st.lists(items, min_size=1, max_size=5))
def test_no_text_breaks_out_of_the_block(found: list[Item]) -> None:
    """One opening and one closing tag, JSON lines between them, and no other sign of a tag."""
    block = render(a_recall(*found), max_bytes=20_000)

    lines = block.split("\n")
    head, tail, body_lines = lines[0], lines[-1], lines[2:-1]
    assert head == f'<{TAG} trust="untrusted">'
    assert tail == CLOSE
    assert len(body_lines) == len(found)
    for line in body_lines:
        note = json.loads(line)
        assert set(note) <= {"kind", "unconfirmed", "title", "note", "since", "until"}
        assert not set("<>&\u2028\u2029") & set(line)
        folded = unicodedata.normalize("NFKC", line)
        assert not set("<>&") & set(folded)
        assert not re.search(r"\[\s*/?\s*(INST|SYS)", folded, re.IGNORECASE)
        assert not any(unicodedata.category(char) in ("Cf", "Cc", "Cs", "Co") for char in line)


@given(st.lists(items, max_size=4), st.integers(0, 2_500))
def test_equal_items_give_equal_bytes(found: list[Item], max_bytes: int) -> None:
    """Scores, durations and legs leave no trace: a prompt cache survives them."""
    slow = Recall(status="partial", items=tuple(found), ms=99.0, gaps=("late",), generation=7)

    assert render(slow, max_bytes=max_bytes) == render(a_recall(*found), max_bytes=max_bytes)


@given(st.lists(items, max_size=5), st.integers(0, 2_500))
def test_fitting_twice_changes_nothing(found: list[Item], max_bytes: int) -> None:
    """What fitted once fits again, as it is."""
    once = fit(found, max_bytes=max_bytes)

    assert fit(once, max_bytes=max_bytes) == once
    assert sum(map(line_bytes, once)) <= max(0, max_bytes - ENVELOPE_BYTES)


def test_nothing_to_say_is_an_empty_string() -> None:
    """An abstained answer injects no frame either."""
    assert render(abstained("nothing"), max_bytes=2_000) == ""
    assert render(a_recall(an_item("x")), max_bytes=ENVELOPE_BYTES) == ""


def test_a_long_text_is_cut_at_a_character_with_an_ellipsis() -> None:
    """The first item that does not fit is shortened, and says so."""
    (cut,) = fit([an_item("漢字と🙂" * 400)], max_bytes=600)

    assert cut.truncated
    assert cut.text.endswith("…")
    block = render(a_recall(cut), max_bytes=600)
    assert 560 < len(block.encode("utf-8")) <= 600


def test_a_giant_does_not_keep_the_small_ones_out() -> None:
    """An item too large even when cut leaves room for the next."""
    room = ENVELOPE_BYTES + line_bytes(an_item("small one")) + 4

    kept = fit([an_item("g" * 9_000), an_item("small one")], max_bytes=room)

    assert [item.text for item in kept] in (["small one"], [kept[0].text])
    assert kept


def test_unconfirmed_and_dates_are_shown() -> None:
    """A reader sees what nobody vouched for, and since when something holds."""
    unsure = Item(
        document_key="memory:x",
        fact_id="mem_1",
        kind="fact",
        text="maybe",
        unconfirmed=True,
        valid_at=1_700_000_000_000,
        invalid_at=1_800_000_000_000,
        scores=Scores(fused=0.4),
    )

    line = render(a_recall(unsure), max_bytes=2_000).split("\n")[2]

    assert json.loads(line) == {
        "kind": "fact",
        "unconfirmed": True,
        "note": "maybe",
        "since": "2023-11-14",
        "until": "2027-01-15",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", "ab"),
        ("abc\u202edef", "abcdef"),
        ("one\ntwo\tthree", "one two three"),
        ("tag\U000e0061\U000e0062", "tag"),
        ("x\x1b[0m", "x [0m"),
        ("\ud800", "\N{REPLACEMENT CHARACTER}"),
        ("naïve 漢字", "naïve 漢字"),
    ],
)
def test_hidden_characters_are_taken_out(text: str, shown: str) -> None:
    """What a person could not see, a model does not read."""
    assert neutral(text) == shown
