"""An encoder that never encodes the same text twice: its vectors lie in a file between runs.

Owns the file: records of a text's SHA-256 and its float32 row, appended and never changed, one file
a collection. A torn last record is cut off. Measuring only; recall itself keeps no such file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from retrieval.quantize import Floats
    from storage.records import Collection

KEY_BYTES: Final = 32
AT_ONCE: Final = 64
"""Texts between two writes: what an interrupted run loses at most."""


class CachedEncoder:
    """Another encoder (the port `Encoder`), asked only for what the file does not hold yet."""

    def __init__(self, encoder: Encoder, folder: Path) -> None:
        self._encoder = encoder
        self._path = folder / f"vectors-{encoder.collection.name}.bin"
        self._known: dict[bytes, Floats] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._read()

    @property
    def collection(self) -> Collection:
        return self._encoder.collection

    @property
    def ready(self) -> bool:
        return True

    def warm(self) -> None:
        self._encoder.warm()

    def encode(self, texts: Sequence[str]) -> Floats:
        keys = [_key(text) for text in texts]
        missing = {
            key: text for key, text in zip(keys, texts, strict=True) if key not in self._known
        }
        waiting = list(missing.items())
        for start in range(0, len(waiting), AT_ONCE):
            self._add(waiting[start : start + AT_ONCE])
        return np.array([self._known[key] for key in keys], dtype=np.float32).reshape(
            len(keys), self.collection.dims
        )

    def encode_query(self, text: str) -> Floats:
        row: Floats = self.encode([text])[0]
        return row

    def close(self) -> None:
        self._encoder.close()

    def _add(self, waiting: Sequence[tuple[bytes, str]]) -> None:
        rows = self._encoder.encode([text for _, text in waiting])
        with self._path.open("ab") as file:
            for (key, _), row in zip(waiting, rows, strict=True):
                self._known[key] = row
                file.write(key + row.astype("<f4").tobytes())

    def _read(self) -> None:
        if not self._path.exists():
            return
        size = KEY_BYTES + 4 * self.collection.dims
        raw = self._path.read_bytes()
        whole = len(raw) // size * size
        if whole < len(raw):
            with self._path.open("r+b") as file:
                file.truncate(whole)
        for start in range(0, whole, size):
            record = raw[start : start + size]
            self._known[record[:KEY_BYTES]] = np.frombuffer(record, "<f4", offset=KEY_BYTES)


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
