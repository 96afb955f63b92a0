"""Hook events are bounded and storable whatever a host sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.events import (
    BLOCK_MAX_BYTES,
    EXCERPT_MAX_BYTES,
    NAME_MAX_BYTES,
    PROMPT_MAX_BYTES,
    HookOutcome,
    PromptSubmitted,
    SessionStarted,
    ToolFinished,
    TurnEnded,
    bounded,
    bounded_name,
    bounded_path,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=200)


@given(ANY_TEXT, st.integers(0, 300))
def test_bounded_text_fits_and_is_valid_utf8(text: str, max_bytes: int) -> None:
    """No text, lone surrogates and NUL included, comes out longer than asked or unencodable."""
    result = bounded(text, max_bytes)

    assert len(result.encode("utf-8")) <= max_bytes
    assert "\0" not in result


@given(ANY_TEXT, st.integers(0, 300))
def test_bounding_twice_changes_nothing(text: str, max_bytes: int) -> None:
    """Bounding is idempotent: an event rebuilt from an event is the same event."""
    once = bounded(text, max_bytes)

    assert bounded(once, max_bytes) == once


def test_bounded_text_keeps_both_ends() -> None:
    """What is left out is the middle, and the cut is visible."""
    result = bounded("A" * 50 + "B" * 1000 + "C" * 50, 60)

    assert result.startswith("AAAAAAAAAA")
    assert result.endswith("CCCCCCCCCC")
    assert "[...]" in result


def test_long_names_stay_apart() -> None:
    """Two names that differ only beyond the bound must not become one session."""
    one, two = bounded_name("x" * 500 + "1"), bounded_name("x" * 500 + "2")

    assert one != two
    assert len(one) <= NAME_MAX_BYTES


@pytest.mark.parametrize("path", ["", "/a\0b", "/" + "x" * 5000, "/\ud800"])
def test_an_impossible_path_is_no_path(path: str) -> None:
    """A path that cannot exist is dropped; cutting it would name another file."""
    assert bounded_path(path) is None


def test_every_event_bounds_its_own_fields() -> None:
    """The constructors enforce the bounds, so no caller can forget to."""
    huge = "x" * 1_000_000

    prompt = PromptSubmitted("pi", huge, "/p", huge, False, huge)
    tool = ToolFinished("pi", "s", "/p", huge, huge, huge, huge, False, None, False)
    start = SessionStarted("pi", "s", huge, False, None, huge)

    assert len(prompt.prompt) <= PROMPT_MAX_BYTES
    assert len(prompt.session_id) <= NAME_MAX_BYTES
    assert prompt.transcript is None
    assert len(tool.input_excerpt) <= EXCERPT_MAX_BYTES
    assert len(tool.output_excerpt) <= EXCERPT_MAX_BYTES
    assert start.cwd == ""
    assert len(HookOutcome(huge).block) <= BLOCK_MAX_BYTES


def test_token_counts_never_shrink_a_counter() -> None:
    """A negative count is nonsense from the host and counts as nothing."""
    assert TurnEnded("pi", "s", "/p", -5, False, None).tokens == 0
