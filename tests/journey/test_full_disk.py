"""A disk that is full, for real: a small file system of this process's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
set -eu
mount -t tmpfs -o size={size} memoryd "$1"
shift
exec "$@"
"""


def _in_small_disk(
    disk: Path, words: list[str], *, size: str, user: Path
) -> subprocess.CompletedProcess[str]:
    """A command whose home lies on a file system of the given size."""
    unshare = shutil.which("unshare")
    allowed = unshare and subprocess.run(
        [unshare, "-rm", "sh", "-c", f'mount -t tmpfs memoryd "{disk}"'], check=False
    )
    if not allowed or allowed.returncode != 0:
        pytest.skip("this machine lets its users mount nothing")
    script = SCRIPT.format(size=size)
    return subprocess.run(
        [str(unshare), "-rm", "sh", "-c", script, "sh", str(disk), *words],
        cwd=user,
        env={"PATH": os.environ["PATH"], "HOME": str(user), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("size", ["64k", "200k", "400k"])
def test_a_full_disk_is_called_full_at_once(tmp_path: Path, size: str) -> None:
    """However far the first run came: one sentence, soon, and what to do."""
    disk, user = tmp_path / "disk", tmp_path / "user"
    disk.mkdir()
    user.mkdir()
    command = [sys.executable, "-I", "-m", "ops.quickstart", "--json", "--home", f"{disk}/home"]

    done = _in_small_disk(disk, command, size=size, user=user)

    answer = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, answer["ok"]) == (3, False), done.stderr
    assert "the disk is full: free some space" in answer["error"].lower()
    assert answer["seconds_run"] < 40
    assert "Traceback" not in done.stderr


def test_the_doctor_fails_on_a_disk_without_room(tmp_path: Path) -> None:
    """Below 20 MB nothing can be relied upon."""
    disk, user = tmp_path / "disk", tmp_path / "user"
    disk.mkdir()
    user.mkdir()
    command = [sys.executable, "-I", "-m", "ops", "doctor", "--json", "--home", f"{disk}/home"]

    done = _in_small_disk(disk, command, size="5m", user=user)

    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 4
    assert (checks["disk"]["verdict"], checks["disk"]["hint"]) == ("fail", "Free some space.")
