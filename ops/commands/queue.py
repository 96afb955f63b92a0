"""`ops queue`: how much work waits, runs and has ended, once or as it changes.

Reads through a read-only connection: it takes no write lock, makes no file and runs no code from
the rows.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from ops.background import Projects, projects_of, queue_reader
from ops.invocation import Invocation, shared_options
from ops.output import (
    console,
    count,
    duration,
    moment,
    moment_json,
    pairs,
    show,
    styled,
    write_json,
)
from ops.reasons import held_words
from ops.worktables import STYLES, lease_json, leases_table, state_word
from storage.connection import translated
from storage.jobs import JobState
from storage.queue_views import LeaseView
from storage.records import JsonValue

if TYPE_CHECKING:
    import apsw
    from rich.console import Group, RenderableType

LOOK_EVERY_S: Final = 0.25
REDRAW_EVERY: Final = 4
"""Looks without a change after which ages are shown anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The queue at one moment."""

    counts: dict[JobState, int]
    oldest_ms: int
    running: list[LeaseView]
    paused: list[str]
    successes: dict[str, int]
    held: dict[str, int]
    consumers: tuple[str, ...]


def picture(invocation: Invocation, db: apsw.Connection) -> Picture:
    """What the rows and the lock files say now."""
    from storage.queue_owner import living_owners
    from storage.queue_views import counts, last_successes, leases, oldest_ready_age_ms, pauses

    return Picture(
        counts=counts(db),
        oldest_ms=oldest_ready_age_ms(db, invocation.clock.now_ms()),
        running=leases(db),
        paused=pauses(db),
        successes=last_successes(db),
        held=_held(db),
        consumers=living_owners(invocation.paths),
    )


def _held(db: apsw.Connection) -> dict[str, int]:
    from storage.queue_views import list_jobs

    waiting = list_jobs(db, state=JobState.AVAILABLE, limit=10_000)
    return dict(Counter(job.waiting_for for job in waiting if job.waiting_for))


@click.group(invoke_without_command=True)
@shared_options()
def queue(invocation: Invocation) -> None:
    """Show how much work waits, runs and has ended (`ops queue watch`: as it changes)."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    with queue_reader(invocation) as db:
        seen = picture(invocation, db)
    projects = projects_of(invocation)
    people = list(_told(seen, projects, invocation))
    show(invocation.as_json, _json(seen, projects, invocation), people)


@queue.command()
@click.option("--once", is_flag=True, help="Look once and leave.")
@shared_options()
def watch(invocation: Invocation, once: bool) -> None:
    """Show the queue as it changes, until Ctrl-C.

    With --json, one object a line for every change.
    """
    with queue_reader(invocation) as db:
        try:
            if once or invocation.as_json:
                _print_changes(invocation, db, once=once)
            else:
                _live(invocation, db)
        except KeyboardInterrupt:
            return  # the agreed way to end it


def _print_changes(invocation: Invocation, db: apsw.Connection, *, once: bool) -> None:
    for seen in _pictures(invocation, db, restless=False):
        projects = projects_of(invocation)
        if invocation.as_json:
            write_json(_json(seen, projects, invocation))
        else:
            console().print(_group(seen, projects, invocation))
        if once:
            return


def _live(invocation: Invocation, db: apsw.Connection) -> None:
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, screen=False) as live:
        for seen in _pictures(invocation, db, restless=True):
            live.update(_group(seen, projects_of(invocation), invocation), refresh=True)


def _pictures(invocation: Invocation, db: apsw.Connection, *, restless: bool) -> Iterator[Picture]:
    """The queue now, and again at every change; when restless, also as time passes."""
    pause, known, quiet = threading.Event(), -1, 0
    while True:
        with translated():
            version = int(db.pragma("data_version"))
        quiet += 1
        if version != known or (restless and quiet >= REDRAW_EVERY):
            known, quiet = version, 0
            yield picture(invocation, db)
        pause.wait(LOOK_EVERY_S)


def _group(seen: Picture, projects: Projects, invocation: Invocation) -> Group:
    from rich.console import Group

    return Group(*_told(seen, projects, invocation))


def _told(seen: Picture, projects: Projects, invocation: Invocation) -> Iterator[RenderableType]:
    clock = invocation.clock
    states = [
        (state_word(state), styled(f"{number:,}", STYLES.get(state, "") if number else "dim"))
        for state, number in seen.counts.items()
    ]
    yield pairs(states)
    consumers = count(len(seen.consumers), "process", "processes")
    facts = [
        ("oldest due", f"for {duration(seen.oldest_ms)}" if seen.oldest_ms else "nothing is due"),
        ("consumer", consumers if seen.consumers else "does not run: ops start"),
        *(("held", held_words(why, number)) for why, number in sorted(seen.held.items())),
        *(("paused", scope_name(scope, projects)) for scope in seen.paused),
        *((f"last {kind}", moment(at)) for kind, at in sorted(seen.successes.items())),
    ]
    yield pairs(facts)
    if seen.running:
        yield leases_table(seen.running, projects, clock)


def scope_name(scope: str, projects: Projects) -> str:
    """What is paused, in words."""
    sort, _, name = scope.partition(":")
    if sort == "project":
        return f"project {projects.name(name)}"
    return f"kind {name}" if sort == "kind" else "everything"


def _json(seen: Picture, projects: Projects, invocation: Invocation) -> dict[str, JsonValue]:
    return {
        "counts": {state.value: number for state, number in seen.counts.items()},
        "oldest_ready_ms": seen.oldest_ms,
        "consumers": list(seen.consumers),
        "paused": list(seen.paused),
        "held": dict(seen.held),
        "running": [lease_json(lease, projects, invocation.clock) for lease in seen.running],
        "last_success": {kind: moment_json(at) for kind, at in seen.successes.items()},
    }
