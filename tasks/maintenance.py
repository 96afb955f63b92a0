"""Task `maintenance`: what a home gathers and nothing else removes.

Gives the queue's free pages back when most of it is free, removes what dead processes left, and
ages out receipts. It has no effect on memory, so it needs no stamp. Statistics are not gathered: a
plan that fits the ten jobs of tonight would scan the hundred thousand of tomorrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import apsw

from storage.config import load_settings
from storage.connection import reclaim
from storage.errors import Busy, MemorydError
from storage.queue import open_queue
from storage.queue_owner import sweep
from storage.receipt_log import prune
from storage.records import JsonValue, ProjectId
from storage.wakeup import sweep_short
from tasks.context import Context, Finished

WORTH_BYTES: Final = 16_777_216
"""Below it, free pages are room for tomorrow."""


def run(context: Context, _args: Mapping[str, JsonValue]) -> Finished:
    """Tidy the whole home."""
    queue = open_queue(context.paths, clock=context.clock)
    try:
        given_back = _give_back(queue.file.db)
    finally:
        queue.close()
    left = sweep(context.paths) + sweep_short(context.paths, context.clock.now_ms() / 1000)
    context.lease.check()
    receipts = _prune_receipts(context)
    return Finished(
        note=f"{given_back} bytes given back, {left} leftovers, {receipts} receipt files removed"
    )


def _give_back(db: apsw.Connection) -> int:
    page, pages, free = (
        int(str(db.pragma(name))) for name in ("page_size", "page_count", "freelist_count")
    )
    if page * free < WORTH_BYTES or free * 2 < pages:
        return 0
    try:
        reclaim(db)
    except Busy:
        # Somebody reads; tomorrow is as good.
        return 0
    return page * (pages - int(str(db.pragma("page_count"))))


def _prune_receipts(context: Context) -> int:
    """Of projects that nobody asks about any more: the others prune as they write."""
    gone = 0
    for folder in sorted(context.paths.home.glob("*/memory/receipts")):
        paths = context.paths.project(ProjectId(folder.parent.parent.name))
        try:
            settings = load_settings(context.paths, context.environment, paths)
            keep_days = settings.recall.receipt_days
            gone += prune(paths, now=context.clock.now_ms(), keep_days=keep_days)
        except MemorydError:
            # Settings that cannot be read: `ops doctor` says so; nothing is guessed here.
            continue
    return gone
