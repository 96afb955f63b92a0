"""What hooks may say to the queue: something happened; a sync runs when it is due.

Each call is one durable write, or one durable spool file when the database is busy. Light to
import: no huey, no logging library, no model.
"""

from __future__ import annotations

from dataclasses import replace

from storage import spool
from storage.activity import Activity
from storage.clock import Clock
from storage.errors import Busy, Corrupt, Unavailable
from storage.jobs import JobKind, JobSpec, Priority
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import ProjectId
from storage.spool import Entry

HOOK_BUSY_MS = 50
"""A hook waits no longer for the write lock; then it spools."""


def open_for_hook(paths: HomePaths, clock: Clock) -> JobQueue:
    """The queue as a short-lived process opens it: durable enqueues, a short wait.

    Raises:
        Busy, Unavailable, Corrupt: as `storage.queue.open_queue`; `spooled` needs no database.
    """
    return open_queue(paths, clock=clock, busy_ms=HOOK_BUSY_MS)


def turn_ended(queue: JobQueue, project: ProjectId, tokens: int) -> int:
    """Count a turn and its tokens; returns the jobs that it asked for (0 when spooled)."""
    return _accept(queue, Entry(project=project, counted=Activity(turns=1, tokens=tokens)))


def observed(queue: JobQueue, project: ProjectId, inserts: int) -> int:
    """Count observations that were written; returns the jobs that they asked for."""
    return _accept(queue, Entry(project=project, counted=Activity(inserts=inserts)))


def session_ended(queue: JobQueue, project: ProjectId) -> int:
    """A sync as soon as possible: nothing more will come to wait for."""
    return _accept(queue, Entry(project=project, specs=(_sync(project),)))


def requested(queue: JobQueue, project: ProjectId) -> int:
    """A sync at once, before other work: a person asked for it, or stated a correction."""
    return _accept(queue, Entry(project=project, specs=(urgent_sync(project),)))


def accepted(paths: HomePaths, clock: Clock, entry: Entry) -> None:
    """Take an entry into the queue, or onto the spool when the queue cannot be used now.

    Raises:
        Unavailable: neither can be written.
    """
    try:
        queue = open_for_hook(paths, clock)
        try:
            queue.accept(entry)
        finally:
            queue.close()
    except (Busy, Unavailable, Corrupt):
        spooled(paths, clock, entry)


def spooled(paths: HomePaths, clock: Clock, entry: Entry) -> None:
    """Accept an entry without the database at all.

    Raises:
        Unavailable: the spool folder cannot be written.
    """
    spool.append(paths, entry, clock.now_ms())


def urgent_sync(project: ProjectId) -> JobSpec:
    """The sync of somebody who waits for what it finds."""
    return replace(_sync(project), priority=Priority.INTERACTIVE)


def _sync(project: ProjectId) -> JobSpec:
    return JobSpec(kind=JobKind.SYNC, project=project)


def _accept(queue: JobQueue, entry: Entry) -> int:
    try:
        return queue.accept(entry)
    except Busy:
        spool.append(queue.paths, entry, queue.clock.now_ms())
        return 0
