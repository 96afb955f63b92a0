"""The markers of declared statements in languages other than English.

One row a language: corrections and rules, preferences, decisions. Owns the patterns only; the
judgement is `storage.declarations`. Latin-script rows are tried on text that is not English, the
others wherever their script stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from storage.records import FactKind
from storage.wording import Rule

_I: Final = re.IGNORECASE


@dataclass(frozen=True, slots=True)
class Language:
    """The rules of one language and how to tell that its script stands in a text."""

    code: str
    script: re.Pattern[str] | None
    """None: Latin script, shared with English."""
    rules: tuple[Rule, ...]


def _language(
    code: str,
    script: str | None,
    *,
    decision: str,
    preference: str,
    correction: str,
    constraint: str,
) -> Language:
    rows = (
        (FactKind.DECISION, decision),
        (FactKind.PREFERENCE, preference),
        (FactKind.CORRECTION, correction),
        (FactKind.CONSTRAINT, constraint),
    )
    return Language(
        code,
        re.compile(script) if script else None,
        tuple(Rule(kind, re.compile(pattern, _I)) for kind, pattern in rows if pattern),
    )


_HAN: Final = r"[\u4e00-\u9fff]"
_KANA: Final = r"[\u3041-\u30ff]"

LANGUAGES: Final = (
    _language(
        "es",
        None,
        decision=r"\b(?:hemos decidido|decidimos|he decidido|acordamos|hemos acordado"
        r"|quedamos en)\b"
        r"|^(?:a partir de ahora|de ahora en adelante)\b|^usemos\b",
        preference=r"\b(?:prefiero|preferimos)\b|^prefiere\b",
        correction=r"\bnunca\b|\bjamás\b|\bsiempre\b|\ben (?:vez|lugar) de\b|\bya no\b"
        r"|(?:^|[;:,] ?)no (?:le |lo |la |se |me |nos )?[a-záéíóúñ]{2,}(?:es|as|éis|áis|emos"
        r"|amos)\b"
        r"|\b(?:usa|usad|utiliza|ejecuta|pon)\b.{2,80}, (?:y )?no\b|, sin \w+",
        constraint=r"\b(?:deben?|debemos|hay que|tienen? que|está prohibido|no se puede[n]?"
        r"|no se debe[n]?|es obligatorio|son obligatori[oa]s)\b|\bvan en\b",
    ),
    _language(
        "pt",
        None,
        decision=r"\b(?:decidimos|decidi|combinamos|ficou decidido)\b|^(?:a partir de agora"
        r"|daqui em diante)\b"
        r"|^vamos (?:de|usar|com)\b",
        preference=r"\b(?:prefiro|preferimos)\b|^prefira\b",
        correction=r"\bnunca\b|\bjamais\b|\bsempre\b|\b(?:em vez|ao invés|no lugar) d[eoa]s?\b"
        r"|(?:^|[;:,] ?)não [a-zà-ú]{2,}(?:e|em|a|am|es|as)\b|\buse\b.{2,80}, (?:e )?não\b",
        constraint=r"\b(?:deve[m]?|devemos|é preciso|é proibido|é obrigatório|não (?:se )?pode[m]?"
        r"|t[eê]m que|tem de)\b",
    ),
    _language(
        "fr",
        None,
        decision=r"\b(?:nous avons|on a|j'ai) (?:décidé|choisi|convenu)\b"
        r"|^(?:à partir de maintenant|désormais|dorénavant)\b",
        preference=r"\b(?:je|on|nous) préf[èé]r\w+",
        correction=r"\bjamais\b|\btoujours\b|\bau lieu d[e']|\bplutôt que\b"
        r"|(?:^|[;:,] ?)(?:ne |n['’])(?:\w+ |\w['’])?\w+ (?:pas|plus)\b"
        r"|\butilise[z]?\b.{2,80}, (?:et )?pas\b",
        constraint=r"\b(?:doi(?:t|vent)|devons|il faut|est interdit|sont interdits|est obligatoire"
        r"|ne peu(?:t|vent) pas)\b",
    ),
    _language(
        "de",
        None,
        decision=r"\bwir haben (?:uns )?.{0,60}(?:entschieden|beschlossen|geeinigt)\b"
        r"|^(?:ab (?:jetzt|sofort)|von jetzt an|künftig)\b",
        preference=r"\b(?:ich|wir) (?:bevorzuge[n]?|mag lieber)\b|\blieber\b",
        correction=r"\b(?:nie(?:mals)?|immer)\b|\b(?:an)?statt\b|\bstattdessen\b|\bnicht mehr\b"
        r"|^(?:bitte )?(?:verwende|benutze|nutze|nimm|schreib|mach)\w*\b.{2,100}\b(?:nicht"
        r"|kein\w*)\b",
        constraint=r"\b(?:muss|müssen|dürfen? (?:\w+ )?(?:nicht|nie|kein)|darf (?:\w+ )?(?:nicht"
        r"|nie|kein)\w*"
        r"|soll(?:en)? (?:nicht|kein)|ist verboten|ist pflicht)\b",
    ),
    _language(
        "it",
        None,
        decision=r"\b(?:abbiamo deciso|ho deciso|deciso di)\b|^(?:d'ora in (?:poi|avanti)"
        r"|da ora in poi)\b",
        preference=r"\b(?:preferisco|preferiamo)\b|^preferisci\b",
        correction=r"\bmai\b|\bsempre\b|\b(?:invece|al posto) (?:di|del\w*)\b"
        r"|(?:^|[;:,] ?)non [a-zà-ù]{3,}(?:are|ere|ire|rlo|rla)\b|\bus(?:a|are"
        r"|iamo)\b.{2,80}, (?:e )?non\b",
        constraint=r"\b(?:dev(?:e|ono)|dobbiamo|bisogna|è vietato|è obbligatorio|non si (?:può"
        r"|deve))\b",
    ),
    _language(
        "tr",
        None,
        decision=r"\bkarar verdik\b|^(?:bundan sonra|artık)\b",
        preference=r"\btercih ed(?:erim|eriz|iyor\w*)\b",
        correction=r"\b(?:asla|hiçbir zaman|her zaman|daima)\b|\byerine\b|\bdeğil\b.{2,40}\bkullan"
        r"|(?:^|[ ])\w{2,}(?:me|ma)(?:yin|yın)?[.!]?$",
        constraint=r"\b(?:zorunda\w*|zorunlu\w*|yasak\w*|gerek(?:ir|iyor|li)|malı\w*|meli\w*)\b",
    ),
    _language(
        "zh",
        _HAN,
        decision=r"我们(?:已经)?(?:决定|商定|约定)|决定(?:采用|使用|改用)|^(?:从现在起|从今以后|今后|以后)",
        preference=r"(?:我|我们)(?:更)?(?:喜欢|倾向于|偏好)|优先(?:使用|选择|用)",
        correction=r"(?:^|[,,;;::。 ])(?:请)?(?:不要|别(?!的|人)|千万别|绝不|永远不要|禁止|切勿)"
        r"|绝对不|永远(?:不|都)|始终|总是|一律|而不是|代替|改用|不再使用|(?:必须|应该)?用.{1,30},?(?:不要|别)用",
        constraint=r"必须|务必|一定要|不得|不允许|不能|严禁|不可以|只能",
    ),
    _language(
        "ja",
        _KANA,
        decision=r"(?:こと|方針)に(?:しました|した|決め\w*|決まり\w*|決定)|^(?:今後は|これからは|以後)",
        preference=r"(?:好み|好き|方がいい|ほうがいい|して(?:ほしい|欲しい))",
        correction=r"必ず|常に|絶対に?|決して|(?:し|わ|か|さ|ま)ない(?:で(?:ください)?|こと)(?:[。!!]|$)"
        r"|禁止|ではなく|じゃなくて|の?代わりに|使わない|しない[。]?$",
        constraint=r"(?:しなければ|なければ)(?:なら|いけ)|べき|必要があ|してはいけ|必須|不可",
    ),
    _language(
        "ko",
        r"[\uac00-\ud7a3]",
        decision=r"하기로 (?:했|결정|정했)|^(?:앞으로는?|이제부터)",
        preference=r"선호(?:합니다|해|한다)|(?:게|히) 해 ?(?:주세요|줘)",
        correction=r"항상|절대|반드시|언제나|대신|말고|하지 ?(?:마|말)|마세요|않는다|않습니다",
        constraint=r"(?:해야|되어야|여야) (?:합니다|한다|해|함)|금지|안 ?(?:됩니다|된다|돼)|필수",
    ),
    _language(
        "ru",
        r"[а-яёА-ЯЁ]",
        decision=r"\b(?:мы решили|решили|решено|договорились)\b|^(?:отныне|впредь"
        r"|с этого момента)\b",
        preference=r"\b(?:я предпочитаю|предпочитаем|предпочтительно)\b",
        correction=r"\b(?:никогда|всегда)\b|\bвместо\b|\bнельзя\b|\bне (?:надо|нужно|стоит)\b"
        r"|(?:^|[;:,] ?)не [а-яё]{3,}(?:й|йте|и|ите|ь|ьте)\b|\bиспользу\w+\b.{2,80}, (?:а )?не\b",
        constraint=r"\b(?:долж(?:ен|на|но|ны)|обязательно|обязан\w*|запрещено|необходимо|нужно)\b",
    ),
    _language(
        "ar",
        r"[\u0621-\u064a]",
        decision=r"(?:قررنا|اتفقنا)|^(?:من الآن فصاعدا|بعد الآن)",
        preference=r"(?:أفضل|نفضل)",
        correction=r"(?:أبدا|أبدًا|دائما|دائمًا)|بدلا من|بدل[اً]* من|^لا ت\w+",
        constraint=r"(?:يجب|ممنوع|لا يجوز|لا بد)",
    ),
    _language(
        "hi",
        r"[\u0905-\u0939]",
        decision=r"(?:हमने|हम ने) .{0,40}(?:फैसला|तय)|^(?:अब से|आगे से)",
        preference=r"(?:पसंद करते|पसंद करता|पसंद है)",
        correction=r"(?:कभी नहीं|कभी भी|हमेशा|के बजाय|की जगह)|मत (?:\S+)",
        constraint=r"(?:चाहिए|ज़रूरी|जरूरी|अनिवार्य|मना है)",
    ),
)
