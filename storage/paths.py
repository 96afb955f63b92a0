"""Where files live. Pure functions of the home folder; nothing here creates anything."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from storage.records import ProjectId

_SOCKET_PATH_LIMIT = 100 if sys.platform == "darwin" else 104
"""sun_path is 104 bytes on macOS and 108 on Linux, the closing NUL included."""


def home_directory(explicit: str | None, environment: Mapping[str, str]) -> Path:
    """Argument, PI_MEMORY_HOME, PRJCT_HOME, then ~/.prjct. Changing it moves nothing.

    Links on the way to the home are followed once, here: inside it no file is opened through one.
    """
    for chosen in (explicit, environment.get("PI_MEMORY_HOME"), environment.get("PRJCT_HOME")):
        if chosen:
            return _real(Path(chosen).expanduser())
    return _real(Path(environment.get("HOME") or Path.home()) / ".prjct")


def _real(path: Path) -> Path:
    # Unlike Path.resolve, this never raises: a loop of links is refused where the home is opened.
    return Path(os.path.realpath(path))


@dataclass(frozen=True, slots=True)
class HomePaths:
    """The files of one home."""

    home: Path

    @property
    def shared(self) -> Path:
        return self.home / "pi-memory"

    @property
    def registry(self) -> Path:
        return self.shared / "projects.json"

    @property
    def registry_lock(self) -> Path:
        return self.shared / "projects.lock.sqlite"

    @property
    def queue(self) -> Path:
        return self.shared / "curation.sqlite"

    @property
    def spool(self) -> Path:
        return self.shared / "spool"

    @property
    def workers(self) -> Path:
        """One lock file and one wake-up socket per running consumer."""
        return self.shared / "workers"

    @property
    def logs(self) -> Path:
        return self.shared / "logs"

    @property
    def config(self) -> Path:
        return self.shared / "config.toml"

    @property
    def server_lock(self) -> Path:
        return self.shared / "recall.lock"

    @property
    def socket(self) -> Path:
        """The recall server's socket; a short private folder stands in for a long path."""
        return short_socket(self.shared / "recall.sock")

    def project(self, project_id: ProjectId) -> ProjectPaths:
        return ProjectPaths(self.home / project_id)


@dataclass(frozen=True, slots=True)
class ProjectPaths:
    """The files of one project."""

    root: Path

    @property
    def memory(self) -> Path:
        return self.root / "memory"

    @property
    def database(self) -> Path:
        return self.memory / "memory.sqlite"

    @property
    def events(self) -> Path:
        return self.memory / "events"

    @property
    def models(self) -> Path:
        return self.memory / "models"

    @property
    def config(self) -> Path:
        return self.memory / "config.toml"

    @property
    def receipts(self) -> Path:
        """What recall left behind of each answered prompt, one JSONL file a UTC day."""
        return self.memory / "receipts"

    @property
    def session_log(self) -> Path:
        """memoryd's own log of learnable observations, one JSONL file a UTC day."""
        return self.root / "pi-session"


def short_socket(wanted: Path) -> Path:
    """The path itself, or one the OS accepts: `<tmp>/memoryd-<uid>/<16 hex of the wanted path>`."""
    if len(os.fsencode(wanted)) <= _SOCKET_PATH_LIMIT:
        return wanted
    # Here, not above: hardly any home is so deep, and a hook has no time for an unused import.
    import tempfile

    name = hashlib.sha256(os.fsencode(wanted)).hexdigest()[:16]
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    short = base / f"memoryd-{os.geteuid()}" / name
    if len(os.fsencode(short)) > _SOCKET_PATH_LIMIT:
        short = Path("/tmp") / f"memoryd-{os.geteuid()}" / name  # noqa: S108 -- 0700, checked on use
    return short
