"""Forgetting what may be forgotten: the search documents of facts that ended a week ago.

Facts and their evidence stay, so history still answers; only the hot copies go. Deferred statements
stay however old they are: they wait for a model, not for us to lose patience.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from storage import statements
from storage.authority import payloads
from storage.clock import DAY_MS
from storage.jobs import JobKind, JobSpec, Priority
from storage.records import JsonValue
from tasks.context import Context, Finished

KEEP_DAYS: Final = 7
BATCH: Final = 500
"""Bounds one commit; what is left is a successor's."""


def run(context: Context, args: Mapping[str, JsonValue]) -> Finished:
    """Compact one batch."""
    authority = context.open_authority()
    before = context.clock.now_ms() - KEEP_DAYS * DAY_MS
    with authority.read() as reads:
        gone = statements.ended(reads, before, limit=BATCH)
    if not gone:
        return Finished(note="nothing to forget")
    context.lease.check()
    authority.append(
        [payloads.gc_compacted(facts=gone)],
        stamp=context.lease.stamp,
        guard=context.lease.check,
    )
    successors: tuple[JobSpec, ...] = ()
    if len(gone) == BATCH:
        more = JobSpec(kind=JobKind.GC, project=context.project, priority=Priority.MAINTENANCE)
        successors = (more,)
    return Finished(successors=successors, note=f"{len(gone)} ended facts left the search index")
