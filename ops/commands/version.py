"""`ops version` and `ops help`. Imports nothing heavy: they are also the launcher's own test."""

from __future__ import annotations

import platform
from importlib.metadata import version as installed_version

import click

from ops.invocation import Invocation, shared_options
from ops.output import write_json


@click.command()
@shared_options()
def version(invocation: Invocation) -> None:
    """Show what is installed."""
    found = {name: installed_version(name) for name in ("memoryd", "apsw", "huey")}
    if invocation.as_json:
        write_json({**found, "python": platform.python_version()})
        return
    print(
        f"memoryd {found['memoryd']} (Python {platform.python_version()},"
        f" apsw {found['apsw']}, huey {found['huey']})"
    )


@click.command("help")
@click.argument("verb", nargs=-1, metavar="[VERB]...")
@shared_options()
def help(invocation: Invocation, verb: tuple[str, ...]) -> None:
    """Explain all verbs, or one: `ops help jobs`, `ops help host install`."""
    context = click.get_current_context().parent
    assert context is not None
    command: click.Command = context.command
    for word in verb:
        found = command.get_command(context, word) if isinstance(command, click.Group) else None
        if found is None:
            raise click.UsageError(f"There is no verb `{' '.join(verb)}`.", context)
        command, context = found, click.Context(found, info_name=word, parent=context)
    said = command.get_help(context)
    if invocation.as_json:
        write_json({"verb": " ".join(verb), "help": said})
    else:
        print(said)
