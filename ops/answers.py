"""Asking a project's memory, and showing the answer and how it was found.

Owns the question as people and the first run ask it: through the server when one runs with its
encoder, else in this process, with more patience than a prompt has. The block is what an agent
would receive. Says so when only words could be compared.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ops.invocation import Invocation
from ops.lessons import place, shortened
from ops.nearby import opened_here
from ops.output import printable, styled, table
from ops.project import Project, opened
from ops.receipts import CUTS, Told, told_of
from retrieval.receipts import found_in
from retrieval.render import render
from retrieval.results import Item, Recall, Scores
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
    left: tuple[Told, ...] = ()
    """The best of what was found and not shown, for somebody who wants to know."""
    here: bool = False
    """Found in this process, not by the server."""

    @property
    def nearest(self) -> Told | None:
        """What came closest, when nothing was good enough."""
        missed = [one for one in self.left if one.text and one.found.cut == "gate"]
        best = max(missed, key=lambda one: one.found.scores.margin, default=None)
        return None if self.recall.items else best


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
    words_only, here = "", recall is None
    if recall is None and project.settings.recall.enabled:
        with opened_here(invocation, project) as index:
            if index is not None:
                words_only = index.words_only
                recall = index.recall(project, question, as_of)
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
        left=_left(invocation, project, recall) if explain else (),
        here=here,
    )


def _left(invocation: Invocation, project: Project, recall: Recall) -> tuple[Told, ...]:
    """What the answer left out, with its words."""
    found = [one for one in found_in(recall) if one.cut is not None]
    with opened(invocation, project) as authority, authority.read() as reads:
        return tuple(told_of(reads, found))


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
        "nearest": {
            "text": answer.nearest.text,
            "missed_by": round(max(0.0, -answer.nearest.found.scores.margin), 3),
        }
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
    """How the answer was found: each item's scores, what was cut and why, each leg's work."""
    recall = answer.recall
    shown: list[RenderableType | str] = []
    if recall.items:
        rows = [
            (printable(item.text)[:60], *_scores(item.scores), _how_far(item))
            for item in recall.items
        ]
        shown.append(table(("item", *_COLUMNS, "standing"), rows))
    if answer.left:
        rows = [
            (shortened(one.text, 60) or "gone since", *_scores(one.found.scores), _cut(one))
            for one in answer.left
        ]
        shown.append(table(("left out", *_COLUMNS, "why"), rows))
    if recall.legs:
        legs = [
            (leg.name, f"{leg.candidates:,}", f"{leg.ms:.1f}", leg.gap or "") for leg in recall.legs
        ]
        shown.append(table(("leg", ">candidates", ">ms", "missing"), legs))
    if answer.nearest:
        missed = f"it missed the bar by {max(0.0, -answer.nearest.found.scores.margin):.2f}"
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


_COLUMNS: Final = (">fused", ">words", ">meaning", ">names", ">coverage", ">above the bar")


def _how_far(item: Item) -> str:
    return "unconfirmed" if item.unconfirmed else item.standing


def _cut(one: Told) -> str:
    return CUTS[one.found.cut] if one.found.cut else ""


def _scores(scores: Scores) -> tuple[str, ...]:
    dense = "-" if scores.dense is None else f"{scores.dense:.2f}"
    return (
        f"{scores.fused:.2f}",
        f"{scores.lexical:.2f}",
        dense,
        f"{scores.exact:.2f}",
        f"{scores.coverage:.2f}",
        f"{scores.margin:+.2f}",
    )
