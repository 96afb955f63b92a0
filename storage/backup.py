"""Backup and restore: a proven one-file copy out, and a proven one back in.

A backup is made of a living store without stopping anybody. It is unpacked and verified before it
gets its name, so what is there can be restored. Restoring over a living store needs to be forced
and keeps a copy of what it replaces. Both take the maintenance lock. The file's form is
`storage.authority.copies`.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.atomic import file_lock
from storage.authority import ProjectAuthority, copies, open_authority
from storage.authority.copies import CopyInfo, Progress
from storage.authority.port import VerifyReport
from storage.clock import Clock
from storage.config import StorageSettings
from storage.connection import open_readonly, private_directory
from storage.errors import Corrupt, Invalid, MemorydError, WrongOwner
from storage.forget import LOCK_NAME, forget_again, gone_in
from storage.paths import ProjectPaths
from storage.records import ProjectId


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """One backup that was made."""

    file: Path
    bytes: int
    report: VerifyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore did."""

    made_at: int
    report: VerifyReport
    kept: Path | None
    """Where the store that was replaced lies now."""
    forgotten: int | None
    """How many things the replaced store had forgotten, which the restored one forgets too; None
    when that store could not be read."""


def folder_of(paths: ProjectPaths) -> Path:
    """Where backups go unless somebody says otherwise; only these forget along."""
    return paths.memory / "backups"


def back_up(
    paths: ProjectPaths,
    project: ProjectId,
    target: Path | None,
    *,
    clock: Clock,
    settings: StorageSettings,
    progress: Progress | None = None,
) -> Backup:
    """Copy the store into one file and prove the copy.

    Raises:
        Invalid: the target exists.
        Corrupt: the store does not prove sound; no backup is made.
    """
    now = clock.now_ms()
    folder = private_directory(folder_of(paths))
    file = target if target is not None else _free(folder, f"{stamp(now)}", ".sqlite")
    with file_lock(paths.memory / LOCK_NAME):
        copies.clear_workshops(folder)
        found: list[VerifyReport] = []

        def check(copy: Path) -> None:
            found.append(prove(copy, project, folder, clock=clock, settings=settings))

        size = copies.write(paths, project, file, made_at=now, check=check, progress=progress)
    return Backup(file=file, bytes=size, report=found[0])


def prove(
    copy: Path, project: ProjectId, work: Path, *, clock: Clock, settings: StorageSettings
) -> VerifyReport:
    """Unpack a copy beside the store, open it as a store, and verify that.

    Raises:
        WrongOwner: it is another project's.
        Corrupt: it is damaged or does not prove sound.
    """
    _require_owner(copies.info(copy), project)
    with closing(open_readonly(copy)) as db:
        if db.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise Corrupt(f"{copy.name}: the file is damaged")
    with copies.workshop(work) as folder:
        staged = copies.unpack(copy, folder / "store")
        return _verified(staged, project, copy, clock, settings)


def restore(
    paths: ProjectPaths,
    project: ProjectId,
    file: Path,
    *,
    clock: Clock,
    settings: StorageSettings,
    force: bool = False,
) -> Restored:
    """Put a backup in the place of the store.

    Raises:
        Invalid: a store is there and `force` is not set.
        WrongOwner, Corrupt: the backup is not usable; nothing was changed.
    """
    made = copies.info(file)
    _require_owner(made, project)
    living = paths.database.exists() and paths.database.stat().st_size > 0
    if living and not force:
        raise Invalid("this project has a memory; --force replaces it and keeps a copy")
    private_directory(paths.root)
    private_directory(paths.memory)
    with file_lock(paths.memory / LOCK_NAME), copies.workshop(folder_of(paths)) as folder:
        copies.clear_workshops(paths.memory)
        staged = copies.unpack(file, folder / "store")
        report = _verified(staged, project, file, clock, settings)
        kept = keep_living(paths, project, "before-restore", clock) if living else None
        forgotten: int | None = 0
        if living:
            forgotten = forget_along(staged, paths, project, clock=clock, settings=settings)
            _follow_container(staged, paths, project, clock, settings)
            report = _verified(staged, project, file, clock, settings)
        copies.put(staged, paths, project)
    return Restored(made_at=made.made_at, report=report, kept=kept, forgotten=forgotten)


def forget_along(
    staged: ProjectPaths,
    paths: ProjectPaths,
    project: ProjectId,
    *,
    clock: Clock,
    settings: StorageSettings,
) -> int | None:
    """Let a store that takes the place of another forget what that one forgot; how much that is.

    None when the other cannot be read: then nobody can say what it had forgotten.
    """
    try:
        with closing(open_authority(paths, project, clock=clock, settings=settings)) as living:
            gone = gone_in(living)
    except MemorydError:
        return None
    if gone:
        with closing(open_authority(staged, project, clock=clock, settings=settings)) as store:
            forget_again(store, gone, staged)
    return len(gone)


def keep_living(paths: ProjectPaths, project: ProjectId, why: str, clock: Clock) -> Path:
    """A copy of the store as it is: a backup when it can be read, else its very files.

    Raises:
        Unavailable: no copy can be written; nothing may be replaced then.
    """
    now = clock.now_ms()
    target = _free(private_directory(folder_of(paths)), f"{why}-{stamp(now)}", ".sqlite")
    try:
        copies.write(paths, project, target, made_at=now, check=lambda _: None)
    except Corrupt:
        return quarantine_store(paths, now)
    return target


def quarantine_store(paths: ProjectPaths, now: int) -> Path:
    """The damaged database and its journal, copied byte by byte into the quarantine."""
    folder = private_directory(paths.memory / "quarantine")
    target = private_directory(_free(folder, f"store-{stamp(now)}"))
    for end in ("", "-wal"):
        source = paths.database.with_name(paths.database.name + end)
        if source.is_file():
            shutil.copy(source, target / source.name)
            (target / source.name).chmod(0o600)
    if paths.events.is_dir():
        shutil.copytree(paths.events, target / "events")
    return target


def newest_sound(
    paths: ProjectPaths, project: ProjectId, *, clock: Clock, settings: StorageSettings
) -> tuple[Path, CopyInfo] | None:
    """The newest backup of ours that proves sound."""
    folder = folder_of(paths)
    found: list[tuple[int, Path, CopyInfo]] = []
    for file in folder.glob("*.sqlite") if folder.is_dir() else ():
        try:
            made = copies.info(file)
        except MemorydError:
            continue
        found.append((made.made_at, file, made))
    for _, file, made in sorted(found, key=lambda item: item[:2], reverse=True):
        try:
            prove(file, project, folder, clock=clock, settings=settings)
        except MemorydError:
            continue
        return file, made
    return None


def _verified(
    staged: ProjectPaths, project: ProjectId, file: Path, clock: Clock, settings: StorageSettings
) -> VerifyReport:
    with closing(open_authority(staged, project, clock=clock, settings=settings)) as store:
        report = store.verify()
    if not report.sound:
        raise Corrupt(f"{file.name}: {report.problems[0].detail}")
    return report


def _follow_container(
    staged: ProjectPaths,
    paths: ProjectPaths,
    project: ProjectId,
    clock: Clock,
    settings: StorageSettings,
) -> None:
    """An indexed store never becomes compact again: handles that are open could not follow."""
    try:
        with closing(open_authority(paths, project, clock=clock, settings=settings)) as living:
            indexed = living.container == "indexed"
    except MemorydError:
        indexed = paths.events.is_dir()
    if indexed:
        store: ProjectAuthority = open_authority(staged, project, clock=clock, settings=settings)
        with closing(store):
            store.promote()


def _require_owner(made: CopyInfo, project: ProjectId) -> None:
    if made.project != project:
        raise WrongOwner(f"this backup belongs to {made.project}, not to {project}")


def _free(folder: Path, name: str, end: str = "") -> Path:
    """A name in the folder that nothing has yet."""
    target, number = folder / f"{name}{end}", 1
    while target.exists():
        number += 1
        target = folder / f"{name}-{number}{end}"
    return target


def stamp(now: int) -> str:
    """An instant (UTC ms) as part of a file's name; names sort by time."""
    moment = datetime.fromtimestamp(now / 1000, UTC)
    return moment.strftime("%Y%m%dT%H%M%S") + f"{now % 1000:03d}Z"
