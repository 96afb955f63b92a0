"""The events table, the anchored heads and the applied jobs: what happened, provably.

Sealing, recording and proving one writer's chain, the same for both containers; every function
works inside the caller's transaction. Leaves the effects of an event to the reducer, and the
journal's files to `journal`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import apsw

from storage.authority.tombstones import KEPT_TYPES
from storage.errors import Corrupt
from storage.events import Event, EventDraft, EventType, check, seal
from storage.records import JobStamp, ProjectId, digest_of

Envelope: TypeAlias = "tuple[apsw.SQLiteValue, ...]"

SELECT_HEAD: Final = "SELECT writer_seq, hash FROM heads WHERE writer = ?"
UPSERT_HEAD: Final = (
    "INSERT INTO heads (writer, writer_seq, hash) VALUES (?, ?, ?)"
    " ON CONFLICT (writer) DO UPDATE SET writer_seq = excluded.writer_seq, hash = excluded.hash"
)
SELECT_KNOWN: Final = "SELECT hash FROM events WHERE writer = ? AND writer_seq = ?"
INSERT_EVENT: Final = (
    "INSERT INTO events (event_id, writer, writer_seq, recorded_at, type, previous_hash,"
    " payload_hash, hash, more, job_id, job_token, payload)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT_EVENTS: Final = (
    "SELECT event_id, writer, writer_seq, recorded_at, type, previous_hash, payload_hash, hash,"
    " more, job_id, job_token, payload FROM events"
)
SELECT_ALL_EVENTS: Final = SELECT_EVENTS + " ORDER BY seq"
SELECT_HEADS: Final = "SELECT writer, writer_seq, hash FROM heads ORDER BY writer"
ERASE_PAYLOAD: Final = (
    "UPDATE events SET payload = NULL WHERE payload IS NOT NULL"
    " AND event_id IN (SELECT value FROM json_each(?))"
    " AND type NOT IN ('memory.forgotten', 'chain.repaired')"
)
INSERT_APPLIED: Final = (
    "INSERT INTO applied_jobs (job_id, token, applied_at) VALUES (?, ?, ?)"
    " ON CONFLICT (job_id) DO NOTHING"
)
SELECT_APPLIED: Final = "SELECT 1 FROM applied_jobs WHERE job_id = ?"


def new_writer(project: ProjectId) -> str:
    """`writer_` + 16 hex: 8 random ones, and 8 that follow from them and the project.

    So a stream shows whose it is: the name is in every event's hash, and a journal file copied from
    another project's folder is no part of this one's history.
    """
    drawn = os.urandom(4).hex()
    return f"writer_{drawn}{digest_of(project, drawn)[:8]}"


def is_writer_of(writer: str, project: ProjectId) -> bool:
    """Whether a writer's name was made for this project."""
    drawn, tag = writer[7:15], writer[15:]
    return digest_of(project, drawn)[:8] == tag


def head_of(db: apsw.Connection, writer: str) -> tuple[int, str]:
    """Sequence and hash of a writer's last event; (0, "") before the first."""
    row = db.execute(SELECT_HEAD, (writer,)).fetchone()
    return (_int(row[0]), str(row[1])) if row else (0, "")


def seal_batch(
    db: apsw.Connection,
    drafts: Sequence[EventDraft],
    *,
    writer: str,
    recorded_at: int,
    job: JobStamp | None,
) -> list[Event]:
    """The drafts as the next events of a writer's chain.

    Raises:
        Invalid: a payload is too large or not plain JSON.
    """
    number, previous = head_of(db, writer)
    sealed: list[Event] = []
    for index, draft in enumerate(drafts, start=1):
        event = seal(
            draft,
            event_id="evt_" + digest_of(writer, str(number + index))[:32],
            writer=writer,
            writer_seq=number + index,
            recorded_at=recorded_at,
            previous_hash=previous,
            more=len(drafts) - index,
            job=job,
        )
        previous = event.hash
        sealed.append(event)
    return sealed


def record(db: apsw.Connection, event: Event, *, keep_payload: bool) -> bool:
    """Put an event into history; False when it is there already.

    Raises:
        Corrupt: it does not continue its writer's chain, or its place is taken by another event.
    """
    known = db.execute(SELECT_KNOWN, (event.writer, event.writer_seq)).fetchone()
    if known is not None:
        if known[0] != event.hash:
            raise Corrupt(f"event {event.event_id} is in history with another hash")
        return False
    number, previous = head_of(db, event.writer)
    if event.writer_seq != number + 1 or event.previous_hash != previous:
        raise Corrupt(f"event {event.event_id} does not continue the chain of {event.writer}")
    record_sealed(db, [event], keep_payload=keep_payload)
    return True


def record_sealed(db: apsw.Connection, batch: Sequence[Event], *, keep_payload: bool) -> None:
    """Put a batch into history that `seal_batch` made in this same transaction."""
    if not batch:
        return
    db.executemany(INSERT_EVENT, [_row(event, keep_payload) for event in batch])
    last = batch[-1]
    db.execute(UPSERT_HEAD, (last.writer, last.writer_seq, last.hash))
    if last.job is not None:
        mark_applied(db, last.job, last.recorded_at)


def mark_applied(db: apsw.Connection, job: JobStamp, at: int) -> None:
    """Remember that a job's effect is here."""
    db.execute(INSERT_APPLIED, (job.job_id, job.token, at))


def is_applied(db: apsw.Connection, job: JobStamp) -> bool:
    """Whether a job's effect is here already."""
    return db.execute(SELECT_APPLIED, (job.job_id,)).fetchone() is not None


def events(db: apsw.Connection) -> Iterator[Event]:
    """Every recorded event in the order of its effect; its payload None where the row has none."""
    for row in db.execute(SELECT_ALL_EVENTS):
        yield _event(row)


def envelopes(db: apsw.Connection) -> Iterator[tuple[Envelope, Callable[[], Event]]]:
    """Every recorded event as its row says it, and how to make it an event, in the same order."""
    for row in db.execute(SELECT_ALL_EVENTS):
        yield row[:11], partial(_event, row)


def envelope_of(event: Event) -> Envelope:
    """What the row of an event says, its payload aside."""
    return _row(event, keep_payload=False)[:11]


class ChainProof:
    """Sees every event once, in the order of effect, and knows what is wrong with the chains."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, str]] = {}

    def see(self, event: Event) -> list[str]:
        """Faults of one event: its own hashes and its place behind its writer's last."""
        faults: list[str] = []
        try:
            check(event)
        except Corrupt as fault:
            faults.append(str(fault))
        number, previous = self._last.get(event.writer, (0, ""))
        if event.writer_seq != number + 1 or event.previous_hash != previous:
            faults.append(f"the chain of {event.writer} breaks at {event.writer_seq}")
        self._last[event.writer] = (event.writer_seq, event.hash)
        return faults

    def finish(self, anchored: dict[str, tuple[int, str]]) -> list[str]:
        """Writers whose last event is not their anchored head."""
        return [
            f"the anchored head of {writer} is not its last event"
            for writer in sorted(anchored.keys() | self._last.keys())
            if anchored.get(writer) != self._last.get(writer)
        ]


def heads(db: apsw.Connection) -> dict[str, tuple[int, str]]:
    """Every anchored head."""
    return {str(row[0]): (_int(row[1]), str(row[2])) for row in db.execute(SELECT_HEADS)}


def _row(event: Event, keep_payload: bool) -> tuple[str | int | bytes | None, ...]:
    kept = event.payload is not None and (keep_payload or event.type in KEPT_TYPES)
    return (
        event.event_id,
        event.writer,
        event.writer_seq,
        event.recorded_at,
        event.type.value,
        event.previous_hash,
        event.payload_hash,
        event.hash,
        event.more,
        event.job.job_id if event.job else None,
        event.job.token if event.job else None,
        event.body() if kept else None,
    )


def _event(row: apsw.SQLiteValues) -> Event:
    payload = row[11]
    try:
        return Event(
            event_id=str(row[0]),
            writer=str(row[1]),
            writer_seq=_int(row[2]),
            recorded_at=_int(row[3]),
            type=EventType(str(row[4])),
            previous_hash=str(row[5]),
            payload_hash=str(row[6]),
            hash=str(row[7]),
            more=_int(row[8]),
            job=None if row[9] is None else JobStamp(job_id=str(row[9]), token=_int(row[10])),
            payload=json.loads(payload) if isinstance(payload, bytes) else None,
        )
    except ValueError as cause:
        raise Corrupt(f"a malformed event in history ({cause})") from cause


def _int(value: apsw.SQLiteValue) -> int:
    if not isinstance(value, int):
        raise Corrupt("a number of history is not a number")
    return value
