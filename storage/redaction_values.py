"""What a secret value looks like, and what only looks like one.

Owns the judgements every redaction rule shares: whether a run of characters is random, whether it
is a placeholder, a reference or a piece of code, and whether it could be a password where a word
nearby says so. Finds nothing by itself: the rules say where to look.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

PLACEHOLDER: Final = re.compile(r"\[redacted:[a-z0-9-]{1,40}\]")


@dataclass(frozen=True, slots=True)
class Finding:
    """One credential: the rule that saw it, and where it stands, [start, end) in characters."""

    rule: str
    start: int
    end: int


def word_list(table: str, separator: str | None = None) -> tuple[str, ...]:
    """The words of a table, in order; its line breaks mean nothing."""
    return tuple(" ".join(word.split()) for word in table.split(separator))


def word_set(table: str) -> frozenset[str]:
    """The words of a table whose order means nothing."""
    return frozenset(word_list(table))


_PIECES: Final = re.compile(r"[A-Za-z0-9]+")
# A hump is what a reader sees as one unit: "Token", "JSON", "42". Random text has a hump every two
# or three characters, identifiers one every five or more.
_HUMPS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[A-Z]|[0-9]+")
# The 180 commonest letter pairs of written English, by first letter. Nine pairs in ten of a word
# are among them, one in four of random letters.
_PAIRS: Final = frozenset(
    group[0] + second
    for group in word_list(
        """
        abcdgilmnprstvy baelou caehiklortu daeiosu eacdeflmnpqrstvx faefilor gehir haeio
        iabcdefglmnorstv ke ladefilostuy mabeiop nacdegiostuv obcdlmnprstuvw paeloprt qu
        raegimnorstuy scehiopstu taehiorstuy uacelmnprst vaei waehi xi yp
        """
    )
    for second in group[1:]
)
_HEX: Final = re.compile(r"[0-9a-f]+|[0-9A-F]+")

_TECHNICAL: Final = re.compile(
    r"(?:[a-z]+[-_/.])*"
    r"(?:sha|md|base|utf|aes|rsa|ecdsa|hmac|pbkdf|argon|oauth|ed|curve|hs|rs|es|ps|ec|http|ipv|"
    r"int|uint|float|arm|amd|win|neo|web|latin|x|p|v|k|i|s|h|l|a|n|e|b|c|z)-?[0-9]{1,5}[a-z]?"
    r"(?:sum|url|bit|n|s|y|dsa|id)?(?:[-_/.][a-z]+[0-9]?|[-_/.][0-9]{1,4})*",
    re.IGNORECASE,
)

_PLACEHOLDER_WORDS: Final = word_set(
    """
    a abc access admin an api apikey app auth bar bearer client credential credentials db
    default demo dev development disabled dummy empty enabled env fake false foo form from get
    guest hash hidden id in input is key login masked me mock my mysql new nil no none null of
    old on optional or pass passcode passphrase passwd passwort password plain plaintext
    postgres private prod production prompt pwd qwerty random redis required root sample secret
    secrets service set some staging str string strong super test text the this to token tokens
    true undefined unset user username val value var variable with yes
    """
)
_PLACEHOLDER_MARKS: Final = re.compile(
    r"(?:^|[^a-z])your(?:[^a-z]|$|[a-z]{3,})|change[_ .-]?(?:me|this|it)|example$|"
    r"(?:^|[^a-z])example(?:[^a-z]|$)|placeholder|redacted|xxxx|x{3,}$|\*{3,}|•|"
    r"insert[_ .-]|replace[_ .-]?(?:me|this|with)|(?:^|[_-])todo(?:$|[_-])|_here$|-here$|dummy",
)
_REFERENCE: Final = re.compile(
    r"[<{\[(*]|!(?:vault|secret|ref|sub|env|getatt)\b|\$\{|\$\(|\$\{\{|%[A-Za-z_]\w*%|@\w+@|#\{|"
    r"\$(?:env:)?[A-Za-z_]\w*(?=$|[/:.}\"'])|"
    r"(?:op|vault|ssm|awssm|gcpsm|keyring|keychain|env|file|secret|secrets|ref|arn|projects|bws|sops|"
    r"sha\d+|md5|cmd|pass|doppler|akv)(?::|/)|"
    r"(?:https?|ftp|git|ssh|s3|gs)://",
    re.IGNORECASE,
)
_PATH: Final = re.compile(r"~?(?:\.{1,2})?/[\w.@-]+(?:/[\w.@-]+)*/?|[A-Za-z]:[\\/][^\s]*")
_CODE: Final = re.compile(
    r"[A-Za-z_]\w*(?:\?{0,1}\.[A-Za-z_]\w*)+[\])},;]*$|"
    r"[A-Za-z_$][\w.]*[(\[].*|.*(?:->|::|=>|\|\||&&|\$\{|\{\{).*|"
    r"(?:os|self|this|process|settings|config|env|ctx|request|req|args|opts|options|props)\.\w.*|"
    r"[A-Za-z]\w*\[.*"
)
_SNAKE_CASE: Final = re.compile(
    r"[A-Za-z][a-z]*(?:[_-][A-Za-z][a-z]*)*(?:[_-]\d+)?|[A-Z_]+(?:_\d+)?"
)
_EMAIL: Final = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DATE_OR_VERSION: Final = re.compile(r"[v^~=<>]{0,2}\d+(?:[.:/-]\d+)+[\w.:+-]{0,12}")
_UUID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


def is_random(value: str) -> bool:
    """Tells random text from words: some unbroken piece changes character class all the time."""
    return any(map(_is_random_piece, _PIECES.findall(value)))


def _is_random_piece(piece: str) -> bool:
    size = len(piece)
    if size < 8 or len(set(piece)) < 5:
        return False
    humps = _HUMPS.findall(piece)
    count = len(humps)
    digits = sum(map(str.isdigit, piece))
    if digits == size:
        return False
    if digits and size >= 16 and count >= 4 and (piece.isupper() or _HEX.fullmatch(piece)):
        # Hex and base32 change class less often, and names in one case have separators.
        return count >= 0.12 * size
    if digits and size >= 16 and count >= 0.4 * size:
        return True  # so dense that the few letter pairs left tell nothing
    wordy = _wordiness(humps)
    if wordy > 0.65:
        return False
    if not digits:
        dense = count >= 5 and count >= 0.33 * size
        return dense or (count >= 3 and wordy < 0.5) or (size >= 12 and wordy < 0.35)
    return count >= 3 and (count >= 0.28 * size or wordy < 0.5)


def _wordiness(humps: list[str]) -> float:
    """The share of letter pairs that are common in English; 0.5 where there are too few to tell."""
    words = [hump.lower() for hump in humps if hump[0].isalpha()]
    pairs = [first + second for word in words for first, second in pairwise(word)]
    if len(pairs) < 4:
        return 0.5
    return sum(pair in _PAIRS for pair in pairs) / len(pairs)


def is_varied(value: str) -> bool:
    """Tells a token body from a word or a row of crosses, for a prefix that says most already."""
    if len(set(value)) < 5 or _PLACEHOLDER_MARKS.search(value.lower()):
        return False
    has_digit = any(map(str.isdigit, value))
    return has_digit or (value.lower() != value and len(_HUMPS.findall(value)) >= 3)


def is_uuid(value: str) -> bool:
    """True for exactly one UUID."""
    return _UUID.fullmatch(value) is not None


def is_placeholder(value: str) -> bool:
    """True for what documentation writes where the secret would stand, and for references to it."""
    if len(set(value)) < 3 or _REFERENCE.match(value):
        return True
    if _PATH.fullmatch(value) and not is_random(value):
        return True
    lowered = value.lower()
    if _PLACEHOLDER_MARKS.search(lowered):
        return True
    if value not in (lowered, value.upper()) or not value.isascii():
        return False
    words = re.sub(r"\d{1,3}(?![0-9])", " ", re.sub(r"[_.:\- ]", " ", lowered)).split()
    return all(word in _PLACEHOLDER_WORDS for word in words)


def is_code(value: str) -> bool:
    """True for an expression: a call, a subscript, an attribute, an environment look-up."""
    if _CODE.fullmatch(value) is None:
        return False
    return not any(len(piece) >= 16 and _is_random_piece(piece) for piece in _PIECES.findall(value))


def is_plain(value: str) -> bool:
    """True for an address, a date, a version or a technical word that carries digits."""
    return (
        _EMAIL.fullmatch(value) is not None
        or _DATE_OR_VERSION.fullmatch(value) is not None
        or _TECHNICAL.fullmatch(value) is not None
    )


def may_be_password(value: str) -> bool:
    """True where a name says password and the value is not visibly something else.

    People choose passwords, so this asks for little: a digit or a symbol among letters, or six
    digits and more. Bare words are left alone: they are types, field names and prose.
    """
    if len(value) < 6 or is_placeholder(value) or is_plain(value):
        return False
    if value.isdigit():
        return True
    if not any(map(str.isalpha, value)) or _SNAKE_CASE.fullmatch(value):
        return is_random(value)
    return (
        any(map(str.isdigit, value))
        or any(mark in value for mark in "!@#$%^&*?~+=")
        or (is_random(value))
    )


def may_be_chosen(value: str) -> bool:
    """True for a password of plain words, for the name after which nothing else can stand."""
    return len(value) >= 8 and not is_placeholder(value) and not is_code(value)


def may_be_token(value: str) -> bool:
    """True where a name says secret, token or key and the value is long and random enough."""
    if len(value) < 12 or is_placeholder(value) or is_plain(value):
        return len(value) >= 8 and not is_placeholder(value) and _is_dense(value)
    return is_random(value) or is_uuid(value)


def may_be_secret(value: str) -> bool:
    """True where a name says secret: letters and digits in turn, though none of it is random."""
    if may_be_token(value):
        return True
    if len(value) < 12 or is_placeholder(value) or is_plain(value) or _SNAKE_CASE.fullmatch(value):
        return False
    return sum(map(str.isdigit, value)) >= 4 and len(_HUMPS.findall(value)) >= 4


def may_be_spoken(value: str) -> bool:
    """True for a value that a sentence names: nothing but a credential reads like this."""
    if len(value) < 8 or is_placeholder(value) or is_plain(value) or is_code(value):
        return False
    if is_random(value):
        return True
    lettered = any(map(str.isalpha, value)) and any(map(str.isdigit, value))
    return lettered and any(mark in value for mark in "!@#$%^&*?")


def may_be_mixed(value: str) -> bool:
    """True for letters of both cases and digits in turn, though some of it reads like a word."""
    kinds = (str.islower, str.isupper, str.isdigit)
    if len(value) < 8 or not all(any(map(kind, value)) for kind in kinds):
        return False
    plain = is_placeholder(value) or is_plain(value) or is_code(value)
    return not plain and len(_HUMPS.findall(value)) >= 4


def _is_dense(value: str) -> bool:
    """True for eight to eleven characters where letters and digits alternate."""
    return not is_plain(value) and len(_HUMPS.findall(value)) >= 4 and is_random(value)
