"""Fixtures of the tests around the resident server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hooks.serverside import Running, a_server, short_home


@pytest.fixture
def running() -> Iterator[Running]:
    """A server over the ten facts."""
    with short_home() as home, a_server(home) as server:
        yield server
