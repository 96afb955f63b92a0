"""A recall server whose encoder is an endpoint: what its failures cost a question."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from retrieval.quantize import packed
from retrieval.remote import RemoteEncoder
from storage.clock import SystemClock
from storage.config import EncoderSettings
from storage.paths import HomePaths
from tests.hooks.serverside import Running, a_server, short_home
from tests.retrieval.endpoints import DIMS, REST, Reply, VectorServer, a_vector_server, said
from tests.retrieval.memories import FACTS, a_store
from tests.support import wait_until

QUERY = "which local database"


class World:
    """A server over ten facts with vectors of the endpoint."""

    def __init__(self, running: Running, endpoint: VectorServer) -> None:
        self.running, self.endpoint = running, endpoint

    def ask(self) -> dict[str, object]:
        """The answer to one question."""
        found = self.running.ask({"op": "recall", "cwd": "/work", "query": QUERY})
        answer = cast("dict[str, dict[str, dict[str, object]]]", found)
        return answer["result"]["recall"]


@pytest.fixture
def world() -> Iterator[World]:
    """Everything is stopped at the end."""
    with a_vector_server() as endpoint, short_home() as home:
        settings = EncoderSettings(provider="openai", model="m", dims=DIMS, base_url=endpoint.url)
        config = HomePaths(home).config
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(
            f'[encoder]\nprovider = "openai"\nmodel = "m"\n'
            f'dims = {DIMS}\nbase_url = "{endpoint.url}"\n'
        )
        with a_server(home, environment={"MEMORYD_ENCODER": "openai"}) as running:
            _fill(home, RemoteEncoder(settings, within_s=1, environment={}))
            made = World(running, endpoint)
            wait_until(lambda: made.ask()["gaps"] == [], what="an answer with both legs")
            yield made


def _fill(home: Path, encoder: RemoteEncoder) -> None:
    with closing(a_store(home, SystemClock())) as store:
        with store.read() as reads:
            rowids = [chunk.rowid for chunk in reads.chunks()]
        rows = np.eye(DIMS, dtype=np.float32)[np.arange(len(FACTS)) % 3]
        vectors = packed(rows, encoder.collection.scale)
        store.store_vectors(encoder.collection, list(zip(rowids, vectors, strict=True)))


def _never(endpoint: VectorServer) -> Reply:
    def reply(_: dict[str, object]) -> tuple[int, bytes]:
        endpoint.release.wait(30)
        return 500, b""

    return reply


@pytest.mark.parametrize(
    "failing",
    [
        lambda _: said({}, 500),
        lambda _: said({"data": [{"index": [0], "embedding": [1, 2, 3, *REST]}]}),
        lambda _: said({"data": [{"index": 0, "embedding": [1, 10**400, 3, *REST]}]}),
        lambda _: lambda _: (200, b"<html>"),
        _never,
    ],
    ids=["500", "a list as index", "a huge number", "no JSON", "silence"],
)
def test_a_failing_endpoint_costs_one_gap_and_no_answer(
    world: World, failing: Callable[[VectorServer], Reply]
) -> None:
    """Recall goes on by words, and the next question does not wait for the endpoint at all."""
    world.endpoint.reply = failing(world.endpoint)

    first = world.ask()
    asked = len(world.endpoint.asked)
    second = world.ask()

    for answer in (first, second):
        assert answer["items"], json.dumps(answer)
        assert len(cast("list[str]", answer["gaps"])) == 1
    assert len(world.endpoint.asked) <= asked + 1
