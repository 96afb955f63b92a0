"""The registry's file: which checkout belongs to which project, `<home>/pi-memory/projects.json`.

A checksummed envelope, replaced atomically under a lock that the kernel frees when its holder dies.
A file that is corrupt, oversized, foreign or a link is refused as it stands: nothing is inferred
from it and nothing created beside it. Reading creates nothing. Leaves to `storage.projects` who may
change a binding, and why.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar

from storage.atomic import NOFOLLOW, replace_file
from storage.connection import open_database, private_directory, transaction
from storage.errors import Corrupt, Refused, Unavailable
from storage.legacy import PROJECT_ID, holds
from storage.paths import HomePaths
from storage.records import JsonValue, ProjectId, canonical_json
from storage.repository import Repository

SCHEMA_VERSION: Final = 1
MAX_BYTES: Final = 1_048_576
LOCK_WAIT_MS: Final = 30_000
MAX_FORMER: Final = 8
_CHECKOUT_ID: Final = re.compile(r"co_[A-Za-z0-9_-]{1,64}")

Source = Literal["memory", "legacy"]
Changed = TypeVar("Changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One checkout and the project whose memory it uses."""

    location: Path
    """Canonical: absolute, links resolved."""
    project_id: ProjectId
    checkout_id: str
    source: Source
    created_at: int
    repository: Repository | None = None
    """The git repository it is of, as it was when it was bound; None outside git."""
    former: tuple[Path, ...] = ()
    """Where this checkout stood before it was moved, newest first."""


@dataclass(frozen=True, slots=True)
class Registry:
    """The registry's content."""

    revision: int
    bindings: tuple[Binding, ...]


def read(home: HomePaths) -> Registry:
    """The registry; an empty one of revision 0 when there is none yet.

    Raises:
        Corrupt: it fails its checks.
        Unavailable: it cannot be read, or is not a private file of ours.
    """
    raw = _read_bytes(home)
    return Registry(0, ()) if raw is None else _parse(raw)


def find(home: HomePaths, choose: Callable[[AbstractSet[str]], str | None]) -> Binding | None:
    """The binding whose location `choose` picks of all; no other is built.

    Raises:
        Corrupt, Unavailable: as `read`.
    """
    raw = _read_bytes(home)
    if raw is None:
        return None
    _, items = _checked(raw)
    chosen = choose(items.keys())
    return None if chosen is None else _from_json(items[chosen])


def change(
    home: HomePaths,
    decide: Callable[[tuple[Binding, ...]], tuple[Sequence[Binding], Changed]],
) -> Changed:
    """Replace the bindings by what `decide` makes of them, under the lock; returns its answer.

    When `decide` raises, or changes nothing, nothing is written.

    Raises:
        Refused: the registry would be too large.
        Busy: another process held the lock for 30 seconds.
        Corrupt, Unavailable: as `read`.
    """
    private_directory(home.shared)
    lock = open_database(home.registry_lock, create=True, busy_ms=LOCK_WAIT_MS)
    try:
        with transaction(lock):
            registry = read(home)
            bindings, answer = decide(registry.bindings)
            if tuple(bindings) != registry.bindings:
                _write(home, Registry(registry.revision + 1, tuple(bindings)))
            return answer
    finally:
        lock.close(True)


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


def _write(home: HomePaths, registry: Registry) -> None:
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


def _parse(raw: bytes) -> Registry:
    revision, items = _checked(raw)
    return Registry(revision, tuple(_from_json(item) for item in items.values()))


def _checked(raw: bytes) -> tuple[int, dict[str, Mapping[str, JsonValue]]]:
    """The revision, and the proven entries by location.

    Raises:
        Corrupt: anything about the file is not as it must be.
    """
    try:
        envelope = json.loads(raw)
        if envelope["schemaVersion"] != SCHEMA_VERSION:
            raise Corrupt("the project registry has another schema; refusing to infer from it")
        payload = envelope["payload"]
        revision = envelope["revision"]
        if not holds(payload, envelope["contentHash"]):
            raise Corrupt("the project registry fails its checksum; refusing to infer from it")
        found = [_proven(item) for item in payload["bindings"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise Corrupt("the project registry is malformed; refusing to infer from it") from cause
    if isinstance(revision, bool) or not isinstance(revision, int) or revision < 1:
        raise Corrupt("the project registry has no revision; refusing to infer from it")
    items = dict(found)
    if len(items) != len(found):
        raise Corrupt("the project registry binds one folder twice; refusing to infer from it")
    return revision, items


def _to_json(binding: Binding) -> dict[str, JsonValue]:
    written: dict[str, JsonValue] = {
        "location": str(binding.location),
        "projectId": binding.project_id,
        "checkoutId": binding.checkout_id,
        "source": binding.source,
        "createdAt": binding.created_at,
    }
    if binding.repository is not None:
        written["repository"] = {
            "rootCommits": list(binding.repository.roots),
            "remote": binding.repository.remote,
            "subfolder": binding.repository.subfolder,
        }
    if binding.former:
        written["formerLocations"] = [str(place) for place in binding.former]
    return written


def _proven(item: Mapping[str, JsonValue]) -> tuple[str, Mapping[str, JsonValue]]:
    """An entry with its location, its types and ids checked; a prompt waits, so no more is built.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is no entry.
    """
    location, project, checkout = item["location"], item["projectId"], item["checkoutId"]
    if not isinstance(project, str) or not PROJECT_ID.fullmatch(project):
        raise ValueError("not the id of a project")
    if not isinstance(checkout, str) or not _CHECKOUT_ID.fullmatch(checkout):
        raise ValueError("not the id of a checkout")
    if item["source"] not in {"memory", "legacy"} or type(item["createdAt"]) is not int:
        raise ValueError("an unknown source, or no instant")
    for place in (location, *_list(item.get("formerLocations"))):
        if not isinstance(place, str) or not place.startswith("/") or "\0" in place:
            raise ValueError("a location is not an absolute path")
    _repository(item.get("repository"))
    return str(location), item


def _from_json(item: Mapping[str, JsonValue]) -> Binding:
    """The binding of a proven entry."""
    created = item["createdAt"]
    assert isinstance(created, int)
    return Binding(
        location=Path(str(item["location"])),
        project_id=ProjectId(str(item["projectId"])),
        checkout_id=str(item["checkoutId"]),
        source="legacy" if item["source"] == "legacy" else "memory",
        created_at=created,
        repository=_repository(item.get("repository")),
        former=tuple(Path(str(place)) for place in _list(item.get("formerLocations"))),
    )


def _repository(item: JsonValue) -> Repository | None:
    if item is None:
        return None
    if not isinstance(item, Mapping):
        raise TypeError("not a repository")
    return Repository(
        roots=tuple(_string(root) for root in _list(item.get("rootCommits"))),
        remote=_string(item.get("remote", "")),
        subfolder=_string(item.get("subfolder", "")),
    )


def _list(value: JsonValue) -> Sequence[JsonValue]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _string(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
