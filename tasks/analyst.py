"""The extractive analyst: facts by rule, without a model and without cost.

Owns the step from records to proposals. It only ever repeats: a declared statement keeps the
person's words, a repair names its command and the literal line that failed. What it cannot prove it
leaves out, and counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from storage.declarations import declarations
from storage.outcomes import Fixed, Outcomes, attempt_of
from storage.records import FactKind, SourceRef
from storage.sentences import is_brief
from tasks.sources import (
    AssistantMessage,
    Declared,
    PathLeft,
    Record,
    Repaired,
    ToolResult,
    UserMessage,
)

NAME: Final = "extractive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A fact that somebody or something stands behind, before admission."""

    kind: FactKind
    statement: str
    excerpt: str
    """The literal quote."""
    source: SourceRef
    at: int
    declared: bool
    """True: a person's own words. False: the host observed it."""
    tool_call_id: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposals:
    """What one window gave."""

    found: tuple[Proposal, ...]
    heard: Counter[str]
    """Records by what they were, for people."""
    passed_over: Counter[str]
    """Messages that were not listened to, by reason."""


def propose(
    records: Iterable[Record], *, adapter: str, locator: str, outcomes: Outcomes
) -> Proposals:
    """The proposals of a window, in reading order; `outcomes` is carried to the next one."""
    found: list[Proposal] = []
    heard: Counter[str] = Counter()
    passed_over: Counter[str] = Counter()
    for record in records:
        heard[type(record).__name__] += 1
        if isinstance(record, UserMessage) and is_brief(record.text):
            passed_over["brief"] += 1
        found.extend(_of_record(record, adapter, locator, outcomes))
    return Proposals(tuple(found), heard, passed_over)


def _of_record(
    record: Record, adapter: str, locator: str, outcomes: Outcomes
) -> Iterable[Proposal]:
    match record:
        case UserMessage():
            source = _source(adapter, locator, record.line, record.session_id)
            return [
                _declared(said.kind, said.statement, said.sentence, source, record.at)
                for said in declarations(record.text)
            ]
        case Declared():
            source = _source(adapter, locator, record.line, record.session_id)
            return [_declared(record.kind, record.text, record.excerpt, source, record.at)]
        case ToolResult():
            fixed = outcomes.observe(
                attempt_of(
                    tool=record.tool,
                    command=record.input,
                    output=record.output,
                    failed=record.is_error or record.exit_code not in (None, 0),
                    call_id=record.call_id,
                    line=record.line,
                    at=record.at,
                )
            )
            if fixed is None:
                return ()
            return [_repaired(fixed, _source(adapter, locator, fixed.line, record.session_id))]
        case Repaired():
            source = _source(adapter, locator, record.line, record.session_id)
            return [_repaired(record.fixed, source)]
        case PathLeft():
            outcomes.abandon()
            return ()
        case AssistantMessage():
            return ()


def _source(adapter: str, locator: str, line: int, session_id: str) -> SourceRef:
    return SourceRef(adapter=adapter, locator=locator, line=line, session_id=session_id)


def _declared(
    kind: FactKind, statement: str, sentence: str, source: SourceRef, at: int
) -> Proposal:
    return Proposal(
        kind=kind, statement=statement, excerpt=sentence, source=source, at=at, declared=True
    )


def _repaired(fixed: Fixed, source: SourceRef) -> Proposal:
    return Proposal(
        kind=FactKind.PROCEDURE,
        statement=fixed.statement,
        excerpt=fixed.failure,
        source=source,
        at=fixed.at,
        declared=False,
        tool_call_id=fixed.call_id,
        tags={"remedy": fixed.remedies[-1]},
    )
