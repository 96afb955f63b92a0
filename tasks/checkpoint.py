"""Task `checkpoint`: put the home's files in order while nobody waits.

Moves the write-ahead log of the queue and of every project's store into the file and deletes the
queue's rows that are past their limit. It has no effect on memory, so it needs no stamp.
"""

from __future__ import annotations

from collections.abc import Mapping

from storage.connection import open_database
from storage.errors import MemorydError
from storage.queue import open_queue
from storage.queue_file import checkpoint_wal
from storage.records import JsonValue
from tasks.context import Context, Finished

PRUNE_PASSES = 50


def run(context: Context, _args: Mapping[str, JsonValue]) -> Finished:
    """Checkpoint the queue and every store; prune the queue."""
    queue = open_queue(context.paths, clock=context.clock)
    try:
        pruned = 0
        for _ in range(PRUNE_PASSES):
            context.lease.check()
            found = queue.prune(context.settings.queue.retention_days)
            pruned += found
            if not found:
                break
        queue.file.checkpoint("RESTART")
    finally:
        queue.close()
    done, busy = _stores(context)
    return Finished(note=f"pruned {pruned} rows, checkpointed {done} stores, {busy} busy")


def _stores(context: Context) -> tuple[int, int]:
    done = busy = 0
    for path in sorted(context.paths.home.glob("*/memory/memory.sqlite")):
        context.lease.check()
        try:
            db = open_database(path, durability="FULL", busy_ms=0, autocheckpoint=0)
        except MemorydError:
            busy += 1
            continue
        try:
            if checkpoint_wal(db, "TRUNCATE") == 0:
                done += 1
            else:
                busy += 1
        finally:
            db.close()
    return done, busy
