"""One process of the queue's bench, on memoryd's side: it enqueues, or it consumes.

Run as `python -I -m ops.bench.queue_side ROLE HOME DURABILITY COUNT`. Says `ready`, waits
for a line, works, and answers with one JSON object. `queue_stock` speaks the same way.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from storage.clock import SystemClock
from storage.connection import Durability
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import JsonValue, ProjectId
from tasks import triggers

if TYPE_CHECKING:
    from tasks.context import Context, Finished

PROJECT = ProjectId("p_benchmark0000")
SETTLED_S = 2.0
ROUND_JOBS = 200
"""Jobs that `fill` enqueues in one transaction."""


class Counted:
    """A body that does nothing but count and note when it ran."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.ran_ns: list[int] = []
        self.asked_ns: list[int] = []
        self.done = threading.Event()

    def __call__(self, context: Context, args: Mapping[str, JsonValue]) -> Finished:
        from tasks.context import Finished

        self.ran_ns.append(time.monotonic_ns())
        self.asked_ns.append(int(str(args.get("at", 0))))
        self._left -= 1
        if self._left == 0:
            self.done.set()
        return Finished()


def enqueue(home: HomePaths, durability: Durability, count: int, *, pause_s: float = 0.0) -> None:
    """Enqueue one job at a time and say how long each took, in nanoseconds.

    `pause_s` is the mean of the random time between two.
    """
    chance = random.Random(os.getpid())  # noqa: S311 -- spreads calls, no secret
    queue = open_queue(home, clock=SystemClock(), enqueue_durability=durability)
    name = f"{time.monotonic_ns()}"
    wait_for_start()
    took = []
    for number in range(count):
        if pause_s:
            threading.Event().wait(pause_s * 2 * chance.random())
        started = time.monotonic_ns()
        queue.enqueue(
            [
                JobSpec(
                    kind=JobKind.EMBED,
                    project=PROJECT,
                    subject=f"{name}-{number}",
                    args={"at": started},
                )
            ]
        )
        took.append(time.monotonic_ns() - started)
    queue.close()
    answer(took_ns=cast("JsonValue", took))


def hook(home: HomePaths, count: int) -> None:
    """Open, count a turn and close, as a hook does; nanoseconds each."""
    wait_for_start()
    took = []
    for _ in range(count):
        threading.Event().wait(0.01)
        started = time.monotonic_ns()
        queue = triggers.open_for_hook(home, SystemClock())
        triggers.turn_ended(queue, PROJECT, 10)
        took.append(time.monotonic_ns() - started)
        queue.close()
    answer(took_ns=cast("JsonValue", took))


def fill(home: HomePaths, count: int) -> None:
    """Jobs for a consumer to work off."""
    queue = open_queue(home, clock=SystemClock(), enqueue_durability="OFF")
    for start in range(0, count, ROUND_JOBS):
        queue.enqueue(
            [
                JobSpec(kind=JobKind.EMBED, project=PROJECT, subject=f"fill-{number}")
                for number in range(start, min(count, start + ROUND_JOBS))
            ]
        )
    queue.file.checkpoint("RESTART")
    queue.close()


def consume(home: HomePaths, durability: Durability, count: int) -> None:
    """A whole consumer with one thread; says when each job ran, and the CPU it used meanwhile."""
    from storage.log import configure
    from tasks.dispatch import Route
    from tasks.queue import build_huey

    body = Counted(count)
    configure(home, SystemClock(), terminal=False)
    built = build_huey(
        home,
        {},
        SystemClock(),
        routes={kind: Route(body, 60_000) for kind in JobKind},
        projects=tuple,
        durability=durability,
    )
    consumer = built.create_consumer(workers=1, periodic=False)
    wait_for_start()
    used, began = time.process_time(), time.monotonic()
    consumer.start()
    if not count:
        # Idle is what comes after the start.
        threading.Event().wait(SETTLED_S)
        used, began = time.process_time(), time.monotonic()
    if count:
        body.done.wait()
        # The last ending must be written too.
        while not built.engine.queue.drained():
            threading.Event().wait(0.001)
    else:
        sys.stdin.readline()
    share = (time.process_time() - used) / (time.monotonic() - began)
    answer(
        ran_ns=cast("JsonValue", body.ran_ns),
        asked_ns=cast("JsonValue", body.asked_ns),
        cpu_share=share,
    )
    consumer.stop(graceful=True)
    built.engine.close()


def wait_for_start() -> None:
    """Tell the bench that this process is ready, and wait for its word."""
    print("ready", flush=True)
    sys.stdin.readline()


def answer(**figures: JsonValue) -> None:
    """Tell the bench what was measured."""
    print(json.dumps(figures), flush=True)


def main(argv: list[str]) -> None:
    """Play one role."""
    role, home, durability, count = argv[0], HomePaths(Path(argv[1])), argv[2], int(argv[3])
    level = cast("Durability", durability)
    match role:
        case "enqueue":
            enqueue(home, level, count, pause_s=float(argv[4]) if argv[4:] else 0.0)
        case "consume":
            consume(home, level, count)
        case "hook":
            hook(home, count)
        case _:
            fill(home, count)


if __name__ == "__main__":
    main(sys.argv[1:])
