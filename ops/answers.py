"""Asking a project's memory, and showing the answer and how it was found.

Owns the question as people and the first run ask it: through the server when one runs, else
from the database, with more patience than a prompt has. The block is what an agent would receive.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.invocation import Invocation
from ops.lessons import place
from ops.output import printable, styled, table
from ops.project import Project
from retrieval.render import render
from retrieval.results import Item, Recall
from storage.records import JsonValue

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

DEADLINE_MS = 5_000
"""A person would rather wait than miss; an agent's prompt gets `recall.deadline_ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the memory says to one question."""

    question: str
    recall: Recall
    block: str
    ms: float
    """The whole way, as the asker felt it."""


def ask(
    invocation: Invocation, project: Project, question: str, *, as_of: int | None = None
) -> Answer:
    """The answer that the project's agent would get to this prompt."""
    from hooks.recall_client import recall_via_server_or_sqlite

    began = time.perf_counter()
    recall = recall_via_server_or_sqlite(
        invocation.paths,
        str(project.binding.location),
        question,
        clock=invocation.clock,
        environment=invocation.environment,
        deadline_ms=DEADLINE_MS,
        as_of=as_of,
    )
    took = (time.perf_counter() - began) * 1000
    block = render(recall, max_bytes=project.settings.recall.max_bytes)
    return Answer(question=question, recall=recall, block=block, ms=took)


def answer_json(answer: Answer) -> dict[str, JsonValue]:
    """The answer for programs."""
    return {
        "question": answer.question,
        **answer.recall.to_json(),
        "block": answer.block,
        "block_bytes": len(answer.block.encode("utf-8")),
    }


def answer_lines(answer: Answer) -> list[RenderableType | str]:
    """The items for people, best first, with their lines."""
    recall = answer.recall
    if not recall.items:
        return [f"Nothing fits ({recall.reason or 'no match'})."]
    return [table(("kind", "what is known"), [(item.kind, _told(item)) for item in recall.items])]


def _told(item: Item) -> Text:
    told = styled(item.text)
    for source in item.sources[:2]:
        told.append("\n").append_text(styled(place(source), "dim"))
    return told


def explanation(answer: Answer) -> list[RenderableType | str]:
    """How the answer was found: each item's scores, each leg's work, and what was missing."""
    recall = answer.recall
    scores = [
        (
            printable(item.text)[:60],
            *_scores(item),
            ("unconfirmed" if item.unconfirmed else item.standing),
        )
        for item in recall.items
    ]
    legs = [
        (leg.name, f"{leg.candidates:,}", f"{leg.ms:.1f}", leg.gap or "") for leg in recall.legs
    ]
    shown: list[RenderableType | str] = []
    if scores:
        columns = ("item", ">fused", ">words", ">meaning", ">names", ">coverage", "standing")
        shown.append(table(columns, scores))
    if legs:
        shown.append(table(("leg", ">candidates", ">ms", "missing"), legs))
    via = "SQLite" if "no recall server answered" in recall.gaps else "the recall server"
    shown.append(
        styled(
            f"{recall.status}; {recall.ms:.1f} ms of search, {answer.ms:.1f} ms in all, by {via};"
            f" {recall.omitted} more left out; gaps: {', '.join(recall.gaps) or 'none'}"
        )
    )
    return shown


def _scores(item: Item) -> tuple[str, str, str, str, str]:
    scores = item.scores
    dense = "-" if scores.dense is None else f"{scores.dense:.2f}"
    return (
        f"{scores.fused:.2f}",
        f"{scores.lexical:.2f}",
        dense,
        f"{scores.exact:.2f}",
        f"{scores.coverage:.2f}",
    )
