"""Asking a project's memory, and showing the answer and how it was found.

Owns the question as people and the first run ask it: through the server when one runs with its
encoder, else in this process, with more patience than a prompt has. The block is what an agent
would receive. Says so when only words could be compared.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.invocation import Invocation
from ops.lessons import place, shortened
from ops.nearby import Nearest, opened_here
from ops.output import printable, styled, table
from ops.project import Project
from retrieval.render import render
from retrieval.results import Item, Recall
from storage.errors import MemorydError
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
    words_only: str = ""
    """Why meaning was not compared; "" when it was."""
    nearest: Nearest | None = None
    """What came closest, when nothing was good enough and somebody wants to know."""
    here: bool = False
    """Found in this process, not by the server."""


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


def ask_patiently(
    invocation: Invocation,
    project: Project,
    question: str,
    *,
    as_of: int | None = None,
    explain: bool = False,
) -> Answer:
    """The answer that a warm server gives, from wherever it can be had.

    Raises:
        MemorydError: the memory cannot be read.
    """
    began = time.perf_counter()
    recall = _from_server(invocation, project, question, as_of)
    wanting = recall is None or (explain and not recall.items)
    words_only, nearest, here = "", None, recall is None
    if wanting and project.settings.recall.enabled:
        with opened_here(invocation, project) as index:
            if index is not None:
                words_only = index.words_only
                recall = recall or index.recall(project, question, as_of)
                nearest = index.nearest(question, as_of) if explain and not recall.items else None
    if recall is None:
        found = ask(invocation, project, question, as_of=as_of)
        recall, words_only = found.recall, "the recall server is not ready (ops start)"
    block = render(recall, max_bytes=project.settings.recall.max_bytes)
    return Answer(
        question=question,
        recall=recall,
        block=block,
        ms=(time.perf_counter() - began) * 1000,
        words_only=words_only,
        nearest=nearest,
        here=here,
    )


def _from_server(
    invocation: Invocation, project: Project, question: str, as_of: int | None
) -> Recall | None:
    """A server's whole answer; None when none runs, or it had to do without its encoder."""
    from hooks.recall import Ask
    from hooks.recall_client import ask_server

    wanted = Ask(cwd=str(project.binding.location), query=question, as_of=as_of)
    try:
        found = ask_server(invocation.paths, wanted, timeout_ms=DEADLINE_MS)
    except MemorydError:
        return None
    return None if found.gaps else found


def answer_json(answer: Answer) -> dict[str, JsonValue]:
    """The answer for programs."""
    return {
        "question": answer.question,
        **answer.recall.to_json(),
        "block": answer.block,
        "block_bytes": len(answer.block.encode("utf-8")),
        "words_only": answer.words_only or None,
        "nearest": {"text": answer.nearest.text, "missed_by": round(answer.nearest.missed_by, 3)}
        if answer.nearest
        else None,
    }


def answer_lines(answer: Answer) -> list[RenderableType | str]:
    """The items for people, best first, with their lines."""
    recall = answer.recall
    words = [f"Searched by words only: {answer.words_only}."] if answer.words_only else []
    if not recall.items:
        return [f"Nothing fits ({recall.reason or 'no match'}).", *words]
    found = [(item.kind, _told(item)) for item in recall.items]
    return [table(("kind", "what is known"), found), *words]


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
    if answer.nearest:
        missed = f"it missed the bar by {answer.nearest.missed_by:.2f}"
        text = shortened(answer.nearest.text.strip())
        shown.append(styled(f"nearest: “{text}”, {missed}"))
    via = "this command" if answer.here else "the recall server"
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
