"""One JSON request to a model endpoint: HTTPS, or plain HTTP to this machine only.

Owns the transport: address rules, one deadline over the whole exchange, a bound on the answer, no
redirects, no proxies, and no retry that nobody counted. Whether an answer makes sense is the
caller's; here it is only a status and a JSON object. Errors never carry what was sent or received.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
import time
from collections.abc import Mapping
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
        """Raises ConfigError: not an absolute URL, or plain HTTP to another machine.

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
        deadline = time.monotonic() + self._timeout_s
        data = json.dumps(body, ensure_ascii=True, separators=(",", ":")).encode("ascii")
        connection = self._connection()
        try:
            connection.request("POST", self._parts.path + path, data, self._headers())
            # Kept by hand: an answer without keep-alive takes the socket off its connection.
            sock = connection.sock
            if sock is not None:
                sock.settimeout(max(0.01, deadline - time.monotonic()))
            with connection.getresponse() as response:
                raw = _read(response, sock, deadline)
                status = response.status
        except (OSError, http.client.HTTPException) as cause:
            raise ModelUnavailable(f"the model endpoint failed ({type(cause).__name__})") from cause
        finally:
            connection.close()
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


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read(response: http.client.HTTPResponse, sock: socket.socket | None, deadline: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline")
        if sock is not None:
            sock.settimeout(left)
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
