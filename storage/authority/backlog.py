"""The journal against the tables: what is anchored, what a crash left over, and history read back.

Every file's applied size is anchored in the `journals` table, so bytes beyond it are a batch whose
commit was lost (applied by the next writer, whole batches only) or a torn tail (left alone and
reported), and a file shorter than its anchor is a loss. Works inside the caller's transaction.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from storage.authority import history, journal, reduce
from storage.authority.journal import Located, Stream
from storage.authority.port import Problem
from storage.errors import Corrupt, Invalid, MemorydError, Unavailable
from storage.events import Event
from storage.records import ProjectId

SELECT_ANCHOR: Final = "SELECT bytes FROM journals WHERE day = ? AND writer = ?"
SELECT_ANCHORS: Final = "SELECT day, writer, bytes FROM journals"
SELECT_SEEN: Final = "SELECT day, writer, bytes + ignored FROM journals"
UPSERT_IGNORED: Final = (
    "INSERT INTO journals (day, writer, bytes, ignored) VALUES (?, ?, 0, ?)"
    " ON CONFLICT (day, writer) DO UPDATE SET ignored = ? - bytes"
)
UPSERT_ANCHOR: Final = (
    "INSERT INTO journals (day, writer, bytes) VALUES (?, ?, ?)"
    " ON CONFLICT (day, writer) DO UPDATE SET bytes = excluded.bytes"
)

AHEAD_BYTES: Final = 1_048_576
"""What a cursor reads at once, and one event at least."""


class Backlog:
    """The journal files of one authority, seen from its tables."""

    def __init__(self, events: Path, project: ProjectId) -> None:
        self._events = events
        self._project = project

    def anchored(self, db: apsw.Connection, stream: Stream) -> int:
        """Bytes of a file whose events are in the tables."""
        row = db.execute(SELECT_ANCHOR, (stream.day, stream.writer)).fetchone()
        return int(str(row[0])) if row else 0

    def anchor(self, db: apsw.Connection, stream: Stream, size: int) -> None:
        """These bytes are in the tables once this transaction commits."""
        db.execute(UPSERT_ANCHOR, (stream.day, stream.writer, size))

    def sizes(self) -> dict[Stream, int]:
        """Every file and its size now."""
        return {s: journal.length(self._events, s) for s in journal.streams(self._events)}

    def anchors(self, db: apsw.Connection) -> dict[Stream, int]:
        """Every file and its bytes whose events are in the tables."""
        return _sizes_in(db, SELECT_ANCHORS)

    def apply(self, db: apsw.Connection) -> int:
        """Apply whole batches beyond the anchors, oldest first; returns the events applied.

        A batch that cannot be applied was never acknowledged to anyone: it stays in its file, out
        of the tables, and `verify` reports it. So does a file of another project.
        """
        seen = _sizes_in(db, SELECT_SEEN)
        grown = {s: size for s, size in self.sizes().items() if size > seen.get(s, 0)}
        pending: list[list[Located]] = []
        for stream in grown:
            start = self.anchored(db, stream)
            if start or history.is_writer_of(stream.writer, self._project):
                pending += self._whole_batches(stream, start)
        pending.sort(
            key=lambda batch: (batch[0].event.recorded_at, batch[0].stream, batch[0].start)
        )
        count = sum(len(batch) for batch in pending if self._apply_batch(db, batch))
        for stream, size in grown.items():
            # Judged once and for all: a batch that was refused must not take effect weeks later,
            # and nobody appends behind a tail (a writer whose file has one takes a new file).
            db.execute(UPSERT_IGNORED, (stream.day, stream.writer, size, size))
        return count

    def events(
        self, db: apsw.Connection, sizes: dict[Stream, int], problems: list[Problem]
    ) -> Iterator[Event]:
        """History in the order of its effect, payloads from the journal; adds what is wrong."""
        anchors = _sizes_in(db, SELECT_ANCHORS)
        problems += _size_problems(anchors, sizes)
        problems += [
            Problem(check="journal tail", detail=f"{stream.day}/{stream.writer}: another project's")
            for stream in sorted(sizes.keys() - {s for s, size in anchors.items() if size})
            if not history.is_writer_of(stream.writer, self._project)
        ]
        cursors: dict[str, _Cursor] = {}
        for stream in sorted(anchors):
            cursors.setdefault(stream.writer, _Cursor(self._events)).add(stream, anchors[stream])
        for row, event_of_row in history.envelopes(db):
            cursor = cursors.get(str(row[1]))
            event = cursor.next(problems) if cursor else None
            if event is None or history.envelope_of(event) != row:
                if event is not None or not (cursor and cursor.failed):
                    detail = f"event {row[0]} is not where history has it"
                    problems.append(Problem(check="journal", detail=detail))
                if cursor:
                    cursor.failed = True
                yield event_of_row()
            else:
                yield event
        for writer, cursor in cursors.items():
            if not cursor.failed and not cursor.finished:
                detail = f"{writer} holds events that history does not know"
                problems.append(Problem(check="journal", detail=detail))

    def _whole_batches(self, stream: Stream, start: int) -> list[list[Located]]:
        found: list[list[Located]] = []
        try:
            for batch in journal.batches(journal.read(self._events, stream, start=start)):
                found.append(batch)  # noqa: PERF402 -- what was read before a fault counts
        except Corrupt:
            pass  # a damaged tail: whole batches before it count, verify reports the rest
        return found

    def _apply_batch(self, db: apsw.Connection, batch: list[Located]) -> bool:
        db.execute("SAVEPOINT batch")
        try:
            for item in batch:
                history.record(db, item.event, keep_payload=False)
                reduce.apply(db, item.event)
            last = batch[-1]
            # Only an unbroken prefix may be anchored: a batch behind a refused one waits with it.
            if self.anchored(db, last.stream) != batch[0].start:
                raise Corrupt("the batch before this one was not applied")
            self.anchor(db, last.stream, last.end)
        except (Invalid, Corrupt):
            db.execute("ROLLBACK TO batch")
            db.execute("RELEASE batch")
            return False
        # After any other fault (a failing disk) the whole transaction goes, savepoint and all.
        db.execute("RELEASE batch")
        return True


class _Cursor:
    """Reads one writer's files in order, up to their anchors, without holding them open."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._streams: list[tuple[Stream, int]] = []
        self._at = 0
        self._ahead: deque[Located] = deque()
        self._fault: MemorydError | None = None
        self.failed = False

    def add(self, stream: Stream, size: int) -> None:
        if size:
            self._streams.append((stream, size))

    @property
    def finished(self) -> bool:
        return not self._streams

    def next(self, problems: list[Problem]) -> Event | None:
        """The next event; None after the last, and after a fault (which it adds)."""
        if self.failed or self.finished:
            return None
        stream, size = self._streams[0]
        if not self._ahead and self._fault is None:
            self._look_ahead(stream, size)
        if not self._ahead:
            if self._fault is not None:
                problems.append(Problem(check="journal", detail=str(self._fault)))
                self.failed = True
            return None
        found = self._ahead.popleft()
        self._at = found.end
        if self._at >= size:
            self._streams.pop(0)
            self._at = 0
        return found.event

    def _look_ahead(self, stream: Stream, size: int) -> None:
        """Some events at once: one opening of the file serves them all."""
        try:
            for item in journal.read(self._events, stream, start=self._at, limit=size):
                self._ahead.append(item)
                if item.end - self._at >= AHEAD_BYTES:
                    return
        except (Corrupt, Unavailable) as fault:
            self._fault = fault


def _sizes_in(db: apsw.Connection, statement: str) -> dict[Stream, int]:
    return {
        Stream(str(day), str(writer)): int(str(size)) for day, writer, size in db.execute(statement)
    }


def _size_problems(anchors: dict[Stream, int], sizes: dict[Stream, int]) -> list[Problem]:
    problems: list[Problem] = []
    for stream in sorted(anchors.keys() | sizes.keys()):
        name = f"{stream.day}/{stream.writer}"
        wanted, found = anchors.get(stream, 0), sizes.get(stream, 0)
        if found < wanted:
            detail = f"{name}: {wanted - found} of {wanted} bytes are missing"
            problems.append(Problem(check="journal", detail=detail))
        elif found > wanted:
            detail = f"{name}: {found - wanted} bytes beyond what was committed"
            problems.append(Problem(check="journal tail", detail=detail))
    return problems
