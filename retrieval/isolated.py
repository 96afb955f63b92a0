"""An encoder in a process of its own, so that its native code cannot take ours down with it.

`isolated` wraps a local encoder that is never loaded here: the model lives in one child process
(`retrieval.encoder_child`), shared by everything in this process that uses the same settings.
Promises that a call ends within its deadline, that a child which died or hangs is an `Unavailable`
at once and another child at the next `warm`, and that no child outlives this process. When to warm
again is the caller's choice (`hooks.warming` backs off; the queue counts attempts).

Measured with 400 questions of 17 tokens, the same model in the same process beside it: 0.6 ms more
at best, 1.0 ms more in the median (11.9 beside 10.8); a batch of 32 long texts costs the same. The
child holds 186 MB (303 while it loads) that this process then does not.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Final

from retrieval.encoder_child import Header, receive, send
from retrieval.multilingual import Bilingual, foreign_of
from storage.errors import EncoderLost, Unavailable

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from retrieval.quantize import Floats
    from storage.config import EncoderSettings
    from storage.records import Collection

START_S: Final = 60.0
HANG_S: Final = 5.0
"""A question given up on whose answer is still missing after so long: the child is ended."""
_GRACE_S: Final = 2.0
_CHILD: Final = (sys.executable, "-I", "-m", "retrieval.encoder_child")


class _Waiting:
    """One batch on its way."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.header: Header = {}
        self.body = b""
        self.given_up: float | None = None


class _Child:
    """A process whose model is loaded, and the batches under way in it. Safe between threads."""

    def __init__(self, settings: EncoderSettings) -> None:
        """Raises Unavailable: the model does not load; EncoderLost: its process died over it."""
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: dict[int, _Waiting] = {}
        self._numbers = count(1)
        self._ended = False
        self.process: subprocess.Popen[bytes] | None = None
        self._greeted = threading.Event()
        self._problem, self._died = "", False
        self._settings = settings
        threading.Thread(target=self._live, name="encoder-answers", daemon=True).start()
        self._greeted.wait()
        if self._died:
            raise EncoderLost("encoder: its process ended before it was ready")
        if self._problem:
            raise Unavailable(self._problem)

    @property
    def pid(self) -> int | None:
        """Its process."""
        return self.process.pid if self.process is not None else None

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._ended

    def ask(self, texts: Sequence[str], *, foreign: bool, within_s: float) -> bytes:
        """As `EncoderProcess.ask`."""
        number, waiting = next(self._numbers), _Waiting()
        with self._lock:
            self._require_free()
            self._waiting[number] = waiting
        # A child that is gone shows in the listener, which answers whoever waits.
        with suppress(OSError), self._sending:
            send(self._link, {"id": number, "foreign": foreign, "texts": list(texts)})
        if not waiting.done.wait(within_s):
            waiting.given_up = monotonic()
            raise Unavailable("encoder: too slow for this question")
        if "lost" in waiting.header:
            raise EncoderLost(str(waiting.header["lost"]))
        if "error" in waiting.header:
            raise Unavailable(str(waiting.header["error"]))
        return waiting.body

    def hang_up(self) -> None:
        """Let it leave; its listener sees it off, by force when it lingers."""
        self._ended = True
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """End it now, whatever it is doing."""
        if self.process is not None:
            self.process.kill()

    def _require_free(self) -> None:
        """Refuse to queue behind a batch that was given up on; end a child that hangs."""
        if self._ended:
            raise EncoderLost("encoder: its process has ended")
        late = [one.given_up for one in self._waiting.values() if one.given_up is not None]
        if not late:
            return
        if monotonic() - min(late) > HANG_S:
            self._ended = True
            self.kill()
            raise EncoderLost("encoder: its process hung and was ended")
        raise Unavailable("encoder: still busy with an earlier question")

    def _live(self) -> None:
        """The child's whole life, in one thread: the system ends a child with the thread it has."""
        self._link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with self._link:
            try:
                with theirs:
                    self.process = self._spawned(theirs)
                self._greet()
            except OSError as cause:
                self._problem = f"encoder: no process for it ({cause.strerror or cause})"
            finally:
                self._greeted.set()
            if not self._problem and not self._died:
                self._listen()
        if self.process is not None:
            _reap(self.process)

    def _greet(self) -> None:
        """Hear whether the model is loaded."""
        self._link.settimeout(START_S)
        try:
            message = receive(self._link)
        except TimeoutError:
            self._problem = "encoder: its process did not get ready in time"
            return
        self._link.settimeout(None)
        self._died = message is None
        if message is not None and not message[0].get("ready"):
            self._problem = str(message[0].get("error"))

    def _spawned(self, end: socket.socket) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*_CHILD, json.dumps(asdict(self._settings))],
            stdin=end.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )

    def _listen(self) -> None:
        """Hand out answers until the child is gone; then say so to whoever waits."""
        with suppress(OSError, ValueError):
            while (message := receive(self._link)) is not None:
                header, body = message
                number = header.get("id")
                with self._lock:
                    waiting = self._waiting.pop(number, None) if isinstance(number, int) else None
                if waiting is not None:
                    waiting.header, waiting.body = header, body
                    waiting.done.set()
        self._ended = True
        code = _reap(self.process) if self.process is not None else 0
        with self._lock:
            lost, self._waiting = self._waiting, {}
        for waiting in lost.values():
            waiting.header = {"lost": f"encoder: its process ended ({_named(code)})"}
            waiting.done.set()


class EncoderProcess:
    """At most one child, shared; started, ended and replaced. Safe between threads."""

    def __init__(self, settings: EncoderSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._child: _Child | None = None
        self._users = 0
        self._leaving = False

    @property
    def pid(self) -> int | None:
        """The child's process; None when none is ready."""
        child = self._child
        return child.pid if child is not None and child.alive else None

    def start(self) -> None:
        """Have a child whose model is loaded; at once when there is one.

        Raises:
            Unavailable: the model does not load, or not in time.
        """
        with self._starting:
            if self.pid is None:
                self._child = _Child(self._settings)

    def ask(self, texts: Sequence[str], *, foreign: bool, within_s: float) -> bytes:
        """float32 of the texts' rows; starts nothing.

        Raises:
            EncoderLost: the child died over it, or hung.
            Unavailable: no child, too slow, or the encoder's own reason.
        """
        with self._lock:
            child = self._child
            if child is None:
                raise Unavailable("encoder: its process is not running")
            self._users += 1
        try:
            return child.ask(texts, foreign=foreign, within_s=within_s)
        finally:
            with self._lock:
                self._users -= 1
            if self._leaving:
                self.stop()

    def stop(self) -> None:
        """End the child once nobody is waiting for it; the next `start` makes another."""
        with self._lock:
            self._leaving = self._users > 0
            if self._leaving:
                return
            child, self._child = self._child, None
        if child is not None:
            child.hang_up()


class IsolatedEncoder:
    """One collection of the encoder in the child (the port `Encoder`)."""

    def __init__(
        self,
        process: EncoderProcess,
        collection: Collection,
        *,
        within_s: float,
        foreign: bool = False,
    ) -> None:
        self._process, self._collection = process, collection
        self._within_s, self._foreign = within_s, foreign

    @property
    def collection(self) -> Collection:
        return self._collection

    @property
    def pid(self) -> int | None:
        """The child; None when none is ready."""
        return self._process.pid

    @property
    def ready(self) -> bool:
        return self._process.pid is not None

    def warm(self) -> None:
        self._process.start()

    def encode(self, texts: Sequence[str]) -> Floats:
        import numpy as np

        raw = self._process.ask(texts, foreign=self._foreign, within_s=self._within_s)
        rows = np.frombuffer(raw, dtype=np.float32)
        if rows.size != len(texts) * self._collection.dims:
            raise Unavailable("encoder: its process answered something else")
        return rows.reshape(len(texts), self._collection.dims).copy()

    def encode_query(self, text: str) -> Floats:
        row: Floats = self.encode([text])[0]
        return row

    def close(self) -> None:
        self._process.stop()


def isolated(local: Encoder, settings: EncoderSettings, *, within_s: float) -> Encoder:
    """The same encoder in a process of its own; each call takes at most `within_s`."""
    process = EncoderProcess(settings)
    first = IsolatedEncoder(process, local.collection, within_s=within_s)
    second = foreign_of(local)
    if second is None:
        return first
    other = IsolatedEncoder(process, second.collection, within_s=within_s, foreign=True)
    return Bilingual(first, other)


def pid_of(encoder: Encoder | None) -> int | None:
    """The process that an isolated encoder runs in now; None for any other, and while it rests."""
    found = encoder.first if isinstance(encoder, Bilingual) else encoder
    return found.pid if isinstance(found, IsolatedEncoder) else None


def _reap(child: subprocess.Popen[bytes]) -> int:
    """The child's exit code, once it is gone; ended by force when it lingers."""
    try:
        return child.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _named(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
