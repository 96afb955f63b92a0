"""Another encoder asks for new vectors, in a consumer that has been running all the while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from retrieval.encoders import shared_encoder
from storage.config import EncoderSettings, Settings, load_settings
from storage.jobs import JobKind, JobState
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from tasks.dispatch import Dispatch
from tasks.lease import Heartbeat
from tasks.reconcile import Reconciler
from tests.retrieval.endpoints import DIMS, VectorServer, a_vector_server
from tests.retrieval.memories import FACTS, PROJECT, a_fact, a_store, remember
from tests.support import ManualClock


class Consumer:
    """The reconciler and the bodies of one process, over a store with ten facts."""

    def __init__(self, home: Path) -> None:
        self.home, self.paths, self.clock = home, HomePaths(home), ManualClock()
        with closing(a_store(home, self.clock)) as store:
            remember(store, [a_fact(text) for text in FACTS])
        self.queue: JobQueue = open_queue(self.paths, clock=self.clock)
        self.reconciler = Reconciler(self.queue, self.paths, {}, self.clock, lambda: (PROJECT,))
        self.dispatch = Dispatch(self.queue, self.paths, {}, self.clock)
        self.heartbeat = Heartbeat(self.queue, self.clock, lease_ms=60_000)

    def use(self, **settings: str | int) -> None:
        """Write the encoder's settings, as a person would."""
        lines = [f"{name} = {value!r}".replace("'", '"') for name, value in settings.items()]
        self.paths.config.parent.mkdir(parents=True, exist_ok=True)
        self.paths.config.write_text("\n".join(["[encoder]", *lines, ""]))

    def settle(self) -> int:
        """Reconcile and run every job until nothing is asked for; how many embed jobs ran."""
        ran = 0
        while self.reconciler.run() or self.queue.counts()[JobState.AVAILABLE]:
            job = self.queue.claim("1-me")
            assert job is not None
            lease = self.heartbeat.hold(job, 60_000)
            done = self.dispatch.run(job, lease)
            self.queue.acknowledge(job, done.successors)
            self.heartbeat.drop(lease)
            ran += job.kind == JobKind.EMBED
        return ran

    def vectors(self) -> int:
        """How many texts have one of the encoder in use."""
        settings: Settings = load_settings(self.paths, {}, self.paths.project(PROJECT))
        encoder = shared_encoder(settings.encoder)
        assert encoder is not None
        with closing(a_store(self.home, self.clock)) as store, store.read() as reads:
            return len(list(reads.vectors(encoder.collection)))


@pytest.fixture
def consumer(home: Path) -> Iterator[Consumer]:
    """Without a worker thread: the test is the only one."""
    made = Consumer(home)
    yield made
    made.queue.close()


@pytest.fixture
def server() -> Iterator[VectorServer]:
    """Somebody's endpoint."""
    with a_vector_server() as made:
        yield made


def test_a_changed_encoder_gets_its_vectors_without_a_restart(
    consumer: Consumer, server: VectorServer
) -> None:
    """Off, then one, then another, then another model of it: the store itself never changed."""
    ran = []
    place = {"base_url": server.url, "dims": DIMS}
    for settings in (
        {"provider": "none"},
        {"provider": "hash"},
        {"provider": "openai", "model": "first", **place},
        {"provider": "openai", "model": "second", **place},
    ):
        consumer.use(**settings)
        ran.append(consumer.settle())
        ran.append(consumer.settle())

    assert ran == [0, 0, 1, 0, 1, 0, 1, 0]
    assert consumer.vectors() == len(FACTS)
    assert {body["model"] for _, _, body in server.asked} == {"first", "second"}


def test_an_endpoint_that_fails_keeps_the_work_and_what_was_there(
    consumer: Consumer, server: VectorServer
) -> None:
    """The job waits; no vector of a wrong answer is stored."""
    consumer.use(provider="openai", model="m", dims=DIMS, base_url=server.url)
    server.reply = lambda _: (500, b"{}")
    assert consumer.reconciler.run() == 1
    job = consumer.queue.claim("1-me")
    assert job is not None

    with pytest.raises(Exception, match="answered 500"):
        consumer.dispatch.run(job, consumer.heartbeat.hold(job, 60_000))

    assert consumer.vectors() == 0


def test_settings_by_half_wait_for_a_person(consumer: Consumer) -> None:
    """No model is named: nothing is asked for and nothing is sent."""
    consumer.use(provider="openai")

    assert consumer.reconciler.run() == 0
    assert EncoderSettings(provider="openai").model == ""
