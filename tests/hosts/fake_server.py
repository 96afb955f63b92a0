"""A recall server that does as it is told: answers, keeps silent, talks nonsense, hangs up.

Owns the wire only: it keeps every frame it receives and answers prompts with a fixed block,
through the real adapters. It stands in for ``hooks.server`` so that the hosts can be tested with
servers that misbehave in ways the real one never should.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Literal, Self, cast

from hooks.events import HookEvent, HookOutcome
from hooks.hosts import claude, pi

Manner = Literal["answer", "silent", "garbage", "giant", "hang_up", "deaf"]
Frame = Mapping[str, object]

ADAPTERS: Mapping[str, ModuleType] = {"pi": pi, "claude": claude}


def parsed(frame: Frame) -> HookEvent | None:
    """The hook event inside `frame`, read by the real adapter."""
    adapter = ADAPTERS[str(frame["host"])]
    payload = cast("Mapping[str, object]", frame["payload"])
    return cast("HookEvent | None", adapter.parse(str(frame["event"]), payload))


class FakeServer:
    """Listens on `path` while it is entered; `frames` holds what arrived, oldest first."""

    def __init__(self, path: Path, manner: Manner = "answer", block: str = "") -> None:
        self.path = path
        self.manner = manner
        self.block = block
        self.frames: list[Frame] = []
        self.arrived_at: list[float] = []
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._links: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener.bind(str(self.path))
        self._listener.listen(0 if self.manner == "deaf" else 64)
        if self.manner == "deaf":
            # One connection fills the backlog: the next one waits in the kernel for nobody.
            filler = socket.socket(socket.AF_UNIX)
            filler.setblocking(False)
            filler.connect(str(self.path))
            self._links.append(filler)
        else:
            self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for link in (self._listener, *self._links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
        for link in (self._listener, *self._links):
            link.close()
        self.path.unlink(missing_ok=True)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._stop.is_set():
                link, _ = self._listener.accept()
                self._links.append(link)
                self._start(self._serve, link)

    def _serve(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError), link.makefile("rb") as lines:
            for line in lines:
                frame = cast("Frame", json.loads(line))
                with self._changed:
                    self.frames.append(frame)
                    self.arrived_at.append(time.monotonic())
                    self._changed.notify_all()
                if self.manner == "hang_up":
                    link.shutdown(socket.SHUT_RDWR)
                elif reply := self._reply(frame):
                    link.sendall(reply)

    def _reply(self, frame: Frame) -> bytes:
        match self.manner:
            case "garbage":
                return b"Traceback (most recent call last): {{{\n"
            case "giant":
                return b"x" * 3_000_000
            case "answer":
                return self._answer(frame)
            case _:
                return b""

    def _answer(self, frame: Frame) -> bytes:
        event = parsed(frame)
        adapter = ADAPTERS[str(frame["host"])]
        result = None if event is None else adapter.render(event, HookOutcome(self.block))
        if frame["reply"] == "raw":
            return (json.dumps(result) if result else "").encode() + b"\n"
        body = {"v": 1, "id": frame["id"], "ok": True, "result": result or {}}
        return json.dumps(body).encode() + b"\n"

    def events(self) -> list[HookEvent]:
        """Every frame so far, as the adapters read it."""
        return [event for frame in list(self.frames) if (event := parsed(frame)) is not None]

    def wait_for(self, name: str, seconds: float = 5.0) -> Frame:
        """The first frame whose event is `name`, waiting for it; AssertionError if none comes."""

        def find() -> Frame | None:
            return next((frame for frame in self.frames if frame["event"] == name), None)

        with self._changed:
            found = self._changed.wait_for(find, seconds)
        assert found is not None, f"no {name} within {seconds} s, only {self.names()}"
        return found

    def names(self) -> list[str]:
        """The event names that arrived, in order."""
        return [str(frame["event"]) for frame in list(self.frames)]
