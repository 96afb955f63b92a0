"""The command `ops`: its verbs, its help, and how errors become sentences and exit codes.

Owns the list of verbs; each lives in `ops.commands` and is imported when it is used, so that
`ops version` costs no more than click. Leaves what a verb does to its own file.
"""

from __future__ import annotations

import difflib
import importlib
import keyword
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ops.entry import silence
from ops.exits import EXIT_MEANINGS, Exit, Failure, failure_of
from ops.invocation import remember_globals
from ops.output import write_json
from storage.errors import MemorydError

PROGRAM = "ops"
COMPLETE_VARIABLE = "_OPS_COMPLETE"
_EXTRA = re.compile(r"unexpected extra arguments? \((.+)\)")

VERBS: dict[str, str] = {
    "init": "ops.commands.project",
    "project": "ops.commands.project",
    "status": "ops.commands.status",
    "start": "ops.commands.service",
    "stop": "ops.commands.service",
    "queue": "ops.commands.queue",
    "jobs": "ops.commands.jobs",
    "leases": "ops.commands.jobs",
    "dead": "ops.commands.jobs",
    "health": "ops.commands.health",
    "budget": "ops.commands.spending",
    "schedule": "ops.commands.spending",
    "pause": "ops.commands.control",
    "resume": "ops.commands.control",
    "retry": "ops.commands.control",
    "cancel": "ops.commands.control",
    "drain": "ops.commands.control",
    "recall": "ops.commands.memory",
    "why": "ops.commands.why",
    "model": "ops.commands.model",
    "learned": "ops.commands.memory",
    "facts": "ops.commands.memory",
    "remember": "ops.commands.note",
    "sync": "ops.commands.note",
    "feedback": "ops.commands.forget",
    "forget": "ops.commands.forget",
    "evidence": "ops.commands.records",
    "documents": "ops.commands.records",
    "history": "ops.commands.records",
    "verify": "ops.commands.upkeep",
    "repair": "ops.commands.upkeep",
    "rebuild": "ops.commands.upkeep",
    "replay": "ops.commands.upkeep",
    "promote": "ops.commands.upkeep",
    "backup": "ops.commands.keeping",
    "restore": "ops.commands.keeping",
    "export": "ops.commands.keeping",
    "import": "ops.commands.keeping",
    "host": "ops.commands.host",
    "doctor": "ops.commands.doctor",
    "eval": "ops.commands.evaluation",
    "redact": "ops.commands.text",
    "completion": "ops.commands.text",
    "bench": "ops.commands.bench",
    "chaos": "ops.commands.chaos",
    "version": "ops.commands.version",
    "help": "ops.commands.version",
}
"""Verb -> the module that defines it, in the order that help shows."""


class Verbs(click.Group):
    """A group that imports a verb's module when the verb is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        # `import` is a word of Python: its function bears an underscore.
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        found = getattr(importlib.import_module(VERBS[cmd_name]), name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        wanted = args[0]
        if wanted not in VERBS and not wanted.startswith("-"):
            close = difflib.get_close_matches(wanted, VERBS, n=1, cutoff=0.5)
            meant = f" Did you mean `ops {close[0]}`?" if close else ""
            raise click.UsageError(f"There is no verb `{wanted}`.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text("About one verb: ops help VERB")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), said) for code, said in EXIT_MEANINGS.items()])


@click.group(
    cls=Verbs,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--home",
    metavar="DIR",
    help="Where memory lives.  [default: PI_MEMORY_HOME, PRJCT_HOME, else ~/.prjct]",
)
@click.option("--json", "as_json", is_flag=True, help="Answer with one JSON object.")
@click.option("--version", is_flag=True, help="Show what is installed, as `ops version` does.")
@click.pass_context
def cli(context: click.Context, home: str | None, as_json: bool, version: bool) -> None:
    """Look after the memory of your coding agents.

    Verbs about a project mean the folder you are in, or --project DIR. Reading verbs change
    nothing and may run beside everything else.
    """
    remember_globals(context, home, as_json)
    if version:
        from ops.commands.version import version as show_version

        context.invoke(show_version, home=home, as_json=as_json)
        context.exit(Exit.OK)
    elif context.invoked_subcommand is None:
        print(context.get_help())
        context.exit(Exit.USAGE)


def main(argv: Sequence[str]) -> int:
    """Run one command line; returns its exit code and never shows a traceback for a known cause."""
    as_json = "--json" in argv
    try:
        done = cli.main(
            args=list(argv),
            prog_name=PROGRAM,
            complete_var=COMPLETE_VARIABLE,
            standalone_mode=False,
        )
    except click.UsageError as error:
        return _report(Failure(Exit.USAGE, usage_sentence(error), usage_hint(error)), as_json)
    except click.ClickException as error:
        return _report(Failure(Exit.FAILED, error.format_message()), as_json)
    except (KeyboardInterrupt, click.Abort):
        return _report(Failure(Exit.INTERRUPTED, "Stopped."), as_json)
    except BrokenPipeError:
        # The reader (`ops facts | head`) has enough; the flush at exit must not complain about it.
        silence()
        return Exit.OK
    except OSError as error:
        # If it was standard output that failed, it fails again here: `ops.entry` says so.
        sys.stdout.flush()
        return _report(failure_of(error), as_json)
    except MemorydError as error:
        return _report(failure_of(error), as_json)
    return int(done) if isinstance(done, int) else Exit.OK


def usage_sentence(error: click.UsageError) -> str:
    """What was wrong, on one line."""
    return " ".join(error.format_message().split())


def usage_hint(error: click.UsageError) -> str:
    """What to type instead."""
    if error.ctx is None:
        return "See `ops --help`."
    path = error.ctx.command_path
    extra = [word for word in (*error.ctx.args, *_unexpected(error)) if Path(word).is_dir()]
    if extra and any(option.name == "project" for option in error.ctx.command.params):
        return f"To name a project's folder: {path} --project {extra[0]}"
    return f"See `{path} --help`."


def _unexpected(error: click.UsageError) -> list[str]:
    found = _EXTRA.search(error.message)
    return found[1].split() if found else []


def _report(failure: Failure, as_json: bool) -> int:
    if as_json:
        write_json({"ok": False, "error": failure.sentence, "hint": failure.hint})
    else:
        print(f"ops: {failure.sentence}", file=sys.stderr)
        if failure.hint:
            print(f"     {failure.hint}", file=sys.stderr)
    return failure.code
