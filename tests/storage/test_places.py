"""Which known folder a place belongs to: links, spellings, nested checkouts."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from storage.places import fold, nearest, same_folder, spelled_alike, spellings
from tests.checkouts import clone, git, repository, worktree

CAFE = "/Users/ana/Caf\N{LATIN SMALL LETTER E WITH ACUTE}/harbor"
DECOMPOSED = unicodedata.normalize("NFD", CAFE)


def one_disk(one: str, other: str) -> bool:
    """A file system that ignores case and composition."""
    return fold(one) == fold(other)


@pytest.mark.parametrize(
    ("place", "known", "found"),
    [
        ("/Users/ana/harbor/src", {"/Users/Ana/Harbor"}, "/Users/Ana/Harbor"),
        ("/USERS/ANA/HARBOR", {"/Users/Ana/Harbor"}, "/Users/Ana/Harbor"),
        (DECOMPOSED + "/src", {CAFE}, CAFE),
        (CAFE.upper(), {DECOMPOSED}, DECOMPOSED),
        ("/users/ana/in/x", {"/users/ana", "/Users/Ana/IN"}, "/Users/Ana/IN"),
        ("/users/ana/harbor-2", {"/Users/Ana/Harbor"}, None),
        ("/users/ana", {"/Users/Ana/Harbor"}, None),
        ("/", {"/"}, "/"),
    ],
)  # fmt: skip
def test_other_spellings_count_where_the_disk_says_so(
    place: str, known: set[str], found: str | None
) -> None:
    """Case and composition make no difference on such a disk; the nearest folder still decides."""
    assert nearest(place, known, same=one_disk) == found


@pytest.mark.parametrize("place", ["/users/ana/harbor", DECOMPOSED])
def test_other_spellings_are_other_folders_elsewhere(place: str) -> None:
    """On a disk that tells them apart nothing is shared."""
    known = {"/Users/Ana/Harbor", CAFE}

    assert nearest(place, known, same=lambda *_: False) is None
    assert spelled_alike(place, known, same=lambda *_: False) is None


def test_this_disk_decides_for_itself(tmp_path: Path) -> None:
    """Two folders whose names differ in case only are shared exactly if they are one folder."""
    (tmp_path / "Harbor").mkdir()
    (tmp_path / "harbor").mkdir(exist_ok=True)
    one = (tmp_path / "Harbor").samefile(tmp_path / "harbor")

    found = nearest(str(tmp_path / "harbor"), {str(tmp_path / "Harbor")})

    assert (found is not None) == one
    assert not same_folder("/nowhere/a", "/nowhere/a")
    assert not same_folder("/no\0where", "/")


def test_a_checkout_of_another_repository_is_not_part_of_the_outer_one(tmp_path: Path) -> None:
    """A submodule and a clone inside have no share in it; a worktree of the same has."""
    outer = repository(tmp_path / "outer")
    other = repository(tmp_path / "other", says="other")
    git(outer, "submodule", "--quiet", "add", str(other), "lib")
    clone(outer, outer / "copy")
    worktree(outer, outer / "trees")
    known = {str(outer)}

    assert nearest(str(outer / "lib" / "src"), known) is None
    assert nearest(str(outer / "copy"), known) is None
    assert nearest(str(outer / "trees" / "src"), known) == str(outer)
    assert nearest(str(outer / "src"), known) == str(outer)
    assert nearest(str(outer / "lib"), known | {str(outer / "lib")}) == str(outer / "lib")


def test_a_plain_folder_that_was_chosen_holds_all_checkouts_in_it(tmp_path: Path) -> None:
    """Somebody bound the folder around several repositories: that is what they share."""
    inner = repository(tmp_path / "work" / "inner")

    assert nearest(str(inner), {str(tmp_path / "work")}) == str(tmp_path / "work")


def test_spellings_of_a_name() -> None:
    """Plain names have one; others have the composed and the decomposed form."""
    assert spellings("/a/b") == ("/a/b",)
    assert set(spellings(CAFE)) == {CAFE, DECOMPOSED}
    assert fold(CAFE.upper()) == fold(DECOMPOSED)
