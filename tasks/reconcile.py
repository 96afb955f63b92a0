"""Level-triggered repair: look at what is there, and enqueue the work that is missing.

Events may be lost (a queue deleted, a crash between an effect and its successors); states are not.
A project whose store did not change since it was last found complete costs two `stat` calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage.clock import Clock
from storage.config import EncoderSettings, Settings, load_settings
from storage.errors import MemorydError
from storage.jobs import JobKind, JobSpec
from storage.log import get_logger
from storage.paths import HomePaths
from storage.queue import JobQueue
from storage.records import ProjectId

Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What a store still needs."""

    vectors: bool
    translations: bool


Inspect = Callable[[ProjectId, Settings], Missing]


def bound_projects(paths: HomePaths) -> tuple[ProjectId, ...]:
    """Every project of the home, once each: several folders may share one."""
    from storage.projects import bindings

    return tuple(dict.fromkeys(binding.project_id for binding in bindings(paths)))


class Reconciler:
    """Compares stores with jobs, project by project."""

    def __init__(
        self,
        queue: JobQueue,
        paths: HomePaths,
        environment: Mapping[str, str],
        clock: Clock,
        projects: Callable[[], Sequence[ProjectId]],
        *,
        inspect: Inspect | None = None,
    ) -> None:
        self._queue = queue
        self._paths = paths
        self._environment = environment
        self._projects = projects
        self._inspect = inspect or StoreInspector(paths, clock)
        self._complete: dict[ProjectId, tuple[Stamp, EncoderSettings]] = {}
        """What a store was, and which encoder was in use, when nothing was missing."""

    def run(self) -> int:
        """Enqueue what is missing; returns the jobs asked for."""
        specs: list[JobSpec] = []
        for project in self._projects():
            try:
                specs += self._look(project)
            except MemorydError as cause:
                # One broken store must not stop the others; its own jobs will say what is wrong.
                get_logger().warning(
                    "reconcile.failed", project=project, error=type(cause).__name__
                )
        if specs:
            self._queue.enqueue(specs)
            get_logger().info("reconcile.enqueued", jobs=len(specs))
        return len(specs)

    def _look(self, project: ProjectId) -> list[JobSpec]:
        stamp = _stamp(self._paths.project(project).database)
        settings = load_settings(self._paths, self._environment, self._paths.project(project))
        if settings.model.provider != "none":
            self._queue.release_waiting("model", project)
        seen = (stamp, settings.encoder)
        if not stamp or self._complete.get(project) == seen:
            return []
        missing = self._inspect(project, settings)
        if not (missing.vectors or missing.translations):
            self._complete[project] = seen
            return []
        wanted = [
            (JobKind.EMBED, missing.vectors and settings.encoder.provider != "none"),
            (JobKind.TRANSLATE, missing.translations and settings.model.provider != "none"),
        ]
        return [
            JobSpec(kind=kind, project=project)
            for kind, is_wanted in wanted
            if is_wanted and not self._queue.has_open(kind, project)
        ]


class StoreInspector:
    """Looks into a project's authority."""

    def __init__(self, paths: HomePaths, clock: Clock) -> None:
        self._paths = paths
        self._clock = clock

    def __call__(self, project: ProjectId, settings: Settings) -> Missing:
        from retrieval.encoders import shared_encoder
        from storage.authority import open_authority
        from tasks.embed import lacks_vectors

        encoder = shared_encoder(settings.encoder)
        authority = open_authority(
            self._paths.project(project), project, clock=self._clock, settings=settings.storage
        )
        try:
            with authority.read() as reads:
                return Missing(
                    vectors=encoder is not None and lacks_vectors(reads, encoder),
                    translations=bool(reads.deferred()),
                )
        finally:
            authority.close()


def _stamp(path: Path) -> Stamp:
    found = []
    for name in (path, path.with_name(path.name + "-wal")):
        try:
            info = name.stat()
        except OSError:
            continue
        found.append((info.st_mtime_ns, info.st_size))
    return tuple(found)
