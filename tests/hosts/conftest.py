"""Fixtures of the host tests: a short folder for sockets, and the agents or a reason to skip."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hosts import agents


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A private folder whose path is short: a socket's path must fit in about 100 bytes."""
    path = Path(tempfile.mkdtemp(prefix="md-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def installed_agents() -> None:
    """Skips, saying why, when the pinned agents cannot be installed here."""
    reason = agents.available()
    if reason is not None:
        pytest.skip(reason)
