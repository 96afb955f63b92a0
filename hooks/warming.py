"""When a resident process loads its encoder, and when it lets it go.

A model costs 170 MB, so it is loaded only once a session of a project with vectors began (or such a
project was asked about), on a thread of its own while recall goes on by words, and given back after
a long silence.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from storage.errors import EncoderLost, MemorydError

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from storage.config import EncoderSettings

State = Literal["off", "cold", "warming", "ready", "failed"]
IDLE_S: Final = 1_800.0
RETRY_S: Final = 600.0
"""After a model that does not load, and the most after one that keeps on crashing."""
QUESTION_S: Final = 0.15
"""What one question may wait for its vector; then it is answered by words."""
CALM_S: Final = 600.0
"""An encoder that lasted so long starts again with a clean record."""


class Warming:
    """The process's encoder and its temperature. Safe between threads."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._encoder: Encoder | None = None
        self._thread: threading.Thread | None = None
        self._used: dict[Encoder, float] = {}
        """When each was last asked for: settings change, and projects may differ in them."""
        self._failed_at: float | None = None
        self._loaded_at: float | None = None
        """When the encoder was last loaded; None once it was given back."""
        self._crashes = 0
        self.problem = ""
        """Why there is no encoder, for people; "" when there is one or none is wanted."""

    def encoder(self, settings: EncoderSettings) -> Encoder | None:
        """The encoder of these settings, loaded or not; None when off or not installed."""
        from retrieval.encoders import shared_encoder

        try:
            encoder = shared_encoder(settings, isolated_s=QUESTION_S)
        except MemorydError as problem:
            self.problem = str(problem)
            return None
        with self._lock:
            self._encoder = encoder
            if encoder is not None:
                self._used.setdefault(encoder, monotonic())
        return encoder

    def wanted(self, encoder: Encoder) -> None:
        """Note that a question could have used it; load it behind if it is cold."""
        with self._lock:
            self._used[encoder] = monotonic()
            if encoder.ready or self._thread is not None:
                return
            if not self._may_load():
                return
            self._thread = threading.Thread(
                target=self._warm, args=(encoder,), name="encoder", daemon=True
            )
            self._thread.start()

    def state(self) -> State:
        """For `stats`."""
        with self._lock:
            if self._encoder is None:
                return "failed" if self.problem else "off"
            if self._thread is not None:
                return "warming"
            if self._encoder.ready:
                return "ready"
            return "failed" if self._failed_at is not None else "cold"

    def pid(self) -> int:
        """The encoder's own process; 0 when it has none."""
        from retrieval.isolated import pid_of

        with self._lock:
            return pid_of(self._encoder) or 0

    def tick(self) -> None:
        """Give back every model that nobody needed for long."""
        with self._lock:
            if self._thread is not None:
                return
            for encoder, used in list(self._used.items()):
                if monotonic() - used <= self._idle_s:
                    continue
                if encoder.ready:
                    encoder.close()
                    if encoder is self._encoder:
                        self._loaded_at = None
                if encoder is not self._encoder:
                    del self._used[encoder]

    def _may_load(self) -> bool:
        """With the lock held: not too soon after a failure, nor after a crash of its process."""
        now = monotonic()
        if self._loaded_at is not None:
            # It was loaded, nobody gave it back, and it is not there: its process died.
            self._crashes = 1 if now - self._loaded_at > CALM_S else self._crashes + 1
            self._failed_at, self._loaded_at = now, None
            self.problem = "encoder: its process died"
        if self._failed_at is None:
            return True
        pause = min(RETRY_S, 2.0 ** (self._crashes - 1)) if self._crashes else RETRY_S
        return now - self._failed_at >= pause

    def _warm(self, encoder: Encoder) -> None:
        problem, crashed = "", False
        try:
            encoder.warm()
            # The first run allocates; let it not be a person's.
            encoder.encode_query("warm up")
        except MemorydError as found:
            problem, crashed = str(found), isinstance(found, EncoderLost)
        except Exception as found:
            # The last guard of this thread: else it would count as warming for ever.
            problem = type(found).__name__
        with self._lock:
            self._thread = None
            self._failed_at = monotonic() if problem else None
            self._loaded_at = None if problem else monotonic()
            if problem:
                self._crashes = self._crashes + 1 if crashed else 0
            self.problem = problem
