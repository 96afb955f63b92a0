"""The instructions that models get, as versioned text files: a changed prompt is a new file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final, Literal

ANALYZE: Final = "analyze_v1"
TRANSLATE: Final = "translate_v1"


@cache
def prompt(name: Literal["analyze_v1", "translate_v1"]) -> str:
    """The text of one prompt."""
    return (files("tasks.prompts") / f"{name}.txt").read_text(encoding="utf-8").strip()
