"""Is this statement English? A verdict without a model, on the text that people wrote.

Owns the reading of a text as prose (code, addresses, paths and identifiers taken out) and the
evidence for a language: script, inverted marks, function words, letters of its own. Promises
that nothing raises and that technical English full of names passes. What to do with a foreign
statement (translate, stage, refuse) is the caller's.
"""

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from typing import Final

from storage.language_words import FUNCTION_WORDS, LETTERS, NARROWING, SCRIPTS

_FOREIGN_SCRIPT_SHARE: Final = 0.3
_SOME_SCRIPT_SHARE: Final = 0.2  # enough where the Latin letters hold no word of any language
_MIN_PROSE_WORDS: Final = 4
_SAMPLE: Final = 8_000  # characters; a language shows itself long before that

_CODE: Final = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|<[A-Za-z/!][^<>\n]{0,200}>", re.DOTALL)
_ADDRESS: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://[^\s<>\"'`]+|[\w.+-]+@[\w-]+\.[\w.-]+", re.ASCII
)
# ASCII only: with Unicode classes a name would swallow the Chinese or Japanese glued to it.
_NAME: Final = re.compile(
    r"[A-Za-z0-9_./\\~@#$%&*+=:|<>()\[\]{}^-]*"
    r"(?:[0-9_/\\~@#$%&*+=|<>()\[\]{}^]|[A-Za-z][.:-][A-Za-z]|(?<![A-Za-z])--?[A-Za-z]|[a-z][A-Z])"
    r"[A-Za-z0-9_./\\~@#$%&*+=:|<>()\[\]{}^-]*",
    re.ASCII,
)
_WORD: Final = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_ELISIONS: Final = frozenset({"l", "d", "qu", "c", "n", "s", "j", "m", "t"})
_ELIDED_ITALIAN: Final = frozenset({"l", "dell", "all", "nell", "sull", "dall", "un", "c", "d"})
_CONTRACTED: Final = frozenset({"t", "s", "ll", "re", "ve", "d", "m"})
_SCRIPT_STARTS: Final = tuple(first for first, _, _ in SCRIPTS)


@dataclass(frozen=True, slots=True)
class LanguageVerdict:
    """Whether a text may be stored as English, the likely language, and what decided it.

    `lang` is a two-letter code, or "und" where nothing tells; `confidence` is between 0 and 1.
    """

    english: bool
    lang: str
    confidence: float
    reason: str


def detect(text: str) -> LanguageVerdict:
    """The verdict on a statement; code and names in it neither help nor harm."""
    prose = _prose(text[:_SAMPLE])
    scripts = _scripts(prose)
    letters = sum(scripts.values())
    foreign = letters - scripts[""]
    share = foreign / letters if letters else 0.0
    if share >= _FOREIGN_SCRIPT_SHARE:
        return LanguageVerdict(False, _language_of(scripts, prose), round(share, 2), "script")
    if "¿" in prose or "¡" in prose:
        return LanguageVerdict(False, "es", 0.95, "inverted mark")
    verdict = _by_words([word for word in _WORD.findall(prose) if _is_prose_word(word)])
    if share >= _SOME_SCRIPT_SHARE and verdict.lang == "und":
        return LanguageVerdict(False, _language_of(scripts, prose), 0.55, "script beside names")
    return verdict


def _prose(text: str) -> str:
    """The text in composed form, without what no language owns."""
    plain = unicodedata.normalize("NFC", _CODE.sub(" ", text))
    return _NAME.sub(" ", _ADDRESS.sub(" ", plain))


def _is_prose_word(word: str) -> bool:
    return not (len(word) > 1 and word.isupper() and word.isascii())


def _scripts(prose: str) -> Counter[str]:
    """Letters by script: "" for Latin, else the language the script stands for."""
    counts: Counter[str] = Counter()
    for letter in prose:
        if letter.isalpha():
            counts[_script(ord(letter))] += 1
    return counts


def _script(code_point: int) -> str:
    if code_point < SCRIPTS[0][0]:
        return ""
    _, last, language = SCRIPTS[bisect_right(_SCRIPT_STARTS, code_point) - 1]
    return language if code_point <= last else ""


def _language_of(scripts: Counter[str], prose: str) -> str:
    """The language behind the scripts of a text: kana makes Han Japanese, hangul Korean."""
    for language in ("ja", "ko"):
        if scripts[language]:
            return language
    foreign = Counter({language: count for language, count in scripts.items() if language})
    language = foreign.most_common(1)[0][0]
    for letters, narrower in NARROWING.get(language, ()):
        if any(letter in prose for letter in letters):
            return narrower
    return language


def _by_words(words: list[str]) -> LanguageVerdict:
    """The verdict on Latin script, by the distinct words each language would claim."""
    lowered = {_lower(word) for word in words}
    scores = _scores(lowered)
    english = scores.pop("en")
    lang, best = max(scores.items(), key=lambda item: (item[1], item[0] in {"es", "fr", "de"}))
    accented = sum(not word.isascii() for word in lowered)
    short = len(words) < _MIN_PROSE_WORDS
    if best >= 2 and best > english and not (short and english):
        return LanguageVerdict(False, lang, _confidence(best, english), "function words")
    if not english and not short and accented and best:
        return LanguageVerdict(False, lang, 0.6, "one function word and accents")
    if not short and accented >= 2 and accented > english:
        return LanguageVerdict(False, lang if best else "und", 0.55, "accents")
    if short:
        return LanguageVerdict(True, "en" if english else "und", 0.5, "too few words to tell")
    if not english:
        return LanguageVerdict(True, "und", 0.5, "no evidence against")
    return LanguageVerdict(True, "en", _confidence(english, best), "function words")


def _lower(word: str) -> str:
    # The dotted capital I would leave a combining dot behind and hide the word from every list.
    return word.replace("İ", "i").lower().replace("’", "'")


def _scores(words: set[str]) -> dict[str, int]:
    scores = dict.fromkeys(FUNCTION_WORDS, 0)
    for word in words:
        head, apostrophe, rest = word.partition("'")
        if apostrophe and rest not in _CONTRACTED and len(rest) >= 2:
            scores["fr"] += head in _ELISIONS
            scores["it"] += head in _ELIDED_ITALIAN
            continue
        for language, claimed in FUNCTION_WORDS.items():
            own = LETTERS.get(language)
            scores[language] += word in claimed or (own is not None and not own.isdisjoint(word))
        if apostrophe and rest in _CONTRACTED:
            scores["en"] += 1
    return scores


def _confidence(winner: int, loser: int) -> float:
    return round(min(0.99, 0.5 + (winner - loser) / (winner + loser + 1) / 2), 2)
