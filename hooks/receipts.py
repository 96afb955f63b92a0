"""The receipt of an answered prompt: gathered beside the answer, written after it.

`Answered` only holds on to what is there anyway, so a prompt pays nothing for it; the receipt is
made and written by whoever captures the prompt. A receipt that cannot be written is lost, never an
error: it explains, and nothing depends on it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.errors import MemorydError

if TYPE_CHECKING:
    from hooks.events import PromptSubmitted
    from retrieval.receipts import Receipt
    from retrieval.results import Recall
    from storage.paths import HomePaths
    from storage.records import ProjectId


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A prompt of a project with a memory, what recall said, and what became of that."""

    project: ProjectId
    event: PromptSubmitted
    recall: Recall
    at: int
    block: str
    """What was injected, or would have been; only measured, never kept."""
    shadow: bool
    keep_days: int
    by_server: bool = True
    ms: float = 0.0


def receipt_of(answered: Answered) -> Receipt:
    """What is kept of it: ids and numbers."""
    from retrieval.receipts import Receipt, digest_of_prompt, found_in
    from retrieval.tokens import estimated_tokens
    from storage.names import opaque

    event, recall = answered.event, answered.recall
    return Receipt(
        receipt_id=os.urandom(5).hex(),
        at=answered.at,
        host=event.host,
        session_id=opaque(event.session_id),
        prompt_digest=digest_of_prompt(event.prompt),
        prompt_chars=len(event.prompt),
        status=recall.status,
        reason=recall.reason,
        shadow=answered.shadow,
        by_server=answered.by_server,
        generation=recall.generation,
        ms=answered.ms or recall.ms,
        block_bytes=len(answered.block.encode("utf-8")),
        block_tokens=estimated_tokens(answered.block),
        found=found_in(recall),
        omitted=recall.omitted,
        gaps=recall.gaps,
        legs=recall.legs,
    )


def keep(paths: HomePaths, answered: Answered) -> bool:
    """Write the receipt of a prompt down; False when it could not be."""
    from retrieval.receipts import to_json
    from storage.receipt_log import append

    value = to_json(receipt_of(answered))
    try:
        project = paths.project(answered.project)
        return append(project, value, now=answered.at, keep_days=answered.keep_days)
    except MemorydError:
        return False
