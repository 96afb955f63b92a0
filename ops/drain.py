"""Waiting until the background work of a project, or of all, is done, with something to see.

Owns what "done" means: nothing of it runs, is due, or comes back soon after a failure.
Work that waits for a model, a budget or a person is not waited for. Reads only, and looks at the
rows when another process has committed, not more often.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.clock import Clock
from storage.connection import disk_is_full, translated
from storage.errors import DiskFull, Unavailable
from storage.jobs import JobState, JobView
from storage.paths import HomePaths
from storage.queue_file import open_queue_reader
from storage.queue_views import list_jobs
from storage.records import ProjectId

if TYPE_CHECKING:
    import apsw

LOOK_EVERY_S = 0.1
PATIENCE_S = 180.0
"""Give up when nothing at all changed for so long."""
FULL_AFTER_S = 2.0
"""A full disk is believed when nothing moved for so long: the work itself may free some."""
MAX_LISTED = 10_000
_WAITS_FOR_OTHERS = frozenset({"model", "budget", "paused"})
_OPEN = (JobState.AVAILABLE, JobState.LEASED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where the work stands."""

    pending: tuple[JobView, ...]
    """Jobs that run, are due, or come back soon."""
    held: tuple[JobView, ...]
    """Jobs that wait for a model, a budget or a person."""
    finished: int
    lost: tuple[JobView, ...]
    """Jobs that ended without doing their work."""

    @property
    def line(self) -> str:
        """What happens now, in a few words."""
        running = sorted({job.kind for job in self.pending if job.state is JobState.LEASED})
        doing = f" ({', '.join(running)})" if running else ""
        failed = next((job.error for job in self.pending if job.error), "")
        again = f"; again soon: {failed}" if failed else ""
        return f"{self.finished} done, {len(self.pending)} to do{doing}{again}"


def look(db: apsw.Connection, project: ProjectId | None, now: int, *, since: int = 0) -> Progress:
    """Where the work of a project (None: of all) stands; what ended before `since` is left out."""
    listed = list_jobs(db, project=project, limit=MAX_LISTED)
    jobs = [job for job in listed if job.finished_at is None or job.finished_at >= since]
    still = [job for job in jobs if job.state in _OPEN]
    held = [job for job in still if job.waiting_for in _WAITS_FOR_OTHERS]
    pending = [job for job in still if job not in held and _comes_soon(job, now)]
    return Progress(
        pending=tuple(pending),
        held=tuple(held),
        finished=sum(job.state is JobState.COMPLETED for job in jobs),
        lost=tuple(job for job in jobs if _is_lost(job)),
    )


def _comes_soon(job: JobView, now: int) -> bool:
    return job.state is JobState.LEASED or job.run_at <= now or job.waiting_for == "retry"


def _is_lost(job: JobView) -> bool:
    # A job that a newer event replaced did not lose its work: the new one does it.
    refused = job.state is JobState.DISCARDED and not job.error.startswith("superseded")
    return job.state is JobState.DEAD or refused


def wait_drained(
    paths: HomePaths,
    project: ProjectId | None,
    clock: Clock,
    *,
    between: Callable[[Progress], None],
    since: int = 0,
    patience_s: float = PATIENCE_S,
) -> Progress:
    """Return once the work of the project (None: of all) is done.

    `between` hears of every change and every look.

    Raises:
        DiskFull: it does not go on because nothing can be written.
        Unavailable: nothing changed for `patience_s`.
        Whatever `between` raises (the way to say that the consumer is gone).
    """
    pause = threading.Event()
    with closing(open_queue_reader(paths)) as db:
        seen, version, progress = (
            time.monotonic(),
            -1,
            look(db, project, clock.now_ms(), since=since),
        )
        while progress.pending:
            between(progress)
            pause.wait(LOOK_EVERY_S)
            current = _data_version(db)
            if current != version or _falls_due(progress.pending, clock.now_ms()):
                if current != version:
                    seen = time.monotonic()
                version = current
                progress = look(db, project, clock.now_ms(), since=since)
            quiet_s = time.monotonic() - seen
            if _wants_room(progress) or (quiet_s > FULL_AFTER_S and disk_is_full(paths.shared)):
                raise DiskFull
            if quiet_s > patience_s:
                raise Unavailable(f"the work does not go on: {progress.line}")
    return progress


def _wants_room(progress: Progress) -> bool:
    """Whether a job failed for want of space: the worker says so in the error's class."""
    return any(job.error.startswith(DiskFull.__name__) for job in progress.pending)


def _data_version(db: apsw.Connection) -> int:
    with translated():
        return int(db.pragma("data_version"))


def _falls_due(jobs: Sequence[JobView], now: int) -> bool:
    return any(job.state is JobState.AVAILABLE and job.run_at <= now for job in jobs)
