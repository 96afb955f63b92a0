"""An encoder behind an endpoint: OpenAI-compatible `/embeddings`, or Ollama's `/api/embed`.

Owns what is asked and what is believed: texts are redacted before they leave, and an answer counts
only if it has one finite vector of the agreed size for each text. Nothing is retried here. After a
failure it is not `ready` for a while, so that prompts do not each wait for a dead endpoint.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from retrieval.endpoint import Endpoint
from storage.errors import ConfigError, ModelUnavailable, Unavailable
from storage.records import Collection, JsonValue, digest_of
from storage.redaction import redact

if TYPE_CHECKING:
    from retrieval.quantize import Floats
    from storage.config import EncoderSettings

REST_S: Final = 10.0
BATCH: Final = 64
MAX_CHARS: Final = 8_000
"""Of one text; models cut far earlier."""
NORM_FLOOR: Final = 1e-6
LARGEST: Final = 1e6
"""No model's components come near."""
NUMBERS: Final = frozenset({int, float})
MIN_DIMS: Final = 8
MAX_DIMS: Final = 8_192
"""As the store takes them."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of endpoint is asked, and where its answer stands."""

    path: str
    base_url: str
    read: Callable[[Mapping[str, JsonValue]], list[JsonValue]]


def _by_index(body: Mapping[str, JsonValue]) -> list[JsonValue]:
    rows = body.get("data")
    if not isinstance(rows, list):
        raise ModelUnavailable("the encoder's endpoint answered without vectors")
    found: dict[int, JsonValue] = {}
    for row in rows:
        at = row.get("index") if isinstance(row, dict) else None
        # A list may be no key, and True would be taken for 1.
        if type(at) is not int or not 0 <= at < len(rows) or at in found:
            raise ModelUnavailable("the encoder's endpoint numbered its vectors wrongly")
        found[at] = row.get("embedding") if isinstance(row, dict) else None
    return [found[at] for at in range(len(rows))]


def _in_order(body: Mapping[str, JsonValue]) -> list[JsonValue]:
    rows = body.get("embeddings")
    if not isinstance(rows, list):
        raise ModelUnavailable("the encoder's endpoint answered without vectors")
    return rows


DIALECTS: Final = {
    "openai": Dialect("/embeddings", "https://api.openai.com/v1", _by_index),
    "ollama": Dialect("/api/embed", "http://127.0.0.1:11434", _in_order),
}


class RemoteEncoder:
    """Vectors from an endpoint. Safe to share between threads."""

    def __init__(
        self,
        settings: EncoderSettings,
        *,
        within_s: float,
        environment: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`within_s` bounds each request.

        Raises:
            ConfigError: no model or size is named, or the URL may not be used.
        """
        self._dialect = DIALECTS[settings.provider]
        if not settings.model or not MIN_DIMS <= settings.dims <= MAX_DIMS:
            raise ConfigError(
                f"encoder.provider {settings.provider} needs encoder.model, and encoder.dims from"
                f" {MIN_DIMS} to {MAX_DIMS:,}"
            )
        url = settings.base_url or self._dialect.base_url
        values = os.environ if environment is None else environment
        key = values.get(settings.key_variable, "") if settings.key_variable else ""
        self._endpoint = Endpoint(url, key=key, timeout_s=within_s, setting="encoder.base_url")
        self._model, self._now, self._rests_until = settings.model, now, 0.0
        # Two endpoints may mean different models by one name.
        self._collection = Collection(
            model=settings.model,
            dims=settings.dims,
            fingerprint=digest_of(settings.provider, url)[:16],
            scale=127.0,
        )

    @property
    def collection(self) -> Collection:
        return self._collection

    @property
    def ready(self) -> bool:
        return self._now() >= self._rests_until

    def warm(self) -> None:
        """Nothing to load."""

    def encode(self, texts: Sequence[str]) -> Floats:
        """float32[n, dims], rows L2-normalised.

        Raises:
            Unavailable: no usable answer in time.
        """
        import numpy as np

        parts = [self._asked(texts[at : at + BATCH]) for at in range(0, len(texts), BATCH)]
        return np.concatenate(parts) if parts else np.zeros((0, self._collection.dims), np.float32)

    def encode_query(self, text: str) -> Floats:
        row: Floats = self.encode([text])[0]
        return row

    def close(self) -> None:
        """Nothing is held open."""

    def _asked(self, texts: Sequence[str]) -> Floats:
        sent: list[JsonValue] = [str(redact(text))[:MAX_CHARS] or " " for text in texts]
        try:
            answer = self._endpoint.post(self._dialect.path, {"model": self._model, "input": sent})
            if answer.status != 200:
                raise ModelUnavailable(f"the encoder's endpoint answered {answer.status}")
            return self._believed(self._dialect.read(answer.body), len(texts))
        except ModelUnavailable as cause:
            self._rests_until = self._now() + REST_S
            raise Unavailable(str(cause)) from cause

    def _believed(self, rows: list[JsonValue], count: int) -> Floats:
        import numpy as np

        dims = self._collection.dims
        if len(rows) != count or any(
            not isinstance(row, list) or len(row) != dims or not set(map(type, row)) <= NUMBERS
            for row in rows
        ):
            raise ModelUnavailable(
                f"the encoder's endpoint did not give {count} vectors of {dims} numbers"
            )
        try:
            found = np.array(rows, dtype=np.float64)
        except OverflowError as cause:
            raise ModelUnavailable("the encoder's endpoint gave a number out of range") from cause
        # Checked before anything is squared: a huge component would only overflow there.
        if not bool((np.abs(found) <= LARGEST).all()):
            raise ModelUnavailable("the encoder's endpoint gave a number out of range")
        norms = np.linalg.norm(found, axis=1, keepdims=True)
        if bool((norms < NORM_FLOOR).any()):
            raise ModelUnavailable("the encoder's endpoint gave a vector without a direction")
        unit: Floats = (found / norms).astype(np.float32)
        return unit
