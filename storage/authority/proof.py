"""Proof and re-derivation: history alone decides what the tables must hold.

`prove` checks chains and references, derives the tables once more from history into a scratch
database and compares them row by row; `rederive` replaces the tables by such a derivation. Both
work for either container; each hands in its events with their payloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import zip_longest
from typing import Final

import apsw

from storage.authority import history, reduce, tombstones
from storage.authority.port import Problem, VerifyReport
from storage.authority.reads import Reads
from storage.connection import transaction
from storage.errors import Corrupt, Invalid
from storage.events import Event
from storage.records import digest_of
from storage.schema import migrate

DERIVED_TABLES: Final = {
    "documents": "document_key",
    "slices": "rowid",
    "facts": "fact_id",
    "evidence": "evidence_id",
    "fact_evidence": "fact_id, evidence_id",
    "entities": "entity_id",
    "fact_entities": "fact_id, entity_id",
    "fact_links": "from_id, to_id, link",
    "usefulness": "fact_id",
    "deferred_statements": "statement_id",
    "source_cursors": "adapter, locator",
    "forgotten": "id, what",
}
"""Tables that history alone decides, with the order of their rows."""
COMPARED: Final = {"slices": "SELECT chunk_id, document_key, ordinal, start, bytes FROM slices"}
"""How rows are compared: a chunk's number depends on what was ever there, forgotten or not."""

SELECT_ORPHAN_VECTORS: Final = (
    "SELECT count(*) FROM vectors v WHERE NOT EXISTS (SELECT 1 FROM slices c WHERE"
    " c.rowid = v.chunk) OR NOT EXISTS (SELECT 1 FROM collections k WHERE k.name = v.collection"
    " AND k.dims = length(v.embedding))"
)
SELECT_COLLECTION_NAMES: Final = "SELECT model, dims, fingerprint, scale, name FROM collections"
COUNT_UNMARKED_JOBS: Final = (
    "SELECT count(DISTINCT e.job_id) FROM events e WHERE e.job_id IS NOT NULL"
    " AND e.recorded_at > (SELECT max(recorded_at) FROM events) - ?"
    " AND NOT EXISTS (SELECT 1 FROM applied_jobs a WHERE a.job_id = e.job_id)"
)
KEEP_COLLECTIONS: Final = (
    "SELECT name, model, dims, fingerprint, scale, created_at FROM collections"
)
RESTORE_COLLECTION: Final = (
    "INSERT INTO collections (name, model, dims, fingerprint, scale, created_at)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
)
KEEP_VECTORS: Final = (
    "CREATE TEMP TABLE kept_vectors AS SELECT v.collection, c.chunk_id, v.embedding"
    " FROM vectors v JOIN slices c ON c.rowid = v.chunk",
)
RESTORE_VECTORS: Final = (
    "INSERT INTO vectors (collection, chunk, embedding) SELECT k.collection, c.rowid, k.embedding"
    " FROM temp.kept_vectors k JOIN slices c ON c.chunk_id = k.chunk_id",
    "DROP TABLE temp.kept_vectors",
)
"""Tuples, because they name a table that is not always there."""
RESET_NUMBERS: Final = "DELETE FROM sqlite_sequence WHERE name = 'slices'"


GROUP_EVENTS: Final = 500
GROUP_BYTES: Final = 4_194_304
UNFINISHED: Final = "forgotten text may still lie in files; `ops forget` finishes its removal"


def prove(db: apsw.Connection, events: Iterable[Event], problems: list[Problem]) -> VerifyReport:
    """Everything that is wrong with a store, its events given in the order of their effect.

    `db` must stand in a read transaction. `problems` holds what the caller found, and may grow
    while `events` is read.
    """
    problems += [
        Problem(check="file", detail=str(row[0]))
        for row in db.execute("PRAGMA integrity_check").fetchall()
        if row[0] != "ok"
    ]
    problems += _operational_faults(db)
    problems += [
        Problem(check="references", detail=f"a row of {row[0]} points nowhere")
        for row in db.execute("PRAGMA foreign_key_check").fetchall()
    ]
    if db.execute(SELECT_ORPHAN_VECTORS).fetchone() != (0,):
        problems.append(Problem(check="vectors", detail="vectors without chunk or of wrong size"))
    found = _differences(db, events)
    problems += found
    if db.execute(tombstones.IS_ERASING).fetchone() is not None:
        problems.append(Problem(check="erasure", detail=UNFINISHED))
    stats = Reads(db).stats()
    return VerifyReport(
        events=stats.events,
        writers=len(history.heads(db)),
        documents=stats.documents,
        facts=stats.facts,
        problems=tuple(problems),
    )


def rederive(db: apsw.Connection, events: Iterable[Event]) -> int:
    """Replace the derived tables by what history says, in the caller's transaction.

    Vectors stay with the chunks that come back under the same id; the others are dropped.
    Returns the events applied.

    Raises:
        Corrupt: history does not verify; the caller must roll back.
    """
    for statement in KEEP_VECTORS:
        db.execute(statement)
    collections = db.execute(KEEP_COLLECTIONS).fetchall()
    db.pragma("defer_foreign_keys", True)
    db.execute("DELETE FROM vectors")
    for table in DERIVED_TABLES:
        db.execute(f"DELETE FROM {table}")
    gone = tombstones.skeletons(db)
    if not gone.found:
        # With something forgotten the numbers would come out lower than they were: none is reused.
        db.execute(RESET_NUMBERS)
    erasing = db.execute(tombstones.IS_ERASING).fetchone() is not None
    chains, count = history.ChainProof(), 0
    for group in _groups(events):
        for event in group:
            _must_be_sound(chains.see(event))
        reduce.apply_all(db, [gone.effective(event) for event in group])
        count += len(group)
    if not erasing:
        db.execute(tombstones.CLEAR_ERASING)
    _must_be_sound(chains.finish(history.heads(db)))
    # A compaction in history may have dropped a collection that was made anew since.
    db.executemany(RESTORE_COLLECTION, collections)
    for statement in RESTORE_VECTORS:
        db.execute(statement)
    return count


def _operational_faults(db: apsw.Connection) -> list[Problem]:
    """Tables that history does not decide, as far as they prove themselves."""
    found = [
        Problem(check="vectors", detail=f"collection {name} is not what its name says")
        for model, dims, print_, scale, name in db.execute(SELECT_COLLECTION_NAMES).fetchall()
        if digest_of(str(model), str(dims), str(print_), f"{scale:g}")[:16] != name
    ]
    row = db.execute(COUNT_UNMARKED_JOBS, (reduce.JOB_MEMORY_MS,)).fetchone()
    if row is not None and row[0]:
        detail = f"{row[0]} jobs have their effect in history and are not marked as applied"
        found.append(Problem(check="jobs", detail=detail))
    return found


def unappliable(db: apsw.Connection, events: Iterable[Event]) -> list[str]:
    """Events that cannot be applied, each left out before the next is tried."""
    gone = tombstones.skeletons(db)
    found: list[str] = []
    with closing(apsw.Connection("")) as scratch:
        migrate(scratch, "memory")
        with transaction(scratch):
            for event in events:
                scratch.execute("SAVEPOINT one")
                try:
                    reduce.apply(scratch, gone.effective(event))
                except (Invalid, apsw.Error):
                    scratch.execute("ROLLBACK TO one")
                    found.append(event.event_id)
                scratch.execute("RELEASE one")
    return found


def _must_be_sound(faults: list[str]) -> None:
    if faults:
        raise Corrupt(f"history does not verify, nothing was rebuilt: {faults[0]}")


def _differences(db: apsw.Connection, events: Iterable[Event]) -> list[Problem]:
    """Faults of history, and of the tables against a derivation from it."""
    chains, faults, applies = history.ChainProof(), list[str](), True
    try:
        gone = tombstones.skeletons(db)
    except Corrupt as fault:
        return [Problem(check="history", detail=str(fault))]
    unerased: list[Problem] = []
    # "" is a private temporary database: in memory while small, on disk when it grows.
    with closing(apsw.Connection("")) as scratch:
        # Nobody needs it after a crash: no syncs, and no pages kept for a rollback of the whole.
        scratch.pragma("synchronous", "OFF")
        migrate(scratch, "memory")
        with transaction(scratch):
            for group in _groups(events):
                for event in group:
                    faults += chains.see(event)
                    if (fault_found := gone.fault(event)) is not None:
                        check = "erasure" if event.event_id in gone else "history"
                        unerased.append(Problem(check=check, detail=fault_found))
                if applies and (failed := _apply_group(scratch, group, gone)):
                    faults.append(failed)
                    applies = False
        faults += chains.finish(history.heads(db))
        found = [Problem(check="history", detail=fault) for fault in faults] + unerased
        return found + (_table_differences(db, scratch) if applies else [])


def _groups(events: Iterable[Event]) -> Iterator[list[Event]]:
    """The events in order, some hundred at a time, and no more than some megabytes of them."""
    group: list[Event] = []
    size = 0
    for event in events:
        group.append(event)
        size += 0 if event.payload is None else len(event.body())
        if len(group) >= GROUP_EVENTS or size >= GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _apply_group(
    scratch: apsw.Connection, group: Sequence[Event], gone: tombstones.Skeletons
) -> str | None:
    """Apply them all; else say which is the first that cannot be applied."""
    effective = [gone.effective(event) for event in group]
    scratch.execute("SAVEPOINT group_of_events")
    try:
        reduce.apply_all(scratch, effective)
    except (Invalid, apsw.Error):
        scratch.execute("ROLLBACK TO group_of_events")
        for event in effective:
            try:
                reduce.apply(scratch, event)
            except (Invalid, apsw.Error) as fault:
                return f"event {event.event_id} cannot be applied again ({fault})"
    scratch.execute("RELEASE group_of_events")
    return None


def _table_differences(db: apsw.Connection, scratch: apsw.Connection) -> list[Problem]:
    found: list[Problem] = []
    for table, order in DERIVED_TABLES.items():
        statement = f"SELECT * FROM {table} ORDER BY {order}"
        if table in COMPARED:
            statement = f"{COMPARED[table]} ORDER BY chunk_id"
        rows = zip_longest(db.execute(statement), scratch.execute(statement))
        differing = sum(1 for here, there in rows if here != there)
        if differing:
            detail = f"{table}: {differing} rows are not what history says"
            found.append(Problem(check="tables", detail=detail))
    return found
