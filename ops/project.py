"""The project a verb is about, and its memory opened for reading.

Owns the sentence for "no memory here", and what must hold before a folder gets one. Reading creates
nothing and takes no write lock. Leaves binding a folder to `ops init` and to the first run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ops.folders import told
from ops.invocation import Invocation
from storage.config import Settings, load_settings
from storage.errors import Corrupt, NotInitialized, Refused
from storage.paths import ProjectPaths
from storage.projects import Binding, lookup, related

if TYPE_CHECKING:
    from storage.authority import ProjectAuthority


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A bound project of this home."""

    binding: Binding
    paths: ProjectPaths
    settings: Settings


def current_project(invocation: Invocation) -> Project:
    """The project that the invocation's folder belongs to.

    Raises:
        NotInitialized: nobody said that this folder may have a memory.
    """
    binding = lookup(invocation.paths, invocation.folder)
    if binding is None:
        raise NotInitialized(f"{invocation.folder} has no memory in {invocation.paths.home} yet.")
    paths = invocation.paths.project(binding.project_id)
    settings = load_settings(invocation.paths, invocation.environment, paths)
    return Project(binding=binding, paths=paths, settings=settings)


def require_project_folder(invocation: Invocation, folder: Path) -> None:
    """Check that a folder can be a project: the root, a user's home or the memory home is none.

    Raises:
        Refused: a memory of it would cover every folder below that has no repository of its own.
    """
    place = Path(os.path.realpath(folder))
    home = Path(os.path.realpath(invocation.environment.get("HOME") or Path.home()))
    memory = Path(os.path.realpath(invocation.paths.home))
    if place in (Path(place.anchor), home, memory) or memory in place.parents:
        raise Refused(
            f"{folder} is no project: a memory of it would cover every folder below it."
            " Go into the folder of a project first"
        )


def require_choice(invocation: Invocation, folder: Path) -> None:
    """Check that no other folder of the same repository has a memory.

    Raises:
        Refused: one has; says where, and the commands to choose from. Nothing is merged silently.
    """
    others = related(invocation.paths, folder, environment=invocation.environment)
    if others:
        raise Refused(_choice(folder, others))


def _choice(folder: Path, others: tuple[Binding, ...]) -> str:
    """What stands where, and the commands to choose from."""
    lines = [f"{folder} was not bound: this repository has a memory already."]
    for other in others:
        there = other.location.is_dir()
        lines.append(f"     {other.project_id} is used by {other.location}" + told(there))
        lines.append(
            f"     To share that memory:     ops project link {other.project_id}"
            if there
            else f"     If the checkout moved:    ops project move {other.project_id}"
        )
    lines.append("     For one of its own:       ops init --new")
    return "\n".join(lines)


@contextmanager
def opened(invocation: Invocation, project: Project) -> Iterator[ProjectAuthority]:
    """The project's authority.

    Raises:
        Corrupt: its database is missing (it is never made anew), or fails its checks.
    """
    from storage.authority import open_authority

    try:
        authority = open_authority(
            project.paths,
            project.binding.project_id,
            clock=invocation.clock,
            settings=project.settings.storage,
        )
    except NotInitialized as cause:
        missing = f"The memory of {project.binding.location} is missing: {project.paths.database}"
        raise Corrupt(missing) from cause
    with closing(authority):
        yield authority
