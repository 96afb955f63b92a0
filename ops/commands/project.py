"""`ops init`: the one verb that gives a folder a memory."""

from __future__ import annotations

import subprocess
from pathlib import Path

import click

from ops.hosts import host_states
from ops.invocation import Invocation, shared_options
from ops.output import show
from storage.config import load_settings
from storage.jobs import JobKind, JobSpec, Priority
from storage.projects import Binding, bind, lookup
from storage.queue import open_queue
from storage.records import JsonValue, ProjectId


def repository_root(folder: Path) -> Path:
    """The top of the git repository around a folder; the folder itself when there is none."""
    try:
        asked = subprocess.run(
            ["git", "-C", str(folder), "rev-parse", "--show-toplevel"],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return folder
    top = asked.stdout.strip()
    return Path(top) if asked.returncode == 0 and top else folder


def bound(invocation: Invocation, folder: Path) -> Binding:
    """The binding of a folder, made when it has none; a first look at its sessions is enqueued."""
    settings = load_settings(invocation.paths, invocation.environment)
    binding = bind(invocation.paths, folder, clock=invocation.clock, settings=settings.storage)
    ask_for_sync(invocation, binding.project_id)
    return binding


def ask_for_sync(invocation: Invocation, project: ProjectId) -> None:
    """Enqueue a look at the project's sessions, before other work."""
    queue = open_queue(invocation.paths, clock=invocation.clock)
    try:
        spec = JobSpec(kind=JobKind.SYNC, project=project, priority=Priority.INTERACTIVE)
        queue.enqueue([spec])
    finally:
        queue.close()


@click.command()
@click.option("--here", is_flag=True, help="This very folder, not the git repository around it.")
@shared_options(project=True)
def init(invocation: Invocation, here: bool) -> None:
    """Give a project a memory. Nothing is written into the project's own folder.

    The project is the git repository around the folder: every folder in it shares one memory.
    """
    folder = invocation.folder if here else repository_root(invocation.folder)
    known = lookup(invocation.paths, folder)
    existed = known is not None and known.location == folder.resolve()
    binding = bound(invocation, folder)
    memory = invocation.paths.project(binding.project_id).memory
    verb = "has a memory already" if existed else "has a memory now"
    connected = [state for state in host_states(invocation.environment) if state.connected]
    lines = [
        f"{binding.location} {verb} ({binding.project_id}).",
        f"It lives in {memory}; your project is untouched.",
    ]
    if not connected:
        lines.append("Connect an agent: ops host install pi, or: ops host install claude")
    lines.append("Start learning in the background: ops start")
    value: dict[str, JsonValue] = {
        "ok": True,
        "project": binding.project_id,
        "folder": str(binding.location),
        "created": not existed,
        "memory": str(memory),
    }
    show(invocation.as_json, value, lines)
