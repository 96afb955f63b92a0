"""What a prompt is answered with: the project of a folder, its memory, its settings.

`Recaller` is the resident server's; one instance per thread, sharing snapshots and the encoder.
`prompted` is the one place where a recall becomes what a host injects, or only would have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hooks.events import HookOutcome, PromptSubmitted
from hooks.holdings import Holdings
from hooks.receipts import Answered
from retrieval import sqlite_search
from retrieval.render import render
from retrieval.results import Recall, abstained
from storage.config import RecallSettings
from storage.errors import NotInitialized
from storage.records import ProjectId

if TYPE_CHECKING:
    from hooks.snapshots import Snapshots
    from hooks.warming import Warming
    from retrieval.embedding import Encoder
    from retrieval.index import IndexSnapshot
    from storage.authority.reads import Reads
    from storage.clock import Clock
    from storage.paths import HomePaths

FindProject = Callable[["HomePaths", Path], ProjectId | None]
MAX_ITEMS: Final = 50
MAX_BYTES: Final = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question about the memory of the project that a folder belongs to."""

    cwd: str
    query: str
    limit: int | None = None
    """None: as the settings say."""
    max_bytes: int | None = None
    as_of: int | None = None
    expansions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Bounds:
    """Items and bytes of one answer."""

    limit: int
    max_bytes: int


def bounds_of(ask: Ask, settings: RecallSettings) -> Bounds:
    """What was asked for, within what is ever allowed; the settings' where nothing was asked."""
    limit = settings.max_items if ask.limit is None else ask.limit
    size = settings.max_bytes if ask.max_bytes is None else ask.max_bytes
    return Bounds(min(MAX_ITEMS, max(1, limit)), min(MAX_BYTES, max(0, size)))


@dataclass(frozen=True, slots=True)
class Prompted:
    """What a prompt's host gets; and what to write down of it, if anything."""

    outcome: HookOutcome
    answered: Answered | None = None


def prompted(
    project: ProjectId,
    event: PromptSubmitted,
    recall: Recall,
    settings: RecallSettings,
    *,
    at: int,
    by_server: bool,
) -> Prompted:
    """What the host injects: the block, or nothing, as in shadow mode."""
    block = render(recall, max_bytes=settings.max_bytes)
    outcome = HookOutcome(block="" if settings.shadow else block)
    if settings.receipt_days == 0:
        return Prompted(outcome)
    answered = Answered(
        project=project,
        event=event,
        recall=recall,
        at=at,
        block=block,
        shadow=settings.shadow,
        keep_days=settings.receipt_days,
        by_server=by_server,
    )
    return Prompted(outcome, answered)


def bound_project(paths: HomePaths, cwd: Path) -> ProjectId | None:
    """The project that a folder belongs to."""
    from storage.projects import lookup

    if "\0" in str(cwd):
        return None
    binding = lookup(paths, cwd)
    return binding.project_id if binding is not None else None


class Recaller:
    """Answers questions from the resident snapshots. Use from one thread."""

    def __init__(
        self,
        paths: HomePaths,
        *,
        clock: Clock,
        environment: Mapping[str, str],
        snapshots: Snapshots,
        warming: Warming,
        find_project: FindProject = bound_project,
    ) -> None:
        self._paths, self._clock = paths, clock
        self._snapshots, self._warming = snapshots, warming
        self._find_project = find_project
        self.holdings = Holdings(paths, clock, environment)

    def recall(self, ask: Ask) -> Recall:
        """The answer; abstains where there is no memory, or recall is switched off.

        Raises:
            MemorydError: the store or its settings are not usable.
        """
        project = self._project(ask.cwd)
        if project is None:
            return abstained("no memory belongs to this folder")
        settings = self.holdings.settings(project).recall
        if not settings.enabled:
            return abstained("recall is switched off in the settings")
        found = self._recall(project, ask, settings)
        return abstained("this project has no memory yet") if found is None else found

    def room(self, ask: Ask) -> int:
        """Bytes that the block of an answer may take: as asked, else as the project's settings say.

        Raises:
            MemorydError: the settings are not usable.
        """
        project = self._project(ask.cwd)
        settings = RecallSettings() if project is None else self.holdings.settings(project).recall
        return bounds_of(ask, settings).max_bytes

    def prompt(self, event: PromptSubmitted) -> Prompted:
        """What to inject beside a prompt.

        Raises:
            MemorydError: as `recall`.
        """
        project = self._project(event.cwd)
        if project is None:
            return Prompted(HookOutcome())
        settings = self.holdings.settings(project).recall
        if not settings.enabled:
            return Prompted(HookOutcome())
        found = self._recall(project, Ask(cwd=event.cwd, query=event.prompt), settings)
        if found is None:
            return Prompted(HookOutcome())
        return prompted(project, event, found, settings, at=self._clock.now_ms(), by_server=True)

    def prepare(self, cwd: str) -> None:
        """Load what the first prompt of a session will want: the index, and the encoder behind it.

        Only where vectors wait to be used; a folder without memory costs a look-up.

        Raises:
            MemorydError: the store or its settings are not usable.
        """
        project = self._project(cwd)
        if project is None:
            return
        settings = self.holdings.settings(project)
        if not settings.recall.enabled:
            return
        try:
            held = self.holdings.authority(project)
        except NotInitialized:
            return
        encoder = self._warming.encoder(settings.encoder)
        collection = encoder.collection if encoder is not None else None
        with held.authority.read() as reads:
            useful = collection in reads.collections()
        if encoder is not None and useful:
            self._warming.wanted(encoder)
        self._snapshots.current(
            project, held, collection, max_bytes=settings.recall.max_index_bytes
        )

    def _project(self, cwd: str) -> ProjectId | None:
        return self._find_project(self._paths, Path(cwd)) if cwd else None

    def _recall(self, project: ProjectId, ask: Ask, settings: RecallSettings) -> Recall | None:
        """The answer; None when the project has no memory yet."""
        try:
            return self._answer(project, ask, settings)
        except NotInitialized:
            self._snapshots.forget(project)
            return None

    def _answer(self, project: ProjectId, ask: Ask, settings: RecallSettings) -> Recall:
        held = self.holdings.authority(project)
        encoder = self._warming.encoder(self.holdings.settings(project).encoder)
        collection = encoder.collection if encoder is not None else None
        index = self._snapshots.current(
            project, held, collection, max_bytes=settings.max_index_bytes
        )
        with held.authority.read() as reads:
            if index is None:
                generation = held.authority.generation()
                found = self._from_sqlite(reads, ask, settings, generation)
                useful = not self._snapshots.ready and collection in reads.collections()
            else:
                found = self._from_index(index, reads, ask, settings, encoder)
                useful = index.matrix is not None
        if encoder is not None and useful:
            self._warming.wanted(encoder)
        return found

    def _from_index(
        self,
        index: IndexSnapshot,
        reads: Reads,
        ask: Ask,
        settings: RecallSettings,
        encoder: Encoder | None,
    ) -> Recall:
        from retrieval import search

        bounds = bounds_of(ask, settings)
        return search.recall(
            index,
            ask.query,
            reads=reads,
            now_at=self._clock.now_ms(),
            encoder=encoder,
            limit=bounds.limit,
            max_bytes=bounds.max_bytes,
            as_of=ask.as_of,
            expansions=ask.expansions,
        )

    def _from_sqlite(
        self, reads: Reads, ask: Ask, settings: RecallSettings, generation: int
    ) -> Recall:
        bounds = bounds_of(ask, settings)
        found = sqlite_search.recall(
            reads,
            ask.query,
            generation=generation,
            now_at=self._clock.now_ms(),
            limit=bounds.limit,
            max_bytes=bounds.max_bytes,
            as_of=ask.as_of,
            expansions=ask.expansions,
        )
        return found.with_gap("answered without the resident index")

    def close(self) -> None:
        """Close the stores."""
        self.holdings.close()
