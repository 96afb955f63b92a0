"""The indexed container: the base tables on disk, their indexes, and history as journal files.

A write applies its events inside the transaction, asks the guard, then appends the sealed lines to
the journal and syncs them, then commits. So no invalid or fenced-off batch reaches the journal, and
a crash between the two leaves whole lines that the next writer (or `replay`) applies first.
Payloads live in the journal alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Final

import apsw

from storage.authority import (
    derived,
    history,
    journal,
    marker,
    packing,
    proof,
    reduce,
    tombstones,
    vector_rows,
)
from storage.authority.backlog import Backlog
from storage.authority.journal import Stream
from storage.authority.payloads import job_applied
from storage.authority.port import Appended, Problem, VerifyReport
from storage.authority.reads import Reads
from storage.clock import Clock, utc_day
from storage.connection import damage_named, open_readonly, reclaim, translated
from storage.errors import Corrupt
from storage.events import Event, EventDraft
from storage.paths import ProjectPaths
from storage.records import Collection, JobStamp, ProjectId
from storage.schema import require_current

CACHE_KIB: Final = 16_384
"""A batch of a thousand documents changes 3 MiB of pages; SQLite's 2 MiB would write some twice."""


class IndexedContainer:
    """One open indexed authority; use from one thread."""

    def __init__(
        self,
        db: apsw.Connection,
        paths: ProjectPaths,
        project: ProjectId,
        *,
        clock: Clock,
        busy_ms: int,
    ) -> None:
        self._paths = paths
        self._project = project
        self._clock = clock
        self._busy_ms = busy_ms
        self._db = db
        self._db.pragma("cache_size", -CACHE_KIB)
        require_current(self._db, "memory", paths.database.name)
        self._backlog = Backlog(paths.events, project)
        self._writer = history.new_writer(project)
        self._following = False
        self._indexed_to = 0
        self._must_replay = True
        self._idle: list[apsw.Connection] = []
        self._events = paths.events
        self._take(journal.Stream("", self._writer))
        self._journal_bytes = 0

    def append(
        self,
        drafts: Sequence[EventDraft],
        *,
        stamp: JobStamp | None,
        guard: Callable[[], None] | None,
    ) -> Appended:
        """See the port."""
        now = self._clock.now_ms()

        def work(db: apsw.Connection) -> tuple[int, Sequence[Event]]:
            batch = tombstones.sieve(db, drafts)
            if not batch and stamp is not None:
                batch = [job_applied()]
            sealed = history.seal_batch(db, batch, writer=self._writer, recorded_at=now, job=stamp)
            history.record_sealed(db, sealed, keep_payload=False)
            reduce.apply_all(db, sealed)
            return len(sealed), sealed

        generation, count = self._write(work, now, stamp, guard)
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

        def work(db: apsw.Connection) -> tuple[int, Sequence[Event]]:
            vector_rows.add_collection(db, collection, now)
            fresh = vector_rows.store(db, collection, rows)
            if stamp is not None:
                history.mark_applied(db, stamp, now)
            return fresh, ()

        return self._write(work, now, stamp, guard)[1] or 0

    @contextmanager
    def read(self) -> Iterator[Reads]:
        """A read transaction on a connection of its own."""
        db = self._idle.pop() if self._idle else self._reader()
        with translated("memory.sqlite"):
            db.execute("BEGIN")
        try:
            # A deferred transaction takes its snapshot with its first read.
            marker.header(db, self._project)
            with damage_named("memory.sqlite"):
                yield Reads(db)
        finally:
            with suppress(apsw.Error):
                db.execute("ROLLBACK")
            self._idle.append(db)

    def header(self) -> marker.Header:
        """Mode and revision as they are on disk now."""
        return marker.header(self._db, self._project)

    def verify(self) -> VerifyReport:
        """Prove one snapshot, taken while nobody writes, against the journal."""
        db = self._reader()
        try:
            with self._locked():
                db.execute("BEGIN")
                marker.header(db, self._project)
                sizes = self._backlog.sizes()
            problems = [Problem(check="indexes", detail=f) for f in derived.faults(db)]
            if not problems:
                found = derived.content_faults(db)
                problems = [Problem(check="indexes", detail=f) for f in found]
            return proof.prove(db, self._backlog.events(db, sizes, problems), problems)
        finally:
            db.close(True)

    @contextmanager
    def snapshot(self) -> Iterator[tuple[Reads, Iterator[Event]]]:
        """One moment: the tables, and history with its payloads.

        Raises:
            Corrupt: (while history is read) the journal is not what history says.
        """
        with closing(self._reader()) as db:
            with self._locked():
                db.execute("BEGIN")
                marker.header(db, self._project)
                sizes = self._backlog.sizes()
            yield Reads(db), self._sound_events(db, sizes)

    def erase(self, needles: Sequence[str]) -> None:
        """Take forgotten payloads out of the journal, and their bytes out of every file.

        Raises:
            Busy: a reader holds on to old pages; try again.
        """
        with self._locked() as db:
            self._follow(db)
            self._backlog.apply(db)
            ids = frozenset(tombstones.skeletons(db).found)
            packing.clear(self._events)
            for stream in self._backlog.sizes():
                journal.blank(self._events, stream, ids, needles)
            derived.settle(db, self._indexed_to)
            derived.rewrite(db)
            marker.advance(db)
            with translated():
                db.execute("COMMIT")
        reclaim(self._db)

    def erased(self) -> None:
        """Nothing of what was forgotten lies anywhere any more."""

        def work(db: apsw.Connection) -> tuple[int, Sequence[Event]]:
            db.execute(tombstones.CLEAR_ERASING)
            return 0, ()

        self._write(work, self._clock.now_ms(), None, None)

    def _sound_events(self, db: apsw.Connection, sizes: dict[Stream, int]) -> Iterator[Event]:
        problems: list[Problem] = []
        for event in self._backlog.events(db, sizes, problems):
            for problem in problems:
                if problem.check == "journal":
                    raise Corrupt(problem.detail)
            yield event

    def replay(self) -> int:
        """Apply what a crash left in the journal."""
        with self._locked() as db:
            self._follow(db)
            count = self._backlog.apply(db)
            derived.settle(db, self._indexed_to)
            if count:
                marker.advance(db)
            with translated():
                db.execute("COMMIT")
        self._must_replay = False
        return count

    def pack(self) -> tuple[int, int]:
        """See the port."""
        with self._locked():
            packing.clear(self._events)
            anchors = self._backlog.anchors(self._db)
        today = utc_day(self._clock.now_ms())
        return packing.pack(self._events, anchors, today, self._locked)

    def rebuild(self) -> int:
        """Derive every table and index again from the journal.

        Raises:
            Corrupt: history itself does not verify.
        """

        def work(db: apsw.Connection) -> tuple[int, Sequence[Event]]:
            problems: list[Problem] = []
            derived.clear(db)
            self._indexed_to = 0
            count = proof.rederive(db, self._backlog.events(db, self._backlog.sizes(), problems))
            for problem in problems:
                if problem.check == "journal":
                    raise Corrupt(f"nothing was rebuilt: {problem.detail}")
            return count, ()

        return self._write(work, self._clock.now_ms(), None, None)[1] or 0

    def release(self) -> apsw.Connection:
        """Close what is ours and give the connection back; this container is done."""
        for db in self._idle:
            db.close(True)
        self._idle = []
        return self._db

    def _write(
        self,
        work: Callable[[apsw.Connection], tuple[int, Sequence[Event]]],
        now: int,
        stamp: JobStamp | None,
        guard: Callable[[], None] | None,
    ) -> tuple[int, int | None]:
        """The new revision and the count `work` gave; None when the stamp was applied before.

        `work` also gives the events that the journal must hold before the commit.
        """
        with self._locked() as db:
            self._follow(db)
            replayed = self._backlog.apply(db) if self._must_replay else 0
            count: int | None = None
            events: Sequence[Event] = ()
            if stamp is None or not history.is_applied(db, stamp):
                self._writer = self._usable_writer(db, now)
                count, events = work(db)
            elif not replayed:
                return self.header().revision, None
            derived.settle(db, self._indexed_to)
            if guard is not None and count is not None:
                guard()
            revision = marker.advance(db)
            self._commit(db, events)
        self._must_replay = False
        return revision, count

    def _commit(self, db: apsw.Connection, events: Sequence[Event]) -> None:
        # Syncing the journal on a thread of its own, beside the indexing, was measured: for single
        # documents the hand-over costs more than the wait.
        written: journal.Written | None = None
        try:
            if events:
                lines = [event.line() for event in events]
                before = self._journal_bytes
                written = journal.append(self._events, self._stream, lines, before=before)
                self._backlog.anchor(db, self._stream, written.after)
            with translated("memory.sqlite"):
                db.execute("COMMIT")
        except BaseException:
            # Lines may be taken back only while the lock is ours: later they may be applied.
            if written is None or not (db.in_transaction and written.undo()):
                self._must_replay = True
            raise

    @contextmanager
    def _locked(self) -> Iterator[apsw.Connection]:
        """The write lock; what is not committed inside is rolled back."""
        with translated("memory.sqlite"):
            self._db.execute("BEGIN IMMEDIATE")
        try:
            self.header()
            with translated("memory.sqlite"):
                yield self._db
        except BaseException:
            # Also where SQLite has rolled back by itself (a full disk): our trigger went with it.
            self._following = False
            raise
        finally:
            if self._db.in_transaction:
                self._following = False
                with suppress(apsw.Error):
                    self._db.execute("ROLLBACK")

    def _follow(self, db: apsw.Connection) -> None:
        """Indexes follow this connection's writes, until a rollback takes that back."""
        if not self._following:
            derived.follow(db)
            self._following = True
        self._indexed_to = derived.last_number(db)

    def _usable_writer(self, db: apsw.Connection, now: int) -> str:
        """Our writer, or a new one when its file is full, packed, or longer than anchored."""
        day = utc_day(now)
        if (self._stream.day, self._stream.writer) != (day, self._writer):
            self._take(journal.Stream(day, self._writer))
        found = journal.size(self._file)
        self._journal_bytes = found
        if found < packing.SEGMENT_BYTES and found == self._backlog.anchored(db, self._stream):
            return self._writer
        self._take(journal.Stream(day, history.new_writer(self._project)))
        self._journal_bytes = 0
        return self._stream.writer

    def _take(self, stream: journal.Stream) -> None:
        """From now on this is the file that we add to."""
        self._stream = stream
        self._file = stream.path(self._events)

    def _reader(self) -> apsw.Connection:
        db = open_readonly(self._paths.database, busy_ms=self._busy_ms)
        derived.connect(db)
        return db
