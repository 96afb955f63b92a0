"""What a resident process keeps: snapshots by version and bytes, the encoder by need."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hooks import snapshots as module
from hooks.holdings import Holdings
from hooks.recall import Ask, Recaller
from hooks.snapshots import Snapshots
from hooks.warming import Warming
from retrieval.embedding import HashEncoder
from retrieval.encoders import shared_encoder
from storage.authority import changes, tombstones
from storage.authority.port import Authority
from storage.authority.tombstones import Forgetting
from storage.config import EncoderSettings
from storage.errors import Unavailable
from storage.paths import HomePaths
from storage.records import ProjectId
from tests.hooks.serverside import find_test_project, store_vectors
from tests.retrieval.memories import FACTS, PROJECT, a_fact, a_store, remember
from tests.support import ManualClock, wait_until

if TYPE_CHECKING:
    from retrieval.quantize import Floats

BYTES = 10_000_000


@pytest.fixture
def store(home: Path) -> Iterator[Authority]:
    """The project's store with the ten facts."""
    opened = a_store(home, ManualClock())
    remember(opened, [a_fact(text) for text in FACTS])
    yield opened
    opened.close()


@pytest.fixture
def holdings(home: Path) -> Iterator[Holdings]:
    """This thread's open stores."""
    opened = Holdings(HomePaths(home), ManualClock(), {"MEMORYD_ENCODER": "none"})
    yield opened
    opened.close()


def resident(home: Path) -> Snapshots:
    """Empty snapshots of a home."""
    return Snapshots(lambda: Holdings(HomePaths(home), ManualClock(), {}))


def test_a_snapshot_is_kept_until_the_store_changes(
    home: Path, store: Authority, holdings: Holdings
) -> None:
    """The same version gives the same object; a commit gives a new one."""
    snapshots = resident(home)
    held = holdings.authority(PROJECT)

    first = snapshots.current(PROJECT, held, None, max_bytes=BYTES)
    again = snapshots.current(PROJECT, held, None, max_bytes=BYTES)
    remember(store, [a_fact("One more fact.")])
    newer = snapshots.current(PROJECT, held, None, max_bytes=BYTES)

    assert first is again
    assert first is not None
    assert newer is not None
    assert (first.size, newer.size) == (len(FACTS), len(FACTS) + 1)


def test_before_numpy_is_there_sqlite_answers(
    home: Path, store: Authority, holdings: Holdings
) -> None:
    """The first prompt of the day waits for no import; once it is done the index answers."""
    imported = threading.Event()
    snapshots = Snapshots(lambda: holdings, ready=imported)
    recaller = Recaller(
        HomePaths(home),
        clock=ManualClock(),
        environment={"MEMORYD_ENCODER": "none"},
        snapshots=snapshots,
        warming=Warming(),
        find_project=find_test_project,
    )
    ask = Ask(cwd="/work", query="which local database")

    early = recaller.recall(ask)
    imported.set()
    later = recaller.recall(ask)
    recaller.close()

    assert early.items[0].text == later.items[0].text == FACTS[0]
    assert early.gaps == ("answered without the resident index",)
    assert later.gaps == ()


def test_a_large_store_is_indexed_behind(
    home: Path, store: Authority, holdings: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing to search at first, then the snapshot; what cannot be added means the old one until
    the new one is there."""
    monkeypatch.setattr(module, "INLINE_CHUNKS", 3)
    snapshots = resident(home)
    held = holdings.authority(PROJECT)

    assert snapshots.current(PROJECT, held, None, max_bytes=BYTES) is None
    snapshots.close()
    first = snapshots.current(PROJECT, held, None, max_bytes=BYTES)
    assert first is not None
    monkeypatch.setattr(changes, "MAX_EVENTS", 0)
    remember(store, [a_fact("One more fact.")])
    assert snapshots.current(PROJECT, held, None, max_bytes=BYTES) is first
    snapshots.close()
    newer = snapshots.current(PROJECT, held, None, max_bytes=BYTES)

    assert newer is not None
    assert newer.size == len(FACTS) + 1


def test_what_was_written_is_added_at_once(
    home: Path, store: Authority, holdings: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a commit the very next question sees it, however large the store; nothing is built."""
    monkeypatch.setattr(module, "INLINE_CHUNKS", 3)
    snapshots = resident(home)
    held = holdings.authority(PROJECT)
    snapshots.current(PROJECT, held, None, max_bytes=BYTES)
    snapshots.close()
    first = snapshots.current(PROJECT, held, None, max_bytes=BYTES)
    monkeypatch.setattr("retrieval.index.build_index", None)

    remember(store, [a_fact("One more fact.")])
    newer = snapshots.current(PROJECT, held, None, max_bytes=BYTES)

    assert first is not None
    assert newer is not None
    assert (first.size, newer.size) == (len(FACTS), len(FACTS) + 1)
    assert newer.generation == held.authority.generation()


def test_segments_are_joined_behind(
    home: Path, store: Authority, holdings: Holdings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many single writes leave few segments, and what is joined has every text."""
    monkeypatch.setattr("retrieval.postings.FOLDED_AT_ONCE", 0)
    snapshots = resident(home)
    held = holdings.authority(PROJECT)
    for number in range(12):
        remember(store, [a_fact(f"Zebra number {number}.")])
        assert snapshots.current(PROJECT, held, None, max_bytes=BYTES) is not None
        snapshots.close()

    found = snapshots.current(PROJECT, held, None, max_bytes=BYTES)

    assert found is not None
    assert found.texts == len(FACTS) + 12
    assert len(found.postings.segments) <= 3
    assert found.postings.frequency("zebra") == 12


def test_forgotten_text_is_never_served_from_an_old_snapshot(
    home: Path, store: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a snapshot that still has the words shows nothing that the store no longer has."""
    snapshots = resident(home)
    recaller = Recaller(
        HomePaths(home),
        clock=ManualClock(),
        environment={"MEMORYD_ENCODER": "none"},
        snapshots=snapshots,
        warming=Warming(),
        find_project=find_test_project,
    )
    ask = Ask(cwd="/work", query="which local database")
    before = recaller.recall(ask)
    gone = a_fact(FACTS[0]).fact_id
    monkeypatch.setattr(module, "INLINE_CHUNKS", 3)
    monkeypatch.setattr(changes, "MAX_EVENTS", 0)
    store.append(tombstones.drafts(Forgetting(facts=(gone,))))

    stale = recaller.recall(ask)
    snapshots.close()
    fresh = recaller.recall(ask)
    recaller.close()

    assert before.items[0].text == FACTS[0]
    for answer in (stale, fresh):
        assert FACTS[0] not in [item.text for item in answer.items]


def test_the_least_recently_used_project_is_dropped(
    home: Path, store: Authority, holdings: Holdings
) -> None:
    """Within the byte bound every project stays; beyond it the one not asked about goes."""
    others = [ProjectId(f"p_other{number}") for number in range(3)]
    for name in others:
        other = a_store(home, ManualClock(), project=name)
        remember(other, [a_fact(text) for text in FACTS])
        other.close()
    snapshots = resident(home)
    one = snapshots.current(PROJECT, holdings.authority(PROJECT), None, max_bytes=BYTES)
    assert one is not None

    for name in others:
        held = holdings.authority(name)
        snapshots.current(name, held, None, max_bytes=int(2.5 * one.nbytes))

    assert [entry["project"] for entry in snapshots.sizes()] == others[1:]


def test_a_store_too_big_to_hold_is_left_to_sqlite(home: Path, store: Authority) -> None:
    """Below its own size no snapshot is held, and the answer still comes."""
    snapshots, warming = resident(home), Warming()
    config = HomePaths(home).config
    config.parent.mkdir(mode=0o700, exist_ok=True)
    config.write_text("[recall]\nmax_index_bytes = 100\n", encoding="utf-8")
    recaller = Recaller(
        HomePaths(home),
        clock=ManualClock(),
        environment={"MEMORYD_ENCODER": "none"},
        snapshots=snapshots,
        warming=warming,
        find_project=find_test_project,
    )

    answer = recaller.recall(Ask(cwd="/work", query="which local database"))
    recaller.close()

    assert answer.items[0].text == FACTS[0]
    assert answer.status == "partial"
    assert snapshots.sizes()[0]["bytes"] == 0


def test_a_replaced_store_is_opened_anew(home: Path, store: Authority, holdings: Holdings) -> None:
    """Another file under the same name is another store, whatever its generation."""
    before = holdings.authority(PROJECT)
    database = HomePaths(home).project(PROJECT).database
    for suffix in ("", "-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    fresh = a_store(home, ManualClock())
    remember(fresh, [a_fact("Entirely new.")])
    fresh.close()

    after = holdings.authority(PROJECT)

    assert after is not before
    with after.authority.read() as reads:
        assert [fact.statement for fact in reads.facts()] == ["Entirely new."]


class GatedEncoder(HashEncoder):
    """An encoder that loads when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.loaded = False
        self.fails = False

    @property
    def ready(self) -> bool:
        return self.loaded

    def warm(self) -> None:
        assert self.gate.wait(20)
        if self.fails:
            raise Unavailable("encoder: model.onnx is not the expected file (SHA-256 differs)")
        self.loaded = True

    def close(self) -> None:
        self.loaded = False

    def encode(self, texts: Sequence[str]) -> Floats:
        return super().encode(texts)


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> GatedEncoder:
    """Stands in for the process's shared encoder."""
    encoder = GatedEncoder()
    monkeypatch.setattr("retrieval.encoders.shared_encoder", lambda _settings, **_: encoder)
    return encoder


def test_recall_goes_by_words_until_the_encoder_is_warm(
    home: Path, store: Authority, gated: GatedEncoder
) -> None:
    """The first question starts the loading and does not wait for it; later ones use it."""
    store_vectors(store, gated)
    warming = Warming()
    recaller = Recaller(
        HomePaths(home),
        clock=ManualClock(),
        environment={},
        snapshots=resident(home),
        warming=warming,
        find_project=find_test_project,
    )
    ask = Ask(cwd="/work", query="which local database")

    assert warming.state() == "off"
    cold = recaller.recall(ask)
    assert warming.state() == "warming"
    gated.gate.set()
    wait_until(lambda: warming.state() == "ready", what="the encoder")
    warm = recaller.recall(ask)
    recaller.close()

    assert cold.gaps == ("the encoder is not loaded yet",)
    assert cold.items[0].scores.dense is None
    assert warm.gaps == ()
    assert warm.items[0].scores.dense is not None


def test_a_session_that_starts_loads_the_encoder_for_its_first_prompt(
    home: Path, store: Authority, gated: GatedEncoder
) -> None:
    """Where vectors are, the model and the index are there before the first question."""
    warming, snapshots = Warming(), resident(home)
    recaller = Recaller(
        HomePaths(home),
        clock=ManualClock(),
        environment={},
        snapshots=snapshots,
        warming=warming,
        find_project=find_test_project,
    )
    recaller.prepare("/work")
    without = warming.state()
    store_vectors(store, gated)

    recaller.prepare("/elsewhere")
    elsewhere = warming.state()
    recaller.prepare("/work")
    gated.gate.set()
    wait_until(lambda: warming.state() == "ready", what="the encoder")
    held = len(snapshots.sizes())
    first = recaller.recall(Ask(cwd="/work", query="which local database"))
    recaller.close()

    assert (without, elsewhere, held) == ("cold", "cold", 1)
    assert first.gaps == ()
    assert first.items[0].scores.dense is not None


def test_a_project_without_vectors_loads_no_model(
    home: Path, store: Authority, gated: GatedEncoder
) -> None:
    """Nobody pays for a model that has nothing to compare."""
    warming = Warming()
    recaller = Recaller(
        HomePaths(home),
        clock=ManualClock(),
        environment={},
        snapshots=resident(home),
        warming=warming,
        find_project=find_test_project,
    )

    answer = recaller.recall(Ask(cwd="/work", query="which local database"))
    recaller.close()

    assert warming.state() == "cold"
    assert answer.gaps == ("no vectors yet",)


def test_a_model_that_does_not_load_is_not_tried_at_every_question(gated: GatedEncoder) -> None:
    """A failure is remembered with its reason, and recall goes on without."""
    warming = Warming()
    assert warming.encoder(EncoderSettings()) is gated
    gated.fails = True
    gated.gate.set()

    warming.wanted(gated)
    wait_until(lambda: warming.state() == "failed", what="the failure")
    gated.fails = False
    warming.wanted(gated)

    assert warming.state() == "failed"
    assert "SHA-256" in warming.problem


def test_whatever_stops_a_model_from_loading_is_a_failure_and_no_wait(
    gated: GatedEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the runtime's own ends the warming too, so that it is tried again later."""

    def warm() -> None:
        raise RuntimeError("out of threads")

    monkeypatch.setattr(gated, "warm", warm)
    warming = Warming()
    assert warming.encoder(EncoderSettings()) is gated

    warming.wanted(gated)
    wait_until(lambda: warming.state() == "failed", what="the failure")

    assert warming.problem == "RuntimeError"


def test_a_model_that_nobody_needs_is_given_back(gated: GatedEncoder) -> None:
    """After the idle time a tick releases it; the next question loads it again."""
    warming = Warming(idle_s=-1.0)
    assert warming.encoder(EncoderSettings()) is gated
    gated.gate.set()
    warming.wanted(gated)
    wait_until(lambda: warming.state() == "ready", what="the encoder")

    warming.tick()

    assert warming.state() == "cold"
    assert shared_encoder(EncoderSettings(provider="none")) is None


def test_a_model_of_earlier_settings_is_given_back_too(
    gated: GatedEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings change while the server runs; what they named before must not be held for ever."""
    warming = Warming(idle_s=-1.0)
    assert warming.encoder(EncoderSettings()) is gated
    gated.gate.set()
    warming.wanted(gated)
    wait_until(lambda: warming.state() == "ready", what="the encoder")
    other = HashEncoder()
    monkeypatch.setattr("retrieval.encoders.shared_encoder", lambda *_, **__: other)
    assert warming.encoder(EncoderSettings(provider="hash")) is other

    warming.tick()

    assert not gated.ready


def test_an_encoder_that_keeps_on_crashing_is_started_ever_more_rarely(
    gated: GatedEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the n-th death of its process, 2^(n-1) seconds pass; a calm while clears the record."""
    now = [1_000.0]
    monkeypatch.setattr("hooks.warming.monotonic", lambda: now[0])
    warming = Warming()
    assert warming.encoder(EncoderSettings()) is gated
    gated.gate.set()

    def starts_after(pause_s: float) -> bool:
        """Whether it is loaded again that long after it died, and no sooner."""
        gated.loaded = False
        warming.wanted(gated)
        now[0] += pause_s - 0.1
        warming.wanted(gated)
        assert warming.state() == "failed"
        now[0] += 0.2
        warming.wanted(gated)
        wait_until(lambda: warming.state() == "ready", what="the encoder")
        return True

    warming.wanted(gated)
    wait_until(lambda: warming.state() == "ready", what="the encoder")

    assert [starts_after(pause) for pause in (1, 2, 4, 8)] == [True] * 4
    now[0] += 700
    assert starts_after(1)
