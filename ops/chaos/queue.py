"""`ops chaos queue`: real consumers and enqueuers, killed, frozen, stopped and misled at random.

Counts what was acknowledged and then lost, effects that were applied twice, what a provider on
loopback served beyond the budget, jobs that did not end, and enqueues that saw a locked database.
The moves of the storm are drawn from the seed that is printed; their timing is the machine's.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast

from ops.chaos.provider import Provider
from ops.chaos.queue_parts import ACKED, EFFECTS, ERRORS, MAKE_EFFECTS, OFFSET, SPOOLED
from storage.budget import BudgetLedger
from storage.clock import SystemClock
from storage.config import load_settings
from storage.connection import open_database, open_readonly
from storage.errors import MemorydError
from storage.jobs import JobState
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import JsonValue

ENQUEUERS: Final = 4
MOVES: Final = (
    ("kill the consumer", 6), ("stop the consumer", 2), ("freeze the consumer", 2),
    ("kill an enqueuer", 4), ("hold the file", 2), ("step the clock", 2),
)  # fmt: skip
LEASE_MS: Final = 3_000
LONGEST_STEP_MS: Final = 600_000
SETTLE_S: Final = 90.0
COMPOSE: Final = """[queue]
lease_ms = {lease}
max_attempts = 10000
max_crashes = 10000
[budget]
zone = "{zone}"
calls_per_day = {calls}
tokens_per_day = {tokens}
[schedule]
sync = ""
consolidate = ""
gc = ""
checkpoint = ""
[model]
provider = "openai"
name = "storm"
base_url = "{url}"
timeout_s = 2
"""


class Storm:
    """One storm over one home."""

    def __init__(self, home: Path, *, seconds: float, seed: int) -> None:
        self._home = home
        self._seconds = seconds
        self._chance = random.Random(seed)  # noqa: S311 -- a repeatable storm, no secret
        self._seed = seed
        self._provider = Provider(seed)
        self._calls = max(20, int(seconds * 4))
        self._tokens = self._calls * 120
        self._done: Counter[str] = Counter()
        self._enqueuers: list[subprocess.Popen[bytes]] = []
        self._consumer: subprocess.Popen[bytes] | None = None
        self._named = 0
        self._queue = self._prepare()

    def _prepare(self) -> JobQueue:
        paths = HomePaths(self._home)
        paths.shared.mkdir(mode=0o700, parents=True)
        # A day that ends during the run would grant a second budget: it is noon in this zone.
        ahead = (12 - datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC).hour + 12) % 24
        zone = f"Etc/GMT{-ahead:+d}" if ahead <= 12 else f"Etc/GMT{24 - ahead:+d}"
        text = COMPOSE.format(
            lease=LEASE_MS, zone=zone, calls=self._calls, tokens=self._tokens,
            url=self._provider.url,
        )  # fmt: skip
        paths.config.write_text(text, "utf-8")
        with closing(open_database(self._home / EFFECTS, create=True)) as db:
            db.execute(MAKE_EFFECTS)
        # The storm itself must not wait for a lock that it froze somebody with.
        return open_queue(paths, clock=SystemClock(), busy_ms=200)

    def run(self, tell: Callable[[str], None]) -> dict[str, JsonValue]:
        """Storm, then calm, then count."""
        self._provider.start()
        try:
            tell(f"seed {self._seed}, {self._seconds:.0f} seconds")
            for _ in range(ENQUEUERS):
                self._start_enqueuer()
            self._storm()
            tell("the storm is over; waiting until all work is done")
            settled = self._settle()
            return self._count(settled)
        finally:
            self._end()

    # The storm

    def _storm(self) -> None:
        until = time.monotonic() + self._seconds
        names, weights = zip(*MOVES, strict=True)
        while time.monotonic() < until:
            if self._consumer is None or self._consumer.poll() is not None:
                self._consumer = self._start("consume")
            self._pause(self._chance.uniform(0.1, 0.6))
            move = self._chance.choices(names, weights)[0]
            self._done[move] += 1
            self._move(move)
            # What another consumer's round does for a frozen one.
            with suppress(MemorydError):
                self._queue.reap(max_crashes=10_000)

    def _move(self, move: str) -> None:
        consumer = self._consumer
        assert consumer is not None
        match move:
            case "kill the consumer":
                consumer.kill()
                consumer.wait()
            case "stop the consumer":
                consumer.send_signal(signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    consumer.wait(10)
            case "freeze the consumer":
                consumer.send_signal(signal.SIGSTOP)
                self._pause(self._chance.choice([0.2, LEASE_MS / 1000 + 0.5]))
                with suppress(MemorydError):
                    self._queue.reap(max_crashes=10_000)
                consumer.send_signal(signal.SIGCONT)
            case "kill an enqueuer":
                victim = self._enqueuers.pop(self._chance.randrange(len(self._enqueuers)))
                victim.kill()
                victim.wait()
                self._start_enqueuer()
            case "hold the file":
                with suppress(MemorydError), self._queue.file.write("OFF"):
                    self._pause(self._chance.uniform(0.05, 1.0))
            case _:
                step = self._chance.randint(-LONGEST_STEP_MS, LONGEST_STEP_MS)
                (self._home / OFFSET).write_text(str(step), "ascii")

    def _pause(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-I", "-m", "ops.chaos.queue_parts", arguments[0], str(self._home)]
        environment = {**os.environ, "PI_MEMORY_HOME": str(self._home)}
        for name in [key for key in environment if key.startswith("PI_MEMORY_DAEMON")]:
            del environment[name]
        return subprocess.Popen([*argv, *arguments[1:]], env=environment, stderr=subprocess.DEVNULL)

    def _start_enqueuer(self) -> None:
        self._named += 1
        self._enqueuers.append(self._start("enqueue", f"e{self._named}"))

    # The calm

    def _settle(self) -> bool:
        for process in self._enqueuers:
            process.kill()
            process.wait()
        (self._home / OFFSET).unlink(missing_ok=True)
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            if self._consumer is None or self._consumer.poll() is not None:
                self._consumer = self._start("consume")
            self._consumer.send_signal(signal.SIGCONT)
            with suppress(MemorydError):
                for reason in ("retry", "provider", "later"):
                    self._queue.release_waiting(reason)
            spooled = any(HomePaths(self._home).spool.glob("*.json"))
            if not spooled and not self._open():
                return True
            self._pause(0.2)
        return False

    def _open(self) -> list[str]:
        """Subjects of jobs that are neither ended nor held by the budget."""
        views = [
            *self._queue.jobs(state=JobState.AVAILABLE, limit=10**6),
            *self._queue.jobs(state=JobState.LEASED, limit=10**6),
        ]
        return [view.subject for view in views if view.waiting_for != "budget"]

    def _end(self) -> None:
        for process in [*self._enqueuers, *([self._consumer] if self._consumer else [])]:
            with suppress(OSError):
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self._provider.close()
        self._queue.close()

    # The count

    def _count(self, settled: bool) -> dict[str, JsonValue]:
        acked = self._acked()
        with closing(open_readonly(self._home / EFFECTS)) as db:
            applied = cast(
                "list[tuple[str, int, int]]",
                db.execute(
                    "SELECT subject, count(*), max(began) FROM effects GROUP BY 1"
                ).fetchall(),
            )
        newest = {subject: began for subject, _, began in applied}
        held = {
            view.subject
            for view in self._queue.jobs(state=JobState.AVAILABLE, limit=10**6)
            if view.waiting_for == "budget"
        }
        still_open = set(self._open())
        # A shared key's events may be joined, but after each of them a run must have begun.
        lost = [
            subject
            for subject, event in acked.items()
            if subject not in held | still_open and newest.get(subject, -1) < event
        ]
        twice = [name for name, count, _ in applied if count > 1 and not name.startswith("shared-")]
        paths, clock = HomePaths(self._home), SystemClock()
        budget = load_settings(paths, {}).budget
        book = BudgetLedger(self._queue.file, clock, budget).today()
        errors = Counter(self._lines(ERRORS))
        counts = self._queue.counts()
        sound = self._queue.file.db.pragma("integrity_check") == "ok"
        return {
            "acked": len(self._lines(ACKED)),
            "lost": len(lost),
            "duplicate_effects": len(twice),
            "overspent_calls": max(0, self._provider.calls - self._calls),
            "overspent_tokens": max(0, self._provider.tokens - self._tokens),
            "stuck": len(still_open) + counts[JobState.DEAD],
            "locked_errors": errors["locked"],
            "other_errors": sum(errors.values()) - errors["locked"],
            "unbooked_calls": max(0, self._provider.calls - book.calls_used - book.calls_held),
            "unbooked_tokens": max(0, self._provider.tokens - book.tokens_used - book.tokens_held),
            "sound": sound,
            "settled": settled,
            "seed": self._seed,
            "seconds": self._seconds,
            "effects": sum(count for _, count, _ in applied),
            "examples": cast("JsonValue", [*lost[:5], *twice[:5]]),
            "spooled": len(self._lines(SPOOLED)),
            "held_by_budget": len(held),
            "provider_calls": self._provider.calls,
            "provider_tokens": self._provider.tokens,
            "moves": dict(self._done),
        }

    def _acked(self) -> dict[str, int]:
        """Subject -> the newest event that was acknowledged."""
        found: dict[str, int] = {}
        for line in self._lines(ACKED):
            subject, _, event = line.partition(" ")
            if event.isdigit():
                found[subject] = max(found.get(subject, 0), int(event))
        return found

    def _lines(self, name: str) -> list[str]:
        with suppress(FileNotFoundError):
            return (self._home / name).read_text("utf-8").splitlines()
        return []


MUST_BE_ZERO: Final = (
    "lost", "duplicate_effects", "overspent_calls", "overspent_tokens", "stuck", "locked_errors",
    "other_errors", "unbooked_calls", "unbooked_tokens",
)  # fmt: skip


def run(
    home: Path, *, seconds: float, seed: int, tell: Callable[[str], None]
) -> tuple[dict[str, JsonValue], bool]:
    """The figures of one storm, and whether it was harmless."""
    figures = Storm(home, seconds=seconds, seed=seed).run(tell)
    harmless = all(figures[name] == 0 for name in MUST_BE_ZERO) and bool(figures["sound"])
    return figures, harmless
