"""An endpoint for vectors on this machine, which answers as a test says and keeps what it heard."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIMS = 8
REST = [0.0] * (DIMS - 3)
"""What a vector of three interesting numbers ends with."""

Reply = Callable[[dict[str, object]], tuple[int, bytes]]


class VectorServer(ThreadingHTTPServer):
    """Answers as `reply` says and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply: Reply = numbered
        self.asked: list[tuple[str, str, dict[str, object]]] = []
        self.release = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """One answer."""
        server = self.server
        assert isinstance(server, VectorServer)
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


def rows_of(body: dict[str, object]) -> list[list[float]]:
    texts = body["input"]
    assert isinstance(texts, list)
    return [[float(len(text)), 1.0, -2.0, *REST] for text in texts]


def numbered(body: dict[str, object]) -> tuple[int, bytes]:
    rows = [{"index": at, "embedding": row} for at, row in enumerate(rows_of(body))]
    # An endpoint may answer in any order.
    return 200, json.dumps({"data": rows[::-1]}).encode()


def said(value: object, status: int = 200) -> Reply:
    return lambda _: (status, json.dumps(value).encode())


@contextmanager
def a_vector_server() -> Iterator[VectorServer]:
    """A running endpoint, ended with the block."""
    made = VectorServer()
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.release.set()
        made.shutdown()
        made.server_close()
        thread.join()
