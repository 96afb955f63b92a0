"""The server's side of a Unix socket: many clients, one thread, none of whom can stop it.

Accepts, checks who is calling, cuts the stream into lines, hands each line to `Desk.receive` and
writes back what `Reply.send` was given, from whatever thread. Everything is non-blocking and
bounded: connections, bytes waiting to be read or written. What a line means is the desk's business.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Final, Protocol

from hooks.frames import MAX_FRAME_BYTES, LineBuffer
from storage.errors import Invalid

MAX_CLIENTS: Final = 512
MAX_WAITING_BYTES: Final = 1_048_576
"""Bytes that one client may leave unread; beyond it is cut off."""
MAX_OPEN_REQUESTS: Final = 256
"""Requests of one client that wait for their answer; beyond it is cut off."""
_READ: Final = 65_536
_ACCEPTS: Final = 64
"""Connections taken at once before others are served."""
_TICK_S: Final = 3.0
"""Every wake-up of an idle process costs its owner battery."""

PeerUid = Callable[[socket.socket], int | None]


class Reply(Protocol):
    """Where the answer to one line goes."""

    def send(self, line: bytes) -> None:
        """Queue the answer, from any thread, to a client that may be gone; a second is ignored."""
        ...


class Desk(Protocol):
    """Who answers."""

    def receive(self, line: bytes, reply: Reply) -> None:
        """Take one line; return at once."""
        ...

    def tick(self) -> bool:
        """Every few seconds: False ends the service."""
        ...


class _Client:
    """One connection."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.lines = LineBuffer()
        self.waiting = bytearray()
        self.open_requests = 0
        self.seen = monotonic()
        self.finished = False
        """The client closed its sending side; it may still want its answers."""


class _Ticket:
    """The reply of one line."""

    def __init__(self, service: Service, client: _Client) -> None:
        self._service: Service | None = service
        self._client = client

    def send(self, line: bytes) -> None:
        service, self._service = self._service, None
        if service is not None:
            service.post(self._client, line)


class Service:
    """The loop around one listening socket."""

    def __init__(
        self,
        listener: socket.socket,
        desk: Desk,
        *,
        peer_uid: PeerUid | None = None,
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        self._listener, self._desk = listener, desk
        self._peer_uid = peer_uid or peer_uid_of
        self._max_clients = max_clients
        self._selector = selectors.DefaultSelector()
        self._clients: dict[_Client, None] = {}
        self._posted: deque[tuple[_Client, bytes]] = deque()
        self._stopped = threading.Event()
        self._wake_in, self._wake_out = socket.socketpair()
        self.refused = 0
        for end in (listener, self._wake_in, self._wake_out):
            end.setblocking(False)

    @property
    def wake_fd(self) -> int:
        """A descriptor that wakes the loop when a byte is written to it (signals)."""
        return self._wake_out.fileno()

    @property
    def clients(self) -> int:
        """Open connections."""
        return len(self._clients)

    def stop(self) -> None:
        """End the loop soon; from any thread or a signal handler."""
        self._stopped.set()
        self._wake()

    def post(self, client: _Client, line: bytes) -> None:
        """Queue bytes for a client; from any thread."""
        self._posted.append((client, line))
        self._wake()

    def run(self) -> None:
        """Serve until stopped; then take what was sent, write what is ready, close everything."""
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wake_in, selectors.EVENT_READ, self._woken)
        ticked = monotonic()
        try:
            while not self._stopped.is_set():
                for key, events in self._selector.select(_TICK_S):
                    if isinstance(key.data, _Client):
                        self._serve(key.data, events)
                    else:
                        key.data()
                self._deliver()
                if monotonic() - ticked >= _TICK_S:
                    ticked = monotonic()
                    if not self._desk.tick():
                        break
            self._hear_out()
        finally:
            self._close()

    def _hear_out(self) -> None:
        """Take what was sent before the end: a hook leaves once its event is in the socket."""
        self._accept()
        for client in list(self._clients):
            for _ in range(MAX_FRAME_BYTES // _READ + 1):
                if client not in self._clients or not self._read(client):
                    break

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                link, _ = self._listener.accept()
            except OSError as problem:
                if problem.errno in (errno.EMFILE, errno.ENFILE):
                    # Without a free descriptor the listener stays readable: make room or spin.
                    self._drop_idlest()
                return
            self._admit(link)

    def _admit(self, link: socket.socket) -> None:
        if self._peer_uid(link) != os.geteuid():
            self.refused += 1
            link.close()
            return
        if len(self._clients) >= self._max_clients:
            self._drop_idlest()
        link.setblocking(False)
        client = _Client(link)
        self._clients[client] = None
        self._selector.register(link, selectors.EVENT_READ, client)

    def _woken(self) -> None:
        with suppress(BlockingIOError):
            while self._wake_in.recv(4_096):
                pass

    def _wake(self) -> None:
        # A full pipe means that the loop is about to wake anyway; a closed one, that it is over.
        with suppress(BlockingIOError, OSError):
            self._wake_out.send(b"\0")

    def _serve(self, client: _Client, events: int) -> None:
        if client not in self._clients:
            return  # Dropped for a newer one since the selector named it.
        if events & selectors.EVENT_WRITE:
            self._write(client)
        if events & selectors.EVENT_READ and client in self._clients:
            self._read(client)

    def _read(self, client: _Client) -> bool:
        """Take what a client sent, a part at a time; False when that was nothing."""
        try:
            part = client.link.recv(_READ)
            lines = client.lines.feed(part)
        except BlockingIOError:
            return False
        except (OSError, Invalid):
            self._drop(client)
            return False
        if not part:
            client.finished = True
            if client.open_requests or client.waiting:
                self._watch(client)
            else:
                self._drop(client)
            return False
        client.seen = monotonic()
        client.open_requests += len(lines)
        if client.open_requests > MAX_OPEN_REQUESTS:
            self._drop(client)
            return False
        for line in lines:
            self._desk.receive(line, _Ticket(self, client))
        return True

    def _deliver(self) -> None:
        while self._posted:
            client, line = self._posted.popleft()
            client.open_requests -= 1
            if client in self._clients:
                client.waiting += line
                self._write(client)

    def _write(self, client: _Client) -> None:
        try:
            while client.waiting:
                sent = client.link.send(client.waiting)
                del client.waiting[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(client)
            return
        done = client.finished and not client.open_requests and not client.waiting
        if done or len(client.waiting) > MAX_WAITING_BYTES:
            self._drop(client)
            return
        self._watch(client)

    def _watch(self, client: _Client) -> None:
        wanted = 0 if client.finished else selectors.EVENT_READ
        if client.waiting:
            wanted |= selectors.EVENT_WRITE
        known = client.link in self._selector.get_map()
        if not wanted:
            if known:
                self._selector.unregister(client.link)
        elif known:
            self._selector.modify(client.link, wanted, client)
        else:
            self._selector.register(client.link, wanted, client)

    def _drop_idlest(self) -> None:
        idle = min(self._clients, key=lambda client: client.seen, default=None)
        if idle is not None:
            self._drop(idle)

    def _drop(self, client: _Client) -> None:
        self._clients.pop(client, None)
        if client.link in self._selector.get_map():
            self._selector.unregister(client.link)
        client.link.close()

    def _close(self) -> None:
        self._deliver()
        for client in list(self._clients):
            self._drop(client)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()


def peer_uid_of(link: socket.socket) -> int | None:
    """The user at the other end of a Unix socket; None when the system does not say."""
    try:
        if sys.platform == "darwin":
            raw = link.getsockopt(0, 0x001, 76)  # SOL_LOCAL, LOCAL_PEERCRED: struct xucred
            return int(struct.unpack_from("=II", raw)[1])
        raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("=iII"))
        return int(struct.unpack("=iII", raw)[1])
    except (OSError, struct.error):
        return None
