"""What a job is, as values: what enqueuers ask for and what people inspect.

A task is a body, a job is one run of it. States: available (a later `run_at` means later), leased,
completed, cancelled, discarded, dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from storage.records import JsonValue, ProjectId

MESSAGE_VERSION = 1
MAX_MESSAGE_BYTES = 262_144


class JobKind(StrEnum):
    """Closed list of tasks."""

    SYNC = "sync"
    ANALYZE = "analyze"
    EMBED = "embed"
    TRANSLATE = "translate"
    CONSOLIDATE = "consolidate"
    GC = "gc"
    CHECKPOINT = "checkpoint"
    BACKUP = "backup"
    VERIFY = "verify"
    ROLLUP = "rollup"
    MAINTENANCE = "maintenance"


HOME_KINDS: Final = frozenset({JobKind.CHECKPOINT, JobKind.ROLLUP, JobKind.MAINTENANCE})
"""Work on the whole home, for no project."""


class Priority(IntEnum):
    """Classes of work, most urgent highest."""

    MAINTENANCE = 10
    BULK = 20
    CORRECTION = 30
    INTERACTIVE = 40


CLASSES: Final[Mapping[str, Priority]] = MappingProxyType(
    {priority.name.lower(): priority for priority in Priority}
)


def class_name(priority: int) -> str:
    """The class that a priority belongs to."""
    least = min(CLASSES.values())
    return max(
        (found for found in CLASSES.items() if found[1] <= max(priority, least)),
        key=lambda found: found[1],
    )[0]


class JobState(StrEnum):
    """Where a job stands."""

    AVAILABLE = "available"
    LEASED = "leased"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What to enqueue.

    At most one job per (kind, project, subject) waits and at most one runs: enqueuing while one
    waits joins it, enqueuing while one runs makes exactly one follow-up.
    """

    kind: JobKind
    project: ProjectId
    """"" for work on the whole home."""
    subject: str = ""
    args: Mapping[str, JsonValue] = field(default_factory=dict)
    priority: Priority = Priority.BULK
    run_at: int | None = None
    """UTC ms of the earliest start; None = now."""

    @property
    def key(self) -> str:
        return f"{self.kind.value}|{self.project}|{self.subject}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as people see it; nothing in it was executed or decoded into code."""

    job_id: str
    kind: str
    project: str
    subject: str
    state: JobState
    priority: int
    run_at: int
    enqueued_at: int
    attempt: int
    crashes: int
    owner: str
    waiting_for: str
    """Why it waits, in a word: "", retry, budget, model, paused."""
    error: str
    finished_at: int | None
