"""`ops jobs`, `leases` and `dead`: single jobs, who runs them, and which gave up.

Every verb here reads through a read-only connection: it takes no write lock, makes no file and runs
no code from the rows. What a job carries is shown as a size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ops.background import projects_of, queue_reader
from ops.ids import chosen_job
from ops.invocation import Invocation, shared_options
from ops.output import count, moment, pairs, show
from ops.reasons import plain, why_it_waits
from ops.worktables import (
    STATES,
    dead_table,
    job_json,
    jobs_table,
    lease_json,
    leases_table,
    state_word,
)
from storage.jobs import JobKind, JobState, JobView
from storage.records import JsonValue

if TYPE_CHECKING:
    import apsw

MOST = 10_000
KIND = click.option("--kind", metavar="KIND", help="Only these: sync, analyze, embed, ...")
OF_PROJECT = click.option(
    "--project", "of", metavar="P", help="Only these: a folder, its name, or a memory's id."
)


def check_kind(kind: str | None) -> None:
    """Refuse a kind that is a typing error; others' kinds (tasks given to Huey) have a dot.

    Raises:
        UsageError: with the kinds that there are.
    """
    known = [item.value for item in JobKind]
    if kind is not None and kind not in known and "." not in kind:
        raise click.UsageError(f"--kind: there is no {kind!r}; there are {', '.join(known)}.")


@click.command()
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--state", type=click.Choice(list(STATES)), help="Only these.")
@KIND
@OF_PROJECT
@click.option("--limit", type=click.IntRange(1, MOST), default=20, show_default=True)
@shared_options()
def jobs(
    invocation: Invocation,
    job_id: str | None,
    state: str | None,
    kind: str | None,
    of: str | None,
    limit: int,
) -> None:
    """List jobs, newest first, and why they wait or failed; with ID, all about one."""
    from storage.queue_sizes import message_sizes
    from storage.queue_views import list_jobs

    check_kind(kind)
    projects = projects_of(invocation)
    project = projects.chosen(of) if of else None
    chosen = STATES[state] if state else None
    now = invocation.clock.now_ms()
    with queue_reader(invocation) as db:
        if job_id is not None:
            found = [_one(db, job_id)]
        else:
            found = list_jobs(db, state=chosen, kind=kind, project=project, limit=limit)
        sizes = message_sizes(db, [job.job_id for job in found])
    value: dict[str, JsonValue] = {
        "jobs": [
            {**job_json(job, projects), "message_bytes": sizes.get(job.job_id)} for job in found
        ]
    }
    if job_id is not None:
        job = found[0]
        rows = _dossier(job, projects.name(job.project), sizes.get(job.job_id, 0), now)
        show(invocation.as_json, value, [pairs(rows)])
        return
    people = [jobs_table(found, projects, now)] if found else ["No job matches."]
    show(invocation.as_json, value, people)


def _one(db: apsw.Connection, wanted: str) -> JobView:
    from storage.queue_views import list_jobs

    everything = {job.job_id: job for job in list_jobs(db, limit=100 * MOST)}
    return everything[chosen_job(wanted, everything, "ops jobs")]


def _dossier(job: JobView, project: str, size: int, now: int) -> list[tuple[str, str]]:
    told = [
        ("job", job.job_id),
        ("kind", job.kind),
        ("project", project),
        ("subject", job.subject),
        ("state", state_word(job.state)),
        ("why", why_it_waits(job, now)),
        ("last error", plain(job.error) if job.state is JobState.AVAILABLE else ""),
        ("asked for", moment(job.enqueued_at)),
        ("due", moment(job.run_at) if job.finished_at is None else ""),
        ("ended", moment(job.finished_at)),
        ("attempts", f"{job.attempt:,}, and {count(job.crashes, 'crash', 'crashes')}"),
        ("carries", count(size, "byte")),
    ]
    return [(name, text) for name, text in told if text]


@click.command()
@shared_options()
def leases(invocation: Invocation) -> None:
    """Show which jobs run: who holds each, since when, and how much longer."""
    from storage.queue_views import leases as running

    with queue_reader(invocation) as db:
        found = running(db)
    projects, clock = projects_of(invocation), invocation.clock
    value: dict[str, JsonValue] = {
        "leases": [lease_json(lease, projects, clock) for lease in found]
    }
    people = [leases_table(found, projects, clock)] if found else ["No job runs."]
    show(invocation.as_json, value, people)


@click.command()
@KIND
@OF_PROJECT
@click.option("--limit", type=click.IntRange(1, MOST), default=20, show_default=True)
@shared_options()
def dead(invocation: Invocation, kind: str | None, of: str | None, limit: int) -> None:
    """List the jobs that gave up, when and why. They are kept for 90 days."""
    from storage.queue_sizes import message_sizes
    from storage.queue_views import list_jobs

    check_kind(kind)
    projects = projects_of(invocation)
    project = projects.chosen(of) if of else None
    with queue_reader(invocation) as db:
        found = list_jobs(db, state=JobState.DEAD, kind=kind, project=project, limit=limit)
        sizes = message_sizes(db, [job.job_id for job in found])
    value: dict[str, JsonValue] = {
        "dead": [
            {**job_json(job, projects), "message_bytes": sizes.get(job.job_id)} for job in found
        ]
    }
    if not found:
        show(invocation.as_json, value, ["No job is dead."])
        return
    hint = "Once the cause is gone: ops retry JOB, or ops retry --all. To dismiss: ops cancel JOB"
    show(invocation.as_json, value, [dead_table(found, projects), hint])
