"""How many tokens a text costs a model, about: no tokenizer of any model is asked.

A rule of thumb over scripts, on the high side for prose: four ASCII characters a token, two of
another alphabet, one of a script that is written without spaces.
"""

from __future__ import annotations

import re
from typing import Final

ASCII_CHARS: Final = 4
LETTER_CHARS: Final = 2
_DENSE: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff"
    r"\U0001f000-\U0003ffff]"
)
_ASCII: Final = re.compile(r"[\x00-\x7f]")


def estimated_tokens(text: str) -> int:
    """About how many; 0 for an empty text."""
    plain = len(_ASCII.findall(text))
    dense = len(_DENSE.findall(text))
    letters = len(text) - plain - dense
    return -(-plain // ASCII_CHARS) + -(-letters // LETTER_CHARS) + dense
