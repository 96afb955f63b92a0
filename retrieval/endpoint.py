"""One JSON request to a model endpoint: HTTPS, or plain HTTP to this machine only.

Owns the transport: address rules, one hard deadline over the whole exchange, a bound on the answer,
no redirects, no proxies, and no retry that nobody counted. Whether an answer makes sense is the
caller's; here it is only a status and a JSON object. Errors never carry what was sent or received,
nor the key.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from storage.errors import ConfigError, ModelUnavailable
from storage.records import JsonValue

MAX_ANSWER_BYTES: Final = 4_194_304
_CHUNK: Final = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """What the endpoint said."""

    status: int
    body: Mapping[str, JsonValue]


class Endpoint:
    """A checked base URL."""

    def __init__(
        self,
        base_url: str,
        *,
        key: str = "",
        timeout_s: float = 120.0,
        setting: str = "model.base_url",
    ) -> None:
        """Raises ConfigError: not an absolute URL, plain HTTP to another machine, or no key.

        `setting` is what a person would have to correct.
        """
        try:
            parts = urlsplit(base_url.rstrip("/"))
            port = parts.port
        except ValueError as cause:
            raise ConfigError(f"{setting} is not a URL") from cause
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.username:
            raise ConfigError(f"{setting} must be an https URL without credentials in it")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ConfigError(f"{setting} must use https: plain http is for this machine only")
        key = key.strip()
        if not all("!" <= sign <= "~" for sign in key):
            # Found out later, the library's own error would quote it.
            raise ConfigError(f"the key for {setting} holds a character that no key can hold")
        self._parts: SplitResult = parts
        self._port = port
        self._key = key
        self._timeout_s = timeout_s

    @property
    def is_local(self) -> bool:
        """Whether the endpoint is on this machine."""
        return is_loopback(self._parts.hostname or "")

    def post(self, path: str, body: Mapping[str, JsonValue]) -> Answer:
        """The answer to one POST of `body`, whatever its status.

        Raises:
            ModelUnavailable: no connection, no complete answer in time, or not a JSON object.
        """
        data = json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode("ascii")
        exchange = _Exchange(self._connection(), self._parts.path + path, data, self._headers())
        status, raw = exchange.within(self._timeout_s)
        return Answer(status, _object(raw, status))

    def _connection(self) -> http.client.HTTPConnection:
        host = self._parts.hostname or ""
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(
                host, self._port, timeout=self._timeout_s, context=ssl.create_default_context()
            )
        return http.client.HTTPConnection(host, self._port, timeout=self._timeout_s)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        return headers


class _Exchange:
    """One request and its answer, in a thread that is given up at the deadline.

    A socket's own timeout starts again with every byte that drips in, and a name being resolved or
    a handshake knows none: only somebody who waits beside them can keep the time.
    """

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        data: bytes,
        headers: Mapping[str, str],
    ) -> None:
        self._connection = connection
        self._request = (path, data, headers)
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._given_up = False
        self._found: tuple[int, bytes] | None = None
        self._failed: Exception | None = None

    def within(self, seconds: float) -> tuple[int, bytes]:
        """Status and body.

        Raises:
            ModelUnavailable: it failed, or took longer.
        """
        thread = threading.Thread(target=self._run, name="Endpoint", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self._give_up()
            raise ModelUnavailable("the model endpoint failed (TimeoutError)")
        if self._found is None:
            failed = self._failed
            raise ModelUnavailable(
                f"the model endpoint failed ({type(failed).__name__})"
            ) from failed
        return self._found

    def _run(self) -> None:
        path, data, headers = self._request
        try:
            self._connection.connect()
            with self._lock:
                # Kept by hand: an answer without keep-alive takes the socket off its connection.
                self._sock = self._connection.sock
                if self._given_up:
                    return
            self._connection.request("POST", path, data, headers)
            with self._connection.getresponse() as response:
                self._found = response.status, _read(response)
        except (OSError, ValueError, http.client.HTTPException) as cause:
            # ValueError: a host that cannot be a name.
            self._failed = cause
        finally:
            self._connection.close()

    def _give_up(self) -> None:
        with self._lock:
            self._given_up = True
            sock = self._sock or self._connection.sock
        if sock is not None:
            # Ends whatever read the thread is in; it closes the socket itself.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(response: http.client.HTTPResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        part = response.read1(_CHUNK)
        if not part:
            break
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise http.client.HTTPException("too large")
        parts.append(part)
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
    return b"".join(parts)


def _object(raw: bytes, status: int) -> Mapping[str, JsonValue]:
    try:
        found = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as cause:
        raise ModelUnavailable(f"the model endpoint answered {status} without JSON") from cause
    if not isinstance(found, dict):
        raise ModelUnavailable(f"the model endpoint answered {status} without a JSON object")
    return found
