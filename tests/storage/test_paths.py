"""Where files live, and sockets whose path the OS accepts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.paths import HomePaths, home_directory, short_socket


@pytest.mark.parametrize(
    ("explicit", "environment", "expected"),
    [
        ("/a", {"PI_MEMORY_HOME": "/b", "PRJCT_HOME": "/c", "HOME": "/d"}, "/a"),
        (None, {"PI_MEMORY_HOME": "/b", "PRJCT_HOME": "/c", "HOME": "/d"}, "/b"),
        (None, {"PRJCT_HOME": "/c", "HOME": "/d"}, "/c"),
        (None, {"HOME": "/d"}, "/d/.prjct"),
    ],
)
def test_the_home_is_the_most_explicit_one(
    explicit: str | None, environment: dict[str, str], expected: str
) -> None:
    """Argument, PI_MEMORY_HOME, PRJCT_HOME, then ~/.prjct."""
    assert home_directory(explicit, environment) == Path(expected)


def test_a_short_home_keeps_its_socket_inside() -> None:
    """Where the OS allows it the socket stands in the home."""
    assert HomePaths(Path("/h")).socket == Path("/h/pi-memory/recall.sock")


def test_a_long_home_gets_a_short_socket_of_its_own(tmp_path: Path) -> None:
    """A path over the OS limit is replaced by a short one: stable, and different for each home."""
    long = tmp_path / ("x" * 120)
    other = tmp_path / ("y" * 120)

    first, again = HomePaths(long).socket, HomePaths(long).socket

    assert first == again != HomePaths(other).socket
    assert len(os.fsencode(first)) <= 104


def test_a_long_runtime_directory_cannot_make_it_long_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The stand-in obeys the limit whatever XDG_RUNTIME_DIR says."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/" + "r" * 200)

    assert len(os.fsencode(short_socket(tmp_path / ("z" * 200)))) <= 104


def test_a_home_behind_a_link_is_the_real_one(tmp_path: Path) -> None:
    """Linked homes (macOS links /tmp and /var) work: SQLite opens no file through a link."""
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    real = Path(os.path.realpath(tmp_path))

    assert home_directory(str(tmp_path / "link"), {}) == real / "data"
    assert home_directory(None, {"HOME": str(tmp_path / "link")}) == real / "data" / ".prjct"


def test_a_loop_of_links_is_still_a_path(tmp_path: Path) -> None:
    """Naming the home never raises; opening it will say what is wrong."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")

    assert home_directory(str(tmp_path / "loop"), {}).name == "loop"
