"""What a task body gets, and what it gives back.

A body is `run(context, args) -> Finished`. It may run twice (at-least-once execution), so its whole
effect is one authority commit stamped with the job: exactly-once effect. It raises from
`storage.errors`; the class decides what happens next, and nobody but `tasks.lease` maps it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from storage.clock import Clock
from storage.config import Settings
from storage.jobs import JobSpec
from storage.paths import HomePaths, ProjectPaths
from storage.records import JobStamp, JsonValue, ProjectId

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from storage.authority.port import Authority
    from tasks.llm import LanguageModel


class Lease(Protocol):
    """The right to run one job now."""

    @property
    def stamp(self) -> JobStamp:
        """Job id and fencing token, for the authority."""
        ...

    def check(self) -> None:
        """Ask before each irreversible step.

        Raises:
            LeaseLost: the lease ended, or somebody else holds it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything a body may use; nothing is global."""

    paths: HomePaths
    environment: Mapping[str, str]
    settings: Settings
    clock: Clock
    project: ProjectId
    lease: Lease
    open_authority: Callable[[], Authority]
    """The project's authority, opened for this thread; the caller of the body closes it."""
    model: Callable[[], LanguageModel]
    """The budgeted model (the only road to one). Raises MissingModel when none is configured."""
    encoder: Callable[[], Encoder | None]
    """The process's shared encoder; None when it is switched off."""

    @property
    def project_paths(self) -> ProjectPaths:
        return self.paths.project(self.project)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The body's result: acknowledged together with its successors, in one transaction."""

    successors: tuple[JobSpec, ...] = ()
    note: str = ""
    """A few words and counts for people; never memory text."""


Body = Callable[[Context, Mapping[str, JsonValue]], Finished]
