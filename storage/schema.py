"""Numbered SQL migrations: one transaction each, `user_version` is the number, newer is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import apsw

from storage.atomic import sync_directory
from storage.connection import open_database, open_readonly, page_copy, transaction, translated
from storage.errors import Corrupt, NewerSchema

Family = Literal["memory", "queue"]


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step."""

    version: int
    name: str
    sql: str


@cache
def migrations(family: Family) -> tuple[Migration, ...]:
    """All steps of one family, in order, numbered 1..n without gaps."""
    found: list[Migration] = []
    # Not importlib.resources: its import alone costs a prompt hook several milliseconds.
    folder = Path(__file__).with_name("migrations") / family
    for entry in sorted(folder.iterdir(), key=lambda item: item.name):
        if entry.name.endswith(".sql"):
            number, _, name = entry.name.removesuffix(".sql").partition("_")
            found.append(Migration(int(number), name, entry.read_text(encoding="utf-8")))
    if [step.version for step in found] != list(range(1, len(found) + 1)):
        raise Corrupt(f"the {family} migrations are not numbered 1 to {len(found)}")
    return tuple(found)


def current_version(family: Family) -> int:
    """The schema version this build writes."""
    return len(migrations(family))


def schema_version(db: apsw.Connection) -> int:
    """The version of an open file; 0 is an empty one."""
    with translated():
        return int(db.pragma("user_version"))


def require_current(db: apsw.Connection, family: Family, what: str) -> None:
    """Check the version, and nothing else: opening runs no DDL.

    Raises:
        NewerSchema: written by a newer memoryd.
        Corrupt: older than this build and not yet migrated.
    """
    found, wanted = schema_version(db), current_version(family)
    if found > wanted:
        raise NewerSchema(
            f"{what}: schema {found} is newer than this memoryd ({wanted}); update it"
        )
    if found < wanted:
        raise Corrupt(f"{what}: schema {found} needs migration to {wanted}")


def keep_copy(path: Path, found: int) -> Path:
    """A private copy of a whole file under its old schema, proven, beside it; made once.

    Raises:
        Corrupt: the file, and so its copy, is damaged; nothing may be migrated.
        Unavailable: there is no room for it.
    """
    target = path.with_name(f"{path.stem}.pre-{found + 1}{path.suffix}")
    if target.exists():
        return target
    unfinished = target.with_name(f".{target.name}.tmp")
    unfinished.unlink(missing_ok=True)
    with closing(open_readonly(path)) as source:
        # A copy of another page size would be refused.
        page_bytes = int(source.pragma("page_size"))
    db = open_database(unfinished, create=True, page_bytes=page_bytes)
    try:
        with translated(path.name):
            with closing(open_readonly(path)) as source, page_copy(db, source) as work:
                while not work.done:
                    work.step(-1)
            sound = db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            db.pragma("journal_mode", "delete")
    finally:
        db.close(True)
    if not sound:
        unfinished.unlink()
        raise Corrupt(f"{path.name}: damaged, so it was not migrated")
    unfinished.replace(target)
    sync_directory(target.parent)
    return target


def migrate(
    db: apsw.Connection,
    family: Family,
    *,
    before_first: Callable[[int], object] | None = None,
) -> int:
    """Bring a database to the current version; returns the version found.

    `before_first` runs once, outside any transaction, when a file that already holds data is about
    to change (the place for a verified backup). Another process may migrate at the same time: each
    step re-reads the version under the write lock.

    Raises:
        NewerSchema: written by a newer memoryd.
    """
    found, wanted = schema_version(db), current_version(family)
    if found > wanted:
        raise NewerSchema(f"schema {found} is newer than this memoryd ({wanted}); update it")
    if 0 < found < wanted and before_first is not None:
        before_first(found)
    for step in migrations(family)[found:]:
        with transaction(db):
            if schema_version(db) >= step.version:
                continue
            # One statement batch: no statement in a migration returns rows, so none is dropped.
            db.execute(step.sql)
            db.pragma("user_version", step.version)
    return found
