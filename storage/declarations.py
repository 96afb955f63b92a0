"""What a person declared: corrections, rules, decisions, wishes, and what they asked to remember.

Owns the judgement that hooks and transcript readers share, so one statement is the same statement
whichever way it came in. Promises that a statement is a literal part of its sentence, the sentence
a literal part of the message, and that both are free of credentials. Precision over recall: a
question, a doubt, a story, a word that points at something else, or anything tied to the moment is
no declaration, nor is what holds the mark of a removed credential, and a message that asks not to
be remembered yields nothing. "Never A. Use B instead." is one statement: each half needs the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from storage.injected import spoken
from storage.language import detect
from storage.records import FactKind, statement_key
from storage.redaction import is_learnable
from storage.sentences import is_brief, sentences
from storage.wording import (
    DANGLING,
    ENGLISH,
    ENGLISH_OPENER,
    ENGLISH_STOP,
    HEDGE,
    INSTEAD,
    MOMENTARY,
    NARRATIVE,
    NOT_A_NOTE,
    OFF_RECORD,
    QUESTION,
    REMEMBER,
    REMEMBER_CJK,
    STRONG_OPENER,
    Rule,
)

MIN_WEIGHT: Final = 12
MAX_CHARS: Final = 500
MIN_CONTENT_WORDS: Final = 3
MAX_PER_MESSAGE: Final = 8
"""More rules than people dictate in one breath: the message was pasted."""

_UNSPACED: Final = re.compile(r"[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_WORD: Final = re.compile(r"`[^`\n]+`|[^\s,.;:!?()\"'“”«»।،؟`]+(?:[./:'’]\w+)*")
_CODE_SPAN: Final = re.compile(r"`[^`\n]*`")
_PERMANENT: Final = re.compile(r"\b(?:from now on|as of now|by now)\b", re.IGNORECASE)
_IMPERATIVE_NOTE: Final = re.compile(
    r"(?:to )?(?:run|use|call|restart|start|build|install|update|bump|tag|deploy|check|format"
    r"|regenerate"
    r"|set|export|open|enable|disable|ask)\b|\b(?:before|after) \w+ing\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declared statement."""

    kind: FactKind
    statement: str
    """The rule itself: the sentence without its opening words."""
    sentence: str
    """The whole sentence, for the quote."""


def declarations(message: str) -> list[Declaration]:
    """The declared statements of a user's message, in order, each once."""
    text = spoken(message)
    if not text or is_brief(text) or OFF_RECORD.search(text):
        return []
    found: dict[str, Declaration] = {}
    for parts in _groups(text, sentences(text)):
        whole = declaration(text[parts[0][0] : parts[-1][1]])
        apart = (declaration(text[start:end]) for start, end in parts)
        for declared in [whole] if whole or len(parts) == 1 else apart:
            if declared is not None:
                found.setdefault(statement_key(declared.statement), declared)
    return list(found.values()) if len(found) <= MAX_PER_MESSAGE else []


def _groups(text: str, found: Sequence[str]) -> Iterator[list[tuple[int, int]]]:
    """The sentences as spans; one that says what to do instead goes with the one it answers.

    Apart, the rejection often ends in a word that points elsewhere, and the remedy has no object.
    """
    at = 0
    before: tuple[int, int] | None = None
    for sentence in found:
        start = text.index(sentence, at)
        at = start + len(sentence)
        if before is not None:
            gap = text[before[1] : start]
            close = not gap.strip() and gap.count("\n") < 2
            if close and _answers(text[before[0] : before[1]], sentence):
                yield [before, (start, at)]
                before = None
                continue
            yield [before]
        before = start, at
    if before is not None:
        yield [before]


def _answers(before: str, part: str) -> bool:
    """Whether a sentence names the substitute for what the one before it rejects."""
    if not INSTEAD.match(_opened(part)[0]) or _is_question(part) or _is_question(before):
        return False
    # Here, not above: hardly any prompt gets this far.
    from storage.replacement import terms

    return bool(terms(_opened(before)[0]).rejects)


def declaration(sentence: str) -> Declaration | None:
    """What one sentence declares, or None."""
    core, strong = _opened(sentence)
    statement, noted = _noted(core)
    if not _well_formed(statement) or _is_question(core):
        return None
    kind = _kind(statement, strong=strong, noted=noted)
    if kind is None or not is_learnable(sentence):
        return None
    return Declaration(kind, statement, sentence)


def explicit(text: str) -> Declaration | None:
    """A statement that its author hands over as such (`ops remember`); None when it is unfit.

    It needs no marker word; it is held to the same bounds and may hold no credential.
    """
    sentence = " ".join(spoken(text).split())
    core, _ = _opened(sentence)
    statement, _ = _noted(core)
    if not _well_formed(statement) or not is_learnable(sentence):
        return None
    kind = _rule_kind(statement) or _note_kind(statement)
    return Declaration(kind, statement, sentence)


def content_words(text: str) -> float:
    """How many words carry meaning; two characters of an unspaced script count as one word."""
    unspaced = len(_UNSPACED.findall(text))
    words = {
        word.casefold()
        for word in _WORD.findall(_UNSPACED.sub(" ", text))
        if len(word) > 1 and any(map(str.isalnum, word)) and word.casefold() not in ENGLISH_STOP
    }
    return unspaced / 2 + len(words)


def weight(text: str) -> int:
    """Length in characters, one of an unspaced script counting for three."""
    return len(text) + 2 * len(_UNSPACED.findall(text))


def _well_formed(statement: str) -> bool:
    return (
        weight(statement) >= MIN_WEIGHT
        and len(statement) <= MAX_CHARS
        and content_words(statement) >= MIN_CONTENT_WORDS
    )


def _opened(sentence: str) -> tuple[str, bool]:
    """The sentence without its interjections, and whether they reject what was done."""
    core, strong = sentence.strip(), False
    while True:
        rejection = STRONG_OPENER.match(core)
        opener = rejection or ENGLISH_OPENER.match(core) or _FOREIGN_OPENER.match(core)
        if opener is None or opener.end() == len(core):
            return core, strong
        strong = strong or rejection is not None
        core = core[opener.end() :]


_FOREIGN_OPENER: Final = re.compile(
    r"(?:no|non|não|nein|нет|hola|oye|vale|bueno|perdona|por favor|bitte|oi|olha|certo|ok|alors"
    r"|bon|écoute|s'il (?:te|vous) plaît|also|moment|ciao|senti|allora|per favore|пожалуйста|так"
    r"|不|不对|不是|请|那个|いや|いいえ|ちょっと|아니|아니요|hayır|lütfen)\s*[,.:;!,。、:!–—-]+\s*",
    re.IGNORECASE,
)


def _noted(core: str) -> tuple[str, bool]:
    """The statement without `remember that`, and whether it was asked to be remembered."""
    found = REMEMBER.match(core) or REMEMBER_CJK.match(core)
    if found is None or NOT_A_NOTE.match(core) or found.end() == len(core):
        return core, False
    rest = core[found.end() :]
    plain_join = found.re is REMEMBER and not found["join"].strip()
    if plain_join and not _CLAUSE.search(rest):
        return core, False
    return rest, True


# After a bare "remember", only a clause is a note: "remember the file" asks to look at it.
_CLAUSE: Final = re.compile(
    r"^(?:(?:to|we|our|the|all|every|each|only|always|never|releases?|tests?) )?.{2,80}\b(?:is"
    r"|are|must|should"
    r"|never|always|has|have|uses?|lives?|goes|go|belongs?|needs?|runs?|requires?|expects?|usamos"
    r"|es"
    r"|son|está|están|va|van)\b",
    re.IGNORECASE,
)


def _is_question(core: str) -> bool:
    return core.rstrip(" \"'”’»)").endswith(("?", "?", "؟")) or QUESTION.search(core) is not None


def _kind(statement: str, *, strong: bool, noted: bool) -> FactKind | None:
    plain = _CODE_SPAN.sub("`x`", statement)
    if DANGLING.search(plain):
        return None
    if noted:
        return _rule_kind(statement) or _note_kind(statement)
    if HEDGE.search(plain) or MOMENTARY.search(_PERMANENT.sub("", plain)):
        return None
    if NARRATIVE.search(plain):
        return None
    return _rule_kind(statement) or (
        FactKind.CORRECTION if strong and content_words(statement) > MIN_CONTENT_WORDS else None
    )


def _note_kind(statement: str) -> FactKind:
    return FactKind.PROCEDURE if _IMPERATIVE_NOTE.match(statement) else FactKind.FACT


def _rule_kind(statement: str) -> FactKind | None:
    """The kind that the wording gives, in the statement's own language."""
    plain = _CODE_SPAN.sub("`x`", statement)
    if detect(statement).english:
        return _first([ENGLISH], plain)
    # Here, not above: most prompts are English and need not pay for the other tables.
    from storage.wording_foreign import LANGUAGES

    scripts = [row.rules for row in LANGUAGES if row.script and row.script.search(plain)]
    return _first(scripts or [row.rules for row in LANGUAGES if row.script is None], plain)


def _first(tables: Iterable[Sequence[Rule]], text: str) -> FactKind | None:
    for rules in tables:
        for rule in rules:
            if rule.pattern.search(text):
                return rule.kind
    return None
