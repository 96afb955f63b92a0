"""The folder of short socket names: what dead programs left goes, what is held stays."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.paths import HomePaths, short_socket
from storage.wakeup import sweep_short

LATER_S = 3_600.0


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of short names, in a place of this test's own whose path is short."""
    with tempfile.TemporaryDirectory(prefix="m") as base:
        monkeypatch.setenv("XDG_RUNTIME_DIR", base)
        made = short_socket(Path("/" + "x" * 200)).parent
        made.mkdir(mode=0o700)
        yield made


def _bound(path: Path, kind: socket.SocketKind) -> socket.socket:
    held = socket.socket(socket.AF_UNIX, kind)
    held.bind(os.fspath(path))
    if kind is socket.SOCK_STREAM:
        held.listen(1)
    return held


def test_only_what_nobody_holds_is_removed(folder: Path, home: Path) -> None:
    """A server's and a bell's socket stay while they are held; other files always stay."""
    kinds = {"stream": socket.SOCK_STREAM, "bell": socket.SOCK_DGRAM}
    for name, kind in kinds.items():
        _bound(folder / f"dead-{name}", kind).close()
    held = [_bound(folder / f"held-{name}", kind) for name, kind in kinds.items()]
    (folder / "dead.errors").write_text("1 hook.failed A\n")
    now_s = folder.stat().st_mtime + LATER_S

    young = sweep_short(HomePaths(home), folder.stat().st_mtime)
    gone = sweep_short(HomePaths(home), now_s)
    again = sweep_short(HomePaths(home), now_s)
    left = sorted(path.name for path in folder.iterdir())
    for one in held:
        one.close()

    assert (young, gone, again) == (0, 2, 0)
    assert left == ["dead.errors", "held-bell", "held-stream"]


def test_a_folder_that_is_not_there_is_no_error(folder: Path, home: Path) -> None:
    """Most machines never need it."""
    folder.rmdir()

    assert sweep_short(HomePaths(home), LATER_S) == 0
