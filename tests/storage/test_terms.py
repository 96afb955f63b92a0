"""The analyzer: what is stored and what is asked meet as the same terms."""

from __future__ import annotations

import re

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.terms import MAX_TERM_CHARS, stem, stop_words, term_text, terms

ONE_TERM = re.compile(r"[a-z0-9_]+|[^\x00-\x7f]+")


@given(st.text(max_size=200))
def test_every_term_survives_the_full_text_tokenizer(text: str) -> None:
    """Plain ASCII words or characters beyond ASCII, bounded; never a separator inside."""
    found = terms(text)

    assert all(ONE_TERM.fullmatch(term) and len(term) <= MAX_TERM_CHARS for term in found)
    assert terms(text) == found


@given(st.lists(st.sampled_from(["getUserName", "重跑", "café", "--dry-run", "हिन्दी"]), max_size=6))
def test_a_text_has_the_terms_of_its_words(words: list[str]) -> None:
    """Words parted by spaces do not influence each other."""
    assert terms(" ".join(words)) == [term for word in words for term in terms(word)]


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("getUserName", "user name"),
        ("getUserName()", "getusername"),
        ("parse_json_file", "json file"),
        ("parse_json_file", "parse_json_file"),
        ("HTTPServer", "server"),
        ("run with --frozen-lockfile", "frozen-lockfile"),
        ("run with --frozen-lockfile", "lockfiles"),
        ("src/app/main.py:12", "main.py"),
        ("upgraded to v1.2.3", "1.2.3"),
        ("ERR_PNPM_OUTDATED_LOCKFILE", "outdated lockfile"),
        ("error E0308", "e0308"),
        ("caching of queries", "cached query"),
        ("tests are running", "run the test"),
        ("She writes libraries", "write a library"),
        ("un café naïve", "cafe naive"),
        ("Straße", "strasse"),
        ("Søren", "soren"),
        ("ＦＵＬＬ width", "full"),
        ("C++ and C#", "c++ c#"),
        ("the user's list", "users"),
        ("重跑gen-itgc后", "重跑"),
        ("重跑gen-itgc后", "gen-itgc"),
        ("重跑gen-itgc后", "跑"),
        ("データベースの移行", "移行"),
        ("한국어로 작성", "한국어"),
        ("ใช้ภาษาไทย", "ภาษา"),
        ("Использует кэш", "кэш"),
        ("Ёлка", "елка"),
        ("हिन्दी में लिखो", "हिन्दी"),
        ("بالعَرَبِيَّة", "بالعربية"),
        ("10.0.0.1:8080", "10.0.0.1"),
    ],
)
def test_the_question_meets_the_text(stored: str, asked: str) -> None:
    """Every term of the question's content stands in the text (as people mix the spellings)."""
    content = set(terms(asked)) - stop_words("en")

    assert content
    if asked in {"main.py", "1.2.3", "10.0.0.1"}:
        assert content & set(terms(stored))
    else:
        assert content <= set(terms(stored))


@pytest.mark.parametrize(("one", "other"), [("が", "か"), ("ギ", "キ"), ("한", "하"), ("म", "में")])
def test_marks_that_are_letters_stay(one: str, other: str) -> None:
    """Voiced kana, Hangul syllables and vowel signs are not accents."""
    assert terms(one) != terms(other)


@pytest.mark.parametrize(
    "family",
    [
        ["cache", "caches", "cached", "caching"],
        ["use", "uses", "used", "using"],
        ["query", "queries", "queried", "querying"],
        ["run", "runs", "running", "ran"],
        ["index", "indexes", "indices", "indexed", "indexing"],
        ["test", "tests", "tested", "testing"],
        ["commit", "commits", "committed", "committing"],
        ["make", "makes", "making", "made"],
        ["box", "boxes"],
        ["class", "classes"],
    ],
)
def test_forms_of_one_word_share_a_stem(family: list[str]) -> None:
    """Plural, past and -ing meet."""
    assert len({stem(word) for word in family}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [("seed", "se"), ("speed", "spe"), ("string", "str"), ("status", "statu"), ("access", "acces")],
)
def test_words_that_only_look_inflected_stay(one: str, other: str) -> None:
    """An ending that belongs to the word is not cut."""
    assert stem(one) != stem(other) or stem(one) == one


def test_the_full_text_index_finds_what_the_analyzer_wrote() -> None:
    """FTS5 with the ascii tokenizer neither splits nor folds a term."""
    db = apsw.Connection(":memory:")
    db.execute(
        "CREATE VIRTUAL TABLE f USING fts5 (text, content='', tokenize=\"ascii tokenchars '_'\")"
    )
    text = "getUserName 重跑 --frozen-lockfile café ไทย"
    db.execute("INSERT INTO f (rowid, text) VALUES (1, ?)", (term_text(text),))

    for term in terms(text):
        assert db.execute("SELECT rowid FROM f WHERE f MATCH ?", (f'"{term}"',)).fetchall() == [
            (1,)
        ], term


def test_stop_words_are_terms() -> None:
    """They are spelled as the analyzer spells them; unknown languages have none."""
    assert {"the", "be", "does"} & stop_words("en") >= {"the", "be"}
    assert "como" in stop_words("es")
    assert stop_words("zh") == frozenset()
    for lang in ("en", "es", "fr", "de", "pt", "it", "nl", "ru"):
        assert all(ONE_TERM.fullmatch(term) for term in stop_words(lang))
