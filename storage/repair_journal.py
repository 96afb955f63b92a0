"""Repairing an indexed store: history from whatever proves itself, then the tables from history.

An event is believed when its hashes hold, wherever it lies: a journal line, a row of the events
table (which has no payload), a line in the newest sound backup. Files are written anew from what is
believed; the rest of their bytes goes to the quarantine. What only the tables still know is said
again, so that no fact is lost with the line it came from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Final

import apsw

from storage import backup
from storage.atomic import replace_file
from storage.authority import copies, history, journal, marker, open_authority, proof, tombstones
from storage.authority.journal import Stream
from storage.authority.reads import Reads
from storage.authority.segments import ENDING
from storage.authority.standing import Standings
from storage.authority.tombstones import KEPT_TYPES
from storage.clock import utc_day
from storage.connection import (
    open_database,
    open_memory,
    open_readonly,
    private_directory,
    transaction,
)
from storage.errors import Busy, Corrupt, Invalid, MemorydError
from storage.events import Event, EventDraft, parse_line
from storage.paths import ProjectPaths
from storage.repair import Bench, Cut, NothingToKeep
from storage.schema import migrate

SET_ANCHOR: Final = (
    "INSERT INTO journals (day, writer, bytes) VALUES (?, ?, ?)"
    " ON CONFLICT (day, writer) DO UPDATE SET bytes = excluded.bytes, ignored = 0"
)
DROP_ANCHOR: Final = "DELETE FROM journals WHERE day = ? AND writer = ?"
COUNT_EVENTS: Final = "SELECT count(*) FROM events"
SELECT_ANCHORED: Final = "SELECT day, writer FROM journals"


@dataclass(frozen=True, slots=True)
class _Believed:
    """Events that prove themselves: in unbroken chains, and those behind a break."""

    chained: tuple[Event, ...]
    orphans: tuple[Event, ...]


def repair_indexed(bench: Bench) -> None:
    """Bring files, history and tables of an indexed store back to one truth."""
    standing = _standing(bench)
    rows = _rows(bench)
    lines = _lines(bench)
    spare = _spare(bench, rows, lines)
    believed = _believe(rows, {**spare, **lines})
    if not believed.chained and not believed.orphans and _history_was_there(bench):
        if not bench.restore_newest():
            raise NothingToKeep
        return
    cuts: list[Cut] = []
    if rows is None or [event.hash for event in rows] != [e.hash for e in believed.chained]:
        cuts.append(_fresh_tables(bench, believed.chained))
        bench.done.notes.append("the tables were made anew; vectors will be computed again")
    cuts += _mend_files(bench, believed.chained)
    bench.done.recovered = sum(event.hash in spare for event in believed.chained)
    known = _known_gone(bench)
    lost = [e.event_id for e in believed.chained if e.payload is None and e.event_id not in known]
    bench.note(cuts, lost)
    skipped = _rederive(bench)
    bench.done.lost = len(lost) + len(skipped)
    _say_again(bench, believed.orphans, standing if lost or skipped or cuts else Standings())


def _rows(bench: Bench) -> list[Event] | None:
    """The events table in its order, if every row of it proves itself; else None."""
    with (
        suppress(apsw.Error, MemorydError, ValueError),
        closing(open_readonly(bench.paths.database)) as db,
    ):
        sound = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        mode = marker.header(db, bench.project).mode
        found = list(history.events(db))
        chains = history.ChainProof()
        faults = [fault for event in found for fault in chains.see(event)]
        faults += chains.finish(history.heads(db))
        if sound and mode == marker.INDEXED and not faults and _has_our_shape(db):
            return found
    return None


def _has_our_shape(db: apsw.Connection) -> bool:
    """Whether every table is there, as this build makes it."""
    select = "SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view') AND name <> ?"
    with closing(open_memory()) as fresh:
        migrate(fresh, "memory")
        wanted = set(fresh.execute(select, ("sqlite_sequence",)).fetchall())
    return wanted <= set(db.execute(select, ("sqlite_sequence",)).fetchall())


def _lines(bench: Bench) -> dict[str, Event]:
    """Every journal line that proves itself, by hash; one with its payload before one without."""
    found: dict[str, Event] = {}
    for stream in journal.streams(bench.paths.events):
        for line in journal.salvage(bench.paths.events, stream)[0].split(b"\n"):
            event = _event_of(line)
            ours = event is not None and history.is_writer_of(event.writer, bench.project)
            if event is not None and ours and event.writer == stream.writer:
                known = found.get(event.hash)
                if known is None or known.payload is None:
                    found[event.hash] = event
    return found


def _spare(
    bench: Bench, rows: Sequence[Event] | None, lines: Mapping[str, Event]
) -> dict[str, Event]:
    """Payloads that only the newest sound backup still has."""
    gone = _known_gone(bench)
    missing = [
        event.hash
        for event in rows or ()
        if event.event_id not in gone
        and (event.hash not in lines or lines[event.hash].payload is None)
    ]
    if rows is not None and not missing:
        return {}
    found = backup.newest_sound(
        bench.paths, bench.project, clock=bench.clock, settings=bench.settings
    )
    if found is None:
        return {}
    with copies.workshop(backup.folder_of(bench.paths)) as folder:
        staged = copies.unpack(found[0], folder / "store")
        with closing(bench.open(staged)) as store, store.snapshot() as (_, events):
            spare = {
                event.hash: event
                for event in events
                if event.payload is not None
                and event.event_id not in gone
                and (rows is None or event.hash in missing)
                and event.hash not in lines
            }
    if spare:
        bench.done.restored_from = found[0].name
    return spare


def _believe(rows: Sequence[Event] | None, proven: Mapping[str, Event]) -> _Believed:
    """Chains as far as they go. A believable events table is the frame; else times are."""
    if rows is not None:
        chained = [_fuller(row, proven.get(row.hash)) for row in rows]
        return _Believed(tuple(chained), ())
    places = {(event.writer, event.writer_seq): event for event in proven.values()}
    heads: dict[str, str] = {}
    chained, orphans = [], []
    for (writer, number), event in sorted(places.items()):
        follows = heads.get(writer, "") == event.previous_hash and (number == 1 or writer in heads)
        if follows:
            heads[writer] = event.hash
            chained.append(event)
        else:
            heads[writer] = "broken"
            orphans.append(event)
    key = _by_time
    return _Believed(tuple(sorted(chained, key=key)), tuple(sorted(orphans, key=key)))


def _fuller(row: Event, line: Event | None) -> Event:
    return row if line is None or line.payload is None else line


def _by_time(event: Event) -> tuple[int, str, int]:
    return event.recorded_at, event.writer, event.writer_seq


def _fresh_tables(bench: Bench, events: Iterable[Event]) -> Cut:
    """A new database with this history in the old one's place; its tables come after."""
    cut = bench.set_store_aside()
    with copies.workshop(backup.folder_of(bench.paths)) as folder:
        staged = ProjectPaths(private_directory(folder / "store"))
        open_authority(
            staged,
            bench.project,
            clock=bench.clock,
            settings=bench.settings,
            create=True,
            create_container="indexed",
        ).close()
        with closing(open_database(staged.database)) as db, transaction(db):
            for event in events:
                history.record(db, event, keep_payload=False)
        # The journal stays where it is: `put` would take an empty one for the new one.
        copies.put_database(staged, bench.paths, bench.project)
    return cut


def _mend_files(bench: Bench, events: Iterable[Event]) -> list[Cut]:
    """Every file with exactly the lines that history has; what else lay in it is set aside."""
    wanted: dict[Stream, list[Event]] = {}
    for event in events:
        wanted.setdefault(Stream(utc_day(event.recorded_at), event.writer), []).append(event)
    cuts: list[Cut] = []
    with closing(open_database(bench.paths.database)) as db, transaction(db):
        # Under the write lock: what somebody committed since it was read must not be cut.
        if db.execute(COUNT_EVENTS).fetchone() != (sum(map(len, wanted.values())),):
            raise Busy("the memory changed while it was looked at; nothing was cut, try again")
        anchored = {Stream(str(d), str(w)) for d, w in db.execute(SELECT_ANCHORED).fetchall()}
        for stream in sorted({*wanted, *anchored, *journal.streams(bench.paths.events)}):
            cuts += _mend_file(bench, db, stream, wanted.get(stream, []))
    return cuts


def _mend_file(
    bench: Bench, db: apsw.Connection, stream: Stream, events: Sequence[Event]
) -> list[Cut]:
    events_folder = bench.paths.events
    data, whole = journal.salvage(events_folder, stream)
    own = {event.hash: line for line in data.split(b"\n") if (event := _event_of(line)) is not None}
    lines = [_line_of(event, own.get(event.hash)) for event in events]
    fresh = b"".join(line + b"\n" for line in lines)
    cuts: list[Cut] = []
    if not whole:
        cuts.append(_set_packed_aside(bench, stream))
    elif fresh != data:
        cuts += _strangers(bench, stream, data, set(lines), len(fresh))
    if fresh and not (whole and fresh == data):
        journal.rewrite(events_folder, stream, fresh)
    if fresh:
        db.execute(SET_ANCHOR, (stream.day, stream.writer, len(fresh)))
    else:
        stream.path(events_folder).unlink(missing_ok=True)
        journal.drop_packed(events_folder, stream)
        db.execute(DROP_ANCHOR, (stream.day, stream.writer))
    return cuts


def _line_of(event: Event, own: bytes | None) -> bytes:
    """The line as it lies there when it says as much, else the event written anew."""
    if own is not None:
        there = _event_of(own)
        if there is not None and (there.payload is not None or event.payload is None):
            return own
    return event.line()


def _strangers(
    bench: Bench, stream: Stream, data: bytes, kept: set[bytes], fresh_bytes: int
) -> list[Cut]:
    """Runs of bytes that are no line of history, set aside; or that bytes are missing."""
    cuts: list[Cut] = []
    start, run, at = 0, b"", 0
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n") and line[:-1] in kept:
            if run:
                cuts.append(_set_aside(bench, stream, start, run))
            run = b""
        else:
            start = start if run else at
            run += line
        at += len(line)
    if run:
        cuts.append(_set_aside(bench, stream, start, run))
    if not cuts:
        missing = max(0, fresh_bytes - len(data))
        file = f"{stream.day}/{stream.writer}.jsonl"
        cuts.append(Cut(file=file, offset=len(data), bytes=missing, sha256="", kept_in=""))
    return cuts


def _set_aside(bench: Bench, stream: Stream, offset: int, data: bytes) -> Cut:
    folder = private_directory(bench.paths.memory / "quarantine")
    digest = hashlib.sha256(data).hexdigest()
    target = folder / f"{stream.day}-{stream.writer}-{offset}-{digest[:12]}.jsonl"
    replace_file(target, data)
    return Cut(
        file=f"{stream.day}/{stream.writer}.jsonl",
        offset=offset,
        bytes=len(data),
        sha256=digest,
        kept_in=f"quarantine/{target.name}",
    )


def _set_packed_aside(bench: Bench, stream: Stream) -> Cut:
    """A packed file of which not every frame proves itself, as it lies there."""
    packed = stream.packed(bench.paths.events)
    data = packed.read_bytes()
    folder = private_directory(bench.paths.memory / "quarantine")
    digest = hashlib.sha256(data).hexdigest()
    target = folder / f"{stream.day}-{stream.writer}-{digest[:12]}.jsonl{ENDING}"
    replace_file(target, data)
    return Cut(
        file=f"{stream.day}/{packed.name}",
        offset=0,
        bytes=len(data),
        sha256=digest,
        kept_in=f"quarantine/{target.name}",
    )


def _rederive(bench: Bench) -> list[str]:
    """Derive the tables; an event that cannot be applied without a lost one loses its effect."""
    with closing(bench.open()) as store:
        with store.snapshot() as (reads, events):
            failing = proof.unappliable(reads.db, events)
        if failing:
            store.append(tombstones.repaired("events", 0, 0, "", lost=failing, kept=False))
        store.rebuild()
    return failing


def _say_again(bench: Bench, orphans: Iterable[Event], standing: Standings) -> None:
    """Append what history no longer says: events behind a break, and what only tables knew."""
    said = [
        EventDraft(e.type, e.payload) for e in orphans if e.payload and e.type not in KEPT_TYPES
    ]
    with closing(bench.open()) as store:
        for draft in said:
            with suppress(Invalid):
                store.append([draft])
                bench.done.restated += 1
        with store.read() as reads:
            drafts = standing.missing(reads, bench.clock.now_ms())
        for draft in drafts:
            with suppress(Invalid):
                store.append([draft])
                bench.done.restated += 1


def _standing(bench: Bench) -> Standings:
    """What the tables say now, as far as they can be read."""
    try:
        with closing(open_readonly(bench.paths.database)) as db:
            return Standings.of(Reads(db))
    except (apsw.Error, MemorydError, ValueError, AssertionError):
        return Standings()


def _known_gone(bench: Bench) -> frozenset[str]:
    with suppress(apsw.Error, MemorydError), closing(open_readonly(bench.paths.database)) as db:
        return frozenset(tombstones.skeletons(db).found)
    return frozenset()


def _history_was_there(bench: Bench) -> bool:
    """Whether there is anything at all whose loss would matter."""
    return any(
        journal.size(path)
        for stream in journal.streams(bench.paths.events)
        for path in (stream.path(bench.paths.events), stream.packed(bench.paths.events))
    )


def _event_of(line: bytes) -> Event | None:
    """The event of a line that proves itself."""
    if not line.strip():
        return None
    try:
        return parse_line(line)
    except Corrupt:
        return None
