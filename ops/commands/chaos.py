"""`ops chaos`: break stores of its own on purpose, and count what is lost (nothing may be)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from ops.exits import Exit
from ops.invocation import Invocation, shared_options
from ops.output import pairs, show
from storage.records import JsonValue


@click.group()
def chaos() -> None:
    """Harm stores made for it (power cuts, failing disks, kill -9) and count what is lost."""


@chaos.command()
@click.option("--seconds", type=click.IntRange(1, 86_400), default=60, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Which samples to take.")
@shared_options()
def authority(invocation: Invocation, seconds: int, seed: int) -> None:
    """The store that decides: every legal state after a cut, every failing call, many processes."""
    from ops.chaos.authority import run

    with tempfile.TemporaryDirectory(prefix="memoryd-chaos-") as made:
        figures, harmless = run(Path(made), seconds=seconds, seed=seed)
    show(
        invocation.as_json,
        figures,
        [pairs((name, _said(found)) for name, found in figures.items())],
    )
    if not harmless:
        click.get_current_context().exit(Exit.UNHEALTHY)


@chaos.command()
@click.option("--seconds", type=click.IntRange(1, 86_400), default=60, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True, help="Which moves to make.")
@shared_options()
def queue(invocation: Invocation, seconds: int, seed: int) -> None:
    """The queue: consumers and enqueuers killed, frozen and stopped, a budget that must hold."""
    from ops.chaos.queue import run

    with tempfile.TemporaryDirectory(prefix="memoryd-chaos-") as made:
        figures, harmless = run(
            Path(made) / "home",
            seconds=seconds,
            seed=seed,
            tell=lambda what: click.echo(what, err=True),
        )
    show(
        invocation.as_json,
        figures,
        [pairs((name, _said(found)) for name, found in figures.items())],
    )
    if not harmless:
        click.get_current_context().exit(Exit.UNHEALTHY)


def _said(value: JsonValue) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
