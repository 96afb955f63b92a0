"""Credentials told by a name beside them: assignments, flags, fields and sentences.

Owns the names (password, secret, token, key and their like in many languages), the grammar between
a name and its value, and how much a value must look like a secret for which name. A name alone is
never enough: `MAX_TOKENS=100000`, `password: str` and "the secret is to run the seeds" stay.
"""

import re
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import Final

from storage.redaction_prose import spoken_at
from storage.redaction_values import (
    Finding,
    is_code,
    is_placeholder,
    may_be_chosen,
    may_be_password,
    may_be_secret,
    may_be_token,
    word_list,
    word_set,
)


class Claim(IntEnum):
    """What a name claims its value to be; a stronger claim needs a less conspicuous value."""

    NONE = 0
    KEY = 1
    TOKEN = 2
    SECRET = 3
    PASSWORD = 4


RULE_OF: Final = {
    Claim.KEY: "api-key",
    Claim.TOKEN: "token",
    Claim.SECRET: "secret",
    Claim.PASSWORD: "password",
}
RULES: Final = frozenset(RULE_OF.values())

_PASSWORD_STEMS: Final = word_list(
    """
    password passwd passphrase passcode passwort passw passord pwd contrase senha kennwort
    wachtwoord haslo heslo jelszo salasana parola adgangskode losenord katasandi motdepasse
    sifre
    """
)
_STEMS: Final = word_list(
    """
    pass pwd psk contrase senha kennwort wachtwoord haslo heslo jelszo
    salasana parola adgangskode losenord sifre secret token key credential auth
    """
)
_KEY_QUALIFIERS: Final = word_set(
    """
    api access secret private signing signature encryption decryption crypt master account auth
    authentication service shared admin root webhook deploy app application subscription session
    jwt hmac aes rsa license licence client consumer write ingest integration personal user
    developer function functions host machine activation instrumentation rails openai anthropic
    stripe google gemini mapbox sendgrid mailgun datadog dd algolia twilio azure aws gcp
    cloudflare pinecone cohere mistral groq together deepl serpapi serper newrelic sentry
    rollbar honeycomb segment amplitude
    """
)
_DENIED: Final = word_set(
    """
    count counts limit limits max maximum min minimum len length size type types url uri urls
    uris endpoint name names ref reference id ids file filename path dir directory field fields
    policy expiry expires expiration expire ttl timeout usage used budget rate hint label labels
    reset required version prefix suffix provider manager store arn hash hashes sha sha1 sha256
    sha512 md5 digest checksum fingerprint thumbprint public primary foreign cache sort
    partition idempotency object row group translation format algorithm alg regex pattern
    validator header headers param strength placeholder title text message error changed updated
    rotated at date bits index idx position offset scope scopes binding bindings map mapping
    press code pressed down up event integrity page next continuation cursor lock change
    correlation kind status state enabled disabled exists valid audience issuer model price cost
    author authors
    """
)
_NO_PASSWORDS: Final = word_set(
    """
    passwordless passwords bypass compass trespass surpass overpass underpass encompass
    """
)
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[A-Z]|[0-9]+")

# Between a name and its value. Quotes may be escaped any number of times (JSON in JSON).
_Q: Final = r"\\{0,4}[\"'`]"
_SEPARATORS: Final = (
    # An annotated name, the value in quotes.
    rf"[ \t]{{0,4}}:[ \t]{{0,4}}[\w.\[\]| ]{{1,40}}?[ \t]{{0,4}}=[ \t]{{0,4}}(?={_Q})",
    # Every sign of assignment, after the closing quote and bracket of a subscript; YAML's blocks.
    rf"(?:{_Q})?[)\]]{{0,2}}[ \t]{{0,20}}"
    rf"(?:={{1,3}}>?|:=|:|->|>(?=[^<>\s]{{1,512}}</)|＝|：|%3[AaDd])[ \t]{{0,20}}"
    r"(?:[|>][-+]?[ \t]*\r?\n[ \t]{1,20})?",
    # A pair of fields: the name is the value of one, the secret that of the next.
    rf"(?:{_Q})?[\s,{{}}]{{1,40}}(?:{_Q})?(?:value|default|data)(?:{_Q})?"
    rf"[ \t]{{0,8}}[:=][ \t]{{0,8}}",
    # A call with the value as its argument, and the argument after a quoted name.
    rf"(?:[ \t]{{0,4}}\([ \t\n]{{0,8}}|(?:{_Q}),[ \t\n]{{0,8}})(?={_Q})",
    # Nothing but a space, the value in quotes.
    rf"[ \t]{{1,4}}(?={_Q})",
)  # fmt: skip
_CALL: Final = 3
_BARE_SEPARATOR: Final = r"[ \t]{1,4}(?=[^\s-])"
_SUFFIX: Final = re.compile(r"[A-Za-z0-9_.\-]{0,48}")
_LEFT: Final = re.compile(r"[A-Za-z0-9_.$\-]{0,48}$")
_QUOTED: Final = re.compile(r"(\\{0,4})([\"'`])((?:(?!\1\2)[^\r\n]){1,2048})\1\2")
_BARE: Final = re.compile(r"[^\s\"'`<>,;&|\\]{1,256}")
_BARE_REST: Final = re.compile(r"[^\s\"'`<>,;&|\\]*+")
_WHOLE_LINE: Final = re.compile(r"[^\s\"'`]{1,256}(?=[ \t]*(?:\r?\n|$))")
_COMMAND_BEFORE: Final = re.compile(
    r"(?:^|[\s;&|(])(?:ENV|ARG|setx?|set -\w{1,4}|setenv|-e|machine|login \S{1,64})[ \t]{1,4}$",
    re.IGNORECASE,
)
_QUALIFIED: Final = re.compile(
    r"(?<!\$env)(?<=[A-Za-z0-9:]):$"
)  # AWS::IAM::AccessKey, arn:...:secret:name
_LINE_START: Final = re.compile(r"(?:^|\n|\\n)[ \t]*(?:export[ \t]+|[-+>][ \t]*)?$")
_INSIDE_A_RUN: Final = frozenset("+/=%&?")
_JUDGED: Final = 256  # the start of a value tells what it is; reading no further keeps cost linear
_TRAILING: Final = ".,;:!?)]}"
_FUNCTION_WORDS: Final = word_set(
    """
    a an and are as at be by can enter for from has if in is it must not of on or should that
    the this to use was when which will with you your
    """
)


def find_named(text: str, lowered: str) -> Iterator[Finding]:
    """Every value that a name beside it makes a credential.

    Args:
        lowered: the same text in lower case, character for character.
    """
    for stem in _STEMS:
        at = lowered.find(stem)
        while at >= 0:
            after = at + len(stem)
            found = _at_stem(text, at, after)
            if found:
                yield found
                after = max(after, found.end)
            at = lowered.find(stem, after)


def claim_of(name: str) -> Claim:
    """What a field, variable or flag of this name holds."""
    words = [word.lower() for word in _WORDS.findall(name)]
    squeezed = "".join(words)
    if not words or not _DENIED.isdisjoint(words):
        return Claim.NONE
    if any(word.startswith("tokeni") or word == "tokens" for word in words):
        return Claim.NONE
    if any(stem in squeezed for stem in _PASSWORD_STEMS) or words[-1].endswith(
        ("pass", "passe", "psk")
    ):
        return Claim.NONE if words[-1] in _NO_PASSWORDS else Claim.PASSWORD
    if "secret" in words or squeezed.endswith("secret") or "secretkey" in squeezed:
        return Claim.SECRET
    if "request" in words and "token" in words:
        return Claim.NONE
    if "token" in words or squeezed.endswith("token") or "credential" in squeezed:
        return Claim.TOKEN
    if words[-1] == "auth" or squeezed.endswith(("apikey", "accesskey", "authkey", "privatekey")):
        return Claim.KEY
    return _claim_of_key(words, name)


def is_credential(claim: Claim, value: str) -> bool:
    """True if a value is a credential, given what its name claims."""
    if claim is Claim.NONE or is_code(value):
        return False
    if claim is Claim.PASSWORD:
        return may_be_password(value)
    if claim is Claim.KEY:
        return len(value) >= 16 and may_be_token(value)
    if claim is Claim.SECRET:
        return may_be_secret(value)
    return may_be_token(value)


def _claim_of_key(words: list[str], name: str) -> Claim:
    if "key" not in words and "keys" not in words and not words[-1].endswith("key"):
        return Claim.NONE
    if "keys" in words or words == ["key"]:
        return Claim.NONE
    if not _KEY_QUALIFIERS.isdisjoint(words) or (name.isupper() and words[-1] == "key"):
        return Claim.KEY
    return Claim.NONE


def _at_stem(text: str, at: int, after: int) -> Finding | None:
    left_match = _LEFT.search(text, max(0, at - 48), at)
    start = left_match.start() if left_match else at
    start = _skip_escape(text, start, at)
    suffix = _SUFFIX.match(text, after)
    end = suffix.end() if suffix else after
    name = text[start:end].strip("-.$")
    end = start + text[start:end].index(name) + len(name) if name else after
    claim = claim_of(_with_word_before(text, start, name))
    if claim is Claim.NONE or _QUALIFIED.search(text, max(0, start - 5), start):
        return None
    verb = name.lower() == "pass"
    for index, separator in enumerate(_separators()[: 3 if verb else None]):
        gap = separator.match(text, end)
        if gap and not (index == _CALL and "." in text[after:end]):
            found = _value_at(text, start, gap.end(), claim)
            if found:
                return found
    if verb or text[start - 1 : start] in _INSIDE_A_RUN:
        return None
    if text.startswith("-", start) or _COMMAND_BEFORE.search(text, max(0, start - 80), start):
        gap = _bare_separator().match(text, end)
        if gap:
            found = _value_at(text, start, gap.end(), claim)
            if found:
                return found
    return spoken_at(text, end, weak=claim is Claim.PASSWORD)


def _skip_escape(text: str, start: int, at: int) -> int:
    """The start of a name, moved past an escape's letter: `\\nPASSWORD` is not `nPASSWORD`."""
    if start < at and start > 0 and text[start - 1] == "\\" and text[start] in "nrtbf":
        return start + 1
    return start


def _with_word_before(text: str, start: int, name: str) -> str:
    """The name, led by the word before it where people write keys in two words: "api key"."""
    if name[:3].lower() != "key" or start < 2 or text[start - 1] != " ":
        return name
    word = re.search(r"[A-Za-z]{2,16}$", text[max(0, start - 17) : start - 1])
    return f"{word.group()} {name}" if word else name


def _value_at(text: str, name_at: int, at: int, claim: Claim) -> Finding | None:
    quoted = _QUOTED.match(text, at)
    if quoted:
        value, start = quoted.group(3), quoted.start(3)
        if any(map(str.isspace, value)):
            return _phrase(value, start, claim, text[name_at:at])
        return _finding(value, start, claim)
    open_quote = re.compile(_Q).match(text, at)
    if open_quote:
        at = open_quote.end()
    elif _LINE_START.search(text, max(0, name_at - 24), name_at):
        whole = _WHOLE_LINE.match(text, at)
        if whole and not any(mark in whole.group() for mark in "({["):
            found = _finding(whole.group(), at, claim)
            if found:
                return found
            shouted = claim is Claim.PASSWORD and text[name_at:at].isupper()
            if shouted and text[at - 1] == "=" and may_be_chosen(whole.group()):
                return Finding(RULE_OF[claim], at, whole.end())
    bare = _BARE.match(text, at)
    if bare is None:
        return None
    value = bare.group().rstrip(_TRAILING)
    called = text[bare.end() : bare.end() + 1] in {'"', "'", "`"} and value.endswith(("(", "["))
    found = None if called else _finding(value, at, claim)
    if found and len(bare.group()) == _JUDGED and (rest := _BARE_REST.match(text, bare.end())):
        return Finding(found.rule, found.start, rest.end())
    return found


def _phrase(value: str, start: int, claim: Claim, lead: str) -> Finding | None:
    """A quoted pass phrase of several words; a sentence has function words, a phrase has none."""
    words = value.split()
    if "phrase" not in lead.lower() or claim is not Claim.PASSWORD or len(words) < 4:
        return None
    if not _FUNCTION_WORDS.isdisjoint(word.lower() for word in words) or is_placeholder(value):
        return None
    return Finding(RULE_OF[claim], start, start + len(value))


def _finding(value: str, start: int, claim: Claim) -> Finding | None:
    bare = value.rstrip("…").removesuffix("...")
    if not is_credential(claim, bare):
        return None
    return Finding(RULE_OF[claim], start, start + len(bare))


@cache
def _separators() -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(separator, re.ASCII) for separator in _SEPARATORS)


@cache
def _bare_separator() -> re.Pattern[str]:
    return re.compile(_BARE_SEPARATOR)
