"""Older stores: a proven private copy first, then the numbered steps, one transaction each.

An indexed file is migrated when it is opened; a compact row is migrated in memory whenever it is
read, and on disk by its next write. Before either changes the file, `backups/pre-<n>-<time>.sqlite`
holds it as it was. Leaves the steps themselves to `storage.schema`.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

from storage.atomic import file_lock
from storage.authority import copies, marker
from storage.connection import open_readonly, private_directory
from storage.errors import Corrupt
from storage.paths import ProjectPaths
from storage.records import ProjectId
from storage.schema import current_version, migrate, schema_version


def upgrade(db: apsw.Connection, paths: ProjectPaths, project: ProjectId, now: int) -> None:
    """Bring an indexed file to this build's schema; nothing happens when it is there already.

    Raises:
        NewerSchema: a newer memoryd wrote it.
        Corrupt, Unavailable: no copy could be made; the file is unchanged.
    """
    if schema_version(db) >= current_version("memory"):
        return
    with file_lock(paths.memory / "upgrade.lock"):
        migrate(db, "memory", before_first=lambda found: keep(paths, project, found, now))


def keep(paths: ProjectPaths, project: ProjectId, version: int, now: int) -> None:
    """A copy of the store as it is, from before its schema changes."""
    folder = private_directory(paths.memory / "backups")
    target = folder / f"pre-{version + 1}-{now}.sqlite"
    if not target.exists():
        copies.write(paths, project, target, made_at=now, check=lambda copy: _check(copy, paths))


def _check(copy: Path, paths: ProjectPaths) -> None:
    """The copy is a whole database that holds the same events, or the same row.

    Raises:
        Corrupt: it is not.
    """
    project = copies.info(copy).project
    with closing(open_readonly(copy)) as db, closing(open_readonly(paths.database)) as living:
        if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise Corrupt("the copy made before a migration is damaged; nothing was changed")
        found, stored = marker.load(db, project)
        same = (found, stored) == marker.load(living, project)
        if same and found.mode == marker.INDEXED:
            heads = "SELECT writer, writer_seq, hash FROM heads ORDER BY writer"
            same = db.execute(heads).fetchall() == living.execute(heads).fetchall()
    if not same:
        raise Corrupt("the copy made before a migration is not the store; nothing was changed")
