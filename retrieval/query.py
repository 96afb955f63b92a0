"""A question, taken apart once for every leg.

A prompt is not a search phrase: it may be one word of assent, or a page of pasted log. Owns the
split into informative words, literals and segments, and the decision that a prompt asks nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from retrieval.assent import is_assent
from storage.terms import stop_words, terms

MAX_CHARS: Final = 8_000
"""A longer prompt is judged by its beginning and its end, where people write."""
MAX_WORDS: Final = 48
SEGMENT_WORDS: Final = 24
"""A prompt with more informative words than this is asked segment by segment."""
MAX_SEGMENTS: Final = 4

_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    r"\uac00-\ud7af\U00020000-\U0003ffff]"
)
"""Scripts where white space does not part words."""
_LANGUAGES: Final = ("de", "es", "fr", "it", "nl", "pt", "ru")
_QUOTED: Final = re.compile(r"`([^`\n]{2,120})`|\"([^\"\n]{2,120})\"|“([^”\n]{2,120})”")
_IDENTIFIER: Final = re.compile(
    r"(?<!\w)(?=[\w./:@-]*[a-zA-Z])(?:--?[a-zA-Z][\w-]+|[\w@]+(?:[._/:-]+\w+)+|[a-z]+[A-Z]\w*)",
    re.ASCII,
)
_HYPHENATED: Final = re.compile(r"[a-z]+(?:-[a-z]+)+")
"""Two plain words and a hyphen ("free-stream"): prose far more often than a name."""
_SENTENCE: Final = re.compile(r"(?<=[.!?。！？;])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Word:
    """One informative word and every term that stands for it (itself, its stem, its parts)."""

    text: str
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One segment of a prompt."""

    text: str
    words: tuple[Word, ...]

    def distinct_terms(self) -> tuple[str, ...]:
        """Every term once, in order."""
        return tuple(dict.fromkeys(term for word in self.words for term in word.terms))


@dataclass(frozen=True, slots=True)
class Query:
    """A prompt, as questions that are asked side by side."""

    text: str
    questions: tuple[Question, ...]
    literals: tuple[str, ...]
    """Quoted phrases and identifiers: strings that should be found as they stand."""
    silent: str = ""
    """Why the prompt asks nothing; "" when it does."""


def parse_query(text: str, *, expansions: tuple[str, ...] = ()) -> Query:
    """The prompt's questions; `silent` says why there are none."""
    shown = _bounded(unicodedata.normalize("NFC", text)).strip()
    if not any(char.isalnum() for char in shown):
        return Query(shown, (), (), "nothing was asked")
    if is_assent(shown):
        return Query(shown, (), (), "an acknowledgement")
    if shown.startswith("/") and len(shown.split()) == 1 and "/" not in shown[1:]:
        return Query(shown, (), (), "a command of the host")
    whole = Question(shown, _words(shown))
    if not whole.words:
        return Query(shown, (), (), "no informative word")
    questions = [whole] if len(whole.words) <= SEGMENT_WORDS else list(_segments(shown))
    for extra in expansions:
        asked = Question(extra, _words(_bounded(extra)))
        if asked.words:
            questions.append(asked)
    return Query(shown, tuple(questions), tuple(_literals(shown)))


def _words(text: str) -> tuple[Word, ...]:
    ignored = _ignored(text)
    found: dict[tuple[str, ...], Word] = {}
    for raw in text.split():
        bare = raw.strip("\"'`“”‘’()[]{}<>,.;:!?¿¡…*#、，。！？「」『』（）")
        for part in _parts(bare, ignored):
            found.setdefault(part, Word(bare, part))
        if len(found) >= MAX_WORDS:
            break
    return tuple(found.values())[:MAX_WORDS]


def _parts(bare: str, ignored: frozenset[str]) -> Iterator[tuple[str, ...]]:
    """The terms of one spaced token, as one word, or word by word where spaces part nothing."""
    made = tuple(dict.fromkeys(term for term in terms(bare) if term not in ignored))
    if len(_UNSPACED.findall(bare)) < 2:
        if made:
            yield made
        return
    for term in made:
        # A character by itself says little: pairs stand for the run they come from.
        if len(term) > 1:
            yield (term,)


def _ignored(text: str) -> frozenset[str]:
    """The stop words of English, and of the language that the text has more of them from."""
    spoken = terms(text[:1_000])
    english = _common(spoken, "en")
    counts = {lang: _common(spoken, lang) for lang in _LANGUAGES}
    lang = max(counts, key=lambda name: counts[name])
    if counts[lang] >= 2 and counts[lang] > english:
        return stop_words("en") | stop_words(lang)
    return stop_words("en")


def _common(spoken: list[str], lang: str) -> int:
    """How many of the terms are stop words of a language, repeated ones as often."""
    words = stop_words(lang)
    return sum(1 for term in spoken if term in words)


def _segments(text: str) -> Iterator[Question]:
    """The most wordy sentences, in order, neighbours joined while they are short."""
    joined: list[Question] = []
    pending = ""
    for sentence in _SENTENCE.split(text):
        candidate = f"{pending} {sentence}".strip()
        words = _words(candidate)
        if pending and len(words) > SEGMENT_WORDS:
            joined.append(Question(pending, _words(pending)))
            candidate, words = sentence, _words(sentence)
        pending = candidate
        if len(words) >= SEGMENT_WORDS // 2:
            joined.append(Question(candidate, words))
            pending = ""
    if pending:
        joined.append(Question(pending, _words(pending)))
    asked = [part for part in joined if part.words]
    if len(asked) <= MAX_SEGMENTS:
        yield from asked
        return
    # People write at the beginning and at the end; what was pasted stands between.
    half = MAX_SEGMENTS // 2
    yield from asked[:half]
    yield from asked[-half:]


def _literals(text: str) -> Iterator[str]:
    seen: set[str] = set()
    for match in _QUOTED.finditer(text):
        seen.add(next(group for group in match.groups() if group).strip())
    found = (match.group().rstrip(".:") for match in _IDENTIFIER.finditer(text))
    seen.update(name for name in found if not _HYPHENATED.fullmatch(name))
    yield from sorted(literal for literal in seen if len(literal) >= 3)[:16]


def _bounded(text: str) -> str:
    if len(text) <= MAX_CHARS:
        return text
    half = MAX_CHARS // 2
    return text[:half] + "\n" + text[-half:]
