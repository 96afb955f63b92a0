"""The process that runs an encoder for another: `python -I -m retrieval.encoder_child SETTINGS`.

Its standard input is one end of a socket pair; a message each way is a length, a JSON header and
raw float32. Owns its own end: it leaves when the other end closes, even in the middle of a text,
and is ended by the system when one message takes longer than `MESSAGE_S`, whatever native code is
doing. It leaves no core file (texts would be in it) and may not grow beyond `MEMORY_BYTES`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.errors import MemorydError

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from storage.records import JsonValue

MESSAGE_S: Final = 120.0
MEMORY_BYTES: Final = 4 << 30
"""Address space, of which the runtime takes 1.2 GB at most and touches a fifth."""
MAX_BYTES: Final = 64 << 20
_PR_SET_PDEATHSIG: Final = 1
_SIZES: Final = struct.Struct(">II")

Header = Mapping[str, "JsonValue"]


def send(link: socket.socket, header: Header, body: bytes = b"") -> None:
    """Write one message."""
    raw = json.dumps(header, separators=(",", ":")).encode("ascii")
    link.sendall(_SIZES.pack(len(raw), len(body)) + raw + body)


def receive(link: socket.socket) -> tuple[Header, bytes] | None:
    """The next message; None when the other end is closed.

    Raises:
        ValueError: no message of ours.
    """
    sizes = _exactly(link, _SIZES.size)
    if sizes is None:
        return None
    head, body = _SIZES.unpack(sizes)
    if head + body > MAX_BYTES:
        raise ValueError("too large")
    raw = _exactly(link, head + body)
    if raw is None:
        return None
    header = json.loads(raw[:head])
    return dict(header), raw[head:]


def _exactly(link: socket.socket, size: int) -> bytes | None:
    got = bytearray()
    while len(got) < size:
        part = link.recv(min(size - len(got), 1 << 20))
        if not part:
            return None
        got += part
    return bytes(got)


def serve(link: socket.socket, encoder: Encoder) -> None:
    """Answer until the other end closes: first whether the model loads, then each batch."""
    from retrieval.multilingual import foreign_of

    try:
        signal.setitimer(signal.ITIMER_REAL, MESSAGE_S)
        encoder.warm()
        # The first run allocates; let it not be a person's.
        encoder.encode_query("warm up")
    except MemorydError as problem:
        send(link, {"error": str(problem)})
        return
    send(link, {"ready": True})
    while True:
        signal.setitimer(signal.ITIMER_REAL, 0)
        message = receive(link)
        if message is None:
            return
        signal.setitimer(signal.ITIMER_REAL, MESSAGE_S)
        header, _ = message
        texts = header.get("texts")
        part = foreign_of(encoder) if header.get("foreign") else encoder
        if part is None or not isinstance(texts, list):
            send(link, {"id": header.get("id"), "error": "encoder: nothing to encode with"})
            continue
        try:
            rows = part.encode([str(text) for text in texts])
        except MemorydError as problem:
            send(link, {"id": header.get("id"), "error": str(problem)})
        else:
            send(link, {"id": header.get("id"), "rows": len(rows)}, rows.tobytes())


def main(argv: Sequence[str]) -> int:
    """Encode for whoever holds the other end of standard input."""
    _bound()
    link = socket.socket(fileno=0)
    threading.Thread(target=_leave_with, args=(link,), name="parent", daemon=True).start()
    from retrieval.encoders import shared_encoder
    from storage.config import EncoderSettings

    encoder = shared_encoder(EncoderSettings(**json.loads(argv[0])))
    if encoder is not None:
        with suppress(OSError, ValueError):
            serve(link, encoder)
    return 0


def _bound() -> None:
    import resource

    # The parent's Ctrl-C is the parent's business: it closes its end when it is done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes

        # A stopped process hears no hang-up: the system ends it with the thread that it belongs to.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        if most == resource.RLIM_INFINITY or most > MEMORY_BYTES:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, most))


def _leave_with(link: socket.socket) -> None:
    """End this process when the other end is closed, whatever the main thread is at."""
    hung_up = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)
    poll = select.poll()
    poll.register(link.fileno(), hung_up)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
