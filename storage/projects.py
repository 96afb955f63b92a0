"""Which folder belongs to which memory: binding, finding, sharing, moving and releasing folders.

Owns the rules over the registry (`storage.registry`): a folder gets a memory only on request; two
folders share one only on request and, unless it is forced, only within one repository; nothing is
merged and no memory is deleted. A binding is published after the owner-bound database behind it was
opened and checked, so a failure leaves the registry as it was.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from storage import registry
from storage.clock import Clock
from storage.config import StorageSettings
from storage.errors import NotInitialized, Refused
from storage.legacy import PROJECT_ID, confirmed_id
from storage.paths import HomePaths
from storage.places import SameFolder, nearest, same_folder, spelled_alike
from storage.records import ProjectId
from storage.registry import MAX_FORMER, Binding
from storage.repository import Repository, common_directory, identify, top_of

__all__ = [
    "PROJECT_ID",
    "Binding",
    "bind",
    "bindings",
    "link",
    "lookup",
    "move",
    "project_id_of",
    "publish",
    "related",
    "unlink",
]

NO_ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType({})
_Bindings = tuple[Binding, ...]


def bindings(home: HomePaths) -> tuple[Binding, ...]:
    """Every binding, by location; none when there is no registry yet.

    Raises:
        Corrupt: the registry fails its checks.
        Unavailable: it cannot be read, or is not a private file of ours.
    """
    return registry.read(home).bindings


def lookup(home: HomePaths, cwd: Path, *, same: SameFolder = same_folder) -> Binding | None:
    """The binding of a folder or of the nearest folder around it (see `storage.places`).

    Raises:
        Corrupt, Unavailable: as `bindings`.
    """
    place = os.path.realpath(cwd)
    return registry.find(home, lambda known: nearest(place, known, same=same))


def bind(
    home: HomePaths,
    checkout: Path,
    *,
    clock: Clock,
    settings: StorageSettings,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    same: SameFolder = same_folder,
) -> Binding:
    """Give a checkout its memory (the only thing that does), or return the binding it has.

    The owner-bound database is opened and checked before the registry names it, so a failure
    leaves no binding behind.

    Raises:
        Refused: not a folder, or the id derived from its path stands for another folder.
        Corrupt, WrongOwner, Unavailable, Busy
    """
    place = _folder(checkout)

    def prepare(project_id: ProjectId) -> None:
        _check(home, project_id, clock=clock, settings=settings, create=True)

    repository = identify(place, environment)
    return publish(home, place, clock=clock, prepare=prepare, repository=repository, same=same)


def publish(
    home: HomePaths,
    place: Path,
    *,
    clock: Clock,
    prepare: Callable[[ProjectId], None],
    repository: Repository | None = None,
    same: SameFolder = same_folder,
) -> Binding:
    """Bind a canonical folder under the registry's lock, once `prepare` has succeeded."""

    def decide(known: _Bindings) -> tuple[_Bindings, Binding]:
        own = _at(known, place, same)
        if own is not None:
            prepare(own.project_id)
            fresh = own if repository is None else replace(own, repository=repository)
            return _replaced(known, own, fresh), fresh
        legacy = confirmed_id(home, place)
        fresh = Binding(
            location=place,
            project_id=legacy or _unused_id(known, place),
            checkout_id=_checkout_id(place),
            source="memory" if legacy is None else "legacy",
            created_at=clock.now_ms(),
            repository=repository,
        )
        prepare(fresh.project_id)
        return (*known, fresh), fresh

    return registry.change(home, decide)


def related(
    home: HomePaths,
    checkout: Path,
    *,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    same: SameFolder = same_folder,
) -> tuple[Binding, ...]:
    """Bindings of other folders that are the same repository's, or this very folder elsewhere.

    Two folders of one repository are related when they are the same part of it.

    Raises:
        Corrupt, Unavailable: as `bindings`.
    """
    others = bindings(home)
    if not others:
        return ()
    place = Path(os.path.realpath(checkout))
    repository = identify(place, environment)
    return tuple(
        other
        for other in others
        if other.location != place and _is_alike(other, place, repository, same, strict=True)
    )


def link(
    home: HomePaths,
    checkout: Path,
    project_id: ProjectId,
    *,
    clock: Clock,
    settings: StorageSettings,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    force: bool = False,
    same: SameFolder = same_folder,
) -> Binding:
    """Let a folder use the memory that other folders of its repository use.

    Raises:
        Refused: not a folder, an unknown memory, a folder with another memory, or (unless `force`)
            nothing shows that it is the same repository.
        NotInitialized: that memory's database is missing; it is not made anew.
        Corrupt, WrongOwner, Unavailable, Busy
    """
    place = _folder(checkout)
    repository = identify(place, environment)

    def decide(known: _Bindings) -> tuple[_Bindings, Binding]:
        own = _at(known, place, same)
        if own is not None and own.project_id == project_id:
            return known, own
        if own is not None:
            raise Refused(
                f"{place} has a memory of its own ({own.project_id}):"
                f" release it first with `ops project unlink`"
            )
        users = _users(home, known, project_id)
        if not force and not any(_is_alike(user, place, repository, same) for user in users):
            raise Refused(
                f"nothing shows that {place} is of the same repository as the folders of"
                f" {project_id}: if it shall use that memory all the same, add --force"
            )
        _check(home, project_id, clock=clock, settings=settings, create=False)
        fresh = Binding(
            location=place,
            project_id=project_id,
            checkout_id=_checkout_id(place),
            source="memory",
            created_at=clock.now_ms(),
            repository=repository,
        )
        return (*known, fresh), fresh

    return registry.change(home, decide)


def move(
    home: HomePaths,
    checkout: Path,
    project_id: ProjectId,
    *,
    clock: Clock,
    settings: StorageSettings,
    environment: Mapping[str, str] = NO_ENVIRONMENT,
    source: Path | None = None,
    force: bool = False,
    same: SameFolder = same_folder,
) -> Binding:
    """Bind a memory to where its checkout stands now; `source` is where it stood.

    Raises:
        Refused: not a folder, an unknown memory, a checkout that is still where it was, more than
            one that is gone, a folder with another memory, or (unless `force`) another repository.
        NotInitialized: that memory's database is missing; it is not made anew.
        Corrupt, WrongOwner, Unavailable, Busy
    """
    place = _folder(checkout)
    repository = identify(place, environment)

    def decide(known: _Bindings) -> tuple[_Bindings, Binding]:
        old = _gone(_users(home, known, project_id), project_id, source)
        own = _at(known, place, same)
        if own is not None and own.project_id != project_id:
            raise Refused(
                f"{place} has a memory of its own ({own.project_id}):"
                f" release it first with `ops project unlink`"
            )
        if not (force or old.repository is None or _same_repository(old.repository, repository)):
            raise Refused(
                f"{place} is not of the repository that stood at {old.location}:"
                f" if it shall use that memory all the same, add --force"
            )
        _check(home, project_id, clock=clock, settings=settings, create=False)
        rest = tuple(item for item in known if item not in (old, own))
        fresh = replace(
            own or old,
            location=place,
            checkout_id=_checkout_id(place),
            repository=repository,
            former=(old.location, *old.former)[:MAX_FORMER],
        )
        return (*rest, fresh), fresh

    return registry.change(home, decide)


def unlink(home: HomePaths, place: Path) -> Binding:
    """Release a bound folder (it need not exist any more); its memory stays where it is.

    Raises:
        NotInitialized: no memory belongs to this very folder.
        Corrupt, Unavailable, Busy
    """
    wanted = Path(os.path.realpath(place))
    if _at(bindings(home), wanted, same_folder) is None:
        raise NotInitialized(f"no memory belongs to {wanted}")

    def decide(known: _Bindings) -> tuple[_Bindings, Binding]:
        own = _at(known, wanted, same_folder)
        if own is None:
            raise NotInitialized(f"no memory belongs to {wanted}")
        return tuple(item for item in known if item != own), own

    return registry.change(home, decide)


def project_id_of(place: Path) -> ProjectId:
    """`p_` + 12 hex of the canonical path's SHA-256."""
    return ProjectId("p_" + _path_digest(str(place))[:12])


def _unused_id(known: _Bindings, place: Path) -> ProjectId:
    """The folder's own id; another one when the checkout that stood here took it along.

    Raises:
        Refused: two paths have one id.
    """
    users = {item.project_id: item for item in known}
    fresh, number = project_id_of(place), 1
    while (user := users.get(fresh)) is not None:
        if project_id_of(user.location) == fresh:
            raise Refused(f"{fresh} belongs to another folder already")
        number += 1
        fresh = ProjectId("p_" + _path_digest(f"{place}\0{number}")[:12])
    return fresh


def _checkout_id(place: Path) -> str:
    return "co_" + _path_digest(str(place))[:12]


def _path_digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()


def _folder(checkout: Path) -> Path:
    place = Path(os.path.realpath(checkout))
    if not place.is_dir():
        raise Refused(f"{checkout}: not a folder")
    return place


def _at(known: _Bindings, place: Path, same: SameFolder) -> Binding | None:
    found = {str(item.location): item for item in known}
    spelled = spelled_alike(str(place), found.keys(), same=same)
    return None if spelled is None else found[spelled]


def _replaced(known: _Bindings, old: Binding, fresh: Binding) -> _Bindings:
    return tuple(fresh if item == old else item for item in known)


def _users(home: HomePaths, known: _Bindings, project_id: ProjectId) -> _Bindings:
    """The folders of a memory; none when all were released.

    Raises:
        Refused: there is no such memory.
    """
    users = tuple(item for item in known if item.project_id == project_id)
    released = PROJECT_ID.fullmatch(project_id) and home.project(project_id).database.exists()
    if not users and not released:
        raise Refused(f"there is no memory {project_id} in {home.home}: see `ops project list`")
    return users


def _gone(users: _Bindings, project_id: ProjectId, source: Path | None) -> Binding:
    """The one binding whose folder is not there any more."""
    if source is not None:
        users = tuple(item for item in users if str(item.location) == os.path.abspath(source))  # noqa: PTH100 -- it may be gone: nothing to resolve
    if not users:
        raise Refused(f"no folder of {project_id} stood there: see `ops project show {project_id}`")
    gone = [item for item in users if not item.location.is_dir()]
    if not gone:
        raise Refused(
            f"{users[0].location} is still there: to share its memory, use `ops project link`"
        )
    if len(gone) > 1:
        raise Refused(
            "more than one folder of this memory is gone: say which one moved with --from"
        )
    return gone[0]


def _is_alike(
    other: Binding,
    place: Path,
    repository: Repository | None,
    same: SameFolder,
    *,
    strict: bool = False,
) -> bool:
    """Whether a bound folder and a place are one folder, or of one repository.

    `strict` wants the same part of it too.
    """
    if same(str(other.location), str(place)):
        return True
    if repository is None:
        return False
    known = other.repository
    if strict and (known.subfolder if known else "") != repository.subfolder:
        return False
    return _same_repository(known, repository) or _share_history(other.location, place)


def _same_repository(one: Repository | None, other: Repository | None) -> bool:
    return one is not None and other is not None and one.resembles(other)


def _share_history(one: Path, other: Path) -> bool:
    """Whether two folders are of worktrees of one repository; needs no git."""
    tops = top_of(one), top_of(other)
    if tops[0] is None or tops[1] is None or not one.is_dir():
        return False
    return common_directory(tops[0]) == common_directory(tops[1])


def _check(
    home: HomePaths,
    project_id: ProjectId,
    *,
    clock: Clock,
    settings: StorageSettings,
    create: bool,
) -> None:
    """Open the project's database once, as its owner."""
    # Here, not above: importing the authority costs what a lookup should not pay.
    from storage.authority import open_authority

    paths = home.project(project_id)
    opened = open_authority(paths, project_id, clock=clock, settings=settings, create=create)
    try:
        with opened.read() as reads:
            reads.stats()
    finally:
        opened.close()
