"""Credentials on command lines and in the small files that hold logins.

Owns the flags whose letter means password for one program only (`mysql -p`, `curl -u`,
`redis-cli -a`), `.netrc` and `.pgpass` lines, SQL's IDENTIFIED BY, and `--from-literal`. Flags
that spell the word out belong to the keyword rules.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from storage.redaction_values import Finding, is_code, is_placeholder, may_be_password

RULES: Final = frozenset({"command-password", "netrc-password", "pgpass-password", "sql-password"})

_V: Final = r"[\"']?([^\s\"'`|;&<>]{3,512}+)"
_LOGIN: Final = r"[\"']?[^\s:\"']{0,80}:([^\s\"'`|;&<>]{3,512}+)"
_BETWEEN: Final = r"[^\n|;&(`]{0,240}?[ \t]"

# A literal that must be there, and the pattern; group 1 is the secret.
_COMMANDS: Final = (
    (("mysql", "mariadb", "mycli"),
     rf"(?:mysql|mariadb|mycli)[\w-]{{0,16}}(?:\.exe)?{_BETWEEN}-p{_V}"),
    (("curl", "wget"),
     rf"(?:curl|wget)(?:\.exe)?{_BETWEEN}(?:-u|--user|-U|--proxy-user)[ \t=]{{0,3}}{_LOGIN}"),
    (("http ", "https ", "xh "),
     rf"(?<![\w:/.])(?:https?|xh)[ \t]{_BETWEEN}(?:-a|--auth)[ \t=]{{1,3}}{_LOGIN}"),
    (("sshpass",), rf"sshpass[ \t]{{1,4}}-p[ \t]{{0,3}}{_V}"),
    (("redis-cli",), rf"redis-cli{_BETWEEN}-a[ \t]{{1,4}}{_V}"),
    ((" login ",),
     rf"(?:docker|podman|helm|skopeo|buildah|crane|oras|az|nerdctl)[ \t][^\n|;&]{{0,120}}?login"
     rf"{_BETWEEN}-p[ \t=]{{1,4}}{_V}"),
    (("mongo",), rf"mongo\w{{0,10}}{_BETWEEN}-p[ \t]{{0,3}}{_V}"),
    (("ldap",), rf"ldap\w{{2,10}}{_BETWEEN}-w[ \t]{{1,4}}{_V}"),
    (("sqlcmd", "bcp ", "tsql", "isql"), rf"(?:sqlcmd|bcp|tsql|isql){_BETWEEN}-P[ \t]{{0,3}}{_V}"),
    (("7z ", "7za ", "unrar "), rf"(?:7za?|unrar)[ \t]{_BETWEEN}-p{_V}"),
    (("zip",), rf"(?:un)?zip{_BETWEEN}-P[ \t]{{1,4}}{_V}"),
    (("pass:",), r"-(?:passin|passout|pass|k)[ \t]{1,4}pass:([^\s\"'`|;&<>]{3,512}+)"),
    (("htpasswd",),
     rf"htpasswd[ \t]{{1,4}}-\w{{0,6}}b\w{{0,6}}[ \t]{{1,4}}(?:\S{{1,200}}[ \t]{{1,4}}){{1,2}}?"
     rf"{_V}$"),
    (("smbclient", "rpcclient"), rf"-U[ \t]{{0,3}}[\w.\\/@-]{{1,64}}%{_V}"),
    (("chpasswd",),
     r"echo[ \t]{1,4}[\"']?[\w.-]{1,64}:([^\s\"'`|;&<>]{3,512}+)"
     r"[\"']?[ \t]{0,4}\|[^\n]{0,40}chpasswd"),
    (("-stdin",),
     rf"(?:echo|printf)[ \t]{{1,4}}(?:-n[ \t]{{1,4}})?{_V}"
     r"[\"']?[ \t]{0,4}\|[^\n]{0,120}-stdin"),
    (("net use", "NET USE"),
     rf"(?:net use|NET USE)[ \t]{{1,4}}(?:\S{{1,200}}[ \t]{{1,4}}){{1,2}}{_V}[ \t]{{1,4}}/[uU]"),
)  # fmt: skip
_NETRC: Final = (
    r"login[ \t\r\n]{1,8}\S{1,200}[ \t\r\n]{1,8}(?:account[ \t\r\n]{1,8}\S{1,200}[ \t\r\n]{1,8})?"
    r"password[ \t\r\n]{1,8}[\"']?(\S{3,512}+)"
)
_PGPASS: Final = (
    r":(?:(?<=[\w.*\]-]{3}:)|(?<=\*:))(?:[0-9]{2,5}|\*):[\w.*-]{1,64}:"
    r"[\w.*@-]{1,64}:([^\s\"'`:]{3,512}+)(?=[\s\"'`]|$)"
)
_ADDRESS: Final = re.compile(r"[0-9a-fA-F.:/]*:[0-9a-fA-F.:/]*")
_SQL: Final = (
    r"identified(?:[ \t]{1,4}with[ \t]{1,4}\S{1,64})?[ \t]{1,4}by(?:[ \t]{1,4}password)?"
    r"[ \t]{0,4}['\"]([^'\"\n]{3,512})['\"]"
)


def find_typed(text: str, lowered: str) -> Iterator[Finding]:
    """Every password given on a command line, in a login file line or in SQL.

    Args:
        lowered: the same text in lower case, character for character.
    """
    for literals, pattern in _COMMANDS:
        if any(literal in text for literal in literals):
            for match in _compiled(pattern).finditer(text):
                yield from _given(match, text, "command-password")
    if "login" in lowered:
        for match in _compiled(_NETRC).finditer(lowered):
            yield from _given(match, text, "netrc-password")
    for match in _compiled(_PGPASS).finditer(text):
        yield from _given(match, text, "pgpass-password")
    if "identified" in lowered:
        for match in _compiled(_SQL).finditer(lowered):
            yield from _given(match, text, "sql-password")


def _given(match: re.Match[str], text: str, rule: str) -> Iterator[Finding]:
    start, end = match.span(1)
    value = text[start:end].rstrip(",.)]}")
    if is_placeholder(value) or is_code(value) or len(value) < 3:
        return
    if value.isalpha() and value.islower() and rule == "command-password" and len(value) < 5:
        return
    if rule == "pgpass-password" and (not may_be_password(value) or _ADDRESS.fullmatch(value)):
        return
    yield Finding(rule, start, start + len(value))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.MULTILINE | re.ASCII)
