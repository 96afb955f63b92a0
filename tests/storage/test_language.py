"""English passes, every other language is told: on statements, prompts and code-laden text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.language import detect

ENGLISH = (
    "Always run the linter before you push.", "Use tabs in Makefiles.", "Never push to main.",
    "The São Paulo office uses sa-east-1.",
    "Naïve retries hurt the broker.", "Ask Björn before merging.",
    "Rename `año` to year in the schema.",
    "The 東京 region is ap-northeast-1.", "pnpm i --frozen-lockfile",
    "git rebase -i HEAD~3",
    "Bump libfoo to 2.3.1; 2.3.0 segfaults on arm64.", "POST /v1/items returns 429.",
    "parse_date() ignores tz_offset, see src/dates/parse.py:42", "feat(api): add pagination",
    "de-duplicate events by sha256(payload)",
    "What did I change in UserRepo?", "Don't edit *.pb.go.",
    "Vec<u8> -> Bytes", "", "   ", "42", "https://example.com/el/mejor/de/los", "C'est-à-dire",
    "Translate \"guardar\" as \"save\" in the ES locale.", "Cannot read property 'id' of undefined",
)  # fmt: skip

FOREIGN = {
    "es": "Ejecuta siempre las pruebas antes de subir los cambios.",
    "pt": "Os testes devem passar antes de enviar para o repositório.",
    "fr": "Il faut relancer le serveur après chaque mise à jour.",
    "de": "Die Tests müssen vor jedem Release durchlaufen.",
    "it": "Non modificare i file generati, cambia invece il modello.",
    "nl": "Voer altijd eerst de tests uit voordat je iets samenvoegt.",
    "pl": "Nie edytuj plików w tym katalogu, bo są generowane.",
    "ro": "Nu modifica fișierele generate, schimbă șablonul din care provin.",
    "tr": "Değişiklikleri göndermeden önce testleri çalıştırmak gerekir.",
    "sv": "Kör alltid testerna innan du skickar in något till huvudgrenen.",
    "id": "Jangan mengubah berkas yang dihasilkan, ubah templat dari sumbernya.",
    "vi": "Không được sửa các tệp sinh ra trong thư mục này.",
    "cs": "Před odesláním změn je vždy nutné spustit testy.",
    "hu": "A teszteket mindig le kell futtatni, mielőtt bármit beolvasztasz.",
    "fi": "Testit pitää ajaa aina ennen kuin muutokset yhdistetään.",
    "ru": "Перед отправкой изменений всегда запускай тесты.",
    "uk": "Перед надсиланням змін завжди запускай тести, її стан важливий.",
    "el": "Τρέξε πάντα τα τεστ πριν από κάθε αλλαγή.",
    "ar": "شغل الاختبارات دائما قبل إرسال التغييرات.",
    "fa": "همیشه پیش از ارسال تغییرات آزمون‌ها را اجرا کن، چون مهم است.",
    "he": "תמיד להריץ את הבדיקות לפני שליחה.",
    "hi": "बदलाव भेजने से पहले हमेशा परीक्षण चलाओ।",
    "th": "รันการทดสอบก่อนส่งการเปลี่ยนแปลงเสมอ",
    "zh": "提交之前一定要先运行测试。",
    "ja": "変更を送る前に必ずテストを実行すること。",
    "ko": "변경 사항을 보내기 전에 항상 테스트를 실행하세요.",
}


@pytest.mark.parametrize("text", ENGLISH)
def test_english_and_technical_text_passes(text: str) -> None:
    """Names, code, loan words, short commands and empty texts are no reason to translate."""
    assert detect(text).english


@pytest.mark.parametrize("lang", FOREIGN)
def test_another_language_is_told_and_named(lang: str) -> None:
    """Every script and eighteen languages in Latin, Cyrillic and Arabic letters."""
    verdict = detect(FOREIGN[lang])

    assert not verdict.english
    assert verdict.lang == lang
    assert 0.5 <= verdict.confidence <= 1


@pytest.mark.parametrize(
    "text",
    [
        "src/gen のファイルは編集しないこと。",
        "이 버그는 parse_date()가 시간대를 무시해서 생긴다.",
        "重跑gen-itgc后 worker_pool.restart()要重启",
        "Ошибка в parse_date(): она игнорирует config/timezone.toml",
        "El error de `parse_date()` viene de config/app.yaml y no del proxy",
    ],
)
def test_identifiers_glued_to_a_script_do_not_hide_it(text: str) -> None:
    """Only ASCII belongs to an identifier: what is glued to it is still prose."""
    assert not detect(text).english


def test_an_inverted_mark_decides() -> None:
    """No other language opens a question upside down, however short it is."""
    assert detect("¿npm o pnpm?").lang == "es"
    assert detect("¿npm o pnpm?").reason == "inverted mark"


def test_a_dotless_i_is_not_every_i() -> None:
    """Turkish letters are compared exactly: an English "I did it" holds none of them."""
    assert detect("what did i miss in this INITIAL commit").english
    assert detect("İnceleme olmadan ana dala gönderme yapma").lang == "tr"


def test_code_does_not_make_a_foreign_text_english() -> None:
    """What stands in code spans, fences, tags and addresses is not read."""
    code = "```\nthe and for with this that from\n```"

    assert not detect(f"Lance les tests avant de pousser. {code}").english
    assert detect(f"Run it like this: `le la les des est pas` {code}").english


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec=None, exclude_categories=()), max_size=120))
def test_no_text_raises(text: str) -> None:
    """Any sequence of code points gets a verdict with a confidence and a reason."""
    verdict = detect(text)

    assert 0 <= verdict.confidence <= 1
    assert verdict.reason
    assert 2 <= len(verdict.lang) <= 3


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_accuracy_on_the_shared_statements(shared_dir: Path) -> None:
    """At most 2 in 56 English statements are called foreign and 3 in 144 foreign ones English."""
    rows = _rows(shared_dir / "data" / "language.jsonl")
    english = [row["text"] for row in rows if row["lang"] == "en"]
    foreign = [row["text"] for row in rows if row["lang"] != "en"]

    called_foreign = [text for text in english if not detect(text).english]
    called_english = [text for text in foreign if detect(text).english]

    assert len(called_foreign) <= 2 * len(english) / 56, called_foreign
    assert len(called_english) <= 3 * len(foreign) / 144, called_english


def test_accuracy_on_questions_nobody_tuned_for(shared_dir: Path) -> None:
    """XQuAD questions: under 1 % of English called foreign, under 3 % of the others English."""
    rows = _rows(shared_dir / "data" / "retrieval" / "xquad" / "queries.jsonl")
    wrong = [row for row in rows if detect(row["text"]).english is not (row["lang"] == "en")]
    english = sum(row["lang"] == "en" for row in rows)

    assert sum(row["lang"] == "en" for row in wrong) < 0.01 * english
    assert sum(row["lang"] != "en" for row in wrong) < 0.03 * (len(rows) - english)
