"""`ops status`: one project and the background in one look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ops.background import budget_today, cost_line, queue_reader
from ops.backlog import backlog_line, waiting_count
from ops.invocation import Invocation, shared_options
from ops.lessons import Lesson, known, lessons_of, newest_first, shortened, when
from ops.originals import skipped_lines, skipped_sentence
from ops.output import count, duration, moment, moment_json, pairs, show, styled
from ops.project import Project, current_project, opened
from ops.reasons import circuit_words, held_words
from ops.services import SERVER, WORKER, consumer_pids, server_answers
from ops.settings_check import settings_problems
from storage import circuits
from storage.authority.port import Container
from storage.authority.reads import Stats
from storage.budget import BudgetView
from storage.circuits import CircuitView
from storage.errors import Unavailable
from storage.jobs import JobKind, JobState, JobView
from storage.records import JsonValue

if TYPE_CHECKING:
    from rich.text import Text

    Rows = Iterator[tuple[str, str | Text]]

MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What one project knows."""

    project: Project
    container: Container
    stats: Stats
    newest: Lesson | None
    waiting: int
    """Statements that the consumer has not taken in yet."""
    skipped: int
    """Lines of its sessions that could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Background:
    """The queue and the programs, as far as they exist."""

    jobs: Mapping[JobState, int]
    """Of all projects."""
    own: tuple[JobView, ...]
    """Open and dead jobs of this project."""
    oldest_ms: int
    last_sync_at: int | None
    budget: BudgetView | None
    paused: tuple[str, ...]
    circuits: tuple[CircuitView, ...]
    consumers: int
    server: bool
    problem: str = ""
    """Why the queue cannot be read now."""


@click.command()
@click.option("--verbose", is_flag=True, help="Texts, vectors, sizes, where it lies.")
@shared_options(project=True)
def status(invocation: Invocation, verbose: bool) -> None:
    """Show what this project knows, what is queued, and what it costs.

    Its newest lesson and why it counted, the work that waits, today's cost, and what runs.
    """
    project = current_project(invocation)
    memory = _memory(invocation, project)
    background = _background(invocation, project)
    now = invocation.clock.now_ms()
    problems = settings_problems(project.settings, invocation.environment)
    rows = [
        *_memory_rows(memory, now),
        *_work_rows(memory, background, now),
        *((("settings", styled(problem, "bold red"))) for problem in problems),
        *(_inner_rows(invocation, memory) if verbose else ()),
    ]
    value = _json(invocation, memory, background)
    value["settings_problems"] = [*problems]
    show(invocation.as_json, value, [pairs(rows)])


def _memory(invocation: Invocation, project: Project) -> Memory:
    with opened(invocation, project) as authority, authority.read() as reads:
        facts = reads.facts()
        newest = lessons_of(reads, newest_first(known(facts))[:1], facts)
        return Memory(
            project=project,
            container=authority.container,
            stats=reads.stats(),
            newest=newest[0] if newest else None,
            waiting=waiting_count(reads, project.paths),
            skipped=skipped_lines(reads),
        )


def _background(invocation: Invocation, project: Project) -> Background:
    consumers = len(consumer_pids(invocation.paths))
    server = server_answers(invocation.paths)
    unread = Background(
        jobs=dict.fromkeys(JobState, 0),
        own=(),
        oldest_ms=0,
        last_sync_at=None,
        budget=None,
        paused=(),
        circuits=(),
        consumers=consumers,
        server=server,
    )
    if not invocation.paths.queue.exists():
        return unread
    try:
        return _read_queue(invocation, project, unread)
    except Unavailable as problem:
        return replace(unread, problem=str(problem))


def _read_queue(invocation: Invocation, project: Project, unread: Background) -> Background:
    from storage.queue_views import counts, last_successes, list_jobs, oldest_ready_age_ms, pauses

    with queue_reader(invocation) as db:
        listed = list_jobs(db, project=project.binding.project_id, limit=MOST)
        shown = {JobState.AVAILABLE, JobState.LEASED, JobState.DEAD}
        return replace(
            unread,
            jobs=counts(db),
            own=tuple(job for job in listed if job.state in shown),
            oldest_ms=oldest_ready_age_ms(db, invocation.clock.now_ms()),
            last_sync_at=last_successes(db).get(JobKind.SYNC.value),
            budget=budget_today(invocation),
            paused=tuple(pauses(db)),
            circuits=tuple(circuits.views(db)),
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _memory_rows(memory: Memory, now: int) -> Rows:
    stats = memory.stats
    yield ("project", str(memory.project.binding.location))
    ended = f" ({stats.facts - stats.facts_current:,} replaced since)"
    more = ended if stats.facts > stats.facts_current else ""
    facts = f"{count(stats.facts_current, 'fact')}{more}"
    if stats.facts:
        yield ("knows", f"{facts}, from {count(stats.sources, 'session')}")
    else:
        looked = f", {count(stats.sources, 'session')} read" if stats.sources else ""
        yield ("knows", f"nothing learned yet{looked}")
    if memory.newest:
        yield ("newest", f"{shortened(memory.newest.fact.statement)} ({memory.newest.short})")
        said = memory.newest.evidence[0].observed_at if memory.newest.evidence else now
        yield ("because", f"{memory.newest.why}, {when(said, now)}")
    if memory.skipped:
        yield ("skipped", skipped_sentence(memory.skipped))
    if stats.deferred:
        statements = count(stats.deferred, "statement")
        wait = "waits" if stats.deferred == 1 else "wait"
        yield ("waiting", f"{statements} not in English {wait} for a language model (optional)")


def _work_rows(memory: Memory, background: Background, now: int) -> Rows:
    if memory.waiting:
        yield ("waiting", backlog_line(memory.waiting, runs=background.consumers > 0))
    if background.problem:
        yield ("queue", styled(background.problem, "yellow"))
    yield ("queued", "; ".join(_own_work(background.own, told=memory.stats.deferred > 0)))
    jobs = background.jobs
    everywhere = f"{jobs[JobState.AVAILABLE]:,} waiting, {jobs[JobState.LEASED]:,} running"
    waits = f"oldest due for {duration(background.oldest_ms)}" if background.oldest_ms else ""
    lost = f"{jobs[JobState.DEAD]:,} dead: ops dead" if jobs[JobState.DEAD] else ""
    paused = f"{count(len(background.paused), 'pause')}: ops queue" if background.paused else ""
    everything = (everywhere, waits, lost, paused)
    yield ("all projects", "; ".join(part for part in everything if part))
    cost = cost_line(memory.project.settings.model, background.budget, now)
    yield ("cost", cost)
    for view in background.circuits:
        yield ("provider", styled(circuit_words(view, now), "red" if view.is_open else ""))
    synced = background.last_sync_at
    last = f"{moment(synced)} ({duration(now - synced)} ago)" if synced else "never"
    yield ("sessions read", f"{last}; now: ops sync")
    runs = "runs" if background.consumers else "does not run, nothing is learned: ops start"
    yield (WORKER.title, runs)
    yield (SERVER.title, "answers" if background.server else "does not run: ops start")


def _own_work(own: tuple[JobView, ...], *, told: bool) -> Iterator[str]:
    """The project's jobs by state and by what they wait for; `told`: the model was named above."""
    waiting = [job for job in own if job.state is JobState.AVAILABLE]
    running = [job for job in own if job.state is JobState.LEASED]
    dead = sum(job.state is JobState.DEAD for job in own)
    yield f"{len(waiting):,} waiting, {len(running):,} running"
    reasons = [job.waiting_for for job in waiting if job.waiting_for]
    for reason in sorted(set(reasons) - ({"model"} if told else set())):
        yield held_words(reason, reasons.count(reason))
    if dead:
        yield f"{dead:,} dead: ops dead"


def _inner_rows(invocation: Invocation, memory: Memory) -> Rows:
    stats = memory.stats
    kilobytes = _size(memory.project.paths.database) / 1000
    vectors = "all encoded" if stats.vectors >= stats.chunks else f"{stats.vectors:,} encoded"
    yield ("home", str(invocation.paths.home))
    yield ("memory", f"{memory.project.binding.project_id}, in {memory.project.paths.memory}")
    yield ("container", f"{memory.container}, {kilobytes:,.0f} kB, {count(stats.events, 'event')}")
    yield ("evidence", count(stats.evidence, "quote"))
    yield ("texts", f"{count(stats.chunks, 'text')}, {vectors if stats.chunks else 'none encoded'}")
    yield ("observations", f"{stats.observations:,}")


def _json(invocation: Invocation, memory: Memory, background: Background) -> dict[str, JsonValue]:
    from ops.lessons import lesson_json

    budget, stats, project = background.budget, memory.stats, memory.project
    own = [job.state for job in background.own]
    return {
        "project": {
            "id": project.binding.project_id,
            "folder": str(project.binding.location),
            "home": str(invocation.paths.home),
        },
        "memory": {
            "container": memory.container,
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
            "unread": memory.waiting,
            "skipped_lines": memory.skipped,
        },
        "newest": lesson_json(memory.newest) if memory.newest else None,
        "queue": {state.value: number for state, number in background.jobs.items()},
        "own_queue": {
            state.value: own.count(state)
            for state in (JobState.AVAILABLE, JobState.LEASED, JobState.DEAD)
        },
        "paused": list(background.paused),
        "oldest_ready_ms": background.oldest_ms,
        "last_sync_at": moment_json(background.last_sync_at),
        "cost": cost_line(project.settings.model, budget, invocation.clock.now_ms()),
        "budget": {"calls_left": budget.calls_left, "tokens_left": budget.tokens_left}
        if budget
        else None,
        "circuits": [
            {
                "provider": view.provider,
                "open": view.is_open,
                "reason": view.reason,
                "failures": view.failures,
                "probe_at": moment_json(view.probe_at),
            }
            for view in background.circuits
        ],
        "queue_problem": background.problem or None,
        "consumers": background.consumers,
        "server": background.server,
    }
