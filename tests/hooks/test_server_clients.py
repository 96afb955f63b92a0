"""What clients may do to the resident server: odd, slow, dead, malicious, or far too many."""

from __future__ import annotations

import json
import os
import random
import selectors
import socket
import struct
from contextlib import ExitStack

import pytest

from hooks import serving
from tests.hooks.serverside import (
    Running,
    a_server,
    prompt_frame,
    read_line,
    recall,
    short_home,
)


class Silent:
    """A desk that answers nothing."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def receive(self, line: bytes, reply: serving.Reply) -> None:
        """Take a line."""
        self.lines.append(line)

    def tick(self) -> bool:
        return True


def _nested(depth: int) -> object:
    value: object = "x"
    for _ in range(depth):
        value = [value]
    return value


DEEP = {"sessionId": "s", "cwd": "/work", "output": _nested(900)}
"""JSON reads it; whoever walks it calls itself twice a level."""


@pytest.mark.parametrize(
    "frame",
    [
        {"op": "hook", "host": "nobody", "event": "Stop", "payload": {}},
        {"op": "hook", "host": "claude", "event": "Stop"},
        {"op": "hook", "host": "claude", "event": "Stop", "payload": [1]},
        {"op": "hook", "host": "pi", "event": "tool_result", "payload": DEEP},
        {"op": "dance"},
        {"op": "recall", "cwd": 7, "query": ["x"], "limit": "many", "expansions": {"a": 1}},
        {"op": "recall", "cwd": "\0", "query": "which database"},
    ],
)
def test_an_odd_request_is_answered_and_forgotten(
    running: Running, frame: dict[str, object]
) -> None:
    """A request that means nothing gets an answer, and the next one works."""
    assert running.ask(frame)["id"] == "t"

    assert running.alive()
    assert recall(running, "which local database")["block"]


def test_a_malformed_line_is_refused_and_the_connection_goes_on(running: Running) -> None:
    """Noise between two frames costs an error line, not the connection."""
    with running.connect() as link:
        link.sendall(b'not json\n\n{"v":9,"id":"x","op":"ping"}\n{"v":1,"id":"y","op":"ping"}\n')

        answers: list[dict[str, object]] = []
        while len(answers) < 3:
            answers += [json.loads(line) for line in read_line(link).splitlines()]

    assert [answer["ok"] for answer in answers] == [False, False, True]


def test_half_frames_of_many_clients_wait_without_harm(running: Running) -> None:
    """A frame may come byte by byte, cut inside a character, while others are served."""
    frame = json.dumps(
        {"v": 1, "id": "é", "op": "recall", "cwd": "/work", "query": "which database é"},
        ensure_ascii=False,
    ).encode()
    with running.connect() as slow, running.connect() as silent:
        silent.sendall(frame[:20])
        for at in range(len(frame)):
            slow.sendall(frame[at : at + 1])
            if at % 40 == 0:
                assert running.alive()
        slow.sendall(b"\n")
        assert json.loads(read_line(slow))["id"] == "é"


def test_an_endless_line_costs_its_sender_the_connection(running: Running) -> None:
    """More than a mebibyte without a newline: hung up, everyone else is served."""
    with running.connect() as link:
        try:
            for _ in range(40):
                link.sendall(b"x" * 65_536)
            assert link.recv(10) == b""
        except (ConnectionResetError, BrokenPipeError):
            pass

    assert running.alive()


def test_clients_killed_at_any_moment_do_no_harm(running: Running) -> None:
    """Reset before, in the middle of and right after a question: no answer, no trouble."""
    frame = json.dumps({"v": 1, "id": "1", **prompt_frame("which database")}).encode() + b"\n"
    reset = struct.pack("ii", 1, 0)
    for number in range(120):
        link = running.connect()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        link.sendall(frame * (number % 3) + frame[: number % len(frame)])
        link.close()

    assert running.alive()
    assert recall(running, "which local database")["block"]


def wait_for_hangup(link: socket.socket, burst: bytes) -> bool:
    """Send without reading until the other side hangs up; False if it never does."""
    link.settimeout(10)
    try:
        for _ in range(4_000):
            link.sendall(burst)
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def test_a_client_that_never_reads_is_cut_off(running: Running) -> None:
    """Answers pile up to a bound, then the connection goes; the server's memory does not."""
    frame = json.dumps(
        {"v": 1, "id": "i" * 180, "op": "recall", "cwd": "/work", "query": "which database"}
    ).encode()
    with running.connect() as deaf:
        assert wait_for_hangup(deaf, (frame + b"\n") * 50)

    assert running.alive()


def test_fuzzed_frames_never_stop_it(running: Running) -> None:
    """A thousand damaged frames, one after the other, then a whole one."""
    chance = random.Random(11)
    whole = json.dumps({"v": 1, "id": "1", **prompt_frame("which database")}).encode()
    for _ in range(40):
        with running.connect() as link:
            damaged = bytearray()
            for _ in range(25):
                piece = bytearray(whole)
                for _ in range(chance.randrange(1, 6)):
                    piece[chance.randrange(len(piece))] = chance.randrange(256)
                damaged += piece + b"\n"
            try:
                link.sendall(damaged)
            except (BrokenPipeError, ConnectionResetError):
                continue

    assert running.alive()


def test_two_hundred_connections_at_once_are_all_served(running: Running) -> None:
    """Many sessions of one person are no attack."""
    links = [running.connect() for _ in range(200)]
    try:
        for number, link in enumerate(links):
            frame = {"v": 1, "id": str(number), "op": "recall", "cwd": "/work", "query": "database"}
            link.sendall(json.dumps(frame).encode() + b"\n")
        for number, link in enumerate(links):
            assert json.loads(read_line(link))["id"] == str(number)
    finally:
        for link in links:
            link.close()


def test_beyond_the_cap_the_idlest_connection_goes(running: Running) -> None:
    """Six hundred silent connections do not keep the next client out."""
    with ExitStack() as links:
        for _ in range(600):
            links.enter_context(running.connect())
        assert running.alive()


def test_a_connection_dropped_while_it_was_named_ready_is_left_alone() -> None:
    """The selector's batch may still name a connection that a newer one has just displaced."""
    ours, theirs = socket.socketpair()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, ours, theirs:
        service = serving.Service(listener, Silent())
        client = serving._Client(ours)
        ours.close()

        service._serve(client, selectors.EVENT_READ | selectors.EVENT_WRITE)

        assert service.clients == 0
        service._close()


def test_what_was_sent_before_the_end_is_still_heard() -> None:
    """A hook that put its event into the socket and left believes that it arrived."""
    desk = Silent()
    with short_home() as home, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(os.fspath(home / "s"))
        listener.listen()
        service = serving.Service(listener, desk)
        for number in range(3):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.connect(os.fspath(home / "s"))
                link.sendall(b"%d " % number + b"x" * 100_000 + b"\n")
        service.stop()

        service.run()

    assert [line[:1] for line in desk.lines] == [b"0", b"1", b"2"]


def test_another_user_is_turned_away() -> None:
    """Whoever is not us gets no byte, and we are still served."""
    strangers: list[bool] = []

    def uid_of(_link: socket.socket) -> int:
        return os.geteuid() + 1 if strangers else os.geteuid()

    with short_home() as home, a_server(home, peer_uid=uid_of) as server:
        strangers.append(True)
        for _ in range(2):
            with server.connect() as link:
                try:
                    link.sendall(b'{"v":1,"id":"1","op":"ping"}\n')
                    assert link.recv(100) == b""
                except (BrokenPipeError, ConnectionResetError):
                    continue
        strangers.clear()
        assert server.alive()
