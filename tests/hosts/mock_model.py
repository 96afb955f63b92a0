"""A scripted model on the loopback, speaking the two wires the real agents speak.

Owns OpenAI chat completions (Pi) and Anthropic messages (Claude Code), streamed or whole. Promises
that the reply depends only on the conversation it was sent, so retries and side requests cannot
shift the script, and that every request is kept for the test to read. Knows nothing of memory.
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self, cast

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the model asks for; `args` as the agent's schema wants them."""

    name: str
    args: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model."""

    text: str = ""
    tools: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the model answers to a prompt containing `prompt`, one reply per model call."""

    prompt: str
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it arrived; `arrived_at` is monotonic seconds."""

    path: str
    body: Json
    arrived_at: float

    def holds(self, text: str) -> bool:
        """Whether any string of the request contains `text`."""
        return any(text in value for value in strings(self.body))


def strings(value: object) -> Iterator[str]:
    """Every string inside a decoded JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from strings(inner)
    elif isinstance(value, Sequence):
        for inner in value:
            yield from strings(inner)


def conversation(body: Json) -> list[tuple[str, str]]:
    """(role, text) per message; tool results carry the role "tool" on both wires."""
    turns: list[tuple[str, str]] = []
    for message in cast("list[Json]", body.get("messages", [])):
        role, content = str(message.get("role")), message.get("content")
        if isinstance(content, list) and role == "user":
            blocks = cast("list[Json]", content)
            said = [b for b in blocks if b.get("type") != "tool_result"]
            if len(said) < len(blocks):
                turns.append(("tool", ""))
            if said:
                turns.append(("user", "\n".join(strings([b.get("text", "") for b in said]))))
        else:
            turns.append((role, "\n".join(strings(content))))
    return turns


def choose(script: Sequence[Exchange], body: Json) -> Reply:
    """The scripted reply for the latest scripted prompt, at the step the conversation is in."""
    turns = conversation(body)
    for index in range(len(turns) - 1, -1, -1):
        role, text = turns[index]
        exchange = next((e for e in script if role == "user" and e.prompt in text), None)
        if exchange is None:
            continue
        roles = [role for role, _ in turns[index + 1 :]]
        step = sum(
            role == "assistant" and (i == 0 or roles[i - 1] != "assistant")
            for i, role in enumerate(roles)
        )
        reply = exchange.replies[min(step, len(exchange.replies) - 1)]
        return reply if body.get("tools") else Reply(reply.text)
    return Reply("All right.")


def _pieces(text: str, size: int = 48) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def _chat_chunks(reply: Reply, body: Json) -> Iterator[tuple[str | None, Json | str]]:
    base: Json = {
        "id": "chatcmpl-" + uuid.uuid4().hex[:12],
        "object": "chat.completion.chunk",
        "created": 1_800_000_000,
        "model": body.get("model"),
    }

    def chunk(delta: Json, finish: str | None = None) -> Json:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield None, chunk({"role": "assistant", "content": ""})
    for piece in _pieces(reply.text):
        yield None, chunk({"content": piece})
    for index, call in enumerate(reply.tools):
        function = {"name": call.name, "arguments": json.dumps(call.args)}
        yield (
            None,
            chunk(
                {
                    "tool_calls": [
                        {
                            "index": index,
                            "id": "call_" + uuid.uuid4().hex[:10],
                            "type": "function",
                            "function": function,
                        }
                    ]
                }
            ),
        )
    yield None, chunk({}, "tool_calls" if reply.tools else "stop")
    usage = {"prompt_tokens": _size(body), "completion_tokens": 7, "total_tokens": _size(body) + 7}
    yield None, {**base, "choices": [], "usage": usage}
    yield None, "[DONE]"


def _size(body: Json) -> int:
    return max(1, len(json.dumps(body)) // 4)


def _message(reply: Reply, body: Json) -> Json:
    blocks: list[Json] = [{"type": "text", "text": reply.text}] if reply.text else []
    blocks += [
        {
            "type": "tool_use",
            "id": "toolu_" + uuid.uuid4().hex[:16],
            "name": call.name,
            "input": dict(call.args),
        }
        for call in reply.tools
    ]
    return {
        "id": "msg_" + uuid.uuid4().hex[:16],
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": blocks or [{"type": "text", "text": ""}],
        "stop_reason": "tool_use" if reply.tools else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": _size(body), "output_tokens": 7},
    }


def _message_events(message: Json) -> Iterator[tuple[str | None, Json | str]]:
    blocks = cast("list[Json]", message["content"])
    opened = {**message, "content": [], "stop_reason": None}
    yield "message_start", {"type": "message_start", "message": opened}
    for index, block in enumerate(blocks):
        text = block["type"] == "text"
        empty = {**block, "text": ""} if text else {**block, "input": {}}
        yield (
            "content_block_start",
            {"type": "content_block_start", "index": index, "content_block": empty},
        )
        for piece in _pieces(str(block["text"]) if text else json.dumps(block["input"])):
            delta: Json = (
                {"type": "text_delta", "text": piece}
                if text
                else {"type": "input_json_delta", "partial_json": piece}
            )
            yield (
                "content_block_delta",
                {"type": "content_block_delta", "index": index, "delta": delta},
            )
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    yield (
        "message_delta",
        {
            "type": "message_delta",
            "delta": {"stop_reason": message["stop_reason"], "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
    )
    yield "message_stop", {"type": "message_stop"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Callable[[str, Json], Reply]

    def log_message(self, format: str, *args: object) -> None:
        del format, args

    def do_HEAD(self) -> None:
        self._send(b"")

    def do_GET(self) -> None:
        self._send(json.dumps({"data": [], "has_more": False}).encode())

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = cast("Json", json.loads(raw or b"{}"))
        path = self.path.split("?", maxsplit=1)[0]
        reply = type(self).answer(path, body)
        try:
            if path.endswith("/chat/completions"):
                self._stream(_chat_chunks(reply, body))
            elif path.endswith("/messages"):
                message = _message(reply, body)
                if body.get("stream"):
                    self._stream(_message_events(message))
                else:
                    self._send(json.dumps(message).encode())
            else:
                self._send(json.dumps({"input_tokens": _size(body)}).encode())
        except ConnectionError:
            # The agent hung up (a cancelled side request): its choice, nothing to answer.
            self.close_connection = True

    def _send(self, raw: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, events: Iterator[tuple[str | None, Json | str]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            text = data if isinstance(data, str) else json.dumps(data)
            head = f"event: {name}\n" if name else ""
            self.wfile.write(f"{head}data: {text}\n\n".encode())
        self.wfile.flush()
        self.close_connection = True


class MockModel:
    """A running scripted model; a context manager. `requests` grows as the agent asks."""

    def __init__(self, script: Sequence[Exchange] = ()) -> None:
        self.script = tuple(script)
        self._requests: list[Request] = []
        handler = type("Handler", (_Handler,), {"answer": staticmethod(self._answer)})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    def _answer(self, path: str, body: Json) -> Reply:
        self._requests.append(Request(path, body, time.monotonic()))
        return choose(self.script, body)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def all_requests(self) -> tuple[Request, ...]:
        """Every request, side requests such as titles and summaries included."""
        return tuple(self._requests)

    @property
    def requests(self) -> tuple[Request, ...]:
        """Every request that offered tools: the agent's own turns, not its title or token calls."""
        return tuple(r for r in self._requests if r.body.get("tools"))
