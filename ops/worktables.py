"""Jobs and leases as people and programs read them.

Owns their columns and their JSON; leaves choosing them to the verbs, and the words for why
something waits to `ops.reasons`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ops.background import Projects
from ops.ids import job as short_job
from ops.output import count, duration, moment, moment_json, styled, table
from ops.reasons import plain, why_it_waits
from storage.clock import Clock
from storage.jobs import JobState, JobView
from storage.queue_views import LeaseView
from storage.records import JsonValue

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

WORDS: Final[Mapping[JobState, str]] = {
    JobState.AVAILABLE: "waiting",
    JobState.LEASED: "running",
    JobState.COMPLETED: "done",
}
"""States that people know under another word; the rest keep theirs."""
STYLES: Final[Mapping[JobState, str]] = {
    JobState.LEASED: "cyan",
    JobState.COMPLETED: "green",
    JobState.DISCARDED: "yellow",
    JobState.DEAD: "red",
}


def state_word(state: JobState) -> str:
    """The state in the one word that every verb uses for it."""
    return WORDS.get(state, state.value)


STATES: Final[Mapping[str, JobState]] = {
    **{state_word(state): state for state in JobState},
    **{state.value: state for state in JobState},
}
"""Either spelling of each state."""


def jobs_table(jobs: Sequence[JobView], projects: Projects, now: int) -> Table:
    """One line a job: short id, kind, project, state, age, why."""
    several = len({job.project for job in jobs}) > 1
    rows: list[Sequence[str | Text]] = [
        (
            short_job(job.job_id),
            job.kind,
            *([projects.name(job.project)] if several else []),
            styled(state_word(job.state), STYLES.get(job.state, "")),
            duration(now - job.enqueued_at),
            why_it_waits(job, now),
        )
        for job in jobs
    ]
    return table(("job", "kind", *(["project"] if several else []), "state", ">age", "why"), rows)


def dead_table(jobs: Sequence[JobView], projects: Projects) -> Table:
    """One line a dead job: what it was, when it died, why."""
    rows = [
        (
            short_job(job.job_id),
            job.kind,
            projects.name(job.project),
            moment(job.finished_at),
            count(job.attempt + job.crashes, "try", "tries"),
            plain(job.error) or "no reason was noted",
        )
        for job in jobs
    ]
    return table(("job", "kind", "project", "died", ">after", "why"), rows)


def leases_table(leases: Sequence[LeaseView], projects: Projects, clock: Clock) -> Table:
    """One line a lease: the job, its owner, how long it runs and how long it may."""
    now = clock.now_ms()
    rows = [
        (
            short_job(lease.job_id),
            lease.kind,
            projects.name(lease.project),
            lease.owner.partition("-")[0],
            duration(now - lease.started_at),
            left_of(lease, clock),
            str(lease.attempt),
        )
        for lease in leases
    ]
    return table(("job", "kind", "project", "process", ">age", "until", ">attempt"), rows)


def left_of(lease: LeaseView, clock: Clock) -> str:
    """How much longer the lease holds, or that it lapsed."""
    left = lease_left_ms(lease, clock)
    if left is None:
        return "before a restart of this machine"
    return f"{duration(left)} more" if left > 0 else f"lapsed {duration(left)} ago"


def lease_left_ms(lease: LeaseView, clock: Clock) -> int | None:
    """Milliseconds that the lease holds on, negative once it lapsed; None from another boot."""
    return lease.lease_until - clock.boot_ms() if lease.boot == clock.boot_id() else None


def job_json(job: JobView, projects: Projects) -> dict[str, JsonValue]:
    """One job for programs."""
    return {
        "job_id": job.job_id,
        "short_id": short_job(job.job_id),
        "kind": job.kind,
        "project": job.project,
        "folder": projects.name(job.project),
        "subject": job.subject,
        "state": job.state.value,
        "priority": job.priority,
        "enqueued_at": moment_json(job.enqueued_at),
        "run_at": moment_json(job.run_at),
        "finished_at": moment_json(job.finished_at),
        "attempt": job.attempt,
        "crashes": job.crashes,
        "waiting_for": job.waiting_for,
        "error": job.error,
    }


def lease_json(lease: LeaseView, projects: Projects, clock: Clock) -> dict[str, JsonValue]:
    """One lease for programs."""
    left = lease_left_ms(lease, clock)
    return {
        "job_id": lease.job_id,
        "short_id": short_job(lease.job_id),
        "kind": lease.kind,
        "project": lease.project,
        "folder": projects.name(lease.project),
        "owner": lease.owner,
        "attempt": lease.attempt,
        "started_at": moment_json(lease.started_at),
        "age_ms": clock.now_ms() - lease.started_at,
        "left_ms": left,
        "stuck": left is None or left <= 0,
    }
