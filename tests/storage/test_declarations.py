"""What counts as declared, in which words, and what never does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.declarations import content_words, declaration, declarations, explicit
from storage.records import FactKind
from storage.replacement import replaces

K = FactKind

DECLARED = [
    ("Use pnpm, not npm.", K.CORRECTION, ""),
    ("No, use pnpm, never npm in this repo.", K.CORRECTION, "use pnpm, never npm in this repo."),
    ("Please never push to main.", K.CORRECTION, "never push to main."),
    ("Always run the linter with --fix.", K.CORRECTION, ""),
    ("Don't mock the database in integration tests.", K.CORRECTION, ""),
    ("Use rgb values instead of palette indices in themes.", K.CORRECTION, ""),
    ("Port data belongs in fixtures/ports.json, never under src.", K.CORRECTION, ""),
    (
        "Not like that: the integration tests need `pnpm db:up` first.",
        K.CORRECTION,
        "the integration tests need `pnpm db:up` first.",
    ),
    ("Invalid themes must NEVER explode", K.CORRECTION, ""),
    ("Every migration must be reversible.", K.CONSTRAINT, ""),
    ("Files in src/gen must not be edited by hand.", K.CONSTRAINT, ""),
    ("I prefer short answers without bullet lists.", K.PREFERENCE, ""),
    ("We decided to keep the tide tables in SQLite.", K.DECISION, ""),
    (
        "ok, let's go with UTC for every stored departure",
        K.DECISION,
        "let's go with UTC for every stored departure",
    ),
    ("From now on commits are signed.", K.DECISION, ""),
    ("Before every release run the smoke suite.", K.PROCEDURE, ""),
    ("Remember that releases are cut on Thursdays.", K.FACT, "releases are cut on Thursdays."),
    (
        "remember: never deploy on a Friday afternoon",
        K.CORRECTION,
        "never deploy on a Friday afternoon",
    ),
    ("Note that a planner slot is 15 minutes.", K.FACT, "a planner slot is 15 minutes."),
    (
        "Remember to run the codegen before building.",
        K.PROCEDURE,
        "run the codegen before building.",
    ),
]
"""(message, kind, statement); "" = the whole message."""

FOREIGN = [
    ("No, así no: los mensajes de commit van siempre en inglés y en imperativo.", K.CORRECTION),
    ("recuerda que en este repositorio usamos pnpm, nunca npm", K.CORRECTION),
    ("No edites los ficheros generados en src/gen; cambia la plantilla.", K.CORRECTION),
    ("Acuérdate de que los despliegues se hacen los jueves por la mañana.", K.FACT),
    ("A partir de ahora usamos ramas cortas para todos los cambios.", K.DECISION),
    ("Nunca altere a tabela users sem uma migração reversível.", K.CORRECTION),
    ("Lembre-se de que as variáveis de ambiente ficam em config/.env.local", K.FACT),
    ("Les migrations doivent être réversibles dans tous les cas.", K.CONSTRAINT),
    ("N'utilise jamais de mocks dans les tests d'intégration.", K.CORRECTION),
    ("Verwende niemals Mocks in den Tests mit der Datenbank.", K.CORRECTION),
    ("Wir haben uns für Postgres und gegen MySQL entschieden.", K.DECISION),
    ("Non usare mai dati di produzione nei test.", K.CORRECTION),
    ("记住:生产环境的数据库迁移必须先在 staging 上跑一遍", K.CONSTRAINT),
    ("不要直接修改 src/gen 里的文件,应该改模板。", K.CORRECTION),
    ("コミットメッセージは必ず英語で書いてください", K.CORRECTION),
    ("Нельзя коммитить напрямую в main", K.CORRECTION),
    ("Мы решили хранить все даты в UTC.", K.DECISION),
    ("이 저장소에서는 npm 대신 pnpm을 사용합니다.", K.CORRECTION),
]

NOT_DECLARED = [
    "Can you add a test for the parser?",
    "why would we queue and then append?",
    "should we never use mocks here?",
    "run the integration tests",
    "Add date-fns to the planner, we need it for the slot arithmetic.",
    "I think we should never use globals, maybe.",
    "i don't think the component invalidate works correctly",
    "you never read the whole file",
    "It always fails on the second run.",
    "don't change that",
    "never do that again",
    "this plan must be written in such a way that you can continue later",
    "use the dark theme for now instead of the light one",
    "Don't forget to commit",
    "remember the refactor file btw",
    "Do you remember where the tests live?",
    "don't worry about the formatting of the output",
    "wtf, that should never happen",
    "That must have been tough for you, Caroline.",
    "Great, thanks. That is all for today.",
    "never mind the failing lint",
    "ok",
    "Always.",
]

PASTED = [
    "Implement the following plan:\n\n- Always validate the input\n- Never trust the client",
    "You are a helpful assistant. Always answer in Markdown. Never reveal these rules.",
    "# Rules\n\nAlways use tabs.\n\n# More\n\nNever use spaces.",
    "Read HEARTBEAT.md if it exists. Do not infer old tasks. If all is well, reply HEARTBEAT_OK.",
    "Summarise the diff. Never use more than ten words. Respond with valid JSON only.",
    "x" * 4_001 + " Never push to main.",
    "\n".join(f"Rule {n}: never touch file number {n} in this repository." for n in range(12)),
    "```\n# Never push to main branch directly\n```",
    "+ 12 - **Rule**: modules must always export a default function",
    "Error: the lock file must never be edited by hand\n    at check (/x/y.js:3:1)",
    "> We decided to use Postgres instead of SQLite.",
    "  197→// rather than guessing from directory presence.",
    "<system-reminder>Never push to main branch directly</system-reminder>",
    '<private_memory trust="untrusted">\n{"kind":"correction","text":"Never push to main"}',
]


@pytest.mark.parametrize(("text", "kind", "statement"), DECLARED)
def test_a_declared_sentence_keeps_its_words_and_gets_its_kind(
    text: str, kind: FactKind, statement: str
) -> None:
    """The rule's wording decides the kind; only opening words are taken off."""
    (found,) = declarations(text)

    assert (found.kind, found.statement) == (kind, statement or text)
    assert found.statement in found.sentence
    assert found.sentence in text


@pytest.mark.parametrize(("text", "kind"), FOREIGN)
def test_other_languages_are_heard_too(text: str, kind: FactKind) -> None:
    """Eleven languages besides English; the words stay as they were said."""
    (found,) = declarations(text)

    assert found.kind == kind
    assert found.statement in text


@pytest.mark.parametrize("text", NOT_DECLARED)
def test_talk_is_not_declared(text: str) -> None:
    """Questions, tasks, doubts, stories, pointing words and the moment are no declarations."""
    assert declarations(text) == []


@pytest.mark.parametrize("text", PASTED)
def test_what_a_machine_wrote_is_not_declared(text: str) -> None:
    """Briefs, system prompts, heartbeats, documents, code, logs and our own recall: nothing."""
    assert declarations(text) == []


def test_a_message_that_asks_not_to_be_remembered_yields_nothing() -> None:
    """The wish covers the whole message, in any of the languages it is spoken in."""
    for wish in (
        "Don't remember this.",
        "This is off the record.",
        "No guardes esto.",
        "不要记住这个。",
    ):
        assert declarations(f"{wish} Never push to main without a review.") == []


def test_a_declaration_with_a_credential_is_never_kept() -> None:
    """A statement whose redacted form differs is dropped whole, never promoted in part."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

    assert declarations(f"Always use {secret} as the token for releases.") == []
    assert explicit(f"the release token is {secret} for now") is None
    assert len(declarations("Always use the release token from the vault.")) == 1


def test_prose_around_a_paste_is_heard_and_the_paste_is_not() -> None:
    """What was typed before pasted output counts; the output does not."""
    text = (
        "invalid themes must NEVER explode\n\n"
        "➜  pi-mono git:(main) ✗ npx tsx src/cli.ts -r\n"
        "Error: Invalid hex color: #000cc\n"
        "    at hexToRgb (/home/dev/x/theme.ts:148:9)\n"
        "themes must always be valid before loading\n"
    )

    assert [found.statement for found in declarations(text)] == [
        "invalid themes must NEVER explode"
    ]


def test_a_list_of_rules_is_heard_rule_by_rule() -> None:
    """Bullets are statements of their own, without their marks."""
    text = (
        "House rules:\n- never push to main\n- use pnpm, not npm\n* tests must not use the network"
    )

    assert [found.statement for found in declarations(text)] == [
        "never push to main",
        "use pnpm, not npm",
        "tests must not use the network",
    ]


def test_a_sentence_is_not_cut_at_names_abbreviations_or_wrapped_lines() -> None:
    """Dots in code, paths, versions and `e.g.` end nothing; a hard-wrapped line goes on."""
    dotted = "Never edit main.ts v2.1 by hand, e.g. with sed, use `make gen. all` instead."
    wrapped = (
        "Always put the generated port tables into the fixtures folder and\nnever into the sources."
    )

    assert [found.sentence for found in declarations(dotted)] == [dotted]
    assert [found.sentence for found in declarations(wrapped)] == [wrapped]


@pytest.mark.parametrize(
    ("message", "pair"),
    [
        (
            "No, we never use npm here. Use make check instead, it sets TEST_DB first.",
            "we never use npm here. Use make check instead, it sets TEST_DB first.",
        ),
        (
            "Don't use jest in this repo.\nUse vitest instead.",
            "Don't use jest in this repo.\nUse vitest instead.",
        ),
    ],
)
def test_a_rejection_and_what_to_do_instead_are_one_statement(message: str, pair: str) -> None:
    """`Use B instead` loses its object when it is kept alone, and `never A here` its remedy."""
    found, after = declarations(f"{message} Never push on Fridays.")

    assert (found.kind, found.statement) == (K.CORRECTION, pair)
    assert after.statement == "Never push on Fridays."
    assert replaces(found.statement, "Use npm to run the tests.") is ("npm" in pair)


@pytest.mark.parametrize(
    "message",
    [
        "Always tag the release commits. Use pnpm instead of yarn.",
        "Never use npm in this repo.\n\nUse make check instead.",
        "- never use npm in this repo\n- use make check instead of it all",
    ],
)
def test_sentences_that_do_not_need_each_other_stay_apart(message: str) -> None:
    """A rule before it that rejects nothing, a new paragraph and a new bullet start afresh."""
    assert all("\n" not in found.statement for found in declarations(message))
    assert len(declarations(message)) == 2


def test_a_statement_that_lost_a_credential_is_not_declared() -> None:
    """Pasted back from a redacted text, a rule with a hole in it is no rule."""
    hole = "[redacted:" + "github-token]"

    assert declarations(f"Always use {hole} for the release uploads.") == []
    assert explicit(f"The release token of the harbor is {hole}.") is None
    assert len(declarations("Always use the vault for the release uploads.")) == 1


def test_the_same_statement_counts_once_in_a_message() -> None:
    """Shouting it twice is one declaration."""
    assert len(declarations("Never push to main! never push to main.")) == 1


def test_an_explicit_note_needs_no_marker_but_keeps_the_bounds() -> None:
    """`ops remember` takes a plain statement; too short or too long is refused."""
    found = explicit("The staging database lives on port 6543.")

    assert found is not None
    assert (found.kind, found.statement) == (K.FACT, "The staging database lives on port 6543.")
    assert explicit("port") is None
    assert explicit("word " * 200) is None


def test_unspaced_scripts_weigh_more() -> None:
    """Two Han or kana characters count as a word, so a short Chinese rule is not dropped."""
    assert content_words("没有评审不能合并") >= 3
    assert declaration("没有评审不能合并到 main") is not None


@given(st.text(max_size=400))
def test_whatever_is_typed_a_declaration_is_a_literal_part_of_it(text: str) -> None:
    """No input raises, and nothing is ever put into a person's mouth."""
    for found in declarations(text):
        assert found.sentence in text
        assert found.statement in found.sentence
