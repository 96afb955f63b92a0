"""Credentials that a sentence gives away, in the languages people write their notes in.

Owns the words for password, secret and key outside English identifiers, the small words that join
such a noun to its value ("is", "lautet", "は"), and recovery phrases of plain words. A sentence
needs a conspicuous value: prose about passwords is far more common than prose that holds one.
"""

import re
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Final

from storage.redaction_values import (
    Finding,
    is_code,
    is_placeholder,
    is_plain,
    is_random,
    is_uuid,
    may_be_mixed,
    may_be_spoken,
    word_list,
    word_set,
)

RULES: Final = frozenset({"spoken-secret", "recovery-phrase"})

_NOUNS: Final = (
    " pw",
    *word_list(
        """
    kata sandi | mật khẩu | mat khau | contraseña | lösenord | hasło | jelszó | şifre | parolă |
    clave | chave | chiave | clé | schlüssel | schluessel | sleutel | klucz | anahtar |
    geheimnis | парол | ключ | токен | секрет | κωδικ | συνθηματικ | סיסמ | كلمة المرور | كلمة
    السر | پسورد | رمز عبور | पासवर्ड | পাসওয়ার্ড | รหัสผ่าน |
    密码 | 密碼 | 口令 | 密钥 | 密鑰 | 金鑰 | 令牌
    | 秘钥 | パスワード | 暗証 | トークン | キー | 비밀번호 | 암호 | 토큰 | 패스워드
    """,
        "|",
    ),
)
_PHRASE_NOUNS: Final = word_list(
    """
    seed phrase | mnemonic | recovery phrase | backup phrase | wallet phrase | seed words |
    recovery words | secret phrase | seedphrase | frase semilla | frase de recuper |
    frase-semente | phrase de récup | phrase mnémo | wiederherstellungs | merkphrase | мнемонич
    | сид-фраз | 助记词 | 助記詞 | リカバリーフレーズ | 니모닉 | 복구 구문
    """,
    "|",
)
_JOINS: Final = word_set(
    """
    is are was be = : => -> → es son era est sont ist lautet heißt heisst sind war é è são jest
    to är er on là je este jsou adalah ialah είναι это будет — – - は が を 是 为 為 은 는 이 가 है
    هو هي
    zijn becomes now equals reads: set still just simply currently always
    """
)
_LOOSE_JOINS: Final = word_set(
    """
    to as with using auf mit avec con com à a en por use used try enter type pass
    """
)
_STOPS: Final = word_set(
    """
    commit commits hash hashes sha sha1 sha256 md5 checksum digest revision rev id ids version
    uuid request session build image ref branch tag etag fingerprint thumbprint length bytes
    chars characters path file at in under from see url link
    """
)
_WRAPPING: Final = "\"'`“”‘’«»「」『』()[]{}<>*_,;:!?.…。、，；：！？）（】【"
_OPENING: Final = "\"'`“‘«「『([{<*（【："
_MAY_FOLLOW: Final = frozenset(" \t:=\"'`)*：＝、」』”’»")
_GLUE: Final = (
    r"[^\S\n]?[^\x00-\x7f\s]{1,8}[\s:=\"'`(]{0,4}([!-~]{6,256})|"
    r"[^\S\n]?[：「『“（]{1,2}\s?([!-~]{6,256})"
)
_HEX: Final = r"[0-9a-f]+"
_WORDY: Final = r"[A-Za-z]{3,}-?[0-9]{1,6}[!?.]?"
_WORDS_IN_A_ROW: Final = r"[A-Za-z]{3,}(?:[-_.][A-Za-z]{3,}){2,}[-_.]?[0-9]{1,6}"
_LIST_OF_WORDS: Final = (
    r"[^\S\n]{0,3}(?:\([^)\n]{0,30}\)[^\S\n]{0,2})?(?:is|are|was|es|est|ist|это)?[\s:=：\"'`\\>-]{0,8}"
    r"((?:[0-9]{1,2}[.)]\s?)?[a-z]{3,8}(?:[,\s]{1,3}(?:[0-9]{1,2}[.)]\s?)?[a-z]{3,8}){10,23})(?![a-z])"
)
_SENTENCE_WORDS: Final = word_set(
    """
    the and for from with are was must not you has have been can use only its which when
    """
)


def find_spoken(text: str, lowered: str) -> Iterator[Finding]:
    """Every credential named by a noun in another language, and every recovery phrase.

    Args:
        lowered: the text in lower case, character for character, "?" for what is not ASCII.
    """
    full = _Lazy(text)
    foreign = not text.isascii() and _first_letters().search(text) is not None
    for noun in _present(_NOUNS, lowered, foreign=foreign):
        for end in _ends(full.lowered, noun):
            found = spoken_at(text, end, weak=noun not in {"clave", "chave", "chiave"})
            if found:
                yield found
    for noun in _present(_PHRASE_NOUNS, lowered, foreign=foreign):
        for end in _ends(full.lowered, noun):
            words = _list_of_words().match(text, end)
            if words and len(_SENTENCE_WORDS & set(words.group(1).split())) < 2:
                yield Finding("recovery-phrase", words.start(1), words.end(1))


class _Lazy:
    """A text in lower case, made when it is first needed: most texts name no such noun."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def lowered(self) -> str:
        return _lower(self._text)


def _present(nouns: tuple[str, ...], lowered: str, *, foreign: bool) -> Iterator[str]:
    """The nouns that can be in the text, told by ASCII letters in Latin script."""
    for noun, plain in _plain_forms(nouns):
        if foreign if plain is None else plain in lowered:
            yield noun


def _lower(text: str) -> str:
    """Lower case, character for character: the dotted capital I alone would become two."""
    return text.lower() if text.isascii() else text.replace("\u0130", "I").lower()


def spoken_at(text: str, at: int, *, weak: bool) -> Finding | None:
    """The credential that the sentence around a noun ending at `at` gives away, if it does.

    Args:
        weak: the noun means password, so a word with digits right after "is" is enough.
    """
    if text[at : at + 2].strip() and not text[at : at + 2].isascii():
        glued = _glue().match(text, at)
        if glued:
            group = 1 if glued.group(1) else 2
            found = _judge(glued.group(group), glued.start(group), joined=True, weak=True)
            if found:
                return found
    rest = text[at : at + 160]
    if rest[:1].isalpha() and rest[0] < "\u2e80":
        ending = _ending().match(rest)
        at, rest = (at + ending.end(), rest[ending.end() :]) if ending else (at, rest)
    if rest[:1] not in _MAY_FOLLOW:
        return None
    line_end = rest.find("\n")
    line = rest if line_end < 0 else rest[:line_end]
    return _read_on(line, at, weak=weak)


def _read_on(line: str, at: int, *, weak: bool) -> Finding | None:
    """Walks the next words: a value counts right after the noun, or soon after a joining word."""
    since_join, loose = 9, True
    for index, token in enumerate(_tokens().finditer(line)):
        word = token.group()
        bare = word.strip(_WRAPPING).lower()
        if index > 8 or bare in _STOPS:
            return None
        joined = since_join <= 1
        if index == 0 or joined or word[0] in _OPENING:
            start = at + token.start()
            near = joined and since_join == 0 and not loose
            beside = weak and (index == 0 or joined)
            found = _judge(word, start, joined=joined or beside, weak=weak and near, beside=beside)
            if found:
                return found
        if word.lower() in _JOINS or word[-1] in ":=：":
            since_join, loose = 0, False
        elif bare in _LOOSE_JOINS:
            since_join, loose = 0, True
        elif word[-1] in ".!?;。" or any(mark in word for mark in "{}<>|\\"):
            return None
        else:
            since_join += 1
    return None


def _judge(
    word: str, start: int, *, joined: bool, weak: bool, beside: bool = False
) -> Finding | None:
    value = word.lstrip(_OPENING)
    start += len(word) - len(value)
    value = value.rstrip(_WRAPPING) if not weak else value.rstrip(_WRAPPING.replace("!", ""))
    value = value.split("\\n", 1)[0].split('"', 1)[0]
    if not value.isascii() or "://" in value or (value.isalpha() and value[1:].islower()):
        return None  # a word, which most are
    if may_be_spoken(value):
        plain_id = is_uuid(value) or re.fullmatch(_HEX, value) is not None
        holds = joined or (is_random(value) and not plain_id and len(value) >= 10)
    else:
        # Right beside the word "password", a mixture of cases and digits is one.
        holds = ((weak or beside) and may_be_mixed(value)) or (weak and _is_word_with_digits(value))
    return Finding("spoken-secret", start, start + len(value)) if holds else None


def _is_word_with_digits(value: str) -> bool:
    if is_placeholder(value) or is_plain(value) or is_code(value):
        return False
    return len(value) >= 6 and (
        re.fullmatch(_WORDY, value) is not None or re.fullmatch(_WORDS_IN_A_ROW, value) is not None
    )


def _ends(lowered: str, noun: str) -> Iterator[int]:
    at = lowered.find(noun)
    while at >= 0:
        yield at + len(noun)
        at = lowered.find(noun, at + len(noun))


@cache
def _plain_forms(nouns: tuple[str, ...]) -> tuple[tuple[str, str | None], ...]:
    """Each noun as it looks with "?" for every letter outside ASCII; None in another script."""
    forms = ((noun, noun.encode("ascii", "replace").decode("ascii")) for noun in nouns)
    return tuple((noun, None if plain[0] == "?" else plain) for noun, plain in forms)


@cache
def _first_letters() -> re.Pattern[str]:
    """Where a noun of any other script could start."""
    heads = {noun[0] for noun in _NOUNS + _PHRASE_NOUNS if not noun[0].isascii()}
    return re.compile("[" + "".join(sorted(heads | {head.upper() for head in heads})) + "]")


@cache
def _glue() -> re.Pattern[str]:
    return re.compile(_GLUE)


@cache
def _ending() -> re.Pattern[str]:
    """The case ending of a noun: пароль, hasła, lösenordet."""
    return re.compile(r"[^\W\d_]{1,5}(?![^\W_])")


@cache
def _tokens() -> re.Pattern[str]:
    return re.compile(r"\S+")


@cache
def _list_of_words() -> re.Pattern[str]:
    return re.compile(_LIST_OF_WORDS)
