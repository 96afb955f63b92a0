"""`ops status`: the whole of one project in one look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from ops.invocation import Invocation, shared_options
from ops.output import count, duration, moment, moment_json, pairs, show
from ops.project import Project, current_project, opened
from ops.services import SERVER, WORKER, consumer_pids, server_answers
from storage.authority.port import Container
from storage.authority.reads import Stats
from storage.budget import BudgetView
from storage.jobs import JobKind, JobState
from storage.records import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """The queue and the programs, as far as they exist."""

    jobs: Mapping[JobState, int]
    oldest_ms: int
    last_sync_at: int | None
    budget: BudgetView | None
    consumers: int
    server: bool


@click.command()
@shared_options(project=True)
def status(invocation: Invocation) -> None:
    """Show one project at a glance.

    Its memory, the work that waits, today's budget, and what runs in the background.
    """
    project = current_project(invocation)
    with opened(invocation, project) as authority:
        container = authority.container
        with authority.read() as reads:
            stats = reads.stats()
    background = _background(invocation)
    rows = [
        *_memory_rows(invocation, project, container, stats),
        *_work_rows(background, invocation.clock.now_ms()),
    ]
    value = _json(invocation, project, container, stats, background)
    show(invocation.as_json, value, [pairs(rows)])


def _background(invocation: Invocation) -> Background:
    from ops.commands.work import budget_today, queue_reader
    from storage.queue_views import counts, last_successes, oldest_ready_age_ms

    consumers = len(consumer_pids(invocation.paths))
    server = server_answers(invocation.paths)
    if not invocation.paths.queue.exists():
        return Background(
            jobs=dict.fromkeys(JobState, 0),
            oldest_ms=0,
            last_sync_at=None,
            budget=None,
            consumers=consumers,
            server=server,
        )
    with queue_reader(invocation) as db:
        return Background(
            jobs=counts(db),
            oldest_ms=oldest_ready_age_ms(db, invocation.clock.now_ms()),
            last_sync_at=last_successes(db).get(JobKind.SYNC.value),
            budget=budget_today(invocation),
            consumers=consumers,
            server=server,
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _memory_rows(
    invocation: Invocation, project: Project, container: Container, stats: Stats
) -> list[tuple[str, str]]:
    kilobytes = _size(project.paths.database) / 1000
    ended = stats.facts - stats.facts_current
    vectors = (
        "all of them with a vector"
        if stats.vectors >= stats.chunks
        else f"{stats.vectors:,} with a vector"
    )
    return [
        ("project", f"{project.binding.location} ({project.binding.project_id})"),
        ("home", str(invocation.paths.home)),
        ("memory", f"{container}, {kilobytes:,.0f} kB, {count(stats.events, 'event')}"),
        (
            "facts",
            f"{count(stats.facts_current, 'fact')} ({ended:,} ended), "
            f"{count(stats.evidence, 'quote')} behind them",
        ),
        ("texts", f"{count(stats.chunks, 'text')}, {vectors}"),
        (
            "sources",
            f"{count(stats.sources, 'session')} read, {count(stats.observations, 'observation')}",
        ),
        *(
            [("waiting", f"{count(stats.deferred, 'statement')} to be translated (needs a model)")]
            if stats.deferred
            else []
        ),
    ]


def _work_rows(background: Background, now: int) -> list[tuple[str, str]]:
    jobs = background.jobs
    waits = f"oldest due for {duration(background.oldest_ms)}" if background.oldest_ms else ""
    lost = f"{jobs[JobState.DEAD]:,} dead: ops jobs --state dead" if jobs[JobState.DEAD] else ""
    work = f"{jobs[JobState.AVAILABLE]:,} waiting, {jobs[JobState.LEASED]:,} running"
    synced = background.last_sync_at
    budget = background.budget
    return [
        ("queue", "; ".join(part for part in (work, waits, lost) if part)),
        ("last sync", f"{moment(synced)} ({duration(now - synced)} ago)" if synced else "never"),
        (
            "budget",
            f"{budget.calls_left:,} calls and {budget.tokens_left:,} tokens left today"
            if budget
            else "nothing was spent yet",
        ),
        (WORKER.title, "runs" if background.consumers else "does not run: ops start"),
        (SERVER.title, "answers" if background.server else "does not run: ops start"),
    ]


def _json(
    invocation: Invocation,
    project: Project,
    container: Container,
    stats: Stats,
    background: Background,
) -> dict[str, JsonValue]:
    budget = background.budget
    return {
        "project": {
            "id": project.binding.project_id,
            "folder": str(project.binding.location),
            "home": str(invocation.paths.home),
        },
        "memory": {
            "container": container,
            "bytes": _size(project.paths.database),
            "events": stats.events,
            "facts": stats.facts,
            "facts_current": stats.facts_current,
            "evidence": stats.evidence,
            "chunks": stats.chunks,
            "vectors": stats.vectors,
            "documents": stats.documents,
            "sources": stats.sources,
            "observations": stats.observations,
            "deferred": stats.deferred,
        },
        "queue": {state.value: number for state, number in background.jobs.items()},
        "oldest_ready_ms": background.oldest_ms,
        "last_sync_at": moment_json(background.last_sync_at),
        "budget": {"calls_left": budget.calls_left, "tokens_left": budget.tokens_left}
        if budget
        else None,
        "consumers": background.consumers,
        "server": background.server,
    }
