"""Credentials told by their shape: key blocks, web tokens, URLs, headers, cookies and hashes.

Owns the rules whose evidence is neither a prefix nor a name: PEM, PGP and PuTTY blocks (also cut
off before their end), JSON web tokens, user info and signed parameters of URLs, `Bearer` and
`Basic` headers, cookies, password hashes, and platform tokens that have a form but no prefix.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from storage.redaction_values import (
    Finding,
    is_code,
    is_placeholder,
    is_random,
    is_uuid,
    may_be_chosen,
    may_be_password,
    may_be_token,
    word_set,
)

RULES: Final = word_set(
    """
    private-key putty-key json-web-token url-password url-token url-parameter bearer-token
    basic-header authorization-header cookie password-hash slack-webhook discord-webhook
    teams-webhook google-chat-webhook discord-token telegram-token mailchimp-key terraform-token
    asana-token totp-secret azure-client-secret twitter-token aws-secret-key ethereum-key
    """
)

# rule, a literal that must be there, pattern (group 1 is the secret), what else must hold.
_Check = Callable[[str], bool]


def _anything(value: str) -> bool:
    return not is_placeholder(value)


def _is_hash(value: str) -> bool:
    return len(set(value)) >= 8


_SHAPES: Final[tuple[tuple[str, tuple[str, ...], str, _Check], ...]] = (
    ("json-web-token", ("eyJ",), r"(eyJ[\w-]{8,}+\.[\w-]{6,}+(?:\.[\w-]*+){0,3})", is_random),
    ("slack-webhook", ("hooks.slack.com/",),
     r"((?:https?://)?hooks\.slack\.com/(?:services|workflows|triggers)/[\w/-]{12,}+)", is_random),
    ("discord-webhook", ("/api/webhooks/",),
     r"((?:https?://)?[\w.]{0,40}?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/[\w-]{16,}+)",
     is_random),
    ("teams-webhook", ("webhook",),
     r"(https://[\w.-]{1,80}/webhookb?2?/[\w@-]{20,}+/IncomingWebhook/[\w/-]{20,}+)", is_random),
    ("google-chat-webhook", ("chat.googleapis.com",),
     r"(https://chat\.googleapis\.com/v1/spaces/\S{10,400}token=[\w%-]{10,}+)", is_random),
    ("totp-secret", ("otpauth://",),
     r"otpauth://[^\s\"'<>]{1,200}?secret=([A-Z2-7a-z]{12,}+)", _anything),
    ("twitter-token", ("AAAAAAAAAAAAAAAA",),
     r"(?<![\w%])(A{16,}+[A-Za-z0-9]{4,}+%[\w%]{30,}+)", is_random),
    ("password-hash", ("$",),
     r"(\$(?:2[abxy]?\$[0-9]{2}\$[./A-Za-z0-9]{22,}+|(?:apr1|1|5|6|md5|sha1|7|y|gy|P|H|S)\$"
     r"(?:rounds=[0-9]{1,9}\$)?[./A-Za-z0-9$]{16,}+|argon2(?:id?|d)\$[\w=$,+/.-]{24,}+|"
     r"scrypt\$[\w=$,+/.-]{24,}+|pbkdf2-sha\d{3}\$[\w=$,+/.-]{24,}+))", _is_hash),
    ("password-hash", ("pbkdf2", "scrypt:", "{S", "bcrypt"),
     r"((?:pbkdf2_sha\d+\$[0-9]{2,8}\$|pbkdf2:sha\d+(?::[0-9]{2,8})?\$|scrypt:[0-9:]{5,20}\$|"
     r"bcrypt(?:_sha256)?\$\$?|\{S{1,2}HA(?:256|512)?\})[\w+/=.$-]{16,}+)", _is_hash),
    ("aws-secret-key", ("AKIA", "ASIA"),
     r"A[KS]IA[A-Z0-9]{16}[^A-Za-z0-9+/\n]{1,12}(?:[\w \t:=\"']{0,40}[ \t:=\"',])?"
     r"([A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])", is_random),
)  # fmt: skip

# The same, for the text in lower case.
_SPELLED: Final[tuple[tuple[str, str, str, _Check], ...]] = (
    ("bearer-token", "er",
     r"(?:bearer|ssws)[ \t:]{1,4}[\"'`]?([a-z0-9._~+/=|:-]{12,}+)", may_be_token),
    ("authorization-header", "authorization",
     r"authorization(?<![a-z]authorization)\\{0,4}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,4}[\"'`]?"
     r"(?:token|api-?key|key|splunk|negotiate|ntlm|geniekey|ssws|bot|oauth)?"
     r"[ \t=]{0,2}[\"']?([a-z0-9._~+/=:-]{12,}+)", may_be_token),
    # A header that carries it: nothing but a credential stands there, even of letters alone.
    ("bearer-token", "bearer",
     r"authorization\\{0,4}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,4}[\"'`]?bearer[ \t]{1,4}"
     r"([a-z0-9._~+/=|:-]{16,}+)", may_be_chosen),
    ("ethereum-key", "private",
     r"private[ _-]?key[^\n]{0,40}?(0x[0-9a-f]{64})(?![0-9a-f])", _anything),
)  # fmt: skip

# Where a token can start: not inside a word, or after an escape whose last letter looks like one.
_EDGE: Final = r"(?:(?<![\w~%\\./-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f]{2})|(?<=[0-9]m)|(?<=/bot))"

# rule, what is easy to find, what must stand before it, the longest that can be.
_TAILED: Final = (
    ("discord-token", r"\.[\w-]{6}\.[\w-]{20,}+", _EDGE + r"[MNO][\w-]{22,27}$", 29),
    ("telegram-token", r":AA[\w-]{28,}+", _EDGE + r"[0-9]{8,10}$", 12),
    ("mailchimp-key", r"-us[0-9]{1,2}(?!\w)", _EDGE + r"[0-9a-f]{32}$", 33),
    ("terraform-token", r"\.atlasv1\.[\w-]{16,}+", _EDGE + r"[A-Za-z0-9]{12,16}$", 18),
    ("asana-token", r":[0-9a-f]{24,}+", _EDGE + r"[0-9]/[0-9]{10,20}(?:/[0-9]{10,20})?$", 45),
    ("azure-client-secret", r"Q~[\w~.-]{24,}+", _EDGE + r"[\w~.-]{3}[0-9]$", 5),
)

_PEM_HEAD: Final = r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
_PEM_TAIL: Final = r"-----END [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)?-----(?:\\{1,4}n)?"
_PEM_LINES: Final = (
    r"(?:(?:\s|\\{1,4}[nrt]|[\"'+>|,*#])*+"
    r"(?:[A-Za-z][A-Za-z-]{2,20}: ?[^\n\\]{0,120}+(?=\n|\\)|[A-Za-z0-9+/=]{8,}+))*+"
)
_PEM_LIMIT: Final = 32_768
_PUTTY: Final = (
    r"PuTTY-User-Key-File-\d:[^\n]*+"
    r"(?:\r?\n(?:[A-Z][A-Za-z0-9-]{2,20}:[^\n]*+|[A-Za-z0-9+/=]{16,}+))*+"
)
_BASIC: Final = r"[Bb](?:asic|ASIC)[ \t]{1,4}([A-Za-z0-9+/_-]{8,}+={0,2})"
_AUTHORITY: Final = r"[^\s\"'<>`\\/?#]{1,512}"
_AUTHORITY_WITH_SLASH: Final = r"[^\s\"'<>`\\?#]{1,256}@[\w.\[\]-]{1,128}"
_NO_LOGIN: Final = frozenset({"docker", "oci", "docker-daemon", "docker-archive", "github", "npm"})
_PARAMETER: Final = (
    r"(?:[?&;#]|u0026|%26|%3f)"
    r"((?:[\w.-]{0,24}[_.-])?(?:access_?token|id_?token|refresh_?token|auth_?token|token|api_?key|"
    r"apikey|key|sig|signature|secret|client_?secret|password|passwd|pwd|pass|auth|jwt|code|ticket|"
    r"session|sid|x-amz-signature|x-amz-security-token|x-amz-credential|x-goog-signature|"
    r"hmac|hash_?key|assertion|credential))(?:=|%3d)([^\s&\"'<>`\\;#]{6,2048})"
)
_COOKIE: Final = r"cookie2?\\{0,4}[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\{0,4}[\"'`]?"
_COOKIE_PAIR: Final = r"[ ;]{0,4}([\w.%$!#&*+^|~-]{1,64})=([^\s;\"'\\]{0,4096})"
_COOKIE_NAMES: Final = r"sess|sid|auth|token|jwt|csrf|xsrf|login|remember|sso|secure|user"


def find_structured(text: str, lowered: str) -> Iterator[Finding]:
    """Every credential that its own shape gives away.

    Args:
        lowered: the same text in lower case, character for character.
    """
    for rule, literals, pattern, check in _SHAPES:
        if any(literal in text for literal in literals):
            for match in _compiled(pattern).finditer(text):
                if check(match.group(1)):
                    yield Finding(rule, *match.span(1))
    for rule, literal, pattern, check in _SPELLED:
        if literal in lowered:
            for match in _compiled(pattern).finditer(lowered):
                start, end = match.span(1)
                if check(text[start:end]):
                    yield Finding(rule, start, end)
    yield from _find_tailed(text)
    yield from _find_keys(text)
    yield from _find_basic(text)
    yield from _find_urls(text)
    yield from _find_parameters(text, lowered)
    yield from _find_cookies(text, lowered)


def _find_tailed(text: str) -> Iterator[Finding]:
    """Tokens without a prefix whose middle is rare: found there, and read backwards from it."""
    for rule, tail, head, longest in _TAILED:
        for match in _compiled(tail).finditer(text):
            before = _compiled(head).search(text, max(0, match.start() - longest), match.start())
            if before and is_random(text[before.start() : match.end()]):
                yield Finding(rule, before.start(), match.end())


def _find_keys(text: str) -> Iterator[Finding]:
    if "-----BEGIN" in text:
        after = 0
        while head := _compiled(_PEM_HEAD).search(text, after):
            end = _end_of_key(text, head.end())
            after = head.end()
            if re.search(r"[A-Za-z0-9+/=]{16}", text[head.end() : end]):
                yield Finding("private-key", head.start(), end)
                after = end
    if "PuTTY-User-Key-File" in text:
        for match in _compiled(_PUTTY).finditer(text):
            if "Private" in match.group():
                yield Finding("putty-key", *match.span())


def _end_of_key(text: str, after: int) -> int:
    """Where a key block ends: at its own END line, or with its last line if that is missing."""
    other = text.find("-----BEGIN", after, after + _PEM_LIMIT)
    tail = _compiled(_PEM_TAIL).search(text, after, after + _PEM_LIMIT if other < 0 else other)
    if tail:
        return tail.end()
    lines = _compiled(_PEM_LINES).match(text, after)
    return lines.end() if lines else after


def _find_basic(text: str) -> Iterator[Finding]:
    if "asic " not in text and "ASIC " not in text:
        return
    for match in _compiled(_BASIC).finditer(text):
        value = match.group(1)
        try:
            plain = base64.b64decode(value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4))
        except (binascii.Error, ValueError):
            continue
        if b":" in plain and all(32 <= byte < 127 for byte in plain):
            yield Finding("basic-header", *match.span(1))


def _find_urls(text: str) -> Iterator[Finding]:
    at = text.find("://")
    while at >= 0:
        authority = _compiled(_AUTHORITY).match(text, at + 3)
        if authority and "@" not in authority.group():
            authority = _compiled(_AUTHORITY_WITH_SLASH).match(text, at + 3)
            if authority and ":" not in authority.group().split("/", 1)[0]:
                authority = None
        if authority:
            scheme = re.search(r"[A-Za-z][A-Za-z0-9+.-]*$", text[max(0, at - 24) : at])
            if scheme is None or scheme.group().lower() not in _NO_LOGIN:
                yield from _find_userinfo(authority.group(), at + 3)
        at = text.find("://", authority.end() if authority else at + 3)


def _find_userinfo(authority: str, start: int) -> Iterator[Finding]:
    userinfo, at_sign, host = authority.rpartition("@")
    if not at_sign:
        return
    user, colon, password = userinfo.partition(":")
    if colon and password and not re.match(r"[0-9]{1,5}/", password):
        local = "." not in host.split(":")[0] or host.startswith("127.")
        if not (is_placeholder(password) or is_code(password) or (user == password and local)):
            begin = start + len(user) + 1
            yield Finding("url-password", begin, begin + len(password))
    if len(user) >= 16 and not is_uuid(user) and is_random(user):
        yield Finding("url-token", start, start + len(user))


def _find_parameters(text: str, lowered: str) -> Iterator[Finding]:
    if "=" not in text and "%3d" not in lowered:
        return
    for match in _compiled(_PARAMETER).finditer(lowered):
        start, end = match.span(2)
        value = text[start:end].split("%26", 1)[0].rstrip(".,)]}")
        name = match.group(1)
        check = may_be_password if name.startswith("pass") or name == "pwd" else may_be_token
        if check(value.replace("%", "")):
            yield Finding("url-parameter", start, start + len(value))


def _find_cookies(text: str, lowered: str) -> Iterator[Finding]:
    at = lowered.find("cookie")
    while at >= 0:
        head = _compiled(_COOKIE).match(lowered, at)
        after = head.end() if head else at + 6
        while head and (pair := _compiled(_COOKIE_PAIR).match(text, after)):
            after = pair.end()
            if _is_session(pair.group(1), pair.group(2)):
                yield Finding("cookie", *pair.span(2))
        at = lowered.find("cookie", after)


def _is_session(name: str, value: str) -> bool:
    if is_placeholder(value) or is_code(value):
        return False
    named = re.search(_COOKIE_NAMES, name.lower()) is not None
    return is_random(value) or (named and (is_uuid(value) or len(value) >= 16))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)
