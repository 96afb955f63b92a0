"""Git repositories that tests make: never with the user's own settings."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; skips the test when the machine has none."""
    if shutil.which("git") is None:
        pytest.skip("git is not on this machine")
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def repository(folder: Path, *, says: str = "first") -> Path:
    """A repository with one commit; another `says` makes another first commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "README").write_text(says)
    git(folder, "add", "README")
    git(folder, "commit", "-q", "-m", says)
    return folder


def clone(source: Path, target: Path) -> Path:
    """A second clone."""
    git(source.parent, "clone", "-q", str(source), str(target))
    return target


def worktree(source: Path, target: Path) -> Path:
    """A worktree on a branch of its own."""
    git(source, "worktree", "add", "-q", "-b", target.name, str(target))
    return target
