"""The processes of the queue's storm: an enqueuer and a consumer.

An enqueuer writes down each id that was acknowledged. The consumer is the real one, with bodies
whose effect is a row keyed by the job's id, as an authority's stamp is, and with a wall clock that
the storm can set through a file. Neither knows when it will be killed.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from storage import spool
from storage.clock import SystemClock
from storage.connection import open_database, transaction
from storage.errors import AlreadyApplied, Busy, MemorydError
from storage.jobs import JobKind, JobSpec, Priority
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import JsonValue, ProjectId
from storage.spool import Entry
from tasks.triggers import open_for_hook

if TYPE_CHECKING:
    from tasks.context import Context, Finished

EFFECTS: Final = "effects.sqlite"
ACKED: Final = "acked"
ERRORS: Final = "errors"
SPOOLED: Final = "spooled"
OFFSET: Final = "clock-offset"
SHARED_KEYS: Final = 3
LONGEST_WORK_S: Final = 0.03
MAX_OUTPUT_TOKENS: Final = 16
MAKE_EFFECTS: Final = """
CREATE TABLE effects (job_id TEXT PRIMARY KEY, subject TEXT NOT NULL, began INTEGER NOT NULL)
STRICT
"""
APPLY: Final = """
INSERT INTO effects (job_id, subject, began) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1
"""


def note(home: Path, name: str, line: str) -> None:
    """Append one line, whole or not at all as far as a kill is concerned."""
    fd = os.open(home / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)


class SteppedClock(SystemClock):
    """The machine's clock, its wall time set off by the number in a file."""

    def __init__(self, home: Path) -> None:
        self._file = home / OFFSET

    def now_ms(self) -> int:
        try:
            offset = int(self._file.read_text("ascii") or 0)
        except (OSError, ValueError):
            offset = 0
        return super().now_ms() + offset


def enqueue(home: Path, name: str) -> None:
    """Enqueue until killed; every acknowledged job is written down after it was acknowledged."""
    chance = random.Random(name)  # noqa: S311 -- a repeatable storm, no secret
    paths = HomePaths(home)
    # Every other one is a hook: it waits 50 ms and then leaves a spool file.
    is_hook = int(name[1:]) % 2 == 1
    queue = (
        open_for_hook(paths, SystemClock()) if is_hook else open_queue(paths, clock=SystemClock())
    )
    number = 0
    while True:
        number += 1
        shared = chance.random() < 0.2
        subject = f"shared-{chance.randrange(SHARED_KEYS)}" if shared else f"{name}-{number}"
        spec = JobSpec(
            kind=JobKind.ANALYZE if chance.random() < 0.4 and not shared else JobKind.EMBED,
            project=ProjectId(f"p{chance.randrange(3)}" if not shared else "p0"),
            subject=subject,
            args={"event": queue.clock.boot_ms()},
            priority=chance.choice(list(Priority)),
        )
        entry = Entry(project=spec.project, specs=(spec,))
        try:
            try:
                queue.enqueue([spec])
            except Busy:
                note(home, SPOOLED if is_hook else ERRORS, "locked")
                spool.append(paths, entry, queue.clock.now_ms())
            note(home, ACKED, f"{subject} {spec.args['event']}")
        except MemorydError as cause:
            note(home, ERRORS, type(cause).__name__)
        threading.Event().wait(chance.uniform(0, 0.02))


def body(context: Context, _args: Mapping[str, JsonValue]) -> Finished:
    """Ask the model if the job says so, then apply one effect under the job's stamp."""
    from tasks.context import Finished

    stamp = context.lease.stamp
    # Of events that were joined the newest arguments win, not the newest event: what counts is
    # that a run began after each of them.
    began = context.clock.boot_ms()
    job = getattr(context.lease, "job")  # noqa: B009 -- the port does not show the job's row
    if job.kind == JobKind.ANALYZE.value:
        context.model().complete(
            "system",
            "x" * (1 + stamp.token % 60),
            max_output_tokens=MAX_OUTPUT_TOKENS,
        )
    threading.Event().wait(random.uniform(0, LONGEST_WORK_S))  # noqa: S311
    context.lease.check()
    db = open_database(context.paths.home / EFFECTS, durability="NORMAL")
    try:
        with transaction(db):
            fresh = apply_effect(db, stamp.job_id, job.subject, began)
    finally:
        db.close()
    if not fresh:
        raise AlreadyApplied
    return Finished()


def apply_effect(db: apsw.Connection, job_id: str, subject: str, began: int) -> bool:
    """Whether this job's effect was not there yet."""
    return bool(db.execute(APPLY, (job_id, subject, began)).fetchall())


def consume(home: Path) -> None:
    """The real consumer with our bodies and our clock."""
    from storage.log import configure
    from tasks.dispatch import Route
    from tasks.queue import build_huey

    paths, clock = HomePaths(home), SteppedClock(home)
    configure(paths, clock, terminal=False)
    routes = {kind: Route(body, 60_000) for kind in JobKind}
    built = build_huey(paths, os.environ, clock, routes=routes, projects=tuple)
    consumer = built.create_consumer(workers=3, graceful_signal="TERM", shutdown_timeout=5)
    try:
        consumer.run()
    finally:
        built.engine.close()


def main(argv: list[str]) -> None:
    """Play one part."""
    if argv[0] == "enqueue":
        enqueue(Path(argv[1]), argv[2])
    else:
        consume(Path(argv[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
