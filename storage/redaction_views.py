"""Other readings of a text in which a credential is whole: joined lines and decoded base64.

Owns the folds that split a value without changing it (a backslash at the end of a line, two
literals added together) and the base64 runs that hold text. A view maps what was found in it back
to the characters of the original.
"""

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from storage.redaction_values import Finding

_T: Final = r"[A-Za-z0-9_+/=.~-]"
_FOLD: Final = (
    rf"[\\=`^\"'](?<={_T}.)"
    r"(?:(?<=\\)(?:\\?\r?\n[ \t]*+|\\{1,3}n[ \t]*+)|(?<=[=])\r?\n|(?<=[`^])\r?\n[ \t]*+|"
    r"(?<=[\"'])[ \t]*+(?:[+&][ \t]*+(?:\\?\r?\n)?|\\?\r?\n|\.[ \t]++|\.\.[ \t]*+)[ \t]*+"
    rf"(?:[+&.][ \t]*+)?[\"'])(?={_T})"
)
_AROUND: Final = 512
_BASE64: Final = (
    # Lines of equal length as encoders wrap them, and their last; or one run.
    r"[A-Za-z0-9+/_-]{60,}+(?:\r?\n[A-Za-z0-9+/_-]{60,}+)*+(?:\r?\n[A-Za-z0-9+/_-]++={0,2}(?=\s|$))?+"
    r"={0,2}|[A-Za-z0-9+/_-]{24,}+={0,2}"
)
_PROBE: Final = 24


@dataclass(frozen=True, slots=True)
class View:
    """A reading of a text; `starts[i]` in the view is `origins[i]` in the original."""

    text: str
    starts: tuple[int, ...]
    origins: tuple[int, ...]

    def original(self, finding: Finding) -> Finding:
        """The same finding in the characters of the original text."""
        return Finding(finding.rule, self._at(finding.start), self._at(finding.end - 1) + 1)

    def crosses_fold(self, finding: Finding) -> bool:
        """True if the finding is only whole in this view."""
        first = bisect_right(self.starts, finding.start)
        return first != bisect_right(self.starts, finding.end - 1)

    def _at(self, index: int) -> int:
        part = bisect_right(self.starts, index) - 1
        return self.origins[part] + index - self.starts[part]


def unfold(text: str) -> View | None:
    """What stands around the text's folds, with the folds removed; None if it has none."""
    parts: list[str] = []
    starts: list[int] = []
    origins: list[int] = []
    length = after = until = 0
    for fold in _pattern(_FOLD).finditer(text):
        if fold.start() - _AROUND > until:
            length += _add(parts, text[after:until], "\n")
            after = fold.start() - _AROUND
        starts.append(length)
        origins.append(after)
        length += _add(parts, text[after : fold.start()])
        after, until = fold.end(), min(len(text), fold.end() + _AROUND)
    if not parts:
        return None
    starts.append(length)
    origins.append(after)
    parts.append(text[after:until])
    return View("".join(parts), tuple(starts), tuple(origins))


def _add(parts: list[str], *pieces: str) -> int:
    parts += pieces
    return sum(map(len, pieces))


def decoded_runs(text: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and content of every base64 run that holds text."""
    for run in _pattern(_BASE64).finditer(text):
        if _decode(run.group()[:_PROBE]) is None:
            continue
        content = _decode(re.sub(r"[\r\n]", "", run.group()))
        if content is not None:
            yield run.start(), run.end(), content


def _decode(run: str) -> str | None:
    """What the run says; None if it is not base64 of mostly printable text."""
    body = run.rstrip("=").translate({45: 43, 95: 47})
    body = body[: len(body) - 1] if len(body) % 4 == 1 else body
    try:
        plain = base64.b64decode(body + "=" * (-len(body) % 4))
    except (binascii.Error, ValueError):
        return None
    content = plain.decode("utf-8", "replace")
    readable = sum(map(str.isprintable, content)) + sum(map(str.isspace, content))
    odd = content.count("\ufffd")
    return (
        content if readable - odd >= 0.9 * len(content) and odd <= 1 + len(content) // 50 else None
    )


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
