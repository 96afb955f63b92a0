"""What people ask of the queue and do to it: look, pause, cancel, revive, let go, prune.

Workers do not need any of it. Every change is one transaction, durable where a person waits for it.
"""

from __future__ import annotations

from storage import activity, queue_control, queue_views
from storage.activity import Activity
from storage.clock import Clock
from storage.connection import translated
from storage.jobs import JobKind, JobState, JobView
from storage.queue_file import QueueFile
from storage.wakeup import ring


class QueueDesk:
    """The side of the queue that people see."""

    def __init__(self, file: QueueFile, clock: Clock) -> None:
        self.file = file
        self.paths = file.paths
        self.clock = clock

    def pause(self, *, kind: JobKind | None = None, project: str | None = None) -> None:
        """Claim nothing of a kind, of a project, or at all, until resumed."""
        scope = queue_control.pause_scope(kind, project)
        with self.file.write("FULL") as db:
            queue_control.pause(db, scope, self.clock.now_ms())

    def resume(self, *, kind: JobKind | None = None, project: str | None = None) -> bool:
        """Undo a pause; False if there was none."""
        scope = queue_control.pause_scope(kind, project)
        with self.file.write("FULL") as db:
            found = queue_control.resume(db, scope)
        ring(self.paths)
        return found

    def cancel(self, job_id: str) -> bool:
        """End a waiting or running job, or dismiss a dead one; False for any other.

        A running job loses its lease and can publish nothing.
        """
        with self.file.write("FULL") as db:
            return queue_control.cancel(db, job_id, self.clock.now_ms())

    def cancel_kind(self, kind: str) -> int:
        """End all waiting jobs of a kind; returns how many."""
        with self.file.write("FULL") as db:
            return queue_control.cancel_kind(db, kind, self.clock.now_ms())

    def revive(self, job_id: str) -> str | None:
        """Put a dead, discarded or cancelled job back with fresh counters; its new id."""
        with self.file.write("FULL") as db:
            found = queue_control.revive(db, job_id, self.clock.now_ms())
        if found is not None:
            ring(self.paths)
        return found

    def release_waiting(self, reason: str, project: str | None = None) -> int:
        """Make the jobs that wait for one reason due now; returns how many."""
        now = self.clock.now_ms()
        with translated():
            if not queue_control.is_held(self.file.db, reason, project, now):
                return 0
        with self.file.write("FULL") as db:
            freed = queue_control.release_held(db, reason, project, now)
        if freed:
            ring(self.paths)
        return freed

    def shift_later(self, delta_ms: int) -> int:
        """The wall clock was set: jobs that wait for a time keep their distance to it.

        Budget waits are left alone: their reset is a time of day, not a distance.
        """
        with self.file.write("NORMAL") as db:
            return queue_control.shift_later(db, delta_ms, self.clock.now_ms())

    def clock_stepped_ms(self) -> int:
        """By how much the wall clock was set since `mark_clock`, by any worker; negative: back."""
        clock = self.clock
        with translated():
            return queue_control.stepped(
                self.file.db, clock.boot_id(), clock.now_ms(), clock.boot_ms()
            )

    def mark_clock(self) -> None:
        """Note how the clocks stand to each other, for workers to come."""
        clock = self.clock
        with self.file.write("NORMAL") as db:
            queue_control.mark_clock(db, clock.boot_id(), clock.now_ms(), clock.boot_ms())

    def prune(self, retention_days: int) -> int:
        """Delete rows past their limit, a batch at a time; returns how many."""
        with self.file.write("NORMAL") as db:
            return queue_control.prune(db, self.clock.now_ms(), retention_days)

    # Looking

    def jobs(
        self,
        *,
        state: JobState | None = None,
        kind: str | None = None,
        project: str | None = None,
        limit: int = 100,
    ) -> list[JobView]:
        """Jobs, newest first; nothing in them is decoded."""
        return queue_views.list_jobs(
            self.file.db, state=state, kind=kind, project=project, limit=limit
        )

    def job(self, job_id: str) -> JobView | None:
        """One job by its id."""
        return queue_views.one_job(self.file.db, job_id)

    def counts(self) -> dict[JobState, int]:
        """Jobs in each state."""
        return queue_views.counts(self.file.db)

    def oldest_ready_age_ms(self) -> int:
        """How long the longest-due unpaused job has waited."""
        return queue_views.oldest_ready_age_ms(self.file.db, self.clock.now_ms())

    def has_open(self, kind: JobKind, project: str) -> bool:
        """Whether a job of this kind and project waits or runs."""
        return queue_views.has_open(self.file.db, kind, project)

    def drained(self) -> bool:
        """Whether nothing runs and nothing unpaused is due."""
        return queue_views.unsettled(self.file.db, self.clock.now_ms()) == 0

    def activity(self, project: str) -> Activity:
        """The counters of a project."""
        with translated():
            return activity.total(self.file.db, project)
