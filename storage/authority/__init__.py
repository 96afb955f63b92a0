"""The store that decides: one authority per project, in a compact or an indexed container.

`open_authority` is the way in. What it returns routes every call to the container that the file's
mode marker names now, so a promotion by any process is followed at the next access, and promotes by
itself when a batch would overfill the compact container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import apsw

from storage.atomic import file_lock, sync_directory
from storage.authority import marker
from storage.authority.compact import CompactContainer
from storage.authority.image import Image
from storage.authority.payloads import job_applied
from storage.authority.port import Appended, Authority, Container, Problem, VerifyReport
from storage.authority.reads import Reads, Stats
from storage.clock import Clock
from storage.config import StorageSettings
from storage.connection import (
    BUSY_TIMEOUT_MS,
    damage_named,
    open_database,
    private_directory,
    transaction,
)
from storage.errors import CapacityExceeded, NotInitialized, Unavailable
from storage.events import Event, EventDraft
from storage.paths import ProjectPaths
from storage.records import Collection, JobStamp, ProjectId
from storage.schema import current_version, schema_version

if TYPE_CHECKING:
    from storage.authority.indexed import IndexedContainer

__all__ = [
    "Appended",
    "Authority",
    "Container",
    "Problem",
    "ProjectAuthority",
    "Reads",
    "Stats",
    "VerifyReport",
    "open_authority",
]

T = TypeVar("T")
AnyContainer: TypeAlias = "CompactContainer | IndexedContainer"


def open_authority(
    paths: ProjectPaths,
    project: ProjectId,
    *,
    clock: Clock,
    settings: StorageSettings,
    create: bool = False,
    create_container: Container = "compact",
    busy_ms: int = BUSY_TIMEOUT_MS,
) -> ProjectAuthority:
    """The project's authority; only `create` makes one that is not there.

    Raises:
        NotInitialized: there is none.
        WrongOwner, NewerSchema, Corrupt: the file is not usable, and was left as it is.
        Unavailable, Busy
    """
    if create:
        _create(paths, project, create_container, busy_ms)
    elif not paths.database.exists():
        raise NotInitialized
    for folder in (paths.root, paths.memory):
        if folder.is_symlink():
            raise Unavailable(f"{folder.name}: a link stands where a folder of ours belongs")
    return ProjectAuthority(paths, project, clock=clock, settings=settings, busy_ms=busy_ms)


def _create(paths: ProjectPaths, project: ProjectId, container: Container, busy_ms: int) -> None:
    private_directory(paths.root)
    private_directory(paths.memory)
    db = open_database(paths.database, create=True, busy_ms=busy_ms, shrinkable=True)
    try:
        if marker.exists(db):
            return
        with transaction(db):
            if marker.exists(db):
                return
            db.execute(marker.CREATE_MARKER)
            if container == "compact":
                marker.insert_compact(db, project, Image.empty().pack())
            else:
                from storage.authority import promote

                promote.make_tables(db)
                marker.insert_indexed(db, project)
    finally:
        db.close(True)
    sync_directory(paths.memory)
    sync_directory(paths.root)
    sync_directory(paths.root.parent)


class ProjectAuthority:
    """One open authority (the port `Authority`); use from one thread."""

    def __init__(
        self,
        paths: ProjectPaths,
        project: ProjectId,
        *,
        clock: Clock,
        settings: StorageSettings,
        busy_ms: int,
    ) -> None:
        self._paths = paths
        self._project = project
        self._clock = clock
        self._settings = settings
        self._busy_ms = busy_ms
        db = open_database(paths.database, busy_ms=busy_ms)
        try:
            found = marker.header(db, project)
            self._open = self._compact(db) if found.mode == marker.COMPACT else self._indexed(db)
        except BaseException:
            db.close(True)
            raise

    @property
    def project(self) -> ProjectId:
        return self._project

    @property
    def container(self) -> Container:
        return "compact" if isinstance(self._current(), CompactContainer) else "indexed"

    def append(
        self,
        drafts: Sequence[EventDraft],
        *,
        stamp: JobStamp | None = None,
        guard: Callable[[], None] | None = None,
    ) -> Appended:
        """See the port. A batch of nothing but a stamp is recorded as `job.applied`."""
        if not drafts and stamp is None:
            return Appended(generation=self.generation(), events=0, applied=True)
        batch = drafts or (job_applied(),)
        return self._change(lambda store: store.append(batch, stamp=stamp, guard=guard))

    def store_vectors(
        self,
        collection: Collection,
        rows: Sequence[tuple[int, bytes]],
        *,
        stamp: JobStamp | None = None,
        guard: Callable[[], None] | None = None,
    ) -> int:
        """See the port."""
        return self._change(
            lambda store: store.store_vectors(collection, rows, stamp=stamp, guard=guard)
        )

    @contextmanager
    def read(self) -> Iterator[Reads]:
        """See the port."""
        with ExitStack() as stack:
            yield self._routed(lambda store: stack.enter_context(store.read()))

    def generation(self) -> int:
        """See the port."""
        return self._open.header().revision

    @contextmanager
    def snapshot(self) -> Iterator[tuple[Reads, Iterator[Event]]]:
        """See the port."""
        with ExitStack() as stack:
            yield self._routed(lambda store: stack.enter_context(store.snapshot()))

    def erase(self, needles: Sequence[str]) -> None:
        """See the port."""
        self._routed(lambda store: store.erase(needles))

    def erased(self) -> None:
        """See the port."""
        self._routed(lambda store: store.erased())

    def verify(self) -> VerifyReport:
        """See the port."""
        with damage_named("memory.sqlite"):
            return self._routed(lambda store: store.verify())

    def replay(self) -> int:
        """See the port."""
        return self._routed(lambda store: store.replay())

    def pack(self) -> tuple[int, int]:
        """See the port; nothing is packed while a backup, a repair or a forgetting is at work."""
        with file_lock(self._paths.memory / "maintenance.lock"):
            return self._routed(lambda store: store.pack())

    def rebuild(self) -> int:
        """See the port; one rebuild a project at a time."""
        with file_lock(self._paths.memory / "rebuild.lock"):
            return self._routed(lambda store: store.rebuild())

    def promote(self) -> None:
        """See the port."""
        store = self._current()
        if isinstance(store, CompactContainer):
            from storage.authority import promote

            db, load = store.promotable()
            # When another process did it meanwhile, that is the wanted state.
            with suppress(marker.ContainerChanged):
                promote.promote(db, load, self._paths, self._project)
            self._current()

    def close(self) -> None:
        """See the port."""
        self._open.release().close(True)

    def _change(self, call: Callable[[AnyContainer], T]) -> T:
        try:
            return self._routed(call)
        except CapacityExceeded:
            self.promote()
            return self._routed(call)

    def _routed(self, call: Callable[[AnyContainer], T]) -> T:
        try:
            return call(self._current())
        except marker.ContainerChanged:
            return call(self._current())

    def _current(self) -> AnyContainer:
        """The container that the mode marker names now."""
        if isinstance(self._open, CompactContainer):
            found = self._open.header()
            if found.mode == marker.INDEXED:
                self._open = self._indexed(self._open.release())
        return self._open

    def _compact(self, db: apsw.Connection) -> AnyContainer:
        return CompactContainer(
            db, self._paths, self._project, clock=self._clock, settings=self._settings
        )

    def _indexed(self, db: apsw.Connection) -> AnyContainer:
        # Here, not above: a prompt hook over a compact store need not pay for the journal.
        from storage.authority.indexed import IndexedContainer

        if schema_version(db) < current_version("memory"):
            from storage.authority.upgrade import upgrade

            upgrade(db, self._paths, self._project, self._clock.now_ms())
        return IndexedContainer(
            db, self._paths, self._project, clock=self._clock, busy_ms=self._busy_ms
        )
