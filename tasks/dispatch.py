"""From a kind of job to its body, and from a lease to everything that the body may use.

Bodies are imported when they first run: a worker that only syncs never loads an encoder. Settings
are looked at for every job, so a change needs no restart.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from storage.budget import BudgetLedger
from storage.clock import Clock
from storage.config import Settings, load_settings
from storage.errors import UnknownJob
from storage.jobs import JobKind, class_name
from storage.leases import ClaimedJob
from storage.paths import HomePaths
from storage.queue import JobQueue
from storage.queue_message import decode_args
from storage.records import ProjectId
from tasks.context import Body, Context, Lease
from tasks.lease import ActiveLease, Done

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from storage.authority.port import Authority
    from tasks.llm import LanguageModel


BATCH_S: Final = 90.0
"""What one batch of texts may take in the encoder's process before it counts as hung."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a kind's body is, and how long one run may take before it counts as hung."""

    body: str | Body
    """`module:function`, or the function itself."""
    max_runtime_ms: int


MINUTE_MS: Final = 60_000
ROUTES: Final[Mapping[JobKind, Route]] = MappingProxyType(
    {
        JobKind.SYNC: Route("tasks.sync:run", 30 * MINUTE_MS),
        JobKind.ANALYZE: Route("tasks.analyze:run", 10 * MINUTE_MS),
        JobKind.EMBED: Route("tasks.embed:run", 60 * MINUTE_MS),
        JobKind.TRANSLATE: Route("tasks.translate:run", 10 * MINUTE_MS),
        JobKind.CONSOLIDATE: Route("tasks.consolidate:run", 30 * MINUTE_MS),
        JobKind.GC: Route("tasks.gc:run", 30 * MINUTE_MS),
        JobKind.CHECKPOINT: Route("tasks.checkpoint:run", 10 * MINUTE_MS),
        JobKind.BACKUP: Route("tasks.backup:run", 60 * MINUTE_MS),
        JobKind.VERIFY: Route("tasks.verify:run", 60 * MINUTE_MS),
        JobKind.ROLLUP: Route("tasks.rollup:run", 10 * MINUTE_MS),
        JobKind.MAINTENANCE: Route("tasks.maintenance:run", 30 * MINUTE_MS),
    }
)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """Settings, and the files as they were when these were read."""

    files: tuple[str, ...]
    seen: tuple[object, ...]
    settings: Settings


class Dispatch:
    """The table of bodies and what they get."""

    def __init__(
        self,
        queue: JobQueue,
        paths: HomePaths,
        environment: Mapping[str, str],
        clock: Clock,
        *,
        routes: Mapping[JobKind, Route] = ROUTES,
    ) -> None:
        self._queue = queue
        self._paths = paths
        self._environment = environment
        self._clock = clock
        self._routes = routes
        self._runtimes = {kind.value: route.max_runtime_ms for kind, route in routes.items()}
        self._loaded: dict[ProjectId, _Loaded] = {}

    def max_runtime_ms(self, kind: str) -> int:
        """How long a run of this kind may take; kinds that are not ours get an hour."""
        return self._runtimes.get(kind, 60 * MINUTE_MS)

    def run(self, job: ClaimedJob, lease: ActiveLease) -> Done:
        """Run the body of a claimed job.

        Raises:
            UnknownJob: no body for this kind, or a message of another version.
            Whatever the body raises.
        """
        args = decode_args(job.message)
        body = self._body(job.kind)
        with self._context(job, lease) as context:
            finished = body(context, args)
        return Done(successors=finished.successors, note=finished.note)

    def _body(self, kind: str) -> Body:
        try:
            route = self._routes[JobKind(kind)]
        except (ValueError, KeyError) as cause:
            raise UnknownJob(f"no body is registered for jobs of kind {kind!r}") from cause
        if not isinstance(route.body, str):
            return route.body
        module, _, name = route.body.partition(":")
        return cast("Body", getattr(import_module(module), name))

    @contextmanager
    def _context(self, job: ClaimedJob, lease: Lease) -> Iterator[Context]:
        project = ProjectId(job.project)
        settings = self._settings(project)
        opened: list[Authority] = []
        try:
            yield Context(
                paths=self._paths,
                environment=self._environment,
                settings=settings,
                clock=self._clock,
                project=project,
                lease=lease,
                open_authority=self._opener(project, settings, opened),
                model=self._model(job, settings),
                encoder=lambda: _encoder(settings),
            )
        finally:
            for authority in opened:
                authority.close()

    def _settings(self, project: ProjectId) -> Settings:
        # Parsed again only when a file changed: two `stat` calls a job.
        known = self._loaded.get(project)
        if known is not None and known.seen == tuple(map(_stamp, known.files)):
            return known.settings
        paths = self._paths.project(project) if project else None
        files = [str(self._paths.config), *([str(paths.config)] if paths else [])]
        seen = tuple(map(_stamp, files))
        settings = load_settings(self._paths, self._environment, paths)
        self._loaded[project] = _Loaded(tuple(files), seen, settings)
        return settings

    def _opener(
        self, project: ProjectId, settings: Settings, opened: list[Authority]
    ) -> Callable[[], Authority]:
        def open_once() -> Authority:
            from storage.authority import open_authority

            if not opened:
                opened.append(
                    open_authority(
                        self._paths.project(project),
                        project,
                        clock=self._clock,
                        settings=settings.storage,
                    )
                )
            return opened[0]

        return open_once

    def _model(self, job: ClaimedJob, settings: Settings) -> Callable[[], LanguageModel]:
        def build() -> LanguageModel:
            from storage.circuits import Breaker
            from tasks.llm import Purpose, budgeted_model

            # Shared by all projects, so its limits are the home's, never one project's.
            home = self._settings(ProjectId(""))
            ledger = BudgetLedger(self._queue.file, self._clock, home.budget)
            return budgeted_model(
                settings.model,
                ledger,
                Breaker(self._queue.file, self._clock),
                self._environment,
                Purpose(
                    kind=job.kind,
                    project=job.project,
                    job_id=job.job_id,
                    work_class=class_name(job.priority),
                ),
            )

        return build


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        info = os.stat(path)  # noqa: PTH116 -- for every job, and half the cost of pathlib's
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size, info.st_ino


def _encoder(settings: Settings) -> Encoder | None:
    from retrieval.encoders import shared_encoder

    return shared_encoder(settings.encoder, isolated_s=BATCH_S)
