"""Fixtures of the queue's contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.queue_port import Queue
from tests.contract.queues import BACKENDS
from tests.support import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves by hand."""
    return ManualClock()


@pytest.fixture(params=list(BACKENDS.values()), ids=list(BACKENDS))
def queue(request: pytest.FixtureRequest, home: Path, clock: ManualClock) -> Iterator[Queue]:
    """An empty queue of each backend."""
    made: Queue = request.param(home, clock)
    yield made
    made.close()
