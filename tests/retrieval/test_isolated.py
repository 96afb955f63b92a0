"""An encoder in a process of its own: the same vectors, and whatever happens to it stays there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from time import monotonic

import numpy as np
import pytest

from retrieval import isolated
from retrieval.embedding import OnnxEncoder
from retrieval.encoders import EncoderPool
from retrieval.isolated import EncoderProcess, IsolatedEncoder
from storage.config import EncoderSettings
from storage.errors import EncoderLost, Unavailable
from tests.support import wait_until

TEXTS = ["the database is SQLite", "", "a \ud83d\ude80 rocket", "half a one \ud83d", "x " * 900]
SLOW = ["a long text about caches and queues " * 40] * 300
"""Some fifteen seconds of work: whoever waits for it waits long enough to be interrupted."""


@pytest.fixture(scope="module")
def process() -> Iterator[EncoderProcess]:
    """A child that the tests may kill; started again where one needs it."""
    held = EncoderProcess(EncoderSettings())
    yield held
    held.stop()
    wait_until(lambda: held.pid is None, what="the end of the child")


def an_encoder(process: EncoderProcess, *, within_s: float = 60.0) -> IsolatedEncoder:
    """The first encoder of the child, loaded."""
    process.start()
    return IsolatedEncoder(process, OnnxEncoder(EncoderSettings()).collection, within_s=within_s)


def gone(pid: int) -> bool:
    """Whether no process has this id (a zombie still has)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Asking:
    """A thread that waits for a slow batch."""

    def __init__(self, encoder: IsolatedEncoder) -> None:
        self._encoder = encoder
        self.problem: Exception | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._encoder.encode(SLOW)
        except Exception as problem:
            self.problem = problem


def test_the_vectors_are_those_of_the_same_encoder_here(process: EncoderProcess) -> None:
    """Empty, long and broken texts included; nothing is loaded in this process."""
    apart, here = an_encoder(process), OnnxEncoder(EncoderSettings())

    assert apart.ready
    assert np.array_equal(apart.encode(TEXTS), here.encode(TEXTS))
    assert apart.collection == here.collection
    assert process.pid != os.getpid()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_crash_in_the_middle_is_an_error_at_once(process: EncoderProcess, how: int) -> None:
    """Whoever waits is told, nobody is asked until it is started again, no zombie stays."""
    apart = an_encoder(process)
    pid = process.pid
    assert pid is not None
    asking = Asking(apart)

    os.kill(pid, how)
    asking.thread.join(20)

    assert isinstance(asking.problem, EncoderLost)
    assert signal.Signals(how).name in str(asking.problem)
    assert not apart.ready
    with pytest.raises(Unavailable):
        apart.encode_query("which database")
    wait_until(lambda: gone(pid), what="the reaping")
    process.start()
    assert apart.encode_query("which database").shape == (384,)
    assert process.pid != pid


def test_a_child_that_hangs_costs_one_question_its_deadline(
    process: EncoderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next ones do not wait behind it; after a while it is ended and replaced."""
    apart = an_encoder(process, within_s=0.1)
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)

    began = monotonic()
    with pytest.raises(Unavailable, match="too slow"):
        apart.encode_query("which database")
    waited = monotonic() - began
    with pytest.raises(Unavailable, match="busy"):
        apart.encode_query("which database")
    monkeypatch.setattr(isolated, "HANG_S", -1.0)
    with pytest.raises(EncoderLost, match="hung"):
        apart.encode_query("which database")

    assert 0.1 <= waited < 5
    assert not apart.ready
    wait_until(lambda: gone(pid), what="the end of the hung child")
    process.start()
    assert an_encoder(process).encode_query("which database").shape == (384,)


def test_a_late_answer_is_dropped_and_the_child_goes_on(process: EncoderProcess) -> None:
    """Slow is not hung: once it is through, the same child answers the next question rightly."""
    apart = an_encoder(process, within_s=0.01)
    pid = process.pid
    with pytest.raises(Unavailable, match="too slow"):
        apart.encode(SLOW[:20])

    patient = an_encoder(process)

    def free() -> bool:
        with suppress(Unavailable):
            return patient.encode_query("which database").shape == (384,)
        return False

    wait_until(free, what="the answer to the next question", within_s=30)
    expected = OnnxEncoder(EncoderSettings()).encode_query("which database")
    assert np.array_equal(patient.encode_query("which database"), expected)
    assert process.pid == pid


def test_many_threads_share_one_child(process: EncoderProcess) -> None:
    """Each gets the vectors of its own texts."""
    apart, here = an_encoder(process), OnnxEncoder(EncoderSettings())
    texts = [f"statement {number} about caches" for number in range(24)]
    found: dict[str, bool] = {}

    def ask(text: str) -> None:
        found[text] = np.allclose(apart.encode_query(text), expected[text], atol=1e-6)

    expected = {text: here.encode_query(text) for text in texts}
    threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(found) == len(texts)
    assert all(found.values())


def test_closing_waits_for_whoever_is_being_answered(process: EncoderProcess) -> None:
    """One user is done; the other still gets its vectors, then the memory is given back."""
    apart = an_encoder(process)
    pid = process.pid
    assert pid is not None
    rows: list[int] = []
    thread = threading.Thread(target=lambda: rows.append(len(apart.encode(SLOW[:8]))))
    thread.start()
    wait_until(lambda: process._users == 1, what="a user")

    apart.close()
    thread.join(30)

    assert rows == [8]
    wait_until(lambda: gone(pid), what="the end of the child")
    assert not apart.ready


PARENT = """
import os, sys, threading, time
from retrieval.encoders import shared_encoder
from retrieval.isolated import pid_of
from storage.config import EncoderSettings
encoder = shared_encoder(EncoderSettings(), isolated_s=60.0)
encoder.warm()
print(pid_of(encoder), flush=True)
if sys.argv[1] == "busy":
    slow = ["a long text about caches " * 40] * 400
    threading.Thread(target=encoder.encode, args=(slow,)).start()
    time.sleep(0.3)
print("on", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("manner", ["idle", "busy"])
def test_no_child_outlives_a_killed_parent(manner: str) -> None:
    """kill -9 of the process that owns it ends the child, even in the middle of a batch."""
    with subprocess.Popen(
        [sys.executable, "-I", "-c", PARENT, manner],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "on\n"
        parent.kill()

    wait_until(lambda: gone(pid), what="the end of the orphan")


def test_a_model_that_does_not_load_is_a_sentence() -> None:
    """The child says why, and is gone."""
    process = EncoderProcess(EncoderSettings(provider="no-such-provider"))

    with pytest.raises(Unavailable, match="before it was ready"):
        process.start()

    assert process.pid is None


def test_the_pool_keeps_one_child_for_all_who_ask_the_same_way() -> None:
    """Isolated and here are two instances; asking loads neither."""
    pool = EncoderPool()
    settings = EncoderSettings()

    apart = pool.get(settings, isolated_s=0.5)

    assert apart is pool.get(settings, isolated_s=0.5)
    assert apart is not pool.get(settings)
    assert apart is not None
    assert not apart.ready
    assert pool.get(EncoderSettings(provider="none"), isolated_s=0.5) is None
