"""`ops bench queue`: memoryd's queue beside `SqliteHuey` as shipped, interleaved in one run.

Both sides are whole processes: enqueuers that time each call, and a real consumer with one thread.
FULL and NORMAL mean that enqueues and endings are both written so; `shipped` is each side as it
comes: FULL for stock, FULL enqueues with NORMAL endings for memoryd. Ratios of rates are ours over
stock's: 1 is as fast. `enqueue_p99_ratio` is a ratio of times, smaller is better: six processes
enqueue at random moments beside a busy consumer.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final, Literal, cast

from ops.bench.queue_stock import STOCK
from ops.bench.timing import quantile
from storage.records import JsonValue

Side = Literal["memoryd", "stock"]
SIDES: Final[tuple[Side, ...]] = ("stock", "memoryd")
LEVELS: Final = ("FULL", "NORMAL")
ENQUEUERS: Final = 3
CROWD: Final = 6
CROWD_PAUSE_S: Final = 0.005
"""Callers come at random moments: in a tight loop, the one that starves the others hides it."""
WAKES: Final = 40
WAKE_PAUSE_S: Final = 0.15
HOOKS: Final = 50
IDLE_S: Final = 10.0
TIMEOUT_S: Final = 300.0


class Part:
    """One process of one side."""

    def __init__(
        self, side: Side, role: str, folder: Path, durability: str, count: int, *rest: str
    ) -> None:
        arguments = [role, str(folder), durability, str(count), *rest]
        ours = [sys.executable, "-I", "-m", "ops.bench.queue_side"]
        argv = [*(ours if side == "memoryd" else [sys.executable, "-I", "-c", STOCK]), *arguments]
        self._process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ready(self) -> Part:
        """This part, once its process waits for its word."""
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def say(self) -> None:
        """Start it (or, an idle consumer: end it)."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def figures(self) -> dict[str, Any]:  # Any: numbers and lists of them
        """What it measured; its process has ended."""
        said, _ = self._process.communicate(timeout=TIMEOUT_S)
        return cast("dict[str, Any]", json.loads(said.splitlines()[-1]))

    def end(self) -> None:
        """Wait for a process that only fills."""
        self._process.communicate(timeout=TIMEOUT_S)

    def kill(self) -> None:
        """Never leave it behind."""
        with suppress(OSError):
            self._process.kill()
        self._process.wait()


@dataclass(slots=True)
class Rates:
    """Samples of one side at one level."""

    enqueue: list[float] = field(default_factory=list)
    cycle: list[float] = field(default_factory=list)
    mixed: list[float] = field(default_factory=list)
    contended_ns: list[float] = field(default_factory=list)


class Bench:
    """One run in one folder."""

    def __init__(self, folder: Path, *, rounds: int = 3, jobs: int = 300) -> None:
        self._folder = folder
        self._rounds = rounds
        self._jobs = jobs
        self._made = 0
        self._parts: list[Part] = []
        self._rates = {(side, level): Rates() for side in SIDES for level in (*LEVELS, "shipped")}

    def run(self, tell: Callable[[str], None]) -> dict[str, JsonValue]:
        """Every figure."""
        try:
            for number in range(self._rounds):
                tell(f"round {number + 1} of {self._rounds}")
                # Whoever goes first in a round goes second in the next one; each measure is taken
                # on both sides in a row, for a disk's mood changes within seconds.
                sides = SIDES if number % 2 == 0 else SIDES[::-1]
                for level in (*LEVELS, "shipped"):
                    for measure in (self._alone, self._cycle, self._mixed, self._crowd):
                        for side in sides:
                            measure(side, level)
            tell("waking up")
            wakes, idle = self._wakes()
            tell("hooks")
            hooks = self._hooks()
        finally:
            for part in self._parts:
                part.kill()
        return self._figures(wakes, idle, hooks)

    def _alone(self, side: Side, level: str) -> None:
        part = self._start(side, "enqueue", self._home(), _enqueues(level), self._jobs).ready()
        part.say()
        self._rates[side, level].enqueue.append(_rate(part.figures()["took_ns"]))

    def _cycle(self, side: Side, level: str) -> None:
        home = self._home()
        self._start(side, "fill", home, "OFF", self._jobs).end()
        part = self._start(side, "consume", home, _endings(side, level), self._jobs).ready()
        part.say()
        self._rates[side, level].cycle.append(_pace(part.figures()["ran_ns"]))

    def _mixed(self, side: Side, level: str) -> None:
        consumer, _ = self._together(side, level, ENQUEUERS, self._jobs // 2, 0.0)
        self._rates[side, level].mixed.append(_pace(consumer["ran_ns"]))

    def _crowd(self, side: Side, level: str) -> None:
        _, took = self._together(side, level, CROWD, self._jobs // 4, CROWD_PAUSE_S)
        self._rates[side, level].contended_ns += took

    def _together(
        self, side: Side, level: str, many: int, each: int, pause_s: float
    ) -> tuple[dict[str, Any], list[float]]:  # Any: as Part.figures
        home = self._home()
        consumer = self._start(side, "consume", home, _endings(side, level), many * each).ready()
        crowd = [
            self._start(side, "enqueue", home, _enqueues(level), each, str(pause_s)).ready()
            for _ in range(many)
        ]
        for part in (consumer, *crowd):
            part.say()
        took = [ns for part in crowd for ns in part.figures()["took_ns"]]
        return consumer.figures(), took

    def _wakes(self) -> tuple[list[float], float]:
        home = self._home()
        consumer = self._start("memoryd", "consume", home, "NORMAL", WAKES).ready()
        enqueuer = self._start("memoryd", "enqueue", home, "FULL", WAKES, str(WAKE_PAUSE_S)).ready()
        consumer.say()
        enqueuer.say()
        enqueuer.figures()
        found = consumer.figures()
        wakes = [ran - asked for ran, asked in zip(found["ran_ns"], found["asked_ns"], strict=True)]
        idle = self._start("memoryd", "consume", home, "NORMAL", 0).ready()
        idle.say()
        with suppress(subprocess.TimeoutExpired):
            idle._process.wait(IDLE_S)
        idle.say()
        return wakes, float(idle.figures()["cpu_share"])

    def _hooks(self) -> list[float]:
        home = self._home()
        consumer = self._start("memoryd", "consume", home, "NORMAL", 0).ready()
        hooks = self._start("memoryd", "hook", home, "FULL", HOOKS).ready()
        consumer.say()
        hooks.say()
        took = cast("list[float]", hooks.figures()["took_ns"])
        consumer.say()
        consumer.figures()
        return took

    def _start(
        self, side: Side, role: str, home: Path, durability: str, count: int, *rest: str
    ) -> Part:
        part = Part(side, role, home, durability, count, *rest)
        self._parts.append(part)
        return part

    def _home(self) -> Path:
        self._made += 1
        home = self._folder / f"home{self._made}"
        home.mkdir(mode=0o700)
        return home

    def _figures(
        self, wakes: Sequence[float], idle: float, hooks: Sequence[float]
    ) -> dict[str, JsonValue]:
        full, shipped = self._level("FULL"), self._level("shipped")
        return {
            "enqueue_ratio": full["enqueue_ratio"],
            "cycle_ratio": full["cycle_ratio"],
            "mixed_ratio": shipped["mixed_ratio"],
            "enqueue_p99_ratio": shipped["enqueue_p99_ratio"],
            "wake_p95_ms": _ms(wakes, 0.95),
            "wake_p50_ms": _ms(wakes, 0.5),
            "idle_cpu_percent": round(idle * 100, 2),
            "hook_enqueue_p95_ms": _ms(hooks, 0.95),
            "levels": {
                "FULL": full,
                "NORMAL": self._level("NORMAL"),
                "shipped": shipped,
            },
            "rounds": self._rounds,
            "jobs": self._jobs,
        }

    def _level(self, level: str) -> dict[str, JsonValue]:
        ours, stock = self._rates["memoryd", level], self._rates["stock", level]
        figures: dict[str, JsonValue] = {}
        for name in ("enqueue", "cycle", "mixed"):
            mine, theirs = getattr(ours, name), getattr(stock, name)
            if mine:
                # Of each round's pair, not of the medians: both of a pair met the same disk.
                pairs = [own / other for own, other in zip(mine, theirs, strict=True)]
                figures[f"{name}_ratio"] = round(median(pairs), 2)
                figures[f"memoryd_{name}_per_s"] = round(median(mine))
                figures[f"stock_{name}_per_s"] = round(median(theirs))
        mine_ms, theirs_ms = _ms(ours.contended_ns, 0.99), _ms(stock.contended_ns, 0.99)
        figures["enqueue_p99_ratio"] = round(mine_ms / theirs_ms, 3) if theirs_ms else 0.0
        figures["memoryd_enqueue_p99_ms"], figures["stock_enqueue_p99_ms"] = mine_ms, theirs_ms
        figures["memoryd_enqueue_max_ms"] = _ms(ours.contended_ns, 1)
        figures["stock_enqueue_max_ms"] = _ms(stock.contended_ns, 1)
        return figures


def _enqueues(level: str) -> str:
    return "FULL" if level == "shipped" else level


def _endings(side: Side, level: str) -> str:
    return "NORMAL" if level == "shipped" and side == "memoryd" else _enqueues(level)


def _rate(took_ns: Sequence[float]) -> float:
    return len(took_ns) / (sum(took_ns) / 1e9)


def _pace(ran_ns: Sequence[float]) -> float:
    return (len(ran_ns) - 1) / ((ran_ns[-1] - ran_ns[0]) / 1e9)


def _ms(took_ns: Sequence[float], share: float) -> float:
    return round(quantile(took_ns, share) / 1e6, 2)
