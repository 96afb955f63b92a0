"""Forgetting what may be forgotten: the search documents of facts that ended a week ago.

Facts and their evidence stay, so history still answers; only the hot copies go. Deferred statements
stay however old they are: they wait for a model, not for us to lose patience. With the last batch,
journal files that nobody adds to any more are packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from storage import statements
from storage.authority import payloads
from storage.authority.reads import Reads
from storage.clock import DAY_MS
from storage.events import EventDraft
from storage.jobs import JobKind, JobSpec, Priority
from storage.records import JsonValue
from tasks.commit import commit
from tasks.context import Context, Finished

KEEP_DAYS: Final = 7
BATCH: Final = 500
"""Bounds one commit; what is left is a successor's."""


def run(context: Context, args: Mapping[str, JsonValue]) -> Finished:
    """Compact one batch."""
    authority = context.open_authority()
    before = context.clock.now_ms() - KEEP_DAYS * DAY_MS

    def build(reads: Reads) -> tuple[int, Sequence[EventDraft]]:
        gone = statements.ended(reads, before, limit=BATCH)
        return len(gone), [payloads.gc_compacted(facts=gone)] if gone else []

    count = commit(context, authority, build)
    more = JobSpec(kind=JobKind.GC, project=context.project, priority=Priority.MAINTENANCE)
    if count is None:
        return Finished(successors=(more,), note="was applied")
    if count == BATCH:
        return Finished(successors=(more,), note=_note(count, 0))
    return Finished(note=_note(count, authority.pack()[0]))


def _note(facts: int, files: int) -> str:
    said = f"{facts} ended facts left the search index" if facts else "nothing to forget"
    return f"{said}, {files} journal files packed" if files else said
