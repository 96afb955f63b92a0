"""Why a statement cannot be remembered: the one rule that it breaks, and what to do about it.

Owns the sentences of `ops remember`; the rules themselves are `storage.declarations`'.
"""

from __future__ import annotations

from typing import Final

from storage.declarations import MAX_CHARS, MIN_CONTENT_WORDS, MIN_WEIGHT, content_words, weight
from storage.redaction import is_clean

SECRET: Final = "It looks like it holds a password, a key or a token: leave that out."  # noqa: S105 -- a sentence


def why_refused(text: str) -> str:
    """The one rule that this text breaks, most important first; "" when it breaks none of them."""
    said = " ".join(text.split())
    if not is_clean(said):
        return SECRET
    if len(said) > MAX_CHARS:
        return f"It has {len(said):,} characters: at most {MAX_CHARS}. Say it in a sentence or two."
    if weight(said) < MIN_WEIGHT:
        return f"It has {_characters(len(said))}: at least {MIN_WEIGHT}."
    if content_words(said) < MIN_CONTENT_WORDS:
        least = f"at least {MIN_CONTENT_WORDS} words that carry meaning"
        return f"It says too little by itself: {least}, as in “deploy from the main branch”."
    return ""


def _characters(number: int) -> str:
    return "1 character" if number == 1 else f"{number} characters"
