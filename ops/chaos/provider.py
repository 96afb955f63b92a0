"""A model provider on loopback that counts what it really served: the oracle of the budget.

It speaks just enough of `/chat/completions`, is slow at random, and sometimes fails after counting,
forgets to say what was used, or hangs up: all of that was served, and must have been paid for.
"""

from __future__ import annotations

import json
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

SLOWEST_S: Final = 0.03
FAILS: Final = 0.04
HANGS_UP: Final = 0.04
SAYS_NO_USAGE: Final = 0.1


class Provider(ThreadingHTTPServer):
    """Serves until closed."""

    daemon_threads = True

    def __init__(self, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._chance = random.Random(seed)  # noqa: S311 -- a repeatable storm, no secret
        self._lock = threading.Lock()
        self.calls = 0
        self.tokens = 0
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def start(self) -> None:
        """Serve in a thread of its own."""
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def serve(self, sent_bytes: int, most_out: int) -> tuple[str, dict[str, int], float]:
        """Count one call; how to answer it, what it used, and after which pause."""
        with self._lock:
            chance = self._chance
            usage = {
                "prompt_tokens": chance.randint(1, max(1, sent_bytes // 2)),
                "completion_tokens": chance.randint(0, most_out),
            }
            self.calls += 1
            self.tokens += sum(usage.values())
            drawn = chance.random()
            manner = "answer"
            for name, share in (("fail", FAILS), ("hang up", HANGS_UP), ("silent", SAYS_NO_USAGE)):
                if drawn < share:
                    manner = name
                    break
                drawn -= share
            return manner, usage, chance.uniform(0, SLOWEST_S)

    def close(self) -> None:
        """Stop serving."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A killed worker hangs up: nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        provider = self.server
        assert isinstance(provider, Provider)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        sent = sum(len(message["content"].encode()) for message in body["messages"])
        manner, usage, pause_s = provider.serve(sent, body["max_tokens"])
        threading.Event().wait(pause_s)
        if manner == "hang up":
            self.connection.close()
            return
        answer: dict[str, object] = {"choices": [{"message": {"content": "done"}}]}
        if manner != "silent":
            answer["usage"] = usage
        data = json.dumps(answer).encode()
        self.send_response(503 if manner == "fail" else 200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""
