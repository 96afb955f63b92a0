"""`ops queue`, `jobs`, `budget`, `schedule`: work in the background, and what it may spend.

Every verb here reads through a read-only connection: it takes no write lock and makes no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ops.invocation import Invocation, shared_options
from ops.output import count, duration, moment, moment_json, pairs, show, styled, table
from storage.jobs import JobKind, JobState, JobView
from storage.records import JsonValue

if TYPE_CHECKING:
    import apsw
    from rich.text import Text

    from storage.budget import BudgetView

STATE_STYLES = {
    JobState.LEASED: "cyan",
    JobState.COMPLETED: "green",
    JobState.DISCARDED: "yellow",
    JobState.DEAD: "red",
}


@contextmanager
def queue_reader(invocation: Invocation) -> Iterator[apsw.Connection]:
    """The queue's file for reading.

    Raises:
        Unavailable: this home has no queue yet.
    """
    from storage.errors import NotInitialized
    from storage.queue_file import open_queue_reader

    if not invocation.paths.queue.exists():
        raise NotInitialized(f"There is no queue in {invocation.paths.home} yet.")
    db = open_queue_reader(invocation.paths)
    try:
        yield db
    finally:
        db.close()


@click.command()
@shared_options()
def queue(invocation: Invocation) -> None:
    """Show how much work waits, runs and has ended."""
    from storage.queue_owner import living_owners
    from storage.queue_views import counts, last_successes, leases, oldest_ready_age_ms, pauses

    with queue_reader(invocation) as db:
        states, oldest = counts(db), oldest_ready_age_ms(db, invocation.clock.now_ms())
        running, paused, successes = leases(db), pauses(db), last_successes(db)
    consumers = living_owners(invocation.paths)
    value: dict[str, JsonValue] = {
        "counts": {state.value: number for state, number in states.items()},
        "oldest_ready_ms": oldest,
        "consumers": list(consumers),
        "paused": list(paused),
        "running": [
            {
                "job_id": lease.job_id,
                "kind": lease.kind,
                "project": lease.project,
                "owner": lease.owner,
                "attempt": lease.attempt,
                "started_at": moment_json(lease.started_at),
            }
            for lease in running
        ],
        "last_success": {kind: moment_json(at) for kind, at in successes.items()},
    }
    rows = [
        (styled(state.value, STATE_STYLES.get(state, "") if number else "dim"), f"{number:,}")
        for state, number in states.items()
    ]
    facts = [
        ("oldest ready", duration(oldest) if oldest else "nothing is due"),
        ("consumers", count(len(consumers), "process", "processes")),
        *(("paused", scope) for scope in paused),
        *((f"last {kind}", moment(at)) for kind, at in sorted(successes.items())),
    ]
    show(invocation.as_json, value, [table(("state", ">jobs"), rows), pairs(facts)])


@click.command()
@click.option("--state", type=click.Choice([state.value for state in JobState]), help="Only these.")
@click.option("--kind", type=click.Choice([kind.value for kind in JobKind]), help="Only these.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@shared_options()
def jobs(invocation: Invocation, state: str | None, kind: str | None, limit: int) -> None:
    """List jobs, and why they wait or failed."""
    from storage.queue_views import list_jobs

    chosen = JobState(state) if state else None
    with queue_reader(invocation) as db:
        found = list_jobs(db, state=chosen, kind=kind, limit=limit)
    now = invocation.clock.now_ms()
    several = len({job.project for job in found}) > 1
    rows: list[Sequence[str | Text]] = [
        (
            job.job_id,
            job.kind,
            *([job.project or "all"] if several else []),
            styled(job.state.value, STATE_STYLES.get(job.state, "")),
            duration(now - job.enqueued_at),
            _why(job, now),
        )
        for job in found
    ]
    columns = ("job", "kind", *(["project"] if several else []), "state", ">age", "why")
    show(
        invocation.as_json,
        {"jobs": [job_json(job) for job in found]},
        [table(columns, rows) if rows else "No job matches."],
    )


def _why(job: JobView, now: int) -> str:
    if job.state is not JobState.AVAILABLE:
        return job.error
    reason = {"model": "needs a model", "budget": "the budget is spent", "retry": job.error}
    why = reason.get(job.waiting_for, job.waiting_for)
    later = f"due in {duration(job.run_at - now)}" if job.run_at > now else ""
    again = f"after {count(job.attempt, 'attempt')}" if job.attempt else ""
    return ", ".join(part for part in (why, later, again) if part)


def job_json(job: JobView) -> dict[str, JsonValue]:
    """One job for programs."""
    return {
        "job_id": job.job_id,
        "kind": job.kind,
        "project": job.project,
        "subject": job.subject,
        "state": job.state.value,
        "priority": job.priority,
        "attempt": job.attempt,
        "crashes": job.crashes,
        "waiting_for": job.waiting_for,
        "error": job.error,
        "owner": job.owner,
        "run_at": moment_json(job.run_at),
        "enqueued_at": moment_json(job.enqueued_at),
        "finished_at": moment_json(job.finished_at),
    }


def budget_today(invocation: Invocation) -> BudgetView:
    """The running day's budget over all projects.

    Raises:
        NotInitialized: this home has no queue yet.
    """
    from storage.budget import BudgetLedger
    from storage.config import load_settings
    from storage.queue_file import open_queue_file

    settings = load_settings(invocation.paths, invocation.environment)
    with queue_reader(invocation):
        pass  # existing and current: opening it below only reads
    file = open_queue_file(invocation.paths, invocation.clock)
    try:
        return BudgetLedger(file, invocation.clock, settings.budget).today()
    finally:
        file.close()


@click.command()
@shared_options()
def budget(invocation: Invocation) -> None:
    """Show what is left of today's model budget."""
    view = budget_today(invocation)
    value: dict[str, JsonValue] = {
        "calls": {
            "limit": view.calls_limit,
            "used": view.calls_used,
            "held": view.calls_held,
            "left": view.calls_left,
        },
        "tokens": {
            "limit": view.tokens_limit,
            "used": view.tokens_used,
            "held": view.tokens_held,
            "left": view.tokens_left,
            "input": view.input_tokens,
            "cached": view.cached_tokens,
            "output": view.output_tokens,
            "reasoning": view.reasoning_tokens,
        },
        "reset_at": moment_json(view.reset_at),
    }
    rows = [
        (
            "model calls",
            f"{view.calls_used:,}",
            f"{view.calls_held:,}",
            f"{view.calls_left:,}",
            f"{view.calls_limit:,}",
        ),
        (
            "tokens",
            f"{view.tokens_used:,}",
            f"{view.tokens_held:,}",
            f"{view.tokens_left:,}",
            f"{view.tokens_limit:,}",
        ),
    ]
    wait = duration(view.reset_at - invocation.clock.now_ms())
    closing = f"It returns at {moment(view.reset_at)} (in {wait})."
    columns = ("today", ">used", ">held", ">left", ">limit")
    show(invocation.as_json, value, [table(columns, rows), closing])


@click.command()
@shared_options()
def schedule(invocation: Invocation) -> None:
    """Show the work that runs by the clock."""
    from storage.schedules import views

    with queue_reader(invocation) as db:
        entries = views(db)
    now = invocation.clock.now_ms()
    value: dict[str, JsonValue] = {
        "schedule": [
            {
                "name": entry.name,
                "expression": entry.expression,
                "zone": entry.zone,
                "next_run_at": moment_json(entry.next_run_at),
                "last_run_at": moment_json(entry.last_run_at),
                "missed": entry.missed,
            }
            for entry in entries
        ]
    }
    rows = [
        (
            entry.name,
            f"{entry.expression} {entry.zone}",
            moment(entry.last_run_at) or "never",
            moment(entry.next_run_at) if entry.next_run_at > now else "due now",
            str(entry.missed),
        )
        for entry in entries
    ]
    empty = "The consumer writes its schedule when it first runs: ops start"
    columns = ("what", "when", "last", "next", ">missed")
    show(invocation.as_json, value, [table(columns, rows) if rows else empty])
