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
                home=before.home if home is None else home,
                as_json=as_json or before.as_json,
                project=project,
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
    paths = HomePaths(_home(home, environment))
    # `Path.expanduser` raises for a user that does not exist.
    folder = Path(os.path.expanduser(project)) if project else Path.cwd()  # noqa: PTH111
    if project == "" or not folder.is_dir():
        raise click.UsageError(f"--project: {folder if project else 'it'} is not a folder.")
    return Invocation(
        paths=paths,
        environment=environment,
        clock=SystemClock(),
        folder=folder.absolute(),
        as_json=as_json,
    )


def _home(home: str | None, environment: Mapping[str, str]) -> Path:
    """Where memory lives.

    Raises:
        UsageError: the place is no place: empty, of an unknown user, not absolute, not UTF-8.
    """
    if home is not None and not home.strip():
        raise click.UsageError("--home: name a folder; leave the option out for the default one.")
    chosen = home or environment.get("PI_MEMORY_HOME") or environment.get("PRJCT_HOME")
    if not chosen and not Path(environment.get("HOME") or "/").is_absolute():
        raise click.UsageError(
            f"HOME is {environment['HOME']}, which is not absolute: correct it, or add --home."
        )
    try:
        found = home_directory(home, environment)
        os.fspath(found).encode("utf-8")
    except UnicodeEncodeError:
        raise click.UsageError("The home's path is not UTF-8: choose another --home.") from None
    except RuntimeError:
        raise click.UsageError(f"The home is {chosen}, and there is no such user.") from None
    return found
