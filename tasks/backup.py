"""Task `backup`: a proven copy of a project's store, when it changed since the last one.

Only copies of this task are rotated; one that a person made (`ops backup`) stays until a person
removes it. Copies lie in the project's backup folder, so forgetting reaches them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from storage.authority import copies
from storage.backup import back_up, folder_of, stamp
from storage.connection import free_bytes
from storage.errors import MemorydError, Snooze
from storage.records import JsonValue
from tasks.context import Context, Finished

KEPT: Final = 3
ROOM_FACTOR: Final = 3
"""A copy is unpacked again to prove it: the store must fit so many times beside itself."""
_NAME: Final = re.compile(r"daily-\d{8}T\d{9}Z-g(\d+)\.sqlite")


def run(context: Context, _args: Mapping[str, JsonValue]) -> Finished:
    """Back the store up and remove what is older than the newest KEPT copies.

    Raises:
        Snooze: there is no room for a copy now.
        Corrupt: the store does not prove sound; older copies stay.
    """
    paths = context.project_paths
    if not paths.database.exists():
        return Finished(note="no store yet")
    folder, generation = folder_of(paths), context.open_authority().generation()
    made = _made(folder)
    if made and made[-1][1] == generation:
        return Finished(note="unchanged since the last backup")
    if free_bytes(paths.memory) < ROOM_FACTOR * _size(paths.memory):
        raise Snooze("no room for a backup: free some space")
    context.lease.check()
    name = f"daily-{stamp(context.clock.now_ms())}-g{generation}.sqlite"
    found = back_up(
        paths,
        context.project,
        folder / name,
        clock=context.clock,
        settings=context.settings.storage,
    )
    removed = _rotate(folder)
    return Finished(note=f"{found.bytes} bytes, {found.report.events} events, {removed} removed")


def _made(folder: Path) -> list[tuple[Path, int]]:
    """Copies of this task and the generations they hold, oldest first."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [(folder / name, int(hit[1])) for name in names if (hit := _NAME.fullmatch(name))]


def _size(folder: Path) -> int:
    """Bytes of the store: its files and its journal, without the backups."""
    parts = [*folder.glob("*"), *folder.glob("events/*")]
    return sum(path.stat().st_size for path in parts if path.is_file())


def _rotate(folder: Path) -> int:
    readable = []
    for file, _ in _made(folder):
        try:
            copies.info(file)
        except MemorydError:
            # Damaged: it counts as no backup, and what is left of it is a person's to judge.
            continue
        readable.append(file)
    gone = readable[:-KEPT]
    for file in gone:
        file.unlink(missing_ok=True)
    return len(gone)
