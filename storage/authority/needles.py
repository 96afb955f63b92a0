"""Finding forgotten texts again: as whole words, in any spelling that our files use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable


def forms(needle: str) -> set[bytes]:
    """The spellings of a text in files of ours: UTF-8, and JSON with and without escapes."""
    return {
        needle.encode("utf-8", "surrogatepass"),
        json.dumps(needle)[1:-1].encode("ascii"),
        json.dumps(needle, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass"),
    }


def in_bytes(data: bytes, needles: Iterable[str]) -> bool:
    """Whether bytes hold one of the texts."""
    return any(_bytes_pattern(needle).search(data) is not None for needle in needles)


def in_text(text: str, needles: Iterable[str]) -> bool:
    """Whether a text holds one of the texts, as it is or as JSON inside it."""
    return any(_text_pattern(needle).search(text) is not None for needle in needles)


def _bytes_pattern(needle: str) -> re.Pattern[bytes]:
    return re.compile(b"|".join(_whole_bytes(form) for form in sorted(forms(needle))))


def _text_pattern(needle: str) -> re.Pattern[str]:
    spelled = sorted(
        {needle, json.dumps(needle)[1:-1], json.dumps(needle, ensure_ascii=False)[1:-1]}
    )
    return re.compile("|".join(_whole(form) for form in spelled))


def _whole_bytes(form: bytes) -> bytes:
    # Latin-1 gives each byte one character, so the rule for texts serves bytes.
    return _whole(form.decode("latin-1")).encode("latin-1")


def _whole(form: str) -> str:
    """A pattern for the text that is no part of a longer word.

    The letter of a JSON escape (`\\n`) belongs to no word.
    """
    before = (
        r"(?:(?<![0-9A-Za-z])|(?<=\\[bfnrt]))" if form[:1].isascii() and form[:1].isalnum() else ""
    )
    after = r"(?![0-9A-Za-z])" if form[-1:].isascii() and form[-1:].isalnum() else ""
    return before + re.escape(form) + after
