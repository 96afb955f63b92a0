"""The words people declare things with, in the languages people type to agents.

Owns the patterns, nothing else: which wording is a rule, a decision, a wish or a note to remember.
English is written out with its exceptions, since most prose is English; the other languages name
their markers only, because such a statement is read again when it is translated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from storage.records import FactKind

_I: Final = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class Rule:
    """A wording and what it makes of its sentence."""

    kind: FactKind
    pattern: re.Pattern[str]


def _rule(kind: FactKind, pattern: str) -> Rule:
    return Rule(kind, re.compile(pattern, _I))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOUN_FIRST: Final = r"^(?!(?:i|it|this|that|these|those|he|she|they|you|which|what|who)\b)"

ENGLISH: Final = (
    _rule(
        FactKind.DECISION,
        r"\b(?:we(?:'ve| have| both)? (?:decided|agreed|settled on|opted|chose|chosen)|i(?:'ve"
        r"| have)? decided)\b"
        r"|^let'?s (?:go with|stick (?:with|to)|standardi[sz]e on|settle on|use)\b"
        r"|^(?:from now on|going forward|as of now|henceforth)\b|^decision: "
        r"|\bwe(?:'ve| have)? (?:switched|moved|migrated) (?:from .{2,60} )?to\b"
        r"|^(?:we(?:'re| are)? )?switch(?:ing)? (?:over )?from .{2,60} to\b",
    ),
    _rule(
        FactKind.PREFERENCE,
        r"\b(?:i|we) (?:strongly |really |much |would |generally |always )?prefer\b|^prefer \w"
        r"|\bi(?:'d| would) rather\b",
    ),
    _rule(
        FactKind.CORRECTION,
        # never
        r"^(?:and |but |so )?never (?!mind\b)\w|[,;:(–—-] ?(?:and |but )?never\b(?! mind)"
        r"|\b(?:must|should|may|can|shall|we|to|is|are|do|does|will) never\b"
        r"|^i (?:never want|always want|don'?t ever want)\b"
        # always
        r"|^always (?!here|happy|glad|good|nice|great|a\b|the\b|been)\w|\b(?:must|should|we"
        r"|to) always\b|[,;:] ?always (?!be[e]n|the|a )\w"
        # don't
        r"|(?:^(?:and |but |so |also )?|[;:–—] ?)(?:don'?t|do not|dont) (?:ever )?(?!worry|bother"
        r"|mind\b|"
        r"get\b|forget|think|know|understand|care|need|see\b|want|read|look|ask\b|stop|start|wait"
        r"|hesitate"
        r"|have\b|panic|apologi[sz]e|rush|do\b|give up|quit\b|let (?:any|the)|feel\b"
        r"|sweat)[a-z]{3,}"
        r"|^(?:avoid|stop) \w+ing\b"
        # this, not that
        r"|\b(?:use|run|prefer|choose|pick|call|write|keep|put|target|import|install with)\b"
        r"[^.;]{2,120}(?:,? (?:instead of|rather than)\b|, (?:and )?(?:not|never|no)\b"
        r"|\binstead[.!]?$)"
        r"|\binstead of\b|\brather than\b|\bno longer\b"
        r"|^(?!.*\b(?:you|it|i)\b).{3,100}, not (?!only|just|yet|sure|so|to mention)\w+"
        r"|\bneeds? .{2,60}\bfirst[.!]?$|\bbelongs? (?:in|into|under|to|at|next to)\b",
    ),
    _rule(
        FactKind.PROCEDURE,
        r"^(?:always )?[a-z]{3,} .{3,100}\b(?:before|after) (?:every|each|any|all)\b"
        r"|^(?:before|after) (?:every|each|any) \w+|^whenever\b|^every time (?:you|we)\b",
    ),
    _rule(
        FactKind.CONSTRAINT,
        _NOUN_FIRST + r".{2,160}\b(?:must(?:n'?t)?"
        r"(?! ?(?:'?ve|have|of)\b| be (?:so|really|very|super|such|\w+ing\b)"
        r"| be (?:\w+ )?(?:scary|awesome|nice|great|tough|hard|exciting|wonderful|amazing|tired))"
        r"|shall|(?:is|are) (?:required|forbidden|mandatory"
        r"|prohibited|not allowed|never allowed)|may not|has to be|have to be)\b"
        r"|^we must\b|^nothing (?:may|must|should|reaches|goes)\b|^only \w+.{2,80}\b(?:may|can)\b",
    ),
)
"""In the order of what a sentence is, not of how it is worded: a decision may say `instead`."""

ENGLISH_OPENER: Final = re.compile(
    r"(?:(?:no|nope|nah|hey|hi|ok|okay|alright|right|well|yes|yeah|yep|so|and|but|also|please|sorry"
    r"|wait|hm+|omfg|omg|wtf|btw|fyi|actually|again|dude|my dude|man|listen|look|thanks|thank you"
    r"|great|nice|good|perfect|cool|one more thing|small correction|correction|one thing)"
    r"\s*(?:[,.!:;–—-]+\s*|\s(?=please|also|actually|never|always|don'?t|do not|use)))",
    _I,
)
STRONG_OPENER: Final = re.compile(
    r"(?:no,? )?(?:not like (?:that|this)|(?:that|this)(?:'s| is) (?:wrong|not right|incorrect)"
    r"|wrong(?: \w+)?|así no|eso no|assim não|pas comme ça|nicht so|так нет|不对|不是这样|違う"
    r"|そうじゃなくて|così no|non così)\s*[:,;.–—-]+\s*",
    _I,
)
REMEMBER: Final = re.compile(
    r"(?:please |also |and |so |por favor[, ]*|bitte |s'il te plaît[, ]*)*"
    r"(?:remember|keep in mind|bear in mind|note|take note|make a note|don'?t forget|be aware"
    r"|for the record|for future reference|heads[- ]up|recuerda|recordad?|acu[eé]rdate|acordaos"
    r"|ten (?:en cuenta|presente)|toma nota|no olvides|lembre(?:-se)?|lembra(?:-te)?|anot[ae]"
    r"|tenha em mente|não (?:se )?esqueça|souviens-toi|rappelle-toi|rappelez-vous|retiens|notez?"
    r"|garde en tête|n'oublie pas|merk(?:e)? dir|denk(?:e)? daran|erinnere dich|beachte"
    r"|vergiss nicht|ricorda(?:ti)?|ricordat(?:i|evi)|tieni (?:a mente|presente)|non dimenticare"
    r"|запомни(?:те)?|помни(?:те)?|учти(?:те)?|не забудь(?:те)?|имей(?:те)? в виду"
    r"|unutma|hatırla|aklında (?:tut|olsun))"
    r"(?P<join>\s*[:,]\s*(?:dass |che |que |what )?|\s+(?:that|de que|que|da que|dass|daran,? dass"
    r"|che|что|ki|to)[:,]?\s+|\s+(?=[a-zа-яё]+\s))",
    _I,
)
REMEMBER_CJK: Final = re.compile(
    r"(?:请|請|麻烦)?(?:记住|記住|记得|記得|牢记|记下来|备忘|注意)[::,,、\s]*"
    r"|(?:覚えておいて(?:ください)?|覚えて(?:ください)?|忘れないで(?:ください)?|メモ)[::、。\s]+"
    r"|(?:기억해(?: ?줘| ?주세요)?|잊지 ?마(?:세요)?|메모)[::,\s]+"
    r"|(?:تذكر|تذكّر)(?: أن)?[:،\s]+|(?:याद रखो|याद रखें|याद रखना)(?: कि)?[:,\s]+"
)
NOT_A_NOTE: Final = re.compile(
    r"(?:remember|note|notice|keep in mind|heads[- ]up) ?(?:when|how|what|why|where|who|if"
    r"|the time|me|it|this"
    r"|us|these|those|last|our|my|@)\b|(?:don'?t forget) to\b|remember to (?:commit|push|save)\b",
    _I,
)
OFF_RECORD: Final = re.compile(
    r"\b(?:don'?t|do not|dont|never|no need to|needn'?t) (?:please )?(?:remember|memori[sz]e|note)"
    r" (?:this|that|it|any of|what|the (?:following|above)|my|anything)\b"
    r"|\b(?:don'?t|do not|dont) (?:store|save|record) (?:this|that|it)\b"
    r"|\boff the record\b|(?:^|[.!?] )(?:please )?forget (?:this|that|it|what i)\b"
    r"|\bnot for (?:the )?memory\b"
    r"|\bno (?:lo |la |me )?(?:recuerdes|guardes|memorices|anotes|apuntes)\b"
    r"|\bnão (?:lembre|guarde|memorize|anote)\b|\bne (?:retiens|mémorise|note) pas\b"
    r"|\b(?:merk|merke|speicher)e? dir (?:das|dies) nicht\b|\bnon (?:ricordare|memorizzare)\b"
    r"|不要记(?:住|录)|别记|覚えないで|記憶しないで|не (?:запоминай|запомни)",
    _I,
)
INSTEAD: Final = re.compile(
    r"(?:always |please |just )*(?:use|prefer|run|call|choose|pick|write|go with|stick (?:to|with))"
    r" [^.;:!?]{2,120}\binstead\b(?! of\b)",
    _I,
)
"""A substitute without its object: what it stands for is in the sentence before."""
QUESTION: Final = re.compile(
    r"^(?:why|what|whats|what's|how|who|where|which|when (?:do|does|did|is|are|will|can|should)"
    r"|can|could|should|would|will|is|are|am|was|were|do (?:we|you|i|they|the)|does|did|has"
    r"|have (?:you"
    r"|we|i|they)|isn'?t|aren'?t|can'?t|couldn'?t|shouldn'?t|wouldn'?t|don'?t (?:we|you|i|they)"
    r"|doesn'?t|didn'?t|wasn'?t|any idea|¿|por qué|qué|cómo|puedes|podrías|debería|pourquoi|comment"
    r"|est-ce|peux-tu|warum|wie|kannst|könntest|soll(?:en|te)? (?:ich|wir)|perché|come mai|puoi"
    r"|почему|как|можешь|зачем|por que|como|você pode)\b|(?:吗|呢|么|か|かな|까요?|나요)[?？]?$",
    _I,
)
HEDGE: Final = re.compile(
    r"\b(?:i think|i guess|i suppose|i assume|i believe|i wonder|i hope|i feel|maybe|perhaps"
    r"|probably|not sure|might|seems?|looks like|i don'?t (?:think|know|understand|see)|i'?m not"
    r"|would it|could we|creo que|quizás?|tal vez|talvez|acho que|je crois|peut-être|vielleicht"
    r"|ich glaube|forse|credo che|может быть|наверное|думаю)\b",
    _I,
)
MOMENTARY: Final = re.compile(
    r"\b(?:for now|right now|just now|now|today|tonight|tomorrow|yesterday|yet|again|already|still"
    r"|this (?:time|once|morning|week|afternoon)|temporarily|at the moment|for the moment"
    r"|in the meantime"
    r"|later|soon|first step|next step|step \d+|until (?:i|we|you|then)|while (?:i|you|we)"
    r"|after (?:you|that|this)|when you(?:'re| are)? (?:done|finish\w*)|once you|the (?:above"
    r"|following|previous)|last (?:message|commit|change|one|step)|as (?:above|before)"
    r"|por ahora|de momento|hoy|mañana|todavía|otra vez|por enquanto|hoje|pour l'instant"
    r"|aujourd'hui|im moment|heute|erstmal|vorerst|per ora|oggi|пока|сегодня|сейчас)\b"
    r"|先别|暂时|今天|现在|とりあえず|今は|今回",
    _I,
)
NARRATIVE: Final = re.compile(
    r"^(?:i|you|he|she|they|it) (?!prefer|must|should|may|can|always want|never want|have decided"
    r"|decided|would rather|always|never|agreed|chose|opted|strongly|really)\w"
    r"|^(?:i'(?:m|ll|ve)|you'(?:re|ve|ll)|it'?s|that'?s|thats|there'?s|here'?s|we'?re|we were|he's"
    r"|we (?:just|only|still|currently|already|had|were|did|need to|want to|have to))\b"
    r"|^you (?:never|always)\b|\b(?:you|it|i) (?:did|didn'?t|used|broke|forgot|keep|kept|made"
    r"|wrote|put"
    r"|ran|added|removed|changed|installed|were|was|are|have|should'?ve|should have)\b",
    _I,
)
DANGLING: Final = re.compile(
    r"^(?:it|this|that|these|those|they|them|he|she|here|same|which|like)\b(?! (?:repo(?:sitory)?"
    r"|project|codebase|code base|package|monorepo|workspace|team|app|service|company)\b)"
    r"|\b(?:this|these|those) (?!repo(?:sitory)?\b|project\b|codebase\b|code base\b|package\b"
    r"|monorepo\b|workspace\b|team\b|app\b|service\b|company\b)"
    r"|\b(?:that|this|those|these|one|ones|so|here|there|it|them)[.,;!)]*$"
    r"|^(?:please )?(?:never|always|don'?t|do not|dont|avoid|stop|use|put|keep|run|make|do"
    r"|let'?s)(?: \w+)?"
    r" (?:it|that|this|them|those|these|so|one|anything|everything|your|my)\b"
    r"(?! (?:repo|project|codebase))",
    _I,
)
ENGLISH_STOP: Final = _words(
    """a an and are as at be but by do does for from had has have i if in into is it its me my no
    of on or our so than that the their them then there these they this those to too us was we were
    what when which who will with you your please just very also really should can could would may
    let lets go get make remember note ok okay yes"""
)
