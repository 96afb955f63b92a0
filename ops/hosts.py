"""The agent hosts on this machine: where they keep their settings, and how they are connected.

Owns finding the agents' own folders and the command lines written into them (absolute interpreter,
isolated, this home). Leaves what stands in those folders to `hooks.hosts.install`.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from storage.connection import private_directory
from storage.paths import HomePaths

HostName = Literal["pi", "claude"]
HOSTS: tuple[HostName, ...] = get_args(HostName)
TITLES: Mapping[HostName, str] = {"pi": "Pi", "claude": "Claude Code"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """One agent host on this machine."""

    name: HostName
    program: str
    """The agent's program on PATH, "" when there is none."""
    folder: Path
    """The agent's own folder."""
    target: Path
    """What `ops host install` makes in it."""

    @property
    def connected(self) -> bool:
        return self.target.is_dir()


def agent_folder(name: HostName, environment: Mapping[str, str]) -> Path:
    """Where the agent keeps a user's settings."""
    variable, default = {
        "pi": ("PI_CODING_AGENT_DIR", ".pi/agent"),
        "claude": ("CLAUDE_CONFIG_DIR", ".claude"),
    }[name]
    chosen = environment.get(variable)
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(environment.get("HOME") or Path.home()).absolute() / default


def host_states(environment: Mapping[str, str]) -> list[HostState]:
    """Every host that memoryd knows."""
    from hooks.hosts.install import claude_target, pi_target

    targets = {"pi": pi_target, "claude": claude_target}
    found = []
    for name in HOSTS:
        folder = agent_folder(name, environment)
        program = shutil.which(name, path=environment.get("PATH", "")) or ""
        found.append(
            HostState(name=name, program=program, folder=folder, target=targets[name](folder))
        )
    return found


def fallback_argv(paths: HomePaths) -> list[str]:
    """The command that answers one prompt when no server does.

    It names where our modules and the two that they need are, for a client whose interpreter is
    already there and looks nowhere else.
    """
    event = ("claude", "UserPromptSubmit")
    argv = [sys.executable, "-I", "-m", "hooks", *event, "--home", str(paths.home)]
    for folder in dict.fromkeys(_folder_of(name) for name in ("hooks", "apsw", "brotli")):
        argv += ["--path", folder]
    return argv


def _folder_of(module: str) -> str:
    """The folder on the import path that a module was found in."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin)
    return str(file.parent.parent if spec.submodule_search_locations else file.parent)


def connect(name: HostName, paths: HomePaths, environment: Mapping[str, str]) -> Path:
    """Install or refresh the adapter of one host; returns the folder it made."""
    from hooks.hosts.install import install_claude, install_pi
    from hooks.recall_client import server_argv

    private_directory(paths.shared)
    folder = agent_folder(name, environment)
    if name == "pi":
        return install_pi(folder, socket=paths.socket, server_argv=server_argv(paths))
    return install_claude(
        folder,
        socket=paths.socket,
        interpreter=Path(sys.executable),
        server_argv=server_argv(paths),
        fallback_argv=fallback_argv(paths),
    )


def disconnect(name: HostName, environment: Mapping[str, str]) -> bool:
    """Remove the adapter of one host; False when there was none."""
    from hooks.hosts.install import uninstall_claude, uninstall_pi

    folder = agent_folder(name, environment)
    return uninstall_pi(folder) if name == "pi" else uninstall_claude(folder)
