"""What every verb gets: the home, the environment, the clock, a folder, and how to speak.

Owns the options that all verbs share (`--home`, `--project`, `--json`) and the one way to find the
project a verb is about. Reading verbs create nothing: only `ops init` binds a folder.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from storage.clock import Clock, SystemClock
from storage.paths import HomePaths, home_directory

Command = TypeVar("Command", bound=Callable[..., Any])  # Any: click calls it with its options


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """One run of one verb."""

    paths: HomePaths
    environment: Mapping[str, str] = field(repr=False)
    clock: Clock
    folder: Path
    """The folder whose project is meant: --project, else the current one."""
    as_json: bool


@dataclass(slots=True)
class _Chosen:
    """Shared options as given before the verb; those after the verb win."""

    home: str | None = None
    as_json: bool = False


def remember_globals(context: click.Context, home: str | None, as_json: bool) -> None:
    """Keep what stood before the verb until the verb asks."""
    context.obj = _Chosen(home, as_json)


def shared_options(*, project: bool = False) -> Callable[[Command], Command]:
    """Adds --home, --json and, where `project`, --project; the verb gets an `Invocation` first."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(
            home: str | None, as_json: bool, project: str | None = None, **options: object
        ) -> object:
            before = click.get_current_context().find_object(_Chosen) or _Chosen()
            invocation = invoked(
                home=home or before.home, as_json=as_json or before.as_json, project=project
            )
            return command(invocation, **options)

        found: Any = run  # Any: click's decorators change the type
        if project:
            found = click.option(
                "--project",
                metavar="DIR",
                help="The project's folder.  [default: the current folder]",
            )(found)
        found = click.option("--json", "as_json", is_flag=True, help="One JSON object.")(found)
        found = click.option("--home", metavar="DIR", help="Where memory lives.")(found)
        return cast("Command", found)

    return decorate


def invoked(*, home: str | None, as_json: bool, project: str | None = None) -> Invocation:
    """The invocation this process is."""
    environment = dict(os.environ)
    folder = Path(project).expanduser() if project else Path.cwd()
    if not folder.is_dir():
        raise click.UsageError(f"--project: {folder} is not a folder.")
    return Invocation(
        paths=HomePaths(home_directory(home, environment)),
        environment=environment,
        clock=SystemClock(),
        folder=folder.absolute(),
        as_json=as_json,
    )
