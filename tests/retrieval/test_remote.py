"""An encoder behind an endpoint: what is sent, what is believed, and what a failure costs."""

from __future__ import annotations

import json
import math
import random
import string
from collections.abc import Iterator

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from retrieval.encoders import EncoderPool
from retrieval.endpoint import Answer
from retrieval.remote import BATCH, DIALECTS, REST_S, RemoteEncoder
from storage.config import EncoderSettings
from storage.errors import ConfigError, Unavailable
from storage.records import JsonValue
from tests.retrieval.endpoints import (
    DIMS,
    REST,
    Reply,
    VectorServer,
    a_vector_server,
    rows_of,
    said,
)


@pytest.fixture
def server() -> Iterator[VectorServer]:
    """A running endpoint."""
    with a_vector_server() as made:
        yield made


def _encoder(server: VectorServer, provider: str = "openai", **more: object) -> RemoteEncoder:
    settings = EncoderSettings(provider=provider, model="m", dims=DIMS, base_url=server.url)
    return RemoteEncoder(settings, within_s=5, **more)  # type: ignore[arg-type]


def test_vectors_come_back_in_the_order_of_the_texts_and_normalised(server: VectorServer) -> None:
    """Whatever the order of the answer; long lists go in batches."""
    texts = ["x" * (1 + at % 7) for at in range(BATCH + 3)]

    found = _encoder(server).encode(texts)

    assert found.dtype == np.float32
    assert found.shape == (BATCH + 3, DIMS)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert np.allclose(found[:, 0] / found[:, 1], [len(text) for text in texts], atol=1e-4)
    assert [path for path, _, _ in server.asked] == ["/embeddings"] * 2


def test_ollama_speaks_its_own_dialect(server: VectorServer) -> None:
    """Path and shape of the answer."""
    server.reply = lambda body: (200, json.dumps({"embeddings": rows_of(body)}).encode())

    row = _encoder(server, "ollama").encode_query("four")

    assert math.isclose(float(row[0] / row[1]), 4.0, abs_tol=1e-4)
    assert server.asked[0][0] == "/api/embed"


def test_secrets_are_removed_before_a_text_leaves(server: VectorServer) -> None:
    """A prompt may hold what no store would."""
    secret = "ghp_" + "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=36))

    _encoder(server).encode_query(f"push with {secret} please")

    assert secret not in json.dumps(server.asked)
    assert "push with" in json.dumps(server.asked)


def test_the_key_comes_from_the_named_variable_alone(server: VectorServer) -> None:
    """No variable is guessed."""
    settings = EncoderSettings(
        provider="openai", model="m", dims=DIMS, base_url=server.url, key_variable="OUR_KEY"
    )
    keys = {"OUR_KEY": "k-1", "OPENAI_API_KEY": "k-2"}

    RemoteEncoder(settings, within_s=5, environment=keys).encode_query("x")
    _encoder(server, environment=keys).encode_query("x")

    assert [key for _, key, _ in server.asked] == ["Bearer k-1", ""]


@pytest.mark.parametrize(
    "reply",
    [
        said({"data": []}),
        said({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}),
        said({"data": [{"index": 1, "embedding": [1.0, 2.0, 3.0, *REST]}]}),
        said({"data": [{"index": "0", "embedding": [1.0, 2.0, 3.0, *REST]}]}),
        said({"data": [{"index": [0], "embedding": [1.0, 2.0, 3.0, *REST]}]}),
        said({"data": [{"index": False, "embedding": [1.0, 2.0, 3.0, *REST]}]}),
        said({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0, *REST]}] * 2}),
        said({"data": [{"index": at, "embedding": [1.0, 2.0, 3.0, *REST]} for at in range(2)]}),
        said({"data": [{"index": 0, "embedding": [1.0, "two", 3.0, *REST]}]}),
        said({"data": [{"index": 0, "embedding": [1.0, "2", 3.0, *REST]}]}),
        said({"data": [{"index": 0, "embedding": [1.0, True, 3.0, *REST]}]}),
        said({"data": [{"index": 0, "embedding": [1.0, 1e300, 3.0, *REST]}]}),
        said({"data": [{"index": 0, "embedding": [1, 10**400, 3, *REST]}]}),
        said({"data": [{"index": 0, "embedding": [0.0, 0.0, 0.0, *REST]}]}),
        said({"data": [{"index": 0, "embedding": None}]}),
        said({"data": ["row"]}),
        said({"data": "rows"}),
        said({}),
        said([1, 2, 3]),
        said({"error": "no"}, 500),
        said({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0, *REST]}]}, 302),
        lambda _: (200, b'{"data": [{"index": 0, "embedding": [NaN, 1, 1, *REST]}]}'),
        lambda _: (200, b'{"data": [{"index": 0, "embedding": [Infinity, 1, 1, *REST]}]}'),
        lambda _: (200, b"<html>"),
        lambda _: (200, b"[" * 5_000_000),
    ],
)
def test_an_answer_that_does_not_fit_is_not_believed(server: VectorServer, reply: Reply) -> None:
    """Count, size, numbers, direction, order: one request, no vector, and then a rest."""
    server.reply = reply
    now = [100.0]
    encoder = _encoder(server, now=lambda: now[0])

    with pytest.raises(Unavailable):
        encoder.encode_query("x")
    resting = encoder.ready
    now[0] += REST_S

    assert (resting, encoder.ready) == (False, True)
    assert len(server.asked) == 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["data", "index", "embedding", "embeddings"]), inner, max_size=3
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from(sorted(DIALECTS)),
)
def test_whatever_is_answered_ends_in_vectors_or_in_one_kind_of_error(
    answer: JsonValue, provider: str
) -> None:
    """A raw error would cost the whole answer instead of its half by meaning."""
    settings = EncoderSettings(
        provider=provider, model="m", dims=DIMS, base_url="http://127.0.0.1:1"
    )
    encoder = RemoteEncoder(settings, within_s=1, environment={})
    key = "data" if provider == "openai" else "embeddings"
    body = answer if isinstance(answer, dict) else {key: answer}
    encoder._endpoint = Answering(body)  # type: ignore[assignment]

    try:
        found = encoder.encode(["x"])
    except Unavailable:
        assert not encoder.ready
    else:
        assert found.shape == (1, DIMS)
        assert np.isfinite(found).all()


class Answering:
    """An endpoint with one answer."""

    def __init__(self, body: dict[str, JsonValue]) -> None:
        self._body = body

    def post(self, _path: str, _body: object) -> Answer:
        """Always the same."""
        return Answer(200, self._body)


def test_an_endpoint_that_does_not_answer_ends_at_its_deadline(server: VectorServer) -> None:
    """A prompt waits for nobody."""

    def never(_: dict[str, object]) -> tuple[int, bytes]:
        server.release.wait(30)
        return 500, b""

    server.reply = never
    settings = EncoderSettings(provider="openai", model="m", dims=DIMS, base_url=server.url)

    with pytest.raises(Unavailable):
        RemoteEncoder(settings, within_s=0.1).encode_query("x")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": ""}, "encoder.model"),
        ({"dims": 0}, "encoder.dims"),
        ({"dims": 7}, "encoder.dims"),
        ({"dims": 100_000}, "encoder.dims"),
        ({"base_url": "http://example.invalid/v1"}, "encoder.base_url"),
        ({"base_url": "https://user:pass@example.invalid/v1"}, "encoder.base_url"),
    ],
)
def test_settings_that_cannot_be_used_are_named(change: dict[str, object], named: str) -> None:
    """Before anything is sent."""
    fields: dict[str, object] = {"provider": "openai", "model": "m", "dims": DIMS} | change

    with pytest.raises(ConfigError, match=named):
        RemoteEncoder(EncoderSettings(**fields), within_s=1)  # type: ignore[arg-type]


def test_another_model_or_address_is_another_collection(server: VectorServer) -> None:
    """Vectors of two models are never compared, so a change asks for new ones."""
    one = _encoder(server).collection
    other_model = EncoderSettings(provider="openai", model="n", dims=DIMS, base_url=server.url)
    other_place = EncoderSettings(provider="openai", model="m", dims=DIMS)

    names = {
        one.name,
        RemoteEncoder(other_model, within_s=1).collection.name,
        RemoteEncoder(other_place, within_s=1, environment={}).collection.name,
    }

    assert len(names) == 3


def test_a_prompt_and_a_batch_have_deadlines_of_their_own(server: VectorServer) -> None:
    """The pool keeps both, and neither starts a process."""
    settings = EncoderSettings(provider="openai", model="m", dims=DIMS, base_url=server.url)
    pool = EncoderPool()

    asked, worked = pool.get(settings, isolated_s=0.15), pool.get(settings, isolated_s=90)

    assert asked is not worked
    assert asked is pool.get(settings, isolated_s=0.15)
    assert isinstance(asked, RemoteEncoder)
    pool.close()
