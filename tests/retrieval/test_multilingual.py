"""The second encoder: asked for questions that are not English, and never in the way."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from retrieval import multilingual
from retrieval.dense import open_leg
from retrieval.embedding import HashEncoder, PackagedFile
from retrieval.index import IndexSnapshot, build_index
from retrieval.multilingual import (
    COLLECTION,
    Bilingual,
    MultilingualEncoder,
    foreign_of,
    installed,
    vocabulary_of,
)
from retrieval.quantize import packed
from retrieval.search import is_foreign
from storage.errors import Unavailable
from storage.records import Collection
from tests.retrieval.memories import FACTS, Text, in_memory

if TYPE_CHECKING:
    from retrieval.quantize import Floats


class Foreign(HashEncoder):
    """Stands for the multilingual encoder: its collection, without its model."""

    def __init__(self, *, ready: bool = True) -> None:
        super().__init__(COLLECTION.dims)
        self._is_ready = ready

    @property
    def collection(self) -> Collection:
        return COLLECTION

    @property
    def ready(self) -> bool:
        return self._is_ready


def a_store(*, second: bool) -> tuple[IndexSnapshot, Bilingual]:
    """An index with vectors of the first encoder, and of the second where wanted."""
    first, foreign = HashEncoder(), Foreign()
    rows = packed(first.encode(FACTS), first.collection.scale)
    reads = in_memory(
        [Text(text=text) for text in FACTS], collection=first.collection, vectors=rows
    )
    if second:
        _add_vectors(reads.db, packed(foreign.encode(FACTS), COLLECTION.scale))
    return build_index(reads, generation=1, collection=first.collection), Bilingual(first, foreign)


def _add_vectors(db: object, rows: Sequence[bytes]) -> None:
    import apsw

    assert isinstance(db, apsw.Connection)
    row = (COLLECTION.name, COLLECTION.model, COLLECTION.dims, COLLECTION.fingerprint)
    db.execute("INSERT INTO collections VALUES (?, ?, ?, ?, ?, 0)", (*row, COLLECTION.scale))
    for at, embedding in enumerate(rows):
        db.execute("INSERT INTO vectors VALUES (?, ?, ?)", (COLLECTION.name, at + 1, embedding))


def test_a_foreign_question_meets_the_multilingual_vectors() -> None:
    """Only then, and only where they exist; an English one meets the others."""
    index, encoder = a_store(second=True)

    abroad = open_leg(index, encoder, ["¿Qué base de datos usamos?"], foreign=True)
    home = open_leg(index, encoder, ["Which database do we use?"], foreign=False)

    assert abroad.matrix is index.foreign
    assert abroad.foreign
    assert home.matrix is index.matrix
    assert not home.foreign


@pytest.mark.parametrize(("second", "ready"), [(False, True), (True, False)])
def test_without_multilingual_vectors_the_first_encoder_answers(second: bool, ready: bool) -> None:
    """No vectors, or no loaded model, is no reason to say nothing or to wait."""
    index, encoder = a_store(second=second)
    asked = Bilingual(HashEncoder(), Foreign(ready=ready))

    leg = open_leg(index, asked, ["¿Qué base de datos usamos?"], foreign=True)

    assert leg.matrix is index.matrix
    assert leg.gap == ""
    assert foreign_of(encoder) is not None


def test_a_single_encoder_has_no_second() -> None:
    """Whoever did not install the package is asked for nothing."""
    assert foreign_of(HashEncoder()) is None
    assert foreign_of(None) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("¿Cuánto tiempo se guardan las copias?", True),
        ("怎么运行测试？", True),
        ("How long are backups kept?", False),
        ("pytest -x tests/ops", False),
    ],
)
def test_the_language_of_the_question_decides(text: str, expected: bool) -> None:
    """Names and commands are nobody's language."""
    assert is_foreign(text) is expected


def test_a_vocabulary_is_read_from_its_file() -> None:
    """Pieces with their scores in order; other fields are passed over."""
    piece = b"\x0a\x03\xe2\x96\x81" + b"\x15" + struct.pack("<f", -2.5) + b"\x18\x01"
    model = b"\x0a" + bytes([len(piece)]) + piece + b"\x12\x02\x08\x01" + b"\x0a\x03\x0a\x01a"

    assert list(vocabulary_of(model)) == [("▁", -2.5), ("a", 0.0)]


def test_a_missing_package_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed: said in words, and `installed` says so without raising."""
    nowhere = PackagedFile("no_such_package_of_ours", "weights.npz", "0" * 64)
    monkeypatch.setattr(multilingual, "WEIGHTS", nowhere)

    with pytest.raises(Unavailable, match="not installed"):
        MultilingualEncoder(weights=nowhere, vocabulary=nowhere).warm()
    assert not installed()


def test_translations_lie_close_together() -> None:
    """With the package: a question and its English answer are nearer than strangers."""
    if not installed():
        pytest.skip("the extra `multilingual` is not installed")
    encoder = MultilingualEncoder()

    rows: Floats = encoder.encode(
        [
            "Nightly backups are kept for thirty-five days.",
            "¿Cuánto tiempo se guardan las copias de seguridad nocturnas?",
            "夜间备份保留多少天？",
            "The conveyor speaks Modbus.",
        ]
    )

    close, far = rows[0] @ rows[1:3].T, rows[3] @ rows[1:3].T
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert (close > far + 0.2).all()
    encoder.close()
    assert not encoder.ready
