"""`ops start` and `ops stop`: the consumer and the recall server, in the background."""

from __future__ import annotations

import click

from ops.invocation import Invocation, shared_options
from ops.output import show
from ops.services import SERVER, WORKER, consumer_pids, server_pid, stop_pid
from ops.services import start as start_program
from storage.errors import NotInitialized
from storage.records import JsonValue


@click.command()
@shared_options()
def start(invocation: Invocation) -> None:
    """Start the consumer and the recall server, unless they run already."""
    paths = invocation.paths
    if not paths.shared.exists():
        raise NotInitialized(f"{paths.home} holds no memory yet.")
    running = {
        WORKER: consumer_pids(paths)[:1],
        SERVER: [pid for pid in [server_pid(paths)] if pid],
    }
    lines, value = [], {}
    for program, pids in running.items():
        started = not pids
        pid = pids[0] if pids else start_program(program, paths, invocation.environment).process.pid
        lines.append(
            f"The {program.title} {'started' if started else 'runs already'} (process {pid})."
        )
        value[program.name] = {"pid": pid, "started": started}
    show(invocation.as_json, {"ok": True, **value}, lines)


@click.command()
@shared_options()
def stop(invocation: Invocation) -> None:
    """Stop this home's consumers and recall server; work that waits goes on at the next start."""
    paths = invocation.paths
    found = server_pid(paths)
    targets = [(WORKER, pid) for pid in consumer_pids(paths)]
    targets += [(SERVER, found)] if found else []
    stopped: list[JsonValue] = []
    lines = []
    for program, pid in targets:
        if stop_pid(pid):
            stopped.append({"name": program.name, "pid": pid})
            lines.append(f"The {program.title} (process {pid}) has stopped.")
    show(invocation.as_json, {"ok": True, "stopped": stopped}, lines or ["Nothing was running."])
