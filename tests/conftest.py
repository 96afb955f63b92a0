"""Fixtures that every package's tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The evaluation data (MEMORYD_SHARED, or `shared` beside the checkout); skips if absent."""
    chosen = os.environ.get("MEMORYD_SHARED")
    folder = Path(chosen) if chosen else ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("the shared evaluation data is not on this machine")
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty, private memory home."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder
