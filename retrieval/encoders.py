"""Which encoder the settings name, and the process's shared instances of it.

Owns the table of providers and the pool: a model is 200 MB, and every holder in a process shares
it. Loads nothing by itself. A long-lived process asks for its encoder isolated: native code then
runs in a child (`retrieval.isolated`) and cannot take the process down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from storage.errors import Invalid

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from storage.config import EncoderSettings


class EncoderPool:
    """One encoder per settings and way of running it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[EncoderSettings, float | None], Encoder] = {}

    def get(self, settings: EncoderSettings, *, isolated_s: float | None = None) -> Encoder | None:
        """The shared encoder, not loaded yet; None when it is switched off.

        Raises:
            Unavailable: its package is not installed.
            ConfigError: an endpoint's settings cannot be used.
        """
        build = _BUILDERS.get(settings.provider)
        if build is None:
            if settings.provider != "none":
                raise Invalid(f"encoder: unknown provider {settings.provider!r}")
            return None
        apart = isolated_s if settings.provider in _NATIVE else None
        within_s = isolated_s or REMOTE_S
        if settings.provider in _REMOTE:
            apart = within_s
        with self._lock:
            held = self._held.get((settings, apart))
            if held is None:
                held = build(settings, within_s)
                if apart is not None and settings.provider in _NATIVE:
                    from retrieval.isolated import isolated

                    held = isolated(held, settings, within_s=apart)
                self._held[settings, apart] = held
            return held

    def close(self) -> None:
        """Release every model."""
        with self._lock:
            for encoder in self._held.values():
                encoder.close()
            self._held.clear()


def _embedded(settings: EncoderSettings, _within_s: float) -> Encoder:
    from retrieval.embedding import MODEL, TOKENIZER, OnnxEncoder
    from retrieval.multilingual import Bilingual, MultilingualEncoder, installed

    MODEL.locate()
    TOKENIZER.locate()
    encoder = OnnxEncoder(settings)
    return Bilingual(encoder, MultilingualEncoder()) if installed() else encoder


def _hash(_settings: EncoderSettings, _within_s: float) -> Encoder:
    from retrieval.embedding import HashEncoder

    return HashEncoder()


def _remote(settings: EncoderSettings, within_s: float) -> Encoder:
    from retrieval.remote import RemoteEncoder

    return RemoteEncoder(settings, within_s=within_s)


_BUILDERS: Final[dict[str, Callable[[EncoderSettings, float], Encoder]]] = {
    "embedded": _embedded,
    "hash": _hash,
    "openai": _remote,
    "ollama": _remote,
}
_REMOTE: Final = frozenset({"openai", "ollama"})
REMOTE_S: Final = 30.0
"""What one request may take where nobody waits for a prompt."""
_NATIVE: Final = frozenset({"embedded"})
"""Providers whose code can crash a process."""
_POOL: Final = EncoderPool()
"""The process's pool: what it holds is a property of the process, as its imports are."""


def shared_encoder(settings: EncoderSettings, *, isolated_s: float | None = None) -> Encoder | None:
    """The process's encoder for these settings; None when it is switched off.

    `isolated_s` puts native code into a process of its own, with so many seconds for each call; an
    endpoint gets so many for each request.

    Raises:
        Unavailable: its package is not installed (a missing file shows at first use).
    """
    return _POOL.get(settings, isolated_s=isolated_s)
