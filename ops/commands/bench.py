"""`ops bench`: measure parts of memoryd here, each beside a baseline of the same run."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
from rich.console import RenderableType

from ops.invocation import Invocation, shared_options
from ops.output import console, pairs, show
from storage.records import JsonValue


@click.group()
def bench() -> None:
    """Measure parts of memoryd on this machine; nothing of yours is touched."""


@bench.command()
@click.option("--documents", type=click.IntRange(1_000, 10_000_000), default=100_000)
@click.option("--singles", type=click.IntRange(16, 1_000_000), default=1_000)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Work in here.")
@shared_options()
def authority(invocation: Invocation, documents: int, singles: int, folder: Path | None) -> None:
    """Commits, opens, bytes and proofs of the store, beside a bare loop over SQLite."""
    from ops.bench.authority import Bench

    with tempfile.TemporaryDirectory(prefix="memoryd-bench-", dir=folder) as made:
        measured = Bench(Path(made), invocation.clock, documents, singles)
        figures = measured.run(_tell)
    show(invocation.as_json, figures, [pairs((name, _said(figures[name])) for name in figures)])


@bench.command()
@click.option("--rounds", type=click.IntRange(1, 100), default=3)
@click.option("--jobs", type=click.IntRange(40, 100_000), default=300)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Work in here.")
@shared_options()
def queue(invocation: Invocation, rounds: int, jobs: int, folder: Path | None) -> None:
    """Enqueue, run and wake up, beside SQLite's queue of Huey as it is shipped."""
    from ops.bench.queue import Bench

    with tempfile.TemporaryDirectory(prefix="memoryd-bench-", dir=folder) as made:
        figures = Bench(Path(made), rounds=rounds, jobs=jobs).run(_tell)
    show(invocation.as_json, figures, [pairs((name, _said(figures[name])) for name in figures)])


@bench.command()
@click.option("--samples", type=click.IntRange(4, 100_000), default=60)
@click.option("--documents", type=click.IntRange(1, 700), default=300)
@click.option("--node", default="node", help="The Node that runs Pi's extension.")
@shared_options()
def hook(invocation: Invocation, samples: int, documents: int, node: str) -> None:
    """What a prompt waits for memory: idle, saturated, dead, locked and hung daemon."""
    from ops.bench.hook import Bench

    with tempfile.TemporaryDirectory(prefix="memoryd-bench-") as made:
        measured = Bench(
            Path(made), invocation.clock, samples=samples, documents=documents, node=node
        )
        figures = measured.run(_tell)
    show(invocation.as_json, figures, [_by_client(figures)])


@bench.command()
@click.option("--docs", type=click.IntRange(100, 10_000_000), default=20_000, show_default=True)
@click.option("--questions", type=click.IntRange(10, 100_000), default=60, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Work in here.")
@shared_options()
def recall(invocation: Invocation, docs: int, questions: int, folder: Path | None) -> None:
    """A question's cost in a resident process, by leg, beside plain SQL in the same run."""
    from ops.bench.recall import Bench

    with tempfile.TemporaryDirectory(prefix="memoryd-bench-", dir=folder) as made:
        figures = Bench(Path(made), invocation.clock, docs, questions).run(_tell)
    show(invocation.as_json, figures, [_by_kind(figures)])


def _by_kind(figures: dict[str, JsonValue]) -> RenderableType:
    shown: dict[str, JsonValue] = {}
    for name, value in figures.items():
        each = value if isinstance(value, dict) else {}
        shown |= {
            f"{kind} {one}": found
            for kind, some in each.items()
            if isinstance(some, dict)
            for one, found in some.items()
        }
        if not each:
            shown[name] = value
    return pairs((name, _said(value)) for name, value in shown.items())


def _by_client(figures: dict[str, JsonValue]) -> RenderableType:
    shown = {name: value for name, value in figures.items() if not isinstance(value, dict)}
    for name, states in figures.items():
        for state, found in states.items() if isinstance(states, dict) else ():
            if isinstance(found, dict):
                times = "/".join(str(found[f"p{share}_ms"]) for share in (50, 95, 99))
                over, answered = found["over_floor_p50_ms"], found["answered"]
                line = f"p50/95/99 {times} ms, {over} over the floor, answered {answered}"
                shown[f"{name} {state}"] = line
    return pairs((name, _said(value)) for name, value in shown.items())


def _tell(what: str) -> None:
    console(stderr=True).print(f"Measuring {what} ...")


def _said(value: JsonValue) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
