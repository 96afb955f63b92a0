"""The registry: which checkout belongs to which project, `<home>/pi-memory/projects.json`.

A checksummed envelope, replaced atomically under a lock that the kernel frees when its holder dies.
Only `bind` writes. A file that is corrupt, oversized, foreign or a link is refused as it stands:
nothing is inferred from it and nothing created beside it. Reading creates nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from storage.atomic import NOFOLLOW, replace_file
from storage.clock import Clock
from storage.config import StorageSettings
from storage.connection import open_database, private_directory, transaction
from storage.errors import Corrupt, Refused, Unavailable
from storage.paths import HomePaths
from storage.records import JsonValue, ProjectId, canonical_json

SCHEMA_VERSION: Final = 1
MAX_BYTES: Final = 1_048_576
LOCK_WAIT_MS: Final = 30_000
PROJECT_ID: Final = re.compile(r"p_[A-Za-z0-9_-]{1,64}")
_CHECKOUT_ID: Final = re.compile(r"co_[A-Za-z0-9_-]{1,64}")

Source = Literal["memory", "legacy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One checkout and the project whose memory it uses."""

    location: Path
    """Canonical: absolute, links resolved."""
    project_id: ProjectId
    checkout_id: str
    source: Source
    created_at: int


@dataclass(frozen=True, slots=True)
class _Registry:
    revision: int
    bindings: tuple[Binding, ...]


def bindings(home: HomePaths) -> tuple[Binding, ...]:
    """Every binding, by location; none when there is no registry yet.

    Raises:
        Corrupt: the registry fails its checks.
        Unavailable: it cannot be read, or is not a private file of ours.
    """
    return _read(home).bindings


def lookup(home: HomePaths, cwd: Path) -> Binding | None:
    """The binding of a folder or of the nearest folder around it.

    Raises:
        Corrupt, Unavailable: as `bindings`.
    """
    found = {binding.location: binding for binding in bindings(home)}
    if not found:
        return None
    place = Path(os.path.realpath(cwd))
    return next((found[folder] for folder in (place, *place.parents) if folder in found), None)


def bind(home: HomePaths, checkout: Path, *, clock: Clock, settings: StorageSettings) -> Binding:
    """Give a checkout its memory (the only thing that does), or return the binding it has.

    The owner-bound database is opened and checked before the registry names it, so a failure
    leaves no binding behind.

    Raises:
        Refused: not a folder, or the id derived from its path stands for another folder.
        Corrupt, WrongOwner, Unavailable, Busy
    """
    place = Path(os.path.realpath(checkout))
    if not place.is_dir():
        raise Refused(f"{checkout}: not a folder")

    def prepare(project_id: ProjectId) -> None:
        # Here, not above: importing the authority costs what a lookup should not pay.
        from storage.authority import open_authority

        paths = home.project(project_id)
        opened = open_authority(paths, project_id, clock=clock, settings=settings, create=True)
        try:
            with opened.read() as reads:
                reads.stats()
        finally:
            opened.close()

    return publish(home, place, clock=clock, prepare=prepare)


def publish(
    home: HomePaths, place: Path, *, clock: Clock, prepare: Callable[[ProjectId], None]
) -> Binding:
    """Bind a canonical folder under the registry's lock, once `prepare` has succeeded."""
    private_directory(home.shared)
    lock = open_database(home.registry_lock, create=True, busy_ms=LOCK_WAIT_MS)
    try:
        with transaction(lock):
            registry = _read(home)
            for known in registry.bindings:
                if known.location == place:
                    prepare(known.project_id)
                    return known
            fresh = _derive(place, clock.now_ms())
            if any(known.project_id == fresh.project_id for known in registry.bindings):
                raise Refused(f"{fresh.project_id} belongs to another folder already")
            prepare(fresh.project_id)
            _write(home, _Registry(registry.revision + 1, (*registry.bindings, fresh)))
            return fresh
    finally:
        lock.close(True)


def project_id_of(place: Path) -> ProjectId:
    """`p_` + 12 hex of the canonical path's SHA-256."""
    return ProjectId("p_" + _path_digest(place)[:12])


def _derive(place: Path, now: int) -> Binding:
    return Binding(
        location=place,
        project_id=project_id_of(place),
        checkout_id="co_" + _path_digest(place)[:12],
        source="memory",
        created_at=now,
    )


def _path_digest(place: Path) -> str:
    return hashlib.sha256(os.fsencode(place)).hexdigest()


def _read(home: HomePaths) -> _Registry:
    raw = _read_bytes(home)
    if raw is None:
        return _Registry(0, ())
    return _parse(raw)


def _read_bytes(home: HomePaths) -> bytes | None:
    try:
        folder = home.shared.lstat()
        fd = os.open(home.registry, os.O_RDONLY | NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise Unavailable(
            f"{home.registry.name}: cannot be read, or is a link ({cause.strerror})"
        ) from cause
    try:
        info = os.fstat(fd)
        if not stat.S_ISDIR(folder.st_mode) or not stat.S_ISREG(info.st_mode):
            raise Unavailable(f"{home.registry.name}: not a plain file in a plain folder")
        if info.st_uid != os.geteuid():
            raise Unavailable(f"{home.registry.name}: belongs to another user")
        if info.st_size > MAX_BYTES:
            raise Corrupt(
                f"{home.registry.name}: larger than {MAX_BYTES} bytes; refusing to use it"
            )
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(MAX_BYTES + 1)
    finally:
        os.close(fd)


def _write(home: HomePaths, registry: _Registry) -> None:
    ordered = sorted(registry.bindings, key=lambda binding: str(binding.location))
    payload: JsonValue = {"bindings": [_to_json(binding) for binding in ordered]}
    body = canonical_json(payload)
    raw = canonical_json(
        {
            "schemaVersion": SCHEMA_VERSION,
            "revision": registry.revision,
            "contentHash": hashlib.sha256(body).hexdigest(),
            "payload": payload,
        }
    )
    if len(raw) > MAX_BYTES:
        raise Refused(f"the registry is full ({MAX_BYTES} bytes)")
    _parse(raw)  # what could not be read back must never replace what can
    replace_file(home.registry, raw)


def _parse(raw: bytes) -> _Registry:
    try:
        envelope = json.loads(raw)
        if envelope["schemaVersion"] != SCHEMA_VERSION:
            raise Corrupt("the project registry has another schema; refusing to infer from it")
        payload = envelope["payload"]
        revision = envelope["revision"]
        if hashlib.sha256(canonical_json(payload)).hexdigest() != envelope["contentHash"]:
            raise Corrupt("the project registry fails its checksum; refusing to infer from it")
        found = tuple(_from_json(item) for item in payload["bindings"])
    except (ValueError, KeyError, TypeError) as cause:
        raise Corrupt("the project registry is malformed; refusing to infer from it") from cause
    if isinstance(revision, bool) or not isinstance(revision, int) or revision < 1:
        raise Corrupt("the project registry has no revision; refusing to infer from it")
    if len({binding.location for binding in found}) != len(found):
        raise Corrupt("the project registry binds one folder twice; refusing to infer from it")
    return _Registry(revision, found)


def _to_json(binding: Binding) -> dict[str, JsonValue]:
    return {
        "location": str(binding.location),
        "projectId": binding.project_id,
        "checkoutId": binding.checkout_id,
        "source": binding.source,
        "createdAt": binding.created_at,
    }


def _from_json(item: Mapping[str, JsonValue]) -> Binding:
    location, project, checkout = item["location"], item["projectId"], item["checkoutId"]
    source, created = item["source"], item["createdAt"]
    if not isinstance(location, str) or not Path(location).is_absolute():
        raise ValueError("a location is not an absolute path")
    if not isinstance(project, str) or not PROJECT_ID.fullmatch(project):
        raise ValueError("not the id of a project")
    if not isinstance(checkout, str) or not _CHECKOUT_ID.fullmatch(checkout):
        raise ValueError("not the id of a checkout")
    if source not in {"memory", "legacy"} or type(created) is not int:
        raise ValueError("an unknown source, or no instant")
    return Binding(
        location=Path(location),
        project_id=ProjectId(project),
        checkout_id=checkout,
        source="legacy" if source == "legacy" else "memory",
        created_at=created,
    )
