"""When a resident process loads its encoder, and when it lets it go.

A model costs 170 MB, so it is loaded only once a session of a project with vectors began (or such a
project was asked about), on a thread of its own while recall goes on by words, and given back after
a long silence.
"""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from storage.errors import MemorydError

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from storage.config import EncoderSettings

State = Literal["off", "cold", "warming", "ready", "failed"]
IDLE_S: Final = 1_800.0
RETRY_S: Final = 600.0


class Warming:
    """The process's encoder and its temperature. Safe between threads."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._encoder: Encoder | None = None
        self._thread: threading.Thread | None = None
        self._used = monotonic()
        self._failed_at: float | None = None
        self.problem = ""
        """Why there is no encoder, for people; "" when there is one or none is wanted."""

    def encoder(self, settings: EncoderSettings) -> Encoder | None:
        """The encoder of these settings, loaded or not; None when off or not installed."""
        from retrieval.embedding import shared_encoder

        try:
            encoder = shared_encoder(settings)
        except MemorydError as problem:
            self.problem = str(problem)
            return None
        with self._lock:
            self._encoder = encoder
        return encoder

    def wanted(self, encoder: Encoder) -> None:
        """Note that a question could have used it; load it behind if it is cold."""
        with self._lock:
            self._used = monotonic()
            if encoder.ready or self._thread is not None:
                return
            if self._failed_at is not None and monotonic() - self._failed_at < RETRY_S:
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

    def tick(self) -> None:
        """Give the model back when nobody needed it for long."""
        with self._lock:
            encoder = self._encoder
            idle = monotonic() - self._used > self._idle_s
            if encoder is not None and encoder.ready and self._thread is None and idle:
                encoder.close()

    def _warm(self, encoder: Encoder) -> None:
        problem = ""
        try:
            encoder.warm()
            # The first run allocates; let it not be a person's.
            encoder.encode_query("warm up")
        except MemorydError as found:
            problem = str(found)
        except Exception as found:
            # The last guard of this thread: else it would count as warming for ever.
            problem = type(found).__name__
        with self._lock:
            self._thread = None
            self._failed_at = monotonic() if problem else None
            self.problem = problem
