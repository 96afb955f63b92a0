"""`ops pause`, `resume`, `retry`, `cancel` and `drain`: what a person does to the queue.

Each change is one short durable transaction; a running job notices at its next step. Leaves what
these mean to `storage.queue_desk`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from ops.background import Projects, projects_of, queue_desk, queue_reader
from ops.commands.jobs import KIND, MOST, OF_PROJECT, check_kind
from ops.drain import PATIENCE_S, Progress, wait_drained
from ops.exits import Exit
from ops.ids import chosen_job
from ops.ids import job as short_job
from ops.invocation import Invocation, shared_options
from ops.output import console, count, show, styled
from ops.reasons import held_words, plain
from ops.services import consumer_pids
from storage.errors import Refused, Unavailable
from storage.jobs import JobKind, JobState, JobView
from storage.records import JsonValue, ProjectId

if TYPE_CHECKING:
    from storage.queue import JobQueue

JOB_KIND = click.option(
    "--kind", type=click.Choice([kind.value for kind in JobKind]), help="Work of this kind."
)
EVERYTHING = click.option("--all", "everything", is_flag=True, help="All work of this home.")


def _scope(projects: Projects, kind: str | None, of: str | None, everything: bool) -> str | None:
    """The project that is meant, None for a kind or everything.

    Raises:
        UsageError: not exactly one of the three.
    """
    if sum((kind is not None, of is not None, everything)) != 1:
        raise click.UsageError("Say what: one of --kind KIND, --project P, --all.")
    return projects.chosen(of) if of else None


def _said(projects: Projects, kind: str | None, project: str | None) -> str:
    if kind:
        return f"work of the kind {kind}"
    return f"work of the project {projects.name(project)}" if project else "all work"


@click.command()
@JOB_KIND
@OF_PROJECT
@EVERYTHING
@shared_options()
def pause(invocation: Invocation, kind: str | None, of: str | None, everything: bool) -> None:
    """Start no more work of a kind, of a project, or at all; what runs is finished."""
    projects = projects_of(invocation)
    project = _scope(projects, kind, of, everything)
    with queue_desk(invocation) as desk:
        desk.pause(kind=JobKind(kind) if kind else None, project=project)
    what = _said(projects, kind, project)
    value: dict[str, JsonValue] = {"ok": True, "paused": what}
    show(
        invocation.as_json,
        value,
        [f"Paused: {what}. What is asked for is kept. To go on: ops resume"],
    )


@click.command()
@JOB_KIND
@OF_PROJECT
@EVERYTHING
@shared_options()
def resume(invocation: Invocation, kind: str | None, of: str | None, everything: bool) -> None:
    """Let paused work go on. Each pause is undone by the same option that made it."""
    projects = projects_of(invocation)
    project = _scope(projects, kind, of, everything)
    with queue_desk(invocation) as desk:
        found = desk.resume(kind=JobKind(kind) if kind else None, project=project)
    what = _said(projects, kind, project)
    told = (
        f"Goes on: {what}." if found else f"It was not paused: {what}. `ops queue` shows what is."
    )
    show(invocation.as_json, {"ok": True, "resumed": found}, [told])


@click.command()
@click.argument("ids", nargs=-1, metavar="[JOB]...")
@KIND
@EVERYTHING
@shared_options()
def retry(invocation: Invocation, ids: tuple[str, ...], kind: str | None, everything: bool) -> None:
    """Run dead jobs again, with fresh counters: the named ones, those of a kind, or all.

    A named job may also be a discarded or cancelled one.
    """
    check_kind(kind)
    if sum((bool(ids), kind is not None, everything)) != 1:
        raise click.UsageError("Say which: JOB..., --kind KIND, or --all (see `ops dead`).")
    with queue_desk(invocation) as desk:
        chosen = (
            _named(desk, ids)
            if ids
            else [job.job_id for job in desk.jobs(state=JobState.DEAD, kind=kind, limit=MOST)]
        )
        again = [(old, desk.revive(old)) for old in chosen]
    revived = [new for _, new in again if new is not None]
    refused = [old for old, new in again if new is None]
    if ids and refused:
        names = ", ".join(short_job(old) for old in refused)
        raise Refused(f"Not retried, because it did not end badly: {names} (see `ops jobs`).")
    value: dict[str, JsonValue] = {"ok": True, "retried": [*revived]}
    told = f"{count(len(revived), 'job')} will run again." if revived else "No job is dead."
    show(invocation.as_json, value, [told])


@click.command()
@click.argument("ids", nargs=-1, metavar="[JOB]...")
@KIND
@shared_options()
def cancel(invocation: Invocation, ids: tuple[str, ...], kind: str | None) -> None:
    """End jobs without doing them: the named ones, or all of a kind that wait.

    A running job loses its lease: it can publish nothing any more. A dead one is dismissed: health
    counts it no longer, and its reason stays.
    """
    check_kind(kind)
    if bool(ids) == (kind is not None):
        raise click.UsageError("Say which: JOB..., or --kind KIND (see `ops jobs`).")
    with queue_desk(invocation) as desk:
        if kind is not None:
            ended, late = desk.cancel_kind(kind), []
        else:
            answers = [(one, desk.cancel(one)) for one in _named(desk, ids)]
            ended, late = (
                sum(done for _, done in answers),
                [one for one, done in answers if not done],
            )
    if late:
        names = ", ".join(map(short_job, late))
        raise Refused(f"Not cancelled, because it has ended already: {names} (see `ops jobs`).")
    value: dict[str, JsonValue] = {"ok": True, "cancelled": ended}
    show(invocation.as_json, value, [f"{count(ended, 'job')} cancelled."])


def _named(desk: JobQueue, ids: Sequence[str]) -> list[str]:
    known = [job.job_id for job in desk.jobs(limit=100 * MOST)]
    return [chosen_job(one, known, "ops jobs") for one in ids]


@click.command()
@OF_PROJECT
@click.option(
    "--patience",
    type=click.FloatRange(0.1, 86_400),
    default=PATIENCE_S,
    show_default=True,
    help="Seconds without any change after which to give up.",
)
@shared_options()
def drain(invocation: Invocation, of: str | None, patience: float) -> None:
    """Wait until the queue is drained: nothing runs, is due, or comes back soon.

    Work that waits for a model, a budget, a person or the clock is not waited for. Exit code 0 when
    drained, 1 when a job was lost meanwhile, 3 when nothing goes on.
    """
    projects = projects_of(invocation)
    project = ProjectId(projects.chosen(of)) if of else None
    began, since = time.monotonic(), invocation.clock.now_ms()
    with queue_reader(invocation):
        pass
    with ExitStack() as stack:
        heard = _teller(invocation, stack)
        progress = wait_drained(
            invocation.paths,
            project,
            invocation.clock,
            between=lambda now: _going(invocation, now, heard),
            since=since,
            patience_s=patience,
        )
    seconds = round(time.monotonic() - began, 2)
    value: dict[str, JsonValue] = {
        "ok": not progress.lost,
        "finished": progress.finished,
        "held": len(progress.held),
        "lost": [job.job_id for job in progress.lost],
        "seconds": seconds,
    }
    show(invocation.as_json, value, _drained(progress, seconds))
    if progress.lost:
        click.get_current_context().exit(Exit.FAILED)


def _drained(progress: Progress, seconds: float) -> list[str]:
    lines = [f"Drained in {seconds:,.1f} s: {count(progress.finished, 'job')} done."]
    reasons = [job.waiting_for for job in progress.held]
    lines += [f"{held_words(why, reasons.count(why))}." for why in sorted(set(reasons))]
    lines += [f"Lost: {_lost(job)}" for job in progress.lost]
    return lines


def _lost(job: JobView) -> str:
    short = short_job(job.job_id)
    return f"{short} {job.kind}: {plain(job.error)} (ops retry {short})"


def _going(invocation: Invocation, progress: Progress, heard: Callable[[str], None]) -> None:
    heard(progress.line)
    if not consumer_pids(invocation.paths):
        waits = count(len(progress.pending), "job")
        raise Unavailable(f"{waits} to do, and no consumer runs: ops start")


def _teller(invocation: Invocation, stack: ExitStack) -> Callable[[str], None]:
    """Where progress is shown: a line that lives on a terminal, a line a change in a pipe."""
    screen = console(stderr=True)
    if screen.is_terminal and not invocation.as_json:
        status = stack.enter_context(screen.status("looking at the queue"))
        return lambda line: status.update(styled(line))
    said = threading.local()

    def tell(line: str) -> None:
        if not invocation.as_json and getattr(said, "line", "") != line:
            said.line = line
            screen.print(styled(line))

    return tell
