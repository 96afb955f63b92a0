"""`ops redact` shows what would be hidden; `ops completion` prints a shell's completion script."""

from __future__ import annotations

import sys

import click
from click.shell_completion import get_completion_class

from ops.invocation import Invocation, shared_options
from ops.output import write_json


@click.command()
@click.argument("text", required=False)
@shared_options()
def redact(invocation: Invocation, text: str | None) -> None:
    """Show text as memoryd would keep it.

    TEXT, or standard input, without what looks like a secret. Nothing is stored.
    Use it to see whether a kind of credential is recognised.
    """
    from storage.redaction import redact as redacted

    given = sys.stdin.buffer.read().decode("utf-8", "replace") if text is None else text
    kept = redacted(given)
    if invocation.as_json:
        write_json({"text": kept, "changed": kept != given})
    else:
        sys.stdout.write(kept if kept.endswith("\n") else kept + "\n")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@shared_options()
def completion(invocation: Invocation, shell: str) -> None:
    """Print a completion script.

    For bash:  ops completion bash > ~/.local/share/bash-completion/completions/ops
    """
    from ops.cli import COMPLETE_VARIABLE, PROGRAM, cli

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(cli, {}, PROGRAM, COMPLETE_VARIABLE).source()
    if invocation.as_json:
        write_json({"shell": shell, "script": script})
    else:
        print(script)
