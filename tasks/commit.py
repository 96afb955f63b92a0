"""Committing what was decided on one snapshot, and only while that snapshot is the truth.

Rules compare new statements with those that are there; two jobs that learn at the same time must
not each miss what the other found. So a batch is built from a snapshot, and if the authority moved
before the commit, built again: cheap, since sources were read and models were paid already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from storage.authority.port import Authority
from storage.authority.reads import Reads
from storage.errors import Invalid, Stale
from storage.events import EventDraft
from storage.log import get_logger
from tasks.context import Context

T = TypeVar("T")
ATTEMPTS: Final = 8


class Moved(Stale):
    """The authority changed between the snapshot and the commit."""


def commit(
    context: Context,
    authority: Authority,
    build: Callable[[Reads], tuple[T, Sequence[EventDraft]]],
) -> T | None:
    """What `build` gave with the drafts that were committed; no drafts, no commit.

    None when an earlier run of this job committed already and only its acknowledgement was lost:
    nothing changes again, and the caller still owes the successors.

    Raises:
        Stale: the authority kept moving.
        Invalid: a draft breaks a rule of the reducer.
        LeaseLost: somebody else holds the job now.
    """
    for _ in range(ATTEMPTS):
        seen = authority.generation()
        with authority.read() as reads:
            if reads.is_applied(context.lease.stamp.job_id):
                return None
            result, drafts = build(reads)
        if not drafts:
            return result

        def guard(seen: int = seen) -> None:
            context.lease.check()
            if authority.generation() != seen:
                raise Moved

        context.lease.check()
        try:
            applied = _append(context, authority, drafts, guard)
        except Moved:
            continue
        except Invalid:
            if authority.generation() == seen:
                raise
            continue
        return result if applied else None
    raise Moved


def _append(
    context: Context,
    authority: Authority,
    drafts: Sequence[EventDraft],
    guard: Callable[[], None],
) -> bool:
    before, started = authority.container, context.clock.boot_ms()
    done = authority.append(drafts, stamp=context.lease.stamp, guard=guard)
    took = context.clock.boot_ms() - started
    if done.applied:
        get_logger().info("authority.appended", events=done.events, duration_ms=took)
    if authority.container != before:
        get_logger().info(
            "authority.promoted",
            container=authority.container,
            events=done.events,
            duration_ms=took,
        )
    return done.applied
