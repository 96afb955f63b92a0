"""Bound folders as people and programs read them.

Owns the two forms of a binding; leaves binding to `storage.projects`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ops.output import moment, moment_json
from storage.paths import HomePaths
from storage.places import same_folder
from storage.projects import Binding
from storage.records import JsonValue


def binding_json(paths: HomePaths, binding: Binding) -> dict[str, JsonValue]:
    """One bound folder for programs."""
    repository = binding.repository
    return {
        "project": binding.project_id,
        "folder": str(binding.location),
        "there": binding.location.is_dir(),
        "database": paths.project(binding.project_id).database.exists(),
        "source": binding.source,
        "bound_at": moment_json(binding.created_at),
        "remote": repository.remote if repository else "",
        "root_commits": list(repository.roots) if repository else [],
        "subfolder": repository.subfolder if repository else "",
        "former": [str(place) for place in binding.former],
    }


def released_json(binding: Binding, memory: Path, users: Sequence[Binding]) -> dict[str, JsonValue]:
    """A released folder for programs."""
    return {
        "ok": True,
        "project": binding.project_id,
        "folder": str(binding.location),
        "memory": str(memory),
        "folders": [str(item.location) for item in users],
    }


def folder_of(binding: Binding) -> tuple[str, str, str]:
    """Remote, first commit and day of binding, for a table."""
    repository = binding.repository
    root = repository.roots[0][:12] if repository and repository.roots else ""
    return (repository.remote if repository else "", root, moment(binding.created_at))


def told(there: bool) -> str:
    """What to add to a folder's name when it is gone."""
    return "" if there else " (not there any more)"


def located(binding: Binding, folder: Path) -> bool:
    """Whether a binding is this very folder's, however it is spelled."""
    place = folder.resolve()
    return binding.location == place or same_folder(str(binding.location), str(place))
