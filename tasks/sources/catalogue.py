"""Which adapters a project has: our own log always, the hosts' transcripts as the settings say."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from storage.config import SourceSettings
from storage.paths import HomePaths
from storage.projects import bindings
from storage.records import ProjectId
from tasks.sources import Checkouts, SourceAdapter
from tasks.sources.claude import ClaudeSource
from tasks.sources.pi import PiSource
from tasks.sources.session_log import SessionLogSource


def adapters(
    paths: HomePaths,
    project: ProjectId,
    environment: Mapping[str, str],
    settings: SourceSettings,
) -> dict[str, SourceAdapter]:
    """The enabled adapters by name.

    Raises:
        Corrupt, Unavailable: the registry of checkouts cannot be read.
    """
    limit = settings.max_line_bytes
    checkouts = checkouts_of(paths, project)
    found: list[SourceAdapter] = [SessionLogSource(paths.project(project), max_line_bytes=limit)]
    if settings.pi:
        found.append(PiSource(pi_sessions(environment, settings), checkouts, max_line_bytes=limit))
    if settings.claude:
        found.append(
            ClaudeSource(claude_projects(environment, settings), checkouts, max_line_bytes=limit)
        )
    return {adapter.name: adapter for adapter in found}


def checkouts_of(paths: HomePaths, project: ProjectId) -> Checkouts:
    """The project's checkouts, and everybody else's as foreign.

    Where a checkout stood before it moved counts until something stands there again.
    """
    known = bindings(paths)
    own = [item for item in known if item.project_id == project]
    left = [place for item in own for place in item.former if not place.exists()]
    return Checkouts(
        roots=tuple(str(place) for place in (*(item.location for item in own), *left)),
        foreign=tuple(str(item.location) for item in known if item.project_id != project),
    )


def pi_sessions(environment: Mapping[str, str], settings: SourceSettings) -> Path:
    """Where Pi keeps its sessions."""
    for chosen in (settings.pi_sessions, environment.get("PI_CODING_AGENT_SESSION_DIR")):
        if chosen:
            return _path(chosen, environment)
    agent = environment.get("PI_CODING_AGENT_DIR")
    return (_path(agent, environment) if agent else _home(environment) / ".pi/agent") / "sessions"


def claude_projects(environment: Mapping[str, str], settings: SourceSettings) -> Path:
    """Where Claude Code keeps its projects."""
    if settings.claude_projects:
        return _path(settings.claude_projects, environment)
    config = environment.get("CLAUDE_CONFIG_DIR")
    return (_path(config, environment) if config else _home(environment) / ".claude") / "projects"


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("HOME") or Path.home())


def _path(text: str, environment: Mapping[str, str]) -> Path:
    if text == "~" or text.startswith("~/"):
        return _home(environment) / text[2:]
    return Path(os.path.normpath(text))
