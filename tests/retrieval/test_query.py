"""A prompt taken apart: what asks nothing, what counts, what is asked segment by segment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.query import MAX_SEGMENTS, MAX_WORDS, SEGMENT_WORDS, parse_query

ACKNOWLEDGEMENTS = [
    "ok",
    "OK!",
    "okay, continue",
    "yes please",
    "thanks, looks good",
    "go ahead",
    "do it",
    "lgtm 👍",
    "sí, gracias",
    "vale, sigue",
    "sim, pode seguir",
    "oui, vas-y",
    "d’accord, merci",
    "ja, mach weiter",
    "va bene, grazie",
    "ga door",
    "tack, fortsätt",
    "tak, dalej",
    "tamam, devam et",
    "да, продолжай",
    "نعم، استمر",
    "हाँ, जारी रखो",
    "好的，继续",
    "はい、続けてください。",
    "네, 계속해줘",
    "了解です",
]


@pytest.mark.parametrize("prompt", ACKNOWLEDGEMENTS)
def test_an_acknowledgement_asks_nothing(prompt: str) -> None:
    """Assent, thanks and "go on" are no question, in any of the languages."""
    found = parse_query(prompt)

    assert found.silent
    assert found.questions == ()


@pytest.mark.parametrize("prompt", ["", "   \n", "👍👍", "!!!", "---", "/compact", "/clear"])
def test_a_prompt_without_words_or_a_host_command_asks_nothing(prompt: str) -> None:
    """Nothing to look for, nothing looked up."""
    assert parse_query(prompt).silent


@pytest.mark.parametrize("prompt", ["2", "option 3", "yes, but use postgres", "okta?", "/src/a.py"])
def test_an_answer_with_content_is_a_question(prompt: str) -> None:
    """A number, a name or a path is more than assent."""
    assert not parse_query(prompt).silent


def test_stop_words_of_the_prompts_language_do_not_count() -> None:
    """English words of no subject go always, those of another language when it is spoken."""
    english = parse_query("Which database should we use?").questions[0]
    spanish = parse_query("¿Cuál es la fuente de verdad para la base?").questions[0]

    assert [word.text for word in english.words] == ["database", "use"]
    assert {word.text for word in spanish.words} == {"fuente", "verdad", "base"}


def test_an_identifier_is_one_word_with_its_parts() -> None:
    """The whole and the parts of an identifier stand together."""
    (word,) = parse_query("readUserName").questions[0].words

    assert word.terms[0].startswith("readusernam")
    assert len(word.terms) == 4


def test_text_without_spaces_is_parted_into_pairs() -> None:
    """A Chinese question has several words, none of a single character."""
    words = parse_query("数据库用哪个").questions[0].words

    assert [word.terms for word in words][:2] == [("数据",), ("据库",)]
    assert all(len(term) == 2 for word in words for term in word.terms)


def test_a_single_character_still_asks() -> None:
    """One character is looked up as it is."""
    (word,) = parse_query("猫").questions[0].words

    assert word.terms == ("猫",)


def test_quotes_and_identifiers_are_literals() -> None:
    """What is quoted or shaped like a name should be found as it stands."""
    found = parse_query(
        'why does `npm ci` fail in src/app/main.ts with "exit code 7" and --no-cache'
    )

    assert set(found.literals) == {"npm ci", "src/app/main.ts", "exit code 7", "--no-cache"}


def test_a_long_prompt_is_asked_in_segments() -> None:
    """A page of text is several questions, of which the first and the last are kept."""
    page = " ".join(
        f"Sentence{at} alpha{at} beta{at} gamma{at} delta{at} eps{at}." for at in range(99)
    )

    found = parse_query("Where is the deploy key kept? " + page + " What about the last thing?")

    assert 1 < len(found.questions) <= MAX_SEGMENTS
    assert found.questions[0].words[0].text == "deploy"
    assert found.questions[-1].words[-1].text == "thing"


def test_expansions_are_asked_beside_the_prompt() -> None:
    """Another wording is another question."""
    found = parse_query("which store", expansions=("persistent database", "the of"))

    assert [question.text for question in found.questions] == ["which store", "persistent database"]


@given(st.text(max_size=3_000))
def test_any_prompt_is_bounded(prompt: str) -> None:
    """Whatever is pasted: a few questions of a bounded number of words, or a reason for none."""
    found = parse_query(prompt)

    assert bool(found.silent) != bool(found.questions)
    assert len(found.questions) <= MAX_SEGMENTS
    for question in found.questions:
        assert 0 < len(question.words) <= MAX_WORDS
        assert all(word.terms for word in question.words)


def test_a_huge_prompt_costs_little() -> None:
    """A megabyte of log is judged by its ends."""
    found = parse_query("Why does the build fail? " + "noise line 0123\n" * 70_000)

    assert found.questions[0].words[0].text == "build"
    assert sum(len(question.words) for question in found.questions) <= MAX_SEGMENTS * MAX_WORDS
    assert SEGMENT_WORDS < MAX_WORDS
