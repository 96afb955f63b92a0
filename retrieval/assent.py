"""Prompts that answer the agent instead of asking it: "ok", "go on", "ja, mach weiter".

Such a prompt must inject nothing, whatever the store holds. Owns the phrases of sixteen languages;
a prompt is an acknowledgement when every word of it is one of theirs, or the whole of it is.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_MAX_CHARS: Final = 80
_WORDS_OF: Final = {
    "en": """ok okay okey k kk yes yep yeah yup ya y no nope nah n sure right alright fine good
    great nice cool perfect awesome excellent thanks thank you thx ty please pls continue proceed go
    ahead on next done do it that this so well agreed approved lgtm correct exactly yay wow hi hello
    hey stop wait again retry more and then now just keep going resume sounds looks looking all got
    is the a to of me i im understood see hm hmm uh huh ah oh""",
    "es": """sí si vale bueno bien claro gracias por favor continúa continua sigue adelante dale
    hazlo listo perfecto genial de acuerdo hola muchas puedes continuar seguir""",
    "pt": """sim não nao tá ta certo beleza obrigado obrigada continue prossiga segue pode seguir
    continuar prosseguir isso ótimo perfeito faça""",
    "fr": """oui non d'accord daccord merci bien continue continuez vas-y vas allez-y parfait super
    très bon c'est ça marche entendu salut bonjour tu peux vous pouvez continuer""",
    "de": """ja nein gut genau danke bitte weiter mach machen weitermachen los passt prima super
    klar einverstanden stimmt alles hallo sehr schön""",
    "it": """sì va bene certo grazie continua procedi avanti perfetto ottimo d'accordo fallo
    ciao""",
    "nl": "prima goed doorgaan verder ga door bedankt dank je toe maar",
    "sv": "tack bra fortsätt kör okej",
    "pl": "tak nie dobrze dalej dziękuję kontynuuj",
    "tr": "tamam evet hayır devam et teşekkürler sağol",
    "ru": """да нет ок окей хорошо ладно спасибо продолжай продолжайте дальше давай отлично понятно
    ясно верно пожалуйста привет""",
    "ar": "نعم لا حسنا حسناً تمام شكرا شكراً استمر تابع أكمل",
    "hi": "हाँ हां नहीं ठीक है धन्यवाद जारी रखो रखें",
}
# Written without spaces: the whole prompt, or a part between punctuation, is the unit.
_PHRASES_OF: Final = {
    "zh": """好 好的 好吧 好啊 行 可以 是 是的 对 对的 嗯 不 不是 继续 请继续 繼續 继续吧 没问题
    沒問題 谢谢 謝謝 谢谢你 明白 明白了 知道了 了解 收到 下一步 开始吧 就这样 不错 很好""",
    "ja": """はい いいえ うん ええ オッケー オーケー 了解 了解です 続けて 続けてください 続行 次へ
    どうぞ お願いします ありがとう ありがとうございます わかりました 分かりました いいよ
    いいですね 進めて 進めてください""",
    "ko": """네 예 응 아니요 아니 좋아 좋아요 계속 계속해 계속해줘 계속하세요 진행해 진행해줘
    감사합니다 고마워 알겠습니다 알겠어 다음 오케이 그래 주세요 해주세요 진행해주세요""",
}
_WORDS: Final = frozenset(word for listed in _WORDS_OF.values() for word in listed.split())
_PHRASES: Final = frozenset(phrase for listed in _PHRASES_OF.values() for phrase in listed.split())
_SPLIT: Final = re.compile(r"[\s,.!?;:…—–()\"“”¡¿、，。！？；：،]+")


def is_assent(text: str) -> bool:
    """Whether the prompt only acknowledges, thanks, greets or tells the agent to go on."""
    if len(text) > _MAX_CHARS:
        return False
    folded = unicodedata.normalize("NFC", text).casefold().replace("’", "'")
    if _word(re.sub(r"[\s、，。！？!.,~～〜]+", "", folded)) in _PHRASES:
        return True
    # Marks of emoji and punctuation are no words; a digit is one ("2" may answer a question).
    words = [word for word in _SPLIT.split(folded) if any(char.isalpha() for char in word)]
    digits = any(char.isdigit() for char in folded)
    parts = [_word(word) for word in words]
    return bool(parts) and not digits and all(part in _WORDS or part in _PHRASES for part in parts)


def _word(text: str) -> str:
    """The text without punctuation, symbols and controls at its ends (vowel signs are letters)."""
    start, end = 0, len(text)
    while start < end and _is_edge(text[start]):
        start += 1
    while end > start and _is_edge(text[end - 1]):
        end -= 1
    return text[start:end]


def _is_edge(char: str) -> bool:
    return unicodedata.category(char)[0] in "PSZC" and char != "'"
