"""The model analyst: a second reading of a conversation, validated line by line.

Owns the bundle a model gets (redacted, bounded, marked as data) and the strictness with which its
answer is read. A fact counts only with a literal quote from a line it was shown; a bad fact costs
itself, not the answer that was paid for. Whatever passes is imported knowledge: it waits for review
until stronger evidence says the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from storage.errors import Invalid
from storage.language import detect
from storage.records import FactKind, JsonValue
from storage.redaction import is_learnable, redact
from tasks.llm import LanguageModel
from tasks.prompts import ANALYZE, prompt
from tasks.sources import AssistantMessage, Record, ToolResult, UserMessage

USER_CHARS: Final = 2_000
AGENT_CHARS: Final = 700
TOOL_CHARS: Final = 400
MIN_BUNDLE_CHARS: Final = 80
MAX_ANSWER_CHARS: Final = 24_000
MAX_FACTS: Final = 12
MAX_STATEMENT_CHARS: Final = 500
MAX_EXCERPT_CHARS: Final = 500
MIN_EXCERPT_CHARS: Final = 8
_JSON: Final = json.JSONDecoder()
_FACTS: Final = re.compile(r'\{\s*"facts"\s*:\s*\[\s*')
_COMMA: Final = re.compile(r"\s*,\s*")


@dataclass(frozen=True, slots=True)
class Shown:
    """One line as the model saw it."""

    number: int
    text: str
    session_id: str
    at: int


@dataclass(frozen=True, slots=True)
class ModelFact:
    """A fact of an answer that passed every check."""

    kind: FactKind
    statement: str
    excerpt: str
    confidence: float
    shown: Shown


@dataclass(frozen=True, slots=True)
class Reading:
    """What one answer gave."""

    facts: tuple[ModelFact, ...]
    dropped: Counter[str]


def read_with_model(
    model: LanguageModel,
    records: Iterable[Record],
    *,
    max_chars: int,
    max_output_tokens: int,
) -> Reading:
    """Ask once about a window; a window without enough words costs no call.

    Raises:
        ModelUnavailable, BudgetExhausted, MissingModel, Invalid: as the model.
    """
    shown, left_out = bundle(records, max_chars)
    dropped: Counter[str] = Counter({"beyond_window": left_out} if left_out else {})
    text = "\n".join(f"L{line.number} {line.text}" for line in shown)
    if len(text) < MIN_BUNDLE_CHARS or not any(line.text.startswith("[user]") for line in shown):
        return Reading((), dropped)
    completion = model.complete(prompt(ANALYZE), text, max_output_tokens=max_output_tokens)
    try:
        answer = parse_answer(completion.text)
    except Invalid:
        answer = whole_facts(completion.text)
        dropped["unreadable_answer"] += 1
    found: list[ModelFact] = []
    by_number = {line.number: line for line in shown}
    for item in answer[:MAX_FACTS]:
        fact, problem = _checked(item, by_number)
        if fact is not None:
            found.append(fact)
        else:
            dropped[problem] += 1
    if len(answer) > MAX_FACTS:
        dropped["too_many"] += len(answer) - MAX_FACTS
    return Reading(tuple(found), dropped)


def bundle(records: Iterable[Record], max_chars: int) -> tuple[list[Shown], int]:
    """The lines to show, redacted, oldest first; and how many no longer fitted."""
    shown: list[Shown] = []
    left_out = used = 0
    for line in _lines(records):
        used += len(line.text) + 8
        if used > max_chars:
            left_out += 1
        else:
            shown.append(line)
    return shown, left_out


def _lines(records: Iterable[Record]) -> Iterator[Shown]:
    for record in records:
        match record:
            case UserMessage():
                text = f"[user] {_cut(record.text, USER_CHARS)}"
            case AssistantMessage() if record.text.strip():
                text = f"[agent] {_cut(record.text, AGENT_CHARS)}"
            case ToolResult() if record.is_error or record.input:
                state = "failed" if record.is_error else "ok"
                text = f"[{record.tool} {state}] {record.input}: {_cut(record.output, TOOL_CHARS)}"
            case _:
                continue
        yield Shown(record.line, redact(text), record.session_id, record.at)


def parse_answer(text: str) -> Sequence[JsonValue]:
    """The facts of an answer: the outermost object, fenced or not.

    Raises:
        Invalid: no JSON object, or no list of facts in it.
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start or len(text) > MAX_ANSWER_CHARS:
        raise Invalid("the answer holds no JSON object of a fitting size")
    try:
        found = json.loads(text[start : end + 1])
    except (ValueError, RecursionError) as cause:
        raise Invalid("the answer is not JSON") from cause
    facts = found.get("facts") if isinstance(found, dict) else None
    if not isinstance(facts, list):
        raise Invalid("the answer has no list of facts")
    return facts


def whole_facts(text: str) -> Sequence[JsonValue]:
    """The facts that stand whole at the start of a broken list: an answer cut off was paid for."""
    opened = _FACTS.search(text[:MAX_ANSWER_CHARS])
    found: list[JsonValue] = []
    at = opened.end() if opened else len(text)
    while at < min(len(text), MAX_ANSWER_CHARS):
        try:
            item, at = _JSON.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        found.append(item)
        gap = _COMMA.match(text, at)
        if gap is None:
            break
        at = gap.end()
    return found


def _checked(item: JsonValue, shown: Mapping[int, Shown]) -> tuple[ModelFact | None, str]:
    """The fact, or the reason why it is none."""
    match item:
        case {
            "kind": str(kind),
            "statement": str(statement),
            "line": int(number),
            "excerpt": str(excerpt),
            **rest,
        }:
            statement, excerpt = statement.strip(), excerpt.strip()
        case _:
            return None, "malformed"
    confidence = rest.get("confidence", 0.5)
    if isinstance(confidence, bool) or not isinstance(confidence, int | float):
        return None, "bad_confidence"
    line = shown.get(number)
    checks = (
        (kind in {member.value for member in FactKind}, "unknown_kind"),
        (12 <= len(statement) <= MAX_STATEMENT_CHARS, "bad_statement"),
        (MIN_EXCERPT_CHARS <= len(excerpt) <= MAX_EXCERPT_CHARS, "bad_excerpt"),
        (0 <= confidence <= 1, "bad_confidence"),
        (line is not None and excerpt in line.text, "not_literal"),
        (is_learnable(f"{statement}\n{excerpt}"), "secret"),
        (detect(statement).english, "not_english"),
    )
    for holds, problem in checks:
        if not holds:
            return None, problem
    assert line is not None
    return ModelFact(FactKind(kind), statement, excerpt, float(confidence), line), ""


def _cut(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 4] + " ..."
