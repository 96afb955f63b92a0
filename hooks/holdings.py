"""What one thread of a long-lived process keeps open: authorities and settings, re-checked on use.

An authority belongs to the thread that opened it, so each thread has holdings of its own. A store
that was deleted or replaced underneath is noticed by its file's identity and opened anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.authority import open_authority
from storage.authority.port import Authority
from storage.clock import Clock
from storage.config import Settings, load_settings
from storage.errors import NotInitialized
from storage.paths import HomePaths
from storage.records import ProjectId

MAX_OPEN: Final = 16
BUSY_MS: Final = 50
"""Readers of a WAL never wait for writers; what may wait (recovery) must not hold up a prompt."""

FileIdentity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Held:
    """An open authority and the file it was opened on."""

    authority: Authority
    identity: FileIdentity
    events: Path
    """The folder of the project's journal."""


class Holdings:
    """Authorities and settings of one thread."""

    def __init__(self, paths: HomePaths, clock: Clock, environment: Mapping[str, str]) -> None:
        self._paths, self._clock, self._environment = paths, clock, environment
        self._held: OrderedDict[ProjectId, Held] = OrderedDict()
        self._settings: dict[ProjectId, tuple[tuple[object, ...], Settings]] = {}

    def settings(self, project: ProjectId) -> Settings:
        """The project's settings as its files say now; read again only when one changed.

        Raises:
            ConfigError: they are not usable as written.
        """
        ours = self._paths.project(project)
        stamps = (_stamp(self._paths.config), _stamp(ours.config))
        known = self._settings.get(project)
        if known is None or known[0] != stamps:
            known = (stamps, load_settings(self._paths, self._environment, ours))
            self._settings[project] = known
        return known[1]

    def authority(self, project: ProjectId) -> Held:
        """The project's authority, open on the file that is there now.

        Raises:
            NotInitialized: it is not there.
            Corrupt, Unavailable, Busy: as `open_authority`.
        """
        identity = file_identity(self._paths.project(project).database)
        held = self._held.get(project)
        if held is not None and held.identity == identity:
            self._held.move_to_end(project)
            return held
        self.forget(project)
        if identity is None:
            raise NotInitialized
        opened = open_authority(
            self._paths.project(project),
            project,
            clock=self._clock,
            settings=self.settings(project).storage,
            busy_ms=BUSY_MS,
        )
        held = self._held[project] = Held(opened, identity, self._paths.project(project).events)
        while len(self._held) > MAX_OPEN:
            self.forget(next(iter(self._held)))
        return held

    def forget(self, project: ProjectId) -> None:
        """Close the project's authority, if it is open."""
        held = self._held.pop(project, None)
        if held is not None:
            held.authority.close()

    def close(self) -> None:
        """Close everything."""
        for project in list(self._held):
            self.forget(project)


def file_identity(path: Path) -> FileIdentity | None:
    """Device and inode of a file; None when there is none."""
    try:
        info = path.stat()
    except OSError:
        return None
    return (info.st_dev, info.st_ino)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        info = path.stat()
    except OSError:
        return None
    return (info.st_ino, info.st_mtime_ns, info.st_size)
