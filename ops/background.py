"""The queue as people's tools see it: opened for reading, projects by name, the day's budget.

Owns the read-only way into the queue's file, the write way for what a person asks, and the names of
projects (their folders). Reading takes no write lock and decodes nothing that a job holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ops.invocation import Invocation
from ops.output import duration
from storage.config import ModelSettings
from storage.errors import MemorydError, NotInitialized, Refused
from storage.projects import bindings

if TYPE_CHECKING:
    import apsw

    from storage.budget import BudgetView
    from storage.queue import JobQueue

WHOLE_HOME = "whole home"


@contextmanager
def queue_reader(invocation: Invocation) -> Iterator[apsw.Connection]:
    """The queue's file for reading.

    Raises:
        NotInitialized: this home has no queue yet.
        Corrupt, NewerSchema, Unavailable: it cannot be read.
    """
    from storage.queue_file import open_queue_reader

    _require_queue(invocation)
    db = open_queue_reader(invocation.paths)
    try:
        yield db
    finally:
        db.close()


@contextmanager
def queue_desk(invocation: Invocation) -> Iterator[JobQueue]:
    """The queue, for what a person does to it.

    Raises:
        NotInitialized: this home has no queue yet.
        Busy, Corrupt, NewerSchema, Unavailable: it cannot be changed now.
    """
    from storage.queue import open_queue

    _require_queue(invocation)
    queue = open_queue(invocation.paths, clock=invocation.clock)
    try:
        yield queue
    finally:
        queue.close()


def _require_queue(invocation: Invocation) -> None:
    if not invocation.paths.queue.exists():
        raise NotInitialized(f"There is no queue in {invocation.paths.home} yet.")


def budget_today(invocation: Invocation, scope: str = "all") -> BudgetView:
    """Today's window of one scope.

    Raises:
        NotInitialized: there is no queue yet.
    """
    from storage.budget import BudgetReader
    from storage.config import load_settings

    settings = load_settings(invocation.paths, invocation.environment)
    with queue_reader(invocation) as db:
        return BudgetReader(lambda: db, invocation.clock, settings.budget).today(scope)


def cost_line(model: ModelSettings, view: BudgetView | None, now: int) -> str:
    """What background work costs today, in one line."""
    if model.provider == "none":
        return "none, no language model is configured"
    if view is None:
        return f"nothing spent yet on {model.name or 'the model'}"
    held = f" ({view.calls_held:,} being asked)" if view.calls_held else ""
    calls = f"{view.calls_used:,} of {view.calls_limit:,} calls"
    tokens = f"{view.tokens_used:,} of {view.tokens_limit:,} tokens"
    return f"used {calls}, {tokens} today{held}; resets in {duration(view.reset_at - now)}"


@dataclass(frozen=True, slots=True)
class Projects:
    """The bound folders of a home, to name a memory by its folder and to find it again."""

    folders: Mapping[str, tuple[Path, ...]]

    def name(self, project: str) -> str:
        """The folder's name, with its parent where two folders share one."""
        if not project:
            return WHOLE_HOME
        places = self.folders.get(project)
        if not places:
            return project
        place = places[0]
        shared = Counter(found[0].name for found in self.folders.values() if found)
        return str(Path(place.parent.name) / place.name) if shared[place.name] > 1 else place.name

    def chosen(self, wanted: str) -> str:
        """The memory meant by a folder's path, a folder's name, or an id (or how it begins).

        Raises:
            Refused: none is, or several are.
        """
        path = Path(wanted).expanduser()
        if path.is_dir():
            place = path.resolve()
            holders = [
                project
                for project, places in self.folders.items()
                if any(place == folder or folder in place.parents for folder in places)
            ]
            if holders:
                return max(holders, key=lambda one: len(str(self.folders[one][0])))
        found = [
            project
            for project, places in self.folders.items()
            if wanted == self.name(project) or any(place.name == wanted for place in places)
        ] or [project for project in self.folders if project.startswith(wanted)]
        if len(found) != 1:
            several = (
                f"{wanted} means several projects" if found else f"There is no project {wanted}"
            )
            raise Refused(f"{several}: see `ops project list`.")
        return found[0]


def projects_of(invocation: Invocation) -> Projects:
    """Names of every memory; ids stand in where the registry cannot be read."""
    folders: dict[str, tuple[Path, ...]] = {}
    try:
        for binding in bindings(invocation.paths):
            known = folders.get(binding.project_id, ())
            folders[str(binding.project_id)] = (*known, binding.location)
    except MemorydError:
        return Projects({})
    return Projects(folders)
