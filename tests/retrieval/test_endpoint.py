"""The transport to a model: a hard deadline, and a key that no error quotes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from retrieval.endpoint import Endpoint
from storage.errors import ConfigError, ModelUnavailable
from tests.support import wait_until

WITHIN_S = 0.3
PATIENCE_S = 3.0
"""Ten times the deadline: what restarts with every byte takes far longer."""

Serve = Callable[[socket.socket, threading.Event], None]


def _drip(answer: bytes) -> Serve:
    """The answer, a byte at a time, each well within the deadline."""

    def serve(link: socket.socket, stop: threading.Event) -> None:
        link.recv(65_536)
        for at in range(len(answer)):
            if stop.wait(WITHIN_S / 4):
                return
            link.sendall(answer[at : at + 1])

    return serve


def _silent(link: socket.socket, stop: threading.Event) -> None:
    stop.wait(30)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Raw:
    """A server below HTTP."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop = threading.Event()
        self.hung_up = threading.Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(OSError):
            link, _ = self._listener.accept()
            with closing(link):
                try:
                    self._serve(link, self._stop)
                except OSError:
                    self.hung_up.set()

    def close(self) -> None:
        """End it."""
        self._stop.set()
        self._listener.close()
        self._thread.join(5)


@pytest.fixture(
    params=[_drip(HEAD + b"X-More: " + b"x" * 400), _drip(b"x" * 400), _silent],
    ids=["drips headers", "drips the status", "says nothing"],
)
def server(request: pytest.FixtureRequest) -> Iterator[Raw]:
    """One that never comes to an end."""
    made = Raw(request.param)
    yield made
    made.close()


def test_the_deadline_holds_however_the_bytes_come(server: Raw) -> None:
    """A prompt waits behind it: every byte must not begin the time anew."""
    began = time.monotonic()

    with pytest.raises(ModelUnavailable, match="TimeoutError"):
        Endpoint(server.url, timeout_s=WITHIN_S).post("/x", {})

    assert time.monotonic() - began < PATIENCE_S


def test_a_body_that_drips_is_given_up_and_its_connection_closed() -> None:
    """What was given up holds no socket."""
    server = Raw(_drip(HEAD + b"Content-Length: 400\r\n\r\n" + b" " * 400))

    with pytest.raises(ModelUnavailable):
        Endpoint(server.url, timeout_s=WITHIN_S).post("/x", {})

    wait_until(server.hung_up.is_set)
    wait_until(lambda: all(thread.name != "Endpoint" for thread in threading.enumerate()))
    server.close()


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "localhost:1"])
def test_a_host_that_leads_nowhere_is_no_answer(host: str) -> None:
    """Whatever the library makes of it."""
    scheme = "http" if host.startswith("localhost") else "https"

    with pytest.raises(ModelUnavailable):
        Endpoint(f"{scheme}://{host}", timeout_s=2).post("/x", {})


@pytest.mark.parametrize("sign", ["\n", "\r\nX-Evil: 1", "\0", "é", " "])
def test_a_key_that_no_header_can_hold_is_refused_and_never_quoted(sign: str) -> None:
    """Refused before the library meets it, whose own error would quote it."""
    with pytest.raises(ConfigError, match=r"the key for encoder\.base_url") as caught:
        Endpoint("https://example.invalid", key=f"SENTINEL{sign}END", setting="encoder.base_url")

    assert "SENTINEL" not in str(caught.value)


def test_a_key_that_was_read_from_a_file_keeps_no_line_end() -> None:
    """The usual accident is no fault."""
    assert Endpoint("https://example.invalid", key="k-1\n")._headers()["Authorization"] == (
        "Bearer k-1"
    )
