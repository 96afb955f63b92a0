"""Which old statement a new one replaces: "use B, not A" ends "use A".

Owns the terms a statement prescribes and rejects, and the rule that compares two statements. Rules,
no model: conservative on purpose, because ending a fact that still holds costs more than keeping
one too long. Works on any language's wording that names both terms side by side.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from storage.records import statement_key
from storage.wording import ENGLISH_STOP

_STOP: Final = (
    r"(?=\s*(?:$|[.,;:!()?]|\b(?:in|on|for|to|at|when|while|because|since|as|by|from|with|if|unless"
    r"|until|anymore|any more|here|and|but|or|under|inside|within|directly|everywhere|please|again"
    r"|en|para|por|porque|cuando|em|quando|dans|pour|parce|wenn|weil|für|nel|per|quando)\b))"
)
_TERM: Final = r"(?:the |a |an |el |la |o |le |den |das |il )?(`[^`]{1,60}`|\S+?(?: \S+?){0,2}?)"
_VERB: Final = (
    r"(?:use|using|uses|run|running|call|calling|prefer|choose|pick|install with|go with"
    r"|stick (?:to|with)"
    r"|write|keep|decided? (?:on|to use|for)|chose|settled on|usa|usar|usamos|utiliza|ejecuta|use"
    r"|utilise[rz]?|verwende[nt]?|benutze|nutze|usare)"
)
_PAIRS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # B first, then what it replaces
        rf"\b{_VERB} {_TERM}(?:[^.;]{{0,60}}?),? (?:instead of|rather than|and not|but not"
        rf"|en (?:vez|lugar) de"
        rf"|em vez d[eo]|ao invés d[eo]|au lieu d[e']|plutôt que|statt|anstatt|invece di"
        rf"|al posto di)"
        rf" (?:{_VERB} )?{_TERM}{_STOP}",
        rf"\b{_VERB} {_TERM}, (?:and |y |e |et |und )?(?:not|never|no|nunca|não|pas|jamais|nicht"
        rf"|nie|non|mai)"
        rf" (?:{_VERB} )?{_TERM}{_STOP}",
        rf"\bprefer {_TERM} (?:over|to) {_TERM}{_STOP}",
        rf"^{_TERM},? (?:instead of|rather than|not|never) {_TERM}{_STOP}",
    )
)
_SWITCHES: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:switch\w*|mov\w+|migrat\w+) (?:over )?from {_TERM} to {_TERM}{_STOP}",
        rf"\breplac(?:e|ed|ing) {_TERM} (?:with|by) {_TERM}{_STOP}",
    )
)
_REJECTIONS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:never|don'?t|do not|stop|avoid|no longer|nunca|não|jamais)"
        rf" (?:ever )?(?:{_VERB} )?{_TERM}{_STOP}",
    )
)
_NEGATED: Final = re.compile(
    r"\b(?:not|never|no longer|don'?t|do not|instead of|rather than|stop|avoid|over|without|nunca"
    r"|no"
    r"|não|jamais|pas|statt|nicht|en vez de|en lugar de|em vez de|au lieu de"
    r"|invece di)\W+(?:\w+ )?$",
    re.IGNORECASE,
)
_PRESCRIBED_BY: Final = re.compile(
    rf"\b(?:{_VERB}|with|via|through|go for|is|are|stay on|con|com|avec|mit)\W+(?:the |a |an )?$",
    re.IGNORECASE,
)
_LEADING_VERB: Final = re.compile(rf"^{_VERB} ", re.IGNORECASE)
_TOKEN: Final = re.compile(r"[^\W_][\w./@:+#-]*")
_EVERYWHERE: Final = frozenset(
    re.findall(
        r"\w+",
        "repo repository project codebase code package monorepo here everywhere anywhere all"
        " every always never again repositorio proyecto repositório projeto dépôt projet"
        " projekt progetto hand hands manually everything anything todo tudo tout alles tutto",
    )
)


@dataclass(frozen=True, slots=True)
class Terms:
    """What a statement prescribes and what it rejects, folded."""

    prefers: frozenset[str]
    rejects: frozenset[str]
    scope: frozenset[str]
    """Words beyond the terms that narrow where the statement holds."""


def terms(statement: str) -> Terms:
    """The terms of one statement; empty sets when its wording names none."""
    prefers: set[str] = set()
    rejects: set[str] = set()
    end = 0
    for pattern in _PAIRS:
        for found in pattern.finditer(statement):
            prefers.add(_LEADING_VERB.sub("", fold(found[1])))
            rejects.add(_LEADING_VERB.sub("", fold(found[2])))
            end = max(end, found.end())
    for pattern in _SWITCHES:
        for found in pattern.finditer(statement):
            rejects.add(fold(found[1]))
            prefers.add(fold(found[2]))
            end = max(end, found.end())
    for pattern in _REJECTIONS:
        for found in pattern.finditer(statement):
            rejects.add(fold(found[1]))
            end = max(end, found.end())
    named = frozenset(term for term in rejects if _is_term(term))
    taken = " ".join([*prefers, *named])
    return Terms(
        frozenset(term for term in prefers if _is_term(term)) - named,
        named,
        _scope(statement[end:] if named else "", taken),
    )


def replaces(new: str, old: str) -> bool:
    """Whether the new statement ends the old one: it rejects a term that the old one prescribes."""
    if statement_key(new) == statement_key(old):
        return False
    fresh = terms(new)
    if not fresh.rejects:
        return False
    folded = fold(old)
    stale = terms(old)
    for term in fresh.rejects - stale.rejects:
        if (term in stale.prefers or _prescribes(folded, term)) and _same_scope(
            fresh, folded, term
        ):
            return True
    return False


def forbids(statement: str, command: str) -> bool:
    """Whether a statement rejects a shell command by name (`never use docker compose`)."""
    words = fold(command).split()
    for term in terms(statement).rejects:
        wanted = term.split()
        if wanted and words[: len(wanted)] == wanted:
            return True
    return False


def fold(text: str) -> str:
    """Case, code marks, quotes and outer punctuation removed; single spaces."""
    return " ".join(text.casefold().replace("`", "").strip(" .,;:!?\"'“”").split())


def _is_term(term: str) -> bool:
    return 1 < len(term) <= 60 and any(word not in ENGLISH_STOP for word in _TOKEN.findall(term))


def _prescribes(old: str, term: str) -> bool:
    for found in re.finditer(rf"(?<![\w-]){re.escape(term)}(?![\w-])", old):
        before = old[: found.start()]
        if _NEGATED.search(before):
            continue
        if _PRESCRIBED_BY.search(before):
            return True
    return False


def _same_scope(fresh: Terms, old: str, term: str) -> bool:
    """A narrowed new statement ends only an old one that shares a word of its scope."""
    if not fresh.scope:
        return True
    stems = {word[:4] for word in _TOKEN.findall(old) if word not in term.split()}
    return any(word[:4] in stems for word in fresh.scope)


def _scope(rest: str, taken: str) -> frozenset[str]:
    reason = re.split(r"\b(?:because|since|so that|as it|porque|weil|car)\b", rest, maxsplit=1)[0]
    clause = re.split(r"[.;:!]", reason, maxsplit=1)[0]
    return frozenset(
        word
        for word in _TOKEN.findall(clause.casefold())
        if len(word) > 2
        and word not in ENGLISH_STOP
        and word not in _EVERYWHERE
        and word not in taken.split()
    )
