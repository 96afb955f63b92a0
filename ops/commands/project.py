"""`ops init` gives a folder a memory; `ops project` shows, shares, moves and releases folders."""

from __future__ import annotations

from pathlib import Path

import click

from ops.folders import binding_json, folder_of, located, released_json, told
from ops.hosts import host_states
from ops.invocation import Invocation, shared_options
from ops.output import count, show, table
from ops.project import current_project, require_choice, require_project_folder
from storage.config import load_settings
from storage.errors import Refused
from storage.jobs import JobKind, JobSpec, Priority
from storage.projects import Binding, bind, bindings, link, lookup, move, unlink
from storage.queue import open_queue
from storage.records import JsonValue, ProjectId
from storage.repository import top_of

_HERE = click.option("--here", is_flag=True, help="This very folder, not the repository around it.")
_FORCE = click.option("--force", is_flag=True, help="Although it is not of the same repository.")


def repository_root(folder: Path) -> Path:
    """The top of the git checkout around a folder; the folder itself when there is none."""
    return top_of(folder.resolve()) or folder


def bound(invocation: Invocation, folder: Path) -> Binding:
    """The binding of a folder, made when it has none; a first look at its sessions is enqueued."""
    settings = load_settings(invocation.paths, invocation.environment)
    binding = bind(
        invocation.paths,
        folder,
        clock=invocation.clock,
        settings=settings.storage,
        environment=invocation.environment,
    )
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
@_HERE
@click.option("--new", is_flag=True, help="A memory of its own, although its repository has one.")
@shared_options(project=True)
def init(invocation: Invocation, here: bool, new: bool) -> None:
    """Give a project a memory. Nothing is written into the project's own folder.

    The project is the git repository around the folder: every folder in it shares one memory. In a
    second clone, a worktree or a moved checkout of a repository that has a memory, nothing is bound
    until you say which of the two you want.
    """
    folder = invocation.folder if here else repository_root(invocation.folder)
    known = lookup(invocation.paths, folder)
    existed = known is not None and located(known, folder)
    if not existed:
        require_project_folder(invocation, folder)
    if not (existed or new):
        require_choice(invocation, folder)
    left = not existed and _was_left(invocation, folder)
    binding = bound(invocation, folder)
    memory = invocation.paths.project(binding.project_id).memory
    verb = "has a memory already" if existed else "has a memory now"
    if left and invocation.paths.project(binding.project_id).database.exists():
        verb = "has its memory again: it was still there"
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


def _was_left(invocation: Invocation, folder: Path) -> bool:
    """Whether a memory under the folder's own id waits for it."""
    from storage.projects import project_id_of

    return invocation.paths.project(project_id_of(folder.resolve())).database.exists()


@click.group()
def project() -> None:
    """The folders of this home and the memories they use."""


@project.command("list")
@shared_options()
def list_projects(invocation: Invocation) -> None:
    """List every folder that has a memory in this home."""
    known = bindings(invocation.paths)
    value: dict[str, JsonValue] = {
        "projects": [binding_json(invocation.paths, item) for item in known]
    }
    rows = [
        (
            item.project_id,
            str(item.location) + told(item.location.is_dir()),
            item.repository.remote if item.repository else "",
        )
        for item in known
    ]
    empty = "No folder has a memory in this home. In a project's folder: ops init"
    columns = ("memory", "folder", "repository")
    show(invocation.as_json, value, [table(columns, rows) if rows else empty])


@project.command("show")
@click.argument("project_id", metavar="[MEMORY]", required=False)
@shared_options(project=True)
def show_project(invocation: Invocation, project_id: str | None) -> None:
    """Show which folders use a memory (by default: the memory of this folder)."""
    wanted = project_id or current_project(invocation).binding.project_id
    users = [item for item in bindings(invocation.paths) if item.project_id == wanted]
    if not users:
        raise Refused(f"No folder uses a memory {wanted}: see `ops project list`.")
    paths = invocation.paths.project(ProjectId(wanted))
    value: dict[str, JsonValue] = {
        "project": wanted,
        "memory": str(paths.memory),
        "database": paths.database.exists(),
        "folders": [binding_json(invocation.paths, item) for item in users],
    }
    rows = [(str(item.location) + told(item.location.is_dir()), *folder_of(item)) for item in users]
    missing = "" if paths.database.exists() else " (its database is missing)"
    columns = ("folder", "repository", "first commit", "bound")
    title = f"{wanted}, in {paths.memory}{missing}"
    show(invocation.as_json, value, [title, table(columns, rows)])


@project.command("link")
@click.argument("project_id", metavar="MEMORY")
@_HERE
@_FORCE
@shared_options(project=True)
def link_project(invocation: Invocation, project_id: str, here: bool, force: bool) -> None:
    """Let this folder use MEMORY, which another folder of its repository has.

    For a second clone or a git worktree. The sessions of all folders of one memory are read.
    """
    folder = invocation.folder if here else repository_root(invocation.folder)
    settings = load_settings(invocation.paths, invocation.environment)
    binding = link(
        invocation.paths,
        folder,
        ProjectId(project_id),
        clock=invocation.clock,
        settings=settings.storage,
        environment=invocation.environment,
        force=force,
    )
    _bound_again(invocation, binding)


@project.command("move")
@click.argument("project_id", metavar="MEMORY")
@click.option(
    "--from", "source", metavar="DIR", help="Where it stood, if several folders are gone."
)
@_HERE
@_FORCE
@shared_options(project=True)
def move_project(
    invocation: Invocation, project_id: str, source: str | None, here: bool, force: bool
) -> None:
    """Tell MEMORY that its checkout was moved to this folder."""
    folder = invocation.folder if here else repository_root(invocation.folder)
    settings = load_settings(invocation.paths, invocation.environment)
    binding = move(
        invocation.paths,
        folder,
        ProjectId(project_id),
        clock=invocation.clock,
        settings=settings.storage,
        environment=invocation.environment,
        source=Path(source).expanduser().absolute() if source else None,
        force=force,
    )
    _bound_again(invocation, binding)


def _bound_again(invocation: Invocation, binding: Binding) -> None:
    ask_for_sync(invocation, binding.project_id)
    users = [item for item in bindings(invocation.paths) if item.project_id == binding.project_id]
    value: dict[str, JsonValue] = {
        "ok": True,
        "project": binding.project_id,
        "folder": str(binding.location),
        "folders": [str(item.location) for item in users],
    }
    used = f"{count(len(users), 'folder')} {'use' if len(users) > 1 else 'uses'} it."
    lines = [f"{binding.location} uses the memory {binding.project_id} now. {used}"]
    show(invocation.as_json, value, lines)


@project.command("unlink")
@click.argument("folder", metavar="[FOLDER]", required=False)
@shared_options(project=True)
def unlink_project(invocation: Invocation, folder: str | None) -> None:
    """Release FOLDER (by default this one) from its memory, which stays where it is."""
    if folder:
        wanted = Path(folder).expanduser().absolute()
    else:
        wanted = current_project(invocation).binding.location
    binding = unlink(invocation.paths, wanted)
    users = [item for item in bindings(invocation.paths) if item.project_id == binding.project_id]
    memory = invocation.paths.project(binding.project_id).memory
    left = (
        f"{count(len(users), 'folder')} still {'use' if len(users) > 1 else 'uses'} it."
        if users
        else f"To take it up again: ops project link {binding.project_id} --force"
    )
    lines = [f"{binding.location} has no memory any more.", f"{memory} stays as it is.", left]
    show(invocation.as_json, released_json(binding, memory, users), lines)
