"""Repair: what is damaged is set aside, what proves itself is kept, what was cut is written down.

Nothing is overwritten before its bytes lie in `<memory>/quarantine/`. A compact row is either a
whole store behind a damaged wrapping, or the newest sound backup takes its place, or nothing can be
kept and that is said. Afterwards the store verifies. Leaves the indexed form to `repair_journal`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field

import apsw

from storage import backup
from storage.atomic import file_lock
from storage.authority import (
    ProjectAuthority,
    copies,
    history,
    marker,
    open_authority,
    proof,
    tombstones,
)
from storage.authority.image import Image
from storage.clock import Clock
from storage.config import StorageSettings
from storage.connection import open_database, open_readonly, private_directory, transaction
from storage.errors import Corrupt, MemorydError, NewerSchema, NotInitialized, WrongOwner
from storage.events import EventDraft
from storage.forget import LOCK_NAME
from storage.paths import ProjectPaths
from storage.records import ProjectId


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Bytes that were taken out of a file."""

    file: str
    offset: int
    bytes: int
    sha256: str
    kept_in: str
    """Where they lie now, below the memory's folder; "" when there were none."""


@dataclass(slots=True)
class Repaired:
    """What a repair found and did."""

    cuts: list[Cut] = field(default_factory=list)
    restored_from: str = ""
    """The backup that took the place of the store, or gave lost events back."""
    recovered: int = 0
    """Lost events that a backup still had."""
    restated: int = 0
    """Facts, documents and the like said again, because their events are gone."""
    lost: int = 0
    """Events that have no payload, or no effect, any more."""
    notes: list[str] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        return bool(self.cuts or self.restored_from or self.notes)


class NothingToKeep(Corrupt):
    """The memory cannot be read and there is no sound backup of it; nothing was changed."""


class Bench:
    """One repair at work: the store, and what was done so far."""

    def __init__(
        self, paths: ProjectPaths, project: ProjectId, clock: Clock, settings: StorageSettings
    ) -> None:
        self.paths = paths
        self.project = project
        self.clock = clock
        self.settings = settings
        self.done = Repaired()

    def open(self, paths: ProjectPaths | None = None) -> ProjectAuthority:
        """The store, or another in its form."""
        return open_authority(
            paths or self.paths, self.project, clock=self.clock, settings=self.settings
        )

    def set_store_aside(self) -> Cut:
        """A copy of the damaged files, before anything takes their place."""
        kept = backup.quarantine_store(self.paths, self.clock.now_ms())
        data = self.paths.database.read_bytes() if self.paths.database.exists() else b""
        return Cut(
            file=self.paths.database.name,
            offset=0,
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            kept_in=str(kept.relative_to(self.paths.memory)),
        )

    def note(self, cuts: Sequence[Cut], lost: Sequence[str] = ()) -> None:
        """Write the cuts into history, and which events lost their effect."""
        self.done.cuts += cuts
        drafts: list[EventDraft] = []
        for number, cut in enumerate(cuts):
            drafts += tombstones.repaired(
                cut.file,
                cut.offset,
                cut.bytes,
                cut.sha256,
                lost=lost if number == 0 else (),
                kept=bool(cut.kept_in),
            )
        if lost and not cuts:
            drafts += tombstones.repaired("events", 0, 0, "", lost=lost, kept=False)
        if drafts:
            with closing(self.open()) as store:
                store.append(drafts)

    def restore_newest(self) -> bool:
        """Put the newest sound backup in the store's place; False when there is none."""
        found = backup.newest_sound(
            self.paths, self.project, clock=self.clock, settings=self.settings
        )
        if found is None:
            return False
        cut = self.set_store_aside()
        with copies.workshop(backup.folder_of(self.paths)) as folder:
            staged = copies.unpack(found[0], folder / "store")
            # As far as what is damaged still says so: what was forgotten since stays forgotten.
            backup.forget_along(
                staged, self.paths, self.project, clock=self.clock, settings=self.settings
            )
            copies.put(staged, self.paths, self.project)
        self.done.restored_from = found[0].name
        self.note([cut])
        return True


def repair(
    paths: ProjectPaths, project: ProjectId, *, clock: Clock, settings: StorageSettings
) -> Repaired:
    """Make the store verify again, keeping all that proves itself.

    Raises:
        NothingToKeep: a compact row that cannot be read, and no backup; nothing was changed.
        WrongOwner, NewerSchema, NotInitialized: not to be repaired; nothing was changed.
        Busy: somebody writes for long.
    """
    bench = Bench(paths, project, clock, settings)
    if not paths.database.exists() and not paths.events.is_dir():
        raise NotInitialized
    with file_lock(paths.memory / LOCK_NAME):
        copies.clear_workshops(paths.memory)
        copies.clear_workshops(backup.folder_of(paths))
        if _is_sound(bench):
            return bench.done
        if _is_indexed(bench):
            from storage.repair_journal import repair_indexed

            repair_indexed(bench)
        else:
            _repair_compact(bench)
    return bench.done


def _is_sound(bench: Bench) -> bool:
    try:
        with closing(bench.open()) as store:
            store.replay()
            problems = store.verify().problems
    except WrongOwner:
        with closing(open_readonly(bench.paths.database)) as db:
            if not marker.owner_is_damaged(db, bench.project):
                raise
        return False
    except NewerSchema:
        raise
    except (Corrupt, NotInitialized):
        return False
    # An erasure that is not finished is no damage: `ops forget` ends it.
    return all(problem.check == "erasure" for problem in problems)


def _is_indexed(bench: Bench) -> bool:
    """What the marker says; when it cannot be read, whether there is a journal."""
    with suppress(apsw.Error, MemorydError), closing(open_readonly(bench.paths.database)) as db:
        return marker.header(db, bench.project).mode == marker.INDEXED
    return bench.paths.events.is_dir()


def _repair_compact(bench: Bench) -> None:
    """The image itself when its history proves itself, else a backup."""
    image = _rescued_image(bench)
    if image is None:
        if not bench.restore_newest():
            raise NothingToKeep
        return
    cut = bench.set_store_aside()
    with copies.workshop(backup.folder_of(bench.paths)) as folder:
        staged = ProjectPaths(private_directory(folder / "store"))
        open_authority(
            staged, bench.project, clock=bench.clock, settings=bench.settings, create=True
        ).close()
        with closing(open_database(staged.database)) as db, transaction(db):
            marker.swap(db, bench.project, 1, image.pack())
        with closing(bench.open(staged)) as store:
            store.rebuild()
        copies.put(staged, bench.paths, bench.project)
    bench.done.notes.append("the history in the row was whole; everything else was made from it")
    bench.note([cut])


def _rescued_image(bench: Bench) -> Image | None:
    """What lies in the row, if its history proves itself whatever the digest says."""
    try:
        with closing(open_readonly(bench.paths.database)) as db:
            row = db.execute(marker.SELECT_WHOLE).fetchone()
    except (apsw.Error, MemorydError):
        return None
    if row is None or not isinstance(row[5], bytes):
        return None
    for vectors in (row[6], None):
        with suppress(apsw.Error, MemorydError, ValueError):
            kept = vectors if isinstance(vectors, bytes) else None
            image = Image.unpack(marker.Stored(row[5], kept))
            report = proof.prove(image.db, history.events(image.db), [])
            if not any(problem.check in {"history", "file"} for problem in report.problems):
                return image
    return None
