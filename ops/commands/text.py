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

    TEXT, or standard input of any length, without what looks like a secret. Nothing is stored.
    With --json, standard input is one JSON string a line, and so is the answer.
    """
    from storage.redaction import redact as redacted

    if text is not None:
        kept = redacted(text)
        if invocation.as_json:
            write_json({"text": kept, "changed": kept != text})
        else:
            sys.stdout.write(kept if kept.endswith("\n") else kept + "\n")
        return
    from ops.scrub import scrub, scrub_lines

    copy = scrub_lines if invocation.as_json else scrub
    copy(sys.stdin.buffer, sys.stdout.buffer)


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
