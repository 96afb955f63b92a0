"""The project a verb is about, and its memory opened for reading.

Owns the sentence for "no memory here". Reading creates nothing and takes no write lock. Leaves
binding a folder to `ops init`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.invocation import Invocation
from storage.config import Settings, load_settings
from storage.errors import Corrupt, NotInitialized
from storage.paths import ProjectPaths
from storage.projects import Binding, lookup

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
