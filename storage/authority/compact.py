"""The compact container: the whole authority in one compressed, checksummed row.

A write changes the cached image, packs it, judges its size before the row changes, and replaces the
row under its revision in one FULL commit. A failed write drops the image, so what is cached is
always what is on disk. Reads are answered from the image without decompression. Leaves promotion
to `promote`, which the router calls when the store is full.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import apsw

from storage.authority import history, marker, proof, reduce, tombstones, vector_rows
from storage.authority.image import Image
from storage.authority.payloads import job_applied
from storage.authority.port import Appended, VerifyReport
from storage.authority.reads import Reads
from storage.clock import Clock
from storage.config import StorageSettings
from storage.connection import reclaim, transaction
from storage.errors import Busy, CapacityExceeded
from storage.events import Event, EventDraft
from storage.paths import ProjectPaths
from storage.records import Collection, JobStamp, ProjectId

T = TypeVar("T")
CHECKPOINT_PAGES: Final = 256
"""A commit writes its whole row to the WAL: fold it back after about 1 MiB."""
WAL_REST_BYTES: Final = 1_048_576
MAX_WAL_BYTES: Final = 8_388_608
"""Beyond this, a reader that pins the WAL holds writers back."""


class CompactContainer:
    """One open compact authority; use from one thread."""

    def __init__(
        self,
        db: apsw.Connection,
        paths: ProjectPaths,
        project: ProjectId,
        *,
        clock: Clock,
        settings: StorageSettings,
    ) -> None:
        self._paths = paths
        self._wal = paths.database.with_name(paths.database.name + "-wal")
        self._project = project
        self._clock = clock
        self._settings = settings
        self._db = db
        self._db.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        self._db.pragma("journal_size_limit", WAL_REST_BYTES)
        self._writer = history.new_writer(project)
        self._cached: tuple[int, Image] | None = None

    def append(
        self,
        drafts: Sequence[EventDraft],
        *,
        stamp: JobStamp | None,
        guard: Callable[[], None] | None,
    ) -> Appended:
        """See the port.

        Raises:
            ContainerChanged: promoted by another process meanwhile.
            CapacityExceeded: the result would not fit; nothing was written.
        """
        now = self._clock.now_ms()

        def work(db: apsw.Connection) -> int:
            batch = tombstones.sieve(db, drafts)
            if not batch and stamp is not None:
                batch = [job_applied()]
            sealed = history.seal_batch(db, batch, writer=self._writer, recorded_at=now, job=stamp)
            history.record_sealed(db, sealed, keep_payload=True)
            reduce.apply_all(db, sealed)
            return len(sealed)

        generation, count = self._write(work, stamp, guard)
        return Appended(generation=generation, events=count or 0, applied=count is not None)

    def store_vectors(
        self,
        collection: Collection,
        rows: Sequence[tuple[int, bytes]],
        *,
        stamp: JobStamp | None,
        guard: Callable[[], None] | None,
    ) -> int:
        """See the port."""
        now = self._clock.now_ms()

        def work(db: apsw.Connection) -> int:
            vector_rows.add_collection(db, collection, now)
            fresh = vector_rows.store(db, collection, rows)
            if stamp is not None:
                history.mark_applied(db, stamp, now)
            return fresh

        return self._write(work, stamp, guard)[1] or 0

    @contextmanager
    def read(self) -> Iterator[Reads]:
        """The image of the current revision; a later write copies it rather than change it."""
        image = self._image()
        image.readers += 1
        try:
            yield Reads(image.db)
        finally:
            image.readers -= 1

    def header(self) -> marker.Header:
        """Mode and revision as they are on disk now."""
        return marker.header(self._db, self._project)

    def verify(self) -> VerifyReport:
        """Prove the row as it is on disk, whatever is cached."""
        image = self._load()[1]
        return proof.prove(image.db, history.events(image.db), [])

    @contextmanager
    def snapshot(self) -> Iterator[tuple[Reads, Iterator[Event]]]:
        """One moment of the row on disk: its tables and its history."""
        image = self._load()[1]
        try:
            yield Reads(image.db), history.events(image.db)
        finally:
            image.close()

    def erase(self, needles: Sequence[str]) -> None:
        """Take forgotten payloads out of the row, and their bytes out of the file.

        Raises:
            Busy: a reader holds on to old pages; try again.
        """

        def work(db: apsw.Connection) -> None:
            ids = list(tombstones.skeletons(db).found)
            db.execute(history.ERASE_PAYLOAD, (json.dumps(ids),))

        self._write(work, None, None, tidy=True)
        # A promotion that failed may have left history beside the row: nothing refers to it.
        shutil.rmtree(self._paths.events, ignore_errors=True)
        reclaim(self._db)

    def erased(self) -> None:
        """Nothing of what was forgotten lies anywhere any more."""
        self._write(lambda db: db.execute(tombstones.CLEAR_ERASING), None, None)

    def replay(self) -> int:
        """Nothing can be pending: history and effect share one row."""
        self.header()
        return 0

    def pack(self) -> tuple[int, int]:
        """History lies compressed in the row already."""
        self.header()
        return 0, 0

    def rebuild(self) -> int:
        """Derive every table again from history, in one write."""
        return self._write(lambda db: proof.rederive(db, history.events(db)), None, None)[1] or 0

    def promotable(self) -> tuple[apsw.Connection, Callable[[], tuple[int, Image]]]:
        """The connection and the loader that promotion works with."""
        return self._db, self._load

    def release(self) -> apsw.Connection:
        """Give the connection back; this container is done."""
        self._cached = None
        return self._db

    def _write(
        self,
        work: Callable[[apsw.Connection], T],
        stamp: JobStamp | None,
        guard: Callable[[], None] | None,
        *,
        tidy: bool = False,
    ) -> tuple[int, T | None]:
        """The new revision and what `work` gave; None when the stamp was applied before."""
        self._require_room_in_wal()
        with transaction(self._db):
            image = self._image()
            assert self._cached is not None
            revision = self._cached[0]
            if stamp is not None and history.is_applied(image.db, stamp):
                return revision, None
            self._cached = None
            if image.readers:
                image = image.clone()
            given = image.change(work)
            if tidy:
                image.compact()
            self._admit(image)
            stored = image.pack()
            size = len(stored.state) + len(stored.vectors or b"")
            if size > self._settings.compact_max_stored_bytes:
                raise CapacityExceeded("the compact store is full (stored bytes)")
            if guard is not None:
                guard()
            self._keep_old_schema(image)
            revision = marker.swap(self._db, self._project, revision, stored)
        self._cached = (revision, image)
        return revision, given

    def _keep_old_schema(self, image: Image) -> None:
        """A proven copy of the row, before its first write under a newer schema."""
        if image.migrated_from:
            from storage.authority import upgrade

            upgrade.keep(self._paths, self._project, image.migrated_from, self._clock.now_ms())
            image.migrated_from = 0

    def _require_room_in_wal(self) -> None:
        try:
            size = self._wal.stat().st_size
        except FileNotFoundError:
            return
        if size > MAX_WAL_BYTES:
            frames, folded = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if folded < frames:
                raise Busy("a reader holds the write-ahead log; writing waits until it is done")

    def _admit(self, image: Image) -> None:
        raw, chunks = image.sizes()
        if raw > self._settings.compact_max_raw_bytes:
            raise CapacityExceeded("the compact store is full (raw bytes)")
        if chunks > self._settings.compact_max_chunks:
            raise CapacityExceeded("the compact store is full (chunks)")

    def _image(self) -> Image:
        """The image of the revision on disk, from the cache when it is that one."""
        found = self.header()
        if found.mode != marker.COMPACT:
            raise marker.ContainerChanged
        if self._cached is None or self._cached[0] != found.revision:
            self._cached = self._load()
        return self._cached[1]

    def _load(self) -> tuple[int, Image]:
        found, stored = marker.load(self._db, self._project)
        if stored is None:
            raise marker.ContainerChanged
        return found.revision, Image.unpack(stored)
