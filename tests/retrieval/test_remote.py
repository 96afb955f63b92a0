"""An encoder behind an endpoint: what is sent, what is believed, and what a failure costs."""

from __future__ import annotations

import json
import math
import random
import string
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from retrieval.encoders import EncoderPool
from retrieval.remote import BATCH, REST_S, RemoteEncoder
from storage.config import EncoderSettings
from storage.errors import ConfigError, Unavailable

Reply = Callable[[dict[str, object]], tuple[int, bytes]]


class _Server(ThreadingHTTPServer):
    """Answers as `reply` says and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: Reply = _vectors
        self.asked: list[tuple[str, str, dict[str, object]]] = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """One answer."""
        server = self.server
        assert isinstance(server, _Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append((self.path, self.headers.get("Authorization", ""), body))
        status, raw = server.reply(body)
        self.send_response(status)
        if status in {301, 302}:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[_Server]:
    """A running endpoint."""
    made = _Server()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.release.set()
    made.shutdown()
    made.server_close()
    thread.join()


def _rows(body: dict[str, object]) -> list[list[float]]:
    texts = body["input"]
    assert isinstance(texts, list)
    return [[float(len(text)), 1.0, -2.0] for text in texts]


def _vectors(body: dict[str, object]) -> tuple[int, bytes]:
    rows = [{"index": at, "embedding": row} for at, row in enumerate(_rows(body))]
    # An endpoint may answer in any order.
    return 200, json.dumps({"data": rows[::-1]}).encode()


def _said(value: object, status: int = 200) -> Reply:
    return lambda _: (status, json.dumps(value).encode())


def _encoder(server: _Server, provider: str = "openai", **more: object) -> RemoteEncoder:
    settings = EncoderSettings(provider=provider, model="m", dims=3, base_url=server.url)
    return RemoteEncoder(settings, within_s=5, **more)  # type: ignore[arg-type]


def test_vectors_come_back_in_the_order_of_the_texts_and_normalised(server: _Server) -> None:
    """Whatever the order of the answer; long lists go in batches."""
    texts = ["x" * (1 + at % 7) for at in range(BATCH + 3)]

    found = _encoder(server).encode(texts)

    assert found.dtype == np.float32
    assert found.shape == (BATCH + 3, 3)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert np.allclose(found[:, 0] / found[:, 1], [len(text) for text in texts], atol=1e-4)
    assert [path for path, _, _ in server.asked] == ["/embeddings"] * 2


def test_ollama_speaks_its_own_dialect(server: _Server) -> None:
    """Path and shape of the answer."""
    server.reply = lambda body: (200, json.dumps({"embeddings": _rows(body)}).encode())

    row = _encoder(server, "ollama").encode_query("four")

    assert math.isclose(float(row[0] / row[1]), 4.0, abs_tol=1e-4)
    assert server.asked[0][0] == "/api/embed"


def test_secrets_are_removed_before_a_text_leaves(server: _Server) -> None:
    """A prompt may hold what no store would."""
    secret = "ghp_" + "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=36))

    _encoder(server).encode_query(f"push with {secret} please")

    assert secret not in json.dumps(server.asked)
    assert "push with" in json.dumps(server.asked)


def test_the_key_comes_from_the_named_variable_alone(server: _Server) -> None:
    """No variable is guessed."""
    settings = EncoderSettings(
        provider="openai", model="m", dims=3, base_url=server.url, key_variable="OUR_KEY"
    )
    keys = {"OUR_KEY": "k-1", "OPENAI_API_KEY": "k-2"}

    RemoteEncoder(settings, within_s=5, environment=keys).encode_query("x")
    _encoder(server, environment=keys).encode_query("x")

    assert [key for _, key, _ in server.asked] == ["Bearer k-1", ""]


@pytest.mark.parametrize(
    "reply",
    [
        _said({"data": []}),
        _said({"data": [{"index": 0, "embedding": [1.0, 2.0]}]}),
        _said({"data": [{"index": 1, "embedding": [1.0, 2.0, 3.0]}]}),
        _said({"data": [{"index": 0, "embedding": [1.0, "two", 3.0]}]}),
        _said({"data": [{"index": 0, "embedding": [0.0, 0.0, 0.0]}]}),
        _said({"data": [{"index": 0, "embedding": None}]}),
        _said({"data": ["row"]}),
        _said({"data": "rows"}),
        _said({}),
        _said([1, 2, 3]),
        _said({"error": "no"}, 500),
        _said({"data": [{"index": 0, "embedding": [1.0, 2.0, 3.0]}]}, 302),
        lambda _: (200, b'{"data": [{"index": 0, "embedding": [NaN, 1, 1]}]}'),
        lambda _: (200, b'{"data": [{"index": 0, "embedding": [Infinity, 1, 1]}]}'),
        lambda _: (200, b"<html>"),
        lambda _: (200, b"[" * 5_000_000),
    ],
)
def test_an_answer_that_does_not_fit_is_not_believed(server: _Server, reply: Reply) -> None:
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


def test_an_endpoint_that_does_not_answer_ends_at_its_deadline(server: _Server) -> None:
    """A prompt waits for nobody."""

    def never(_: dict[str, object]) -> tuple[int, bytes]:
        server.release.wait(30)
        return 500, b""

    server.reply = never
    settings = EncoderSettings(provider="openai", model="m", dims=3, base_url=server.url)

    with pytest.raises(Unavailable):
        RemoteEncoder(settings, within_s=0.1).encode_query("x")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": ""}, "encoder.model"),
        ({"dims": 0}, "encoder.dims"),
        ({"dims": 100_000}, "encoder.dims"),
        ({"base_url": "http://example.invalid/v1"}, "encoder.base_url"),
        ({"base_url": "https://user:pass@example.invalid/v1"}, "encoder.base_url"),
    ],
)
def test_settings_that_cannot_be_used_are_named(change: dict[str, object], named: str) -> None:
    """Before anything is sent."""
    fields: dict[str, object] = {"provider": "openai", "model": "m", "dims": 3} | change

    with pytest.raises(ConfigError, match=named):
        RemoteEncoder(EncoderSettings(**fields), within_s=1)  # type: ignore[arg-type]


def test_another_model_or_address_is_another_collection(server: _Server) -> None:
    """Vectors of two models are never compared, so a change asks for new ones."""
    one = _encoder(server).collection
    other_model = EncoderSettings(provider="openai", model="n", dims=3, base_url=server.url)
    other_place = EncoderSettings(provider="openai", model="m", dims=3)

    names = {
        one.name,
        RemoteEncoder(other_model, within_s=1).collection.name,
        RemoteEncoder(other_place, within_s=1, environment={}).collection.name,
    }

    assert len(names) == 3


def test_a_prompt_and_a_batch_have_deadlines_of_their_own(server: _Server) -> None:
    """The pool keeps both, and neither starts a process."""
    settings = EncoderSettings(provider="openai", model="m", dims=3, base_url=server.url)
    pool = EncoderPool()

    asked, worked = pool.get(settings, isolated_s=0.15), pool.get(settings, isolated_s=90)

    assert asked is not worked
    assert asked is pool.get(settings, isolated_s=0.15)
    assert isinstance(asked, RemoteEncoder)
    pool.close()
