"""Sessions as signal: who stands beside whom, and what a score passes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.ask import Ask
from retrieval.index import build_index
from retrieval.query import parse_query
from retrieval.search import rank, recall
from retrieval.structure import REACH, Place, Reach, StructureBuilder, asks, place_of
from storage.authority.payloads import document_upserted
from storage.records import Document, RedactedText, Trust
from tests.retrieval.memories import SOME_AT, Text, a_store, document_of, in_memory
from tests.support import ManualClock


def a_turn(text: str, session: str, order: int) -> Document:
    """One line of a session."""
    return Document(
        namespace="docs",
        external_id=f"{session}-{order}",
        source="talk",
        kind="turn",
        text=RedactedText(text),
        observed_at=SOME_AT,
        trust=Trust.USER,
        metadata={"session": session, "order": order},
    )


def test_a_place_is_named_by_metadata() -> None:
    """Session and order come from the document; without a session there is no place."""
    assert place_of(a_turn("hello", "s1", 4)) == Place("docs\0talk\0s1", 4.0)
    assert place_of(document_of(Text(text="hello"), 0)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where is it?", True),
        ("你好吗？", True),
        ("It is here.", False),
        ("Why? " + "x" * 40, False),
    ],
)
def test_a_question_ends_with_its_mark(text: str, expected: bool) -> None:
    """Only the end decides: what was asked first and answered then is no question."""
    assert asks(text) is expected


def test_the_answer_behind_a_question_inherits_its_score() -> None:
    """A line that says a little outranks the question before it, wherever both stand."""
    builder = StructureBuilder()
    lines = [("It is, from half past seven on.", 2), ("Is breakfast included?", 1), ("Bye.", 3)]
    for position, (text, order) in enumerate(lines):
        builder.add(position, Place("s", order), text)
    structure = builder.build(4)
    assert structure is not None

    found = structure.spread(np.array([0.1, 0.6, 0.0, 0.5], dtype=np.float32))

    assert found[0] > found[1] > found[2] > 0
    assert found[3] == pytest.approx(0.5), "a text without a session is untouched"
    assert structure.asked_by.tolist() == [1, -1, -1, -1]


def test_sessions_do_not_leak_into_each_other() -> None:
    """The last line of one session passes nothing to the first of the next."""
    builder = StructureBuilder()
    for position, session in enumerate("aabb"):
        builder.add(position, Place(session, position), "What about it?")
    structure = builder.build(4)
    assert structure is not None

    found = structure.spread(np.array([0, 1, 0, 0], dtype=np.float32))

    assert found[2:].tolist() == [0, 0]
    assert structure.asked_by.tolist() == [-1, 0, -1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1, width=32)), min_size=1, max_size=12),
    st.booleans(),
)
def test_no_text_rises_above_what_its_session_holds(
    rows: list[tuple[int, float]], asking: bool
) -> None:
    """Scores stay within the reach: never above the best times what is passed on, never below 0."""
    builder = StructureBuilder()
    for position, (session, _) in enumerate(rows):
        builder.add(position, Place(str(session), position), "What?" if asking else "That.")
    structure = builder.build(len(rows))
    assert structure is not None
    scores = np.array([score for _, score in rows], dtype=np.float32)

    found = structure.spread(scores)

    highest = 1 + REACH.question + REACH.before + REACH.after + REACH.session
    assert (found >= 0).all()
    for at, (session, _) in enumerate(rows):
        best = max(score for other, score in rows if other == session)
        assert found[at] <= best * highest / (1 + REACH.session) + 1e-5


def test_without_reach_nothing_changes() -> None:
    """All shares at 0 leave every score as it was."""
    builder = StructureBuilder()
    builder.add(0, Place("s", 0), "What?")
    builder.add(1, Place("s", 1), "That.")
    structure = builder.build(2)
    assert structure is not None
    scores = np.array([0.3, 0.1], dtype=np.float32)

    still = Reach(question=0, before=0, after=0, session=0, asking=1)

    assert structure.spread(scores, still).tolist() == scores.tolist()


def test_documents_with_sessions_are_recalled_in_context(home: Path) -> None:
    """Through the whole index: the reply comes along though it has no word of the question."""
    store = a_store(home, ManualClock())
    turns = [
        a_turn("Which supplier changed its encoding?", "s", 1),
        a_turn("Nordholm, since Monday.", "s", 2),
        a_turn("The printer is out of paper.", "t", 1),
    ]
    store.append([document_upserted(turn) for turn in turns])

    with store.read() as reads:
        index = build_index(reads, generation=1)
        answer = recall(
            index, "Which supplier changed its encoding", reads=reads, now_at=SOME_AT + 1
        )
        ranked, _ = rank(
            index,
            parse_query("Which supplier changed its encoding"),
            Ask(at=SOME_AT + 1),
            reads=reads,
            encoder=None,
        )
    store.close()

    assert {item.text for item in answer.items} >= {turns[0].text}
    assert [candidate.rowid for candidate in ranked] == [1, 2], "the other session has no part"
    assert ranked[1].asked_by is not None


def test_a_store_without_sessions_has_no_structure() -> None:
    """Facts and notes cost nothing."""
    reads = in_memory([Text(text="one"), Text(text="two")])

    assert build_index(reads, generation=1).structure is None
