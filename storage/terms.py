"""The analyzer: one text to one list of terms, the same for what is stored and what is asked.

Each term is either `[a-z0-9_]+` or characters beyond ASCII only, so the list joined by spaces feeds
FTS5's `ascii` tokenizer (with `_` as a token character) without being cut again. Words are folded
(case, accents) and lightly stemmed; identifiers come whole and in parts; scripts written without
spaces come as single characters and pairs. Leaves weighting, and which stop words matter, to
retrieval.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final, TypeVar

V = TypeVar("V")
MAX_TERM_CHARS: Final = 64
"""A longer compound is found by its parts only, a longer word by its first characters."""
MAX_REMEMBERED: Final = 65_536

_MARKED: Final = "\u0900-\u0963\u0966-\u0dff\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59\u0e81-\u0edf"
_MARKED_MORE: Final = (
    "\u0f18-\u0f39\u0f3e-\u0fbc\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17e0-\u17e9"
)
_UNSPACED: Final = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ec6\u0ec8-\u0ece\u0f40-\u0fbc\u1000-\u103f\u1050-\u109f"
    "\u1780-\u17d3\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa"
    "\u30fc-\u30ff\u3105-\u312f\u3131-\u318e\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U000323af"
)
_ASCII_WORD: Final = (
    r"[Cc]\+\+|[CcFfJj]#|"
    r"[A-Za-z0-9_](?:[A-Za-z0-9_]|'(?=[A-Za-z])|[./\\:@+-]+(?=[A-Za-z0-9_]))*"
)
_ASCII: Final = re.compile(_ASCII_WORD)
_ANY: Final = re.compile(
    rf"({_ASCII_WORD})|([{_UNSPACED}]+)|((?:[^\W\d_\x00-\x7f]|[{_MARKED}{_MARKED_MORE}]|[^\W\x00-\x7f])+)"
)
_UNIT: Final = re.compile(
    r".[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u0f71-\u0fbc"
    r"\u102b-\u103e\u1056-\u1059\u17b4-\u17d3\u3099\u309a]*"
)
_STRIPPED_MARKS: Final = re.compile(
    r"[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670]+"
)
_SEPARATOR: Final = re.compile(r"[./\\:@+_-]+")
_VERSION: Final = re.compile(r"[vV]\d+(?:\.\d+)+(?:[.+-]\w+)*")
_HUMP: Final = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z]+[0-9]*|[0-9]+")
_SPELLED: Final = str.maketrans(
    {
        "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ı": "i",
        "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH", "ħ": "h", "Ħ": "H",
        "ß": "ss", "ẞ": "SS", "’": "'", "‘": "'", "ʼ": "'", "\u200c": None, "\u200d": None,
        "\u00ad": None, "\ufeff": None, "‐": "-", "‑": "-",
    }
)  # fmt: skip
_NAMED: Final = {"c++": "cpp", "c#": "csharp", "f#": "fsharp", "j#": "jsharp"}


def terms(text: str) -> list[str]:
    """Every term of a text, in reading order, repeated as often as it stands there."""
    found: list[str] = []
    if text.isascii():
        return list(chain.from_iterable(map(_PARTED.__getitem__, text.split())))
    for match in _ANY.finditer(folded(text)):
        token, unspaced, word = match.groups()
        if token:
            found += _expanded(token)
        elif unspaced:
            found += _units_and_pairs(unspaced)
        elif word:
            found.append(word.casefold()[:MAX_TERM_CHARS])
    return found


def term_text(text: str) -> str:
    """The terms as pre-tokenised text for the full-text index."""
    if text.isascii():
        return " ".join(filter(None, map(_PARTED_TEXT.__getitem__, text.split())))
    return " ".join(terms(text))


def folded(text: str) -> str:
    """Compatibility forms and accents folded away, letters of other alphabets left whole."""
    spelled = unicodedata.normalize("NFKD", text.translate(_SPELLED))
    # Composing again keeps Hangul syllables and voiced kana, whose marks are letters, not accents.
    return unicodedata.normalize("NFC", _STRIPPED_MARKS.sub("", spelled)).translate(_SPELLED)


def _parted(part: str) -> tuple[str, ...]:
    """Terms of what stands between two white spaces of an ASCII text (no token holds any)."""
    if part.isalnum():
        return _expanded(part)
    return tuple(chain.from_iterable(map(_expanded, _ASCII.findall(part))))


class _Remembered(dict[str, V]):
    """What a function gives for a short text, computed once; a third of `lru_cache`'s look-up."""

    def __init__(self, function: Callable[[str], V]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, part: str) -> V:
        given = self._function(part)
        # A megabyte without white space is a part too: it is not kept. Nor are numbers: there is
        # no end of them, and they are quickly done.
        if len(part) <= MAX_TERM_CHARS and not part.isdigit():
            if len(self) >= MAX_REMEMBERED:
                self.clear()
            self[part] = given
        return given


_PARTED: Final = _Remembered(_parted)
_PARTED_TEXT: Final = _Remembered(
    lambda part: part[:MAX_TERM_CHARS] if part.isdigit() else " ".join(_parted(part))
)


@lru_cache(maxsize=65_536)
def _expanded(token: str) -> tuple[str, ...]:
    """Terms of one ASCII token: the whole first, then its parts."""
    lowered = token.lower()
    if lowered.isalpha():
        if len(token) < 3 or token[1:].islower() or token.isupper():
            return (stem(lowered[:MAX_TERM_CHARS]),)
        humps = _HUMP.findall(token)
        return _whole_and_parts(lowered, humps)
    if lowered in _NAMED:
        return (_NAMED[lowered],)
    if "'" in token:
        return _without_apostrophe(token)
    if lowered.isdigit():
        return (lowered[:MAX_TERM_CHARS],)
    if _VERSION.fullmatch(token):
        token = token[1:]
    parts = [part for part in _SEPARATOR.split(token) if part]
    whole = "_".join(part.lower() for part in parts)
    humps = [hump for part in parts for hump in _part_humps(part)]
    return _whole_and_parts(whole, humps)


def _part_humps(part: str) -> list[str]:
    humps = _HUMP.findall(part)
    return humps if len(humps) < 2 else [part, *humps]


def _whole_and_parts(whole: str, parts: list[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    if 0 < len(whole) <= MAX_TERM_CHARS:
        # Typed in lower case, `getUserName` is one word, and is stemmed like one.
        found[stem(whole) if whole.isalpha() else whole] = None
    for part in parts:
        lowered = part.lower()[:MAX_TERM_CHARS]
        found[stem(lowered) if lowered.isalpha() else lowered] = None
    return tuple(found)


def _without_apostrophe(token: str) -> tuple[str, ...]:
    found: list[str] = []
    for part in token.split("'"):
        # What follows is an English ending ('s, 't, 're, 'll) or an elided article's word (l'API).
        if found and len(part) <= 2:
            continue
        if part and (len(part) > 2 or not found):
            found += _expanded(part)
    return tuple(found)


def _units_and_pairs(run: str) -> list[str]:
    units = _UNIT.findall(run)
    return units + [first + second for first, second in pairwise(units)]


_IRREGULAR: Final = {
    "using": "use", "used": "use", "uses": "use", "ran": "run", "does": "do", "did": "do",
    "done": "do", "was": "be", "were": "be", "is": "be", "are": "be", "been": "be", "has": "have",
    "had": "have", "wrote": "writ", "written": "writ", "broke": "break", "broken": "break",
    "chose": "choos", "chosen": "choos", "built": "build", "kept": "keep", "sent": "send",
    "made": "mak", "said": "say", "took": "tak", "taken": "tak", "went": "go", "gone": "go",
    "goes": "go", "indices": "index", "children": "child", "embed": "embed", "string": "string",
}  # fmt: skip
_VOWEL: Final = re.compile(r"[aeiouy]")
_HISSING: Final = ("ss", "x", "z", "ch", "sh")


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A lower-case English word without its commonest endings (plural, -ed, -ing, final e).

    Light on purpose: it only has to make forms of one word meet, on both sides alike. Endings that
    change the word class (-er, -ion, -ment, -ly) stay.
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) < 4:
        return word
    word = _without_plural(word)
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            base = word[: -len(ending)]
            if _VOWEL.search(base) and not word.endswith("eed"):
                return _closed(base)
    return _closed(word)


def _without_plural(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("es") and word[:-2].endswith(_HISSING):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is", "ous")):
        return word[:-1]
    return word


def _closed(base: str) -> str:
    """Doubled last consonants and a final e fold away: running/run, caching/cache."""
    if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "aeiouls":
        return base[:-1]
    if len(base) > 3 and base[-1] == "e" and base[-2] != "e":
        return base[:-1]
    return base


_STOP_WORDS: Final = {
    "en": """a an and are as at be been but by can could did do does for from had has have how i if
    in into is it its just me my no not of on or our out please shall should so some such than that
    the their them then there these they this those to too up us was we were what when where which
    while who whom whose why will with would you your am about after again all also any because
    before being both each few he her here him his more most other over own same she very let get
    got don doesn isn""",
    "es": """el la los las un una unos unas y o de del al en con por para que se su sus es son lo le
    les me mi mis tu tus no si como más pero ya muy este esta esto estos estas ese esa eso fue ser
    hay cuando donde qué quién cómo cuál porque sin sobre entre también""",
    "fr": """le la les un une des et ou de du au aux en avec par pour que qui se sa son ses est sont
    ce cette ces il elle nous vous ils elles ne pas plus dans sur je tu mon ma mes ton ta tes notre
    votre leur mais si comme quand où quoi comment pourquoi""",
    "de": """der die das den dem des ein eine einen einem einer eines und oder von vom zu zum zur im
    in am an auf mit für bei aus nach ist sind war es er sie wir ihr ich du nicht kein keine auch
    als wie wenn was wer wo warum dass sich nur noch schon sein seine""",
    "pt": """o a os as um uma uns umas e ou de do da dos das em no na nos nas com por para que se
    seu sua seus suas é são não mais mas como quando onde quem qual porque já muito este esta isto
    esse essa isso foi ser há ao aos""",
    "it": """il lo la i gli le un uno una e o di del della dei delle da dal in nel nella con per che
    si suo sua è sono non più ma come quando dove chi quale perché già molto questo questa quello
    quella al alla""",
    "nl": """de het een en of van in op met voor bij uit naar is zijn was er ik jij hij zij wij niet
    geen ook als hoe wanneer wat wie waar waarom dat die dit deze om aan te""",
    "ru": """и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по ее мне
    было вот от меня о из ему когда где кто почему это или для мы они при""",
}


@lru_cache(maxsize=16)
def stop_words(lang: str = "en") -> frozenset[str]:
    """Terms that carry no subject in a language (ISO 639-1), as `terms` spells them.

    Languages without a list (all those written without spaces among them) have none.
    """
    return frozenset(terms(_STOP_WORDS.get(lang, "")))
