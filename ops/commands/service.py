"""`ops start` and `ops stop`: the consumer and the recall server, in the background."""

from __future__ import annotations

import click

from ops.invocation import Invocation, shared_options
from ops.output import show
from ops.services import SERVER, WORKER, program_pids, start_all, stop_pid
from storage.errors import NotInitialized
from storage.records import JsonValue


@click.command()
@shared_options()
def start(invocation: Invocation) -> None:
    """Start the consumer and the recall server.

    They go on in the background until `ops stop`. What runs already is left alone.
    """
    paths = invocation.paths
    if not paths.shared.exists():
        raise NotInitialized(f"{paths.home} holds no memory yet.")
    lines: list[str] = []
    value: dict[str, JsonValue] = {"ok": True}
    for program, pid, begun in start_all(paths, invocation.environment):
        lines.append(
            f"The {program.title} {'started' if begun else 'runs already'} (process {pid})."
        )
        value[program.name] = {"pid": pid, "started": begun}
    show(invocation.as_json, value, lines)


@click.command()
@shared_options()
def stop(invocation: Invocation) -> None:
    """Stop the consumer and the recall server.

    Running work is finished or put back; what waits goes on at the next start.
    """
    stopped: list[JsonValue] = []
    lines = []
    for program in (WORKER, SERVER):
        for pid in program_pids(program, invocation.paths):
            if stop_pid(program, invocation.paths, pid):
                stopped.append({"name": program.name, "pid": pid})
                lines.append(f"The {program.title} (process {pid}) has stopped.")
    show(invocation.as_json, {"ok": True, "stopped": stopped}, lines or ["Nothing was running."])
