"""Which of several known folders a place belongs to.

The nearest one at or around it decides; another spelling of the same folder (upper and lower case,
composed and decomposed letters) counts where the file system says that it is the same. A checkout
inside another repository's checkout (a submodule, a clone) is not part of it: it has a memory of
its own or none. A worktree of the same repository is, and so is everything in a plain folder that
somebody chose.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

from storage.repository import common_directory, is_checkout, top_of

SameFolder = Callable[[str, str], bool]


def same_folder(one: str, other: str) -> bool:
    """Whether two paths lead to one folder that exists."""
    try:
        return Path(one).samefile(other)
    except (OSError, ValueError):
        return False


def nearest(place: str, known: AbstractSet[str], *, same: SameFolder = same_folder) -> str | None:
    """The known folder that holds an absolute, normal path; None when none does."""
    found = _around(place, known, same)
    if found is None:
        return None
    holder, spelled = found
    return None if _leaves_repository(place, spelled) else holder


def spelled_alike(
    place: str, known: AbstractSet[str], *, same: SameFolder = same_folder
) -> str | None:
    """The known folder that `place` is, in this spelling or another one."""
    if place in known:
        return place
    wanted = fold(place)
    alike = (folder for folder in sorted(known) if fold(folder) == wanted)
    return next((folder for folder in alike if same(folder, place)), None)


def fold(path: str) -> str:
    """What all spellings of a path have in common."""
    if path.isascii():
        return path.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def spellings(path: str) -> tuple[str, ...]:
    """A path with its letters as they are, composed, and decomposed."""
    forms = (path, unicodedata.normalize("NFC", path), unicodedata.normalize("NFD", path))
    return (path,) if path.isascii() else tuple(dict.fromkeys(forms))


def _around(place: str, known: AbstractSet[str], same: SameFolder) -> tuple[str, str] | None:
    """(the known folder, its spelling within `place`)."""
    if not known:
        return None
    around = list(_upward(place))
    exact = next((folder for folder in around if folder in known), None)
    if exact == place:
        return place, place
    # Where `place` may lie in another spelling of a known folder; nearly always nowhere.
    wanted = {fold(folder) for folder in around}
    alike = [folder for folder in known if fold(folder) in wanted]
    for folder in around:
        if folder == exact:
            return folder, folder
        for other in alike:
            if fold(other) == fold(folder) and same(other, folder):
                return other, folder
    return None


def _upward(place: str) -> Iterator[str]:
    yield place
    while (above := os.path.dirname(place)) != place:  # noqa: PTH120 -- a Path a step is slow
        place = above
        yield place


def _leaves_repository(place: str, holder: str) -> bool:
    """Whether `place` lies in a checkout within `holder` that is of another repository."""
    inner = None
    for folder in _upward(place):
        if folder == holder:
            break
        if is_checkout(Path(folder)):
            inner = Path(folder)
            break
    if inner is None:
        return False
    outer = top_of(Path(holder))
    return outer is not None and common_directory(inner) != common_directory(outer)
