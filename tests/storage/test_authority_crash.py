"""What is acknowledged survives kill -9, and a half-done append is all there or not at all."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.authority import payloads as say
from storage.authority.port import Container
from tests.conftest import ROOT
from tests.storage.memory_samples import a_document, a_fact, opened

WRITER = [sys.executable, "-m", "tests.storage.memory_writer"]


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


Writer = subprocess.Popen[str]


def start(home: Path, container: Container, name: str, count: int, point: str = "") -> Writer:
    argv = [*WRITER, str(home), container, name, str(count), point]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def lines(writer: Writer) -> Iterator[str]:
    assert writer.stdout is not None
    with writer.stdout:
        yield from (line.strip() for line in writer.stdout if line.endswith("\n"))


def names(home: Path) -> tuple[set[str], set[str]]:
    """(documents, facts) that a fresh handle finds."""
    store = opened(home, create=False)
    with store.read() as reads:
        documents = {d.external_id for d in reads.documents() if d.namespace == "notes"}
        facts = {fact.statement.removeprefix("Fact ").rstrip(".") for fact in reads.facts()}
    store.close()
    return documents, facts


def assert_sound_and_usable(home: Path, acknowledged: set[str]) -> None:
    documents, facts = names(home)
    assert documents == facts, "half a batch is visible"
    assert acknowledged <= documents
    assert len(documents - acknowledged) <= 1, "at most the append in flight"

    store = opened(home, create=False)
    before = [p for p in store.verify().problems if p.check != "journal tail"]
    assert before == []
    store.replay()
    store.append([say.document_upserted(a_document("after the crash", name="after"))])
    left = [p for p in store.verify().problems if p.check != "journal tail"]
    assert left == []
    store.close()
    documents, facts = names(home)
    assert documents - {"after"} == facts
    assert acknowledged <= documents


@pytest.mark.parametrize("seed", range(3))
def test_kill_at_a_random_moment_loses_nothing_acknowledged(
    home: Path, container: Container, seed: int
) -> None:
    """Whatever instruction the process dies at."""
    opened(home, container).close()
    chance = random.Random(seed)
    writer = start(home, container, "w", 10_000)
    acknowledged = set()
    stop_after = chance.randrange(3, 40)

    for said in lines(writer):
        acknowledged.add(said)
        if len(acknowledged) >= stop_after:
            writer.kill()
    writer.wait()

    assert_sound_and_usable(home, acknowledged)


@pytest.mark.parametrize(
    ("container", "point", "kept"),
    [
        ("indexed", "before journal", False),
        ("indexed", "torn journal", False),
        ("indexed", "after journal", True),
        ("compact", "before swap", False),
        ("compact", "after swap", False),
    ],
    indirect=["container"],
)
def test_kill_at_a_named_point_is_old_or_new(
    home: Path, container: Container, point: str, kept: bool
) -> None:
    """Before the journal's sync the append never was; behind it, replay completes it."""
    opened(home, container).close()
    writer = start(home, container, "w", 50, point)
    acknowledged = set(lines(writer))

    assert writer.wait() == -9
    assert len(acknowledged) == 10
    assert names(home)[0] == acknowledged
    assert_sound_and_usable(home, acknowledged)
    assert ("w-10" in names(home)[0]) is kept


def test_two_processes_at_once_lose_nothing(home: Path, container: Container) -> None:
    """Writers take turns: every append of both is there, in two sound chains."""
    opened(home, container).close()
    writers = [start(home, container, name, 25) for name in ("a", "b")]

    said = [name for writer in writers for name in lines(writer)]

    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(said) == 50
    assert names(home) == (set(said), set(said))
    store = opened(home, create=False)
    report = store.verify()
    assert (report.problems, report.writers, report.events) == ((), 2, 100)
    with store.read() as reads:
        assert reads.fact(a_fact("Fact a-3.").fact_id) is not None
    store.close()


def test_a_promotion_under_load_loses_nothing(home: Path) -> None:
    """Two writers keep appending while a third handle promotes; both follow."""
    opened(home, "compact").close()
    writers = [start(home, "compact", name, 40) for name in ("a", "b")]
    streams = [lines(writer) for writer in writers]
    said = [next(stream) for stream in streams]
    store = opened(home, create=False)

    store.promote()
    said += [name for stream in streams for name in stream]

    assert [writer.wait() for writer in writers] == [0, 0]
    assert store.container == "indexed"
    assert names(home) == (set(said), set(said))
    assert len(said) == 80
    assert store.verify().problems == ()
    store.close()
