"""`curation.sqlite` set aside and made anew: what can be read is kept, the rest comes from sources.

Nothing is thrown away: the damaged file goes into a quarantine folder as it is. Jobs are not taken
over; a sync of every project finds their work again. What was spent is taken over, and if it cannot
be read, today's budget counts as spent: a repair must never buy a second one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from storage.atomic import file_lock, sync_directory
from storage.budget import GLOBAL_SCOPE, BudgetLedger
from storage.clock import Clock, iso
from storage.config import BudgetSettings
from storage.connection import open_readonly, private_directory, translated
from storage.errors import Busy, Corrupt, MemorydError, NewerSchema
from storage.jobs import JobKind, JobSpec, Priority
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.queue_file import open_queue_reader
from storage.queue_owner import living_owners
from storage.records import ProjectId

QUARANTINE: Final = "quarantine"
KEPT_TABLES: Final = (
    "budget_windows", "circuits", "pauses", "last_success", "activity", "watermarks", "fired",
    "spooled",
)  # fmt: skip
CHARGE: Final = """
INSERT INTO budget_windows (scope, window, calls_used, tokens_used)
VALUES (:scope, :window, :calls, :tokens)
ON CONFLICT (scope, window) DO UPDATE SET
  calls_used = max(calls_used, excluded.calls_used),
  tokens_used = max(tokens_used, excluded.tokens_used)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRepair:
    """What was found and done."""

    damage: str
    """What is wrong with the file, in one line; "" = it is sound, and nothing was changed."""
    kept_in: Path | None = None
    rows_kept: int = 0
    tables_lost: tuple[str, ...] = ()
    budget_closed: bool = False
    """What was spent today could not be read, so nothing more may be spent today."""
    jobs: int = 0


def damage_of(paths: HomePaths) -> str:
    """What is wrong with the queue's file, "" if it is sound or not made yet.

    Raises:
        NewerSchema: it is sound, but of a newer memoryd.
        Unavailable: it cannot be looked at (permissions, links).
    """
    if not paths.queue.exists():
        return ""
    try:
        with closing(open_queue_reader(paths)) as db, translated(paths.queue.name):
            found = db.execute("PRAGMA integrity_check(1)").fetchall()[0][0]
    except NewerSchema:
        raise
    except Corrupt as cause:
        return str(cause)
    return "" if found == "ok" else f"{paths.queue.name}: {found}"


def repair_queue(
    paths: HomePaths, clock: Clock, budget: BudgetSettings, projects: Sequence[ProjectId]
) -> QueueRepair:
    """Set a damaged file aside, make a new one, and ask for a sync of every project.

    Raises:
        Busy: a consumer of this home runs, or another process makes the file at this moment.
        NewerSchema, Unavailable: as `damage_of`; nothing was changed.
    """
    if living_owners(paths):
        raise Busy("a consumer runs on this queue: stop it first (ops stop)")
    damage = damage_of(paths)
    if not damage:
        return QueueRepair(damage="")
    with file_lock(paths.queue.with_name("curation.lock")):
        kept_in = _set_aside(paths, clock)
    queue = open_queue(paths, clock=clock)
    try:
        rows, lost = _take_over(queue, kept_in / paths.queue.name)
        closed = "budget_windows" in lost
        if closed:
            _close_the_day(queue, clock, budget)
        ids = queue.enqueue(
            [
                JobSpec(kind=JobKind.SYNC, project=project, priority=Priority.INTERACTIVE)
                for project in projects
            ]
        )
    finally:
        queue.close()
    return QueueRepair(
        damage=damage,
        kept_in=kept_in,
        rows_kept=rows,
        tables_lost=lost,
        budget_closed=closed,
        jobs=len(ids),
    )


def _set_aside(paths: HomePaths, clock: Clock) -> Path:
    name = f"curation-{iso(clock.now_ms()).replace(':', '')}"
    folder = private_directory(private_directory(paths.shared / QUARANTINE) / name)
    # The log first: a database without its log is old, a log beside another database is poison.
    for suffix in ("-wal", "-shm", ""):
        path = paths.queue.with_name(paths.queue.name + suffix)
        with suppress(FileNotFoundError):
            path.rename(folder / path.name)
    sync_directory(folder)
    sync_directory(paths.shared)
    return folder


def _take_over(queue: JobQueue, damaged: Path) -> tuple[int, tuple[str, ...]]:
    """Rows that were kept, and tables that could not be read to their end."""
    kept, lost = 0, []
    for table in KEPT_TABLES:
        try:
            with closing(open_readonly(damaged)) as db, translated():
                columns = [
                    str(row[1]) for row in db.execute(f"PRAGMA table_info({table})").fetchall()
                ]
                rows = db.execute(f"SELECT * FROM {table}").fetchall()
            if not columns:
                lost.append(table)
                continue
            with queue.file.write("FULL") as fresh:
                kept += _insert(fresh, table, columns, rows)
        except (MemorydError, apsw.Error):
            lost.append(table)
    return kept, tuple(lost)


def _insert(
    db: apsw.Connection, table: str, columns: Sequence[str], rows: Sequence[apsw.SQLiteValues]
) -> int:
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    db.executemany(f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({marks})", rows)
    return len(rows)


def _close_the_day(queue: JobQueue, clock: Clock, budget: BudgetSettings) -> None:
    window = BudgetLedger(queue.file, clock, budget).today().started_at
    with queue.file.write("FULL") as db:
        db.execute(
            CHARGE,
            {
                "scope": GLOBAL_SCOPE,
                "window": window,
                "calls": budget.calls_per_day,
                "tokens": budget.tokens_per_day,
            },
        )
