"""Models behind the ledger: every request is counted, no answer is trusted, no key leaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.endpoint import Endpoint, is_loopback
from storage.budget import BudgetLedger
from storage.circuits import Breaker
from storage.config import BudgetSettings, ModelSettings
from storage.errors import (
    BudgetExhausted,
    Busy,
    ConfigError,
    Invalid,
    MemorydError,
    MissingModel,
    ModelUnavailable,
)
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from tasks.analyst_model import bundle, parse_answer, read_with_model, whole_facts
from tasks.llm import LanguageModel, Purpose, budgeted_model, upper_bound
from tasks.sources import AssistantMessage, Record, ToolResult, UserMessage
from tests.learning import ScriptedModel
from tests.support import ManualClock

Reply = tuple[int, bytes]
SILENT, STALLED = 0, 1


class _Server(ThreadingHTTPServer):
    """An OpenAI-compatible endpoint that answers from a list and keeps what it got."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: list[Reply] = []
        self.got: list[tuple[str, Mapping[str, str], dict[str, object]]] = []
        self.hold = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.got.append((self.path, dict(self.headers), body))
        status, answer = server.replies.pop(0)
        if status == SILENT:
            server.hold.wait(10)
            return
        if status == STALLED:
            self.send_response(200)
            self.send_header("Content-Length", "900")
            self.end_headers()
            self.wfile.write(b"{")
            self.wfile.flush()
            server.hold.wait(10)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        if status == 302:
            self.send_header("Location", "http://192.0.2.1/")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[_Server]:
    """A running endpoint."""
    found = _Server()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.hold.set()
    found.shutdown()
    thread.join()
    found.server_close()


@contextmanager
def _queue(home: Path) -> Iterator[JobQueue]:
    queue = open_queue(HomePaths(home), clock=ManualClock())
    try:
        yield queue
    finally:
        queue.close()


@pytest.fixture
def ledger(home: Path) -> Iterator[BudgetLedger]:
    """A day's budget of five calls and 20,000 tokens."""
    with _queue(home) as queue:
        yield BudgetLedger(
            queue.file, queue.clock, BudgetSettings(calls_per_day=5, tokens_per_day=20_000)
        )


PURPOSE = Purpose(kind="analyze", project="p_1", job_id="j-1")


def _model(server: _Server, ledger: BudgetLedger, *, key: str = "") -> LanguageModel:
    settings = ModelSettings(provider="openai", name="m-1", base_url=server.url, timeout_s=2)
    environment = {"MEMORYD_MODEL_KEY": key} if key else {}
    breaker = Breaker(ledger._file, ledger._clock)
    return budgeted_model(settings, ledger, breaker, environment, PURPOSE)


def _answer(text: str = "fine", **more: object) -> Reply:
    body: dict[str, object] = {
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 40},
            "completion_tokens_details": {"reasoning_tokens": 5},
        },
        **more,
    }
    return 200, json.dumps(body).encode()


def test_one_call_is_one_request_and_settles_what_was_used(
    server: _Server, ledger: BudgetLedger
) -> None:
    """The answer's usage replaces the reserved bound; request and ledger count the same."""
    server.replies = [_answer("hello")]

    completion = _model(server, ledger, key="k-1").complete("s", "u", max_output_tokens=64)

    today = ledger.today()
    assert (completion.text, completion.truncated) == ("hello", False)
    assert (today.calls_used, today.tokens_used, today.calls_held) == (len(server.got), 120, 0)
    assert (today.cached_tokens, today.reasoning_tokens) == (40, 5)
    ((path, headers, body),) = server.got
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", "Bearer k-1")
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("m-1", 64, 0)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ((200, b'{"error": {"message": "overloaded"}}'), ModelUnavailable),
        ((200, b'{"choices": []}'), ModelUnavailable),
        ((200, b'{"choices": [{"message": {"content": "  "}}]}'), ModelUnavailable),
        ((200, b'{"choices": [{"message": {"content": null}}]}'), ModelUnavailable),
        ((200, b"<html>gateway</html>"), ModelUnavailable),
        ((200, b"[]"), ModelUnavailable),
        ((302, b"{}"), ModelUnavailable),
        ((429, b'{"error": "slow down"}'), ModelUnavailable),
        ((500, b"{}"), ModelUnavailable),
        ((401, b"{}"), MissingModel),
        ((400, b'{"error": "too long"}'), Invalid),
    ],
)
def test_a_failed_call_is_one_request_and_stays_charged(
    server: _Server, ledger: BudgetLedger, reply: Reply, error: type[MemorydError]
) -> None:
    """No hidden retry, no redirect, an error sent as success is an error; the bound is spent."""
    server.replies = [reply]

    with pytest.raises(error) as caught:
        _model(server, ledger).complete("s", "u", max_output_tokens=64)

    assert len(server.got) == ledger.today().calls_used == 1
    assert ledger.today().tokens_used == upper_bound("s", "u") + 64
    assert "too long" not in str(caught.value)


@pytest.mark.parametrize("fault", [SILENT, STALLED])
def test_an_endpoint_that_does_not_answer_ends_at_the_deadline(
    server: _Server, ledger: BudgetLedger, fault: int
) -> None:
    """Silence, before or inside an answer, is a failure in time, and stays charged."""
    server.replies = [(fault, b"")]

    with pytest.raises(ModelUnavailable):
        _model(server, ledger).complete("s", "u", max_output_tokens=8)

    assert ledger.today().calls_used == 1


def test_an_answer_without_usage_costs_its_bound(server: _Server, ledger: BudgetLedger) -> None:
    """What the endpoint does not say is charged as reserved."""
    server.replies = [_answer(usage=None)]

    _model(server, ledger).complete("s", "u", max_output_tokens=64)

    assert ledger.today().tokens_used == upper_bound("s", "u") + 64


def test_a_ledger_that_cannot_be_written_costs_budget_and_no_answer(
    server: _Server, ledger: BudgetLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that was paid for is handed on; its hold stays, so nothing is spent twice."""

    def busy(*_: object) -> None:
        raise Busy

    server.replies = [_answer("fine"), (500, b"{}")]
    model = _model(server, ledger)
    monkeypatch.setattr(ledger, "settle", busy)

    assert model.complete("s", "u", max_output_tokens=64).text == "fine"
    with pytest.raises(ModelUnavailable):
        model.complete("s", "u", max_output_tokens=64)
    assert ledger.today().calls_held == 2


def test_a_cut_answer_says_so(server: _Server, ledger: BudgetLedger) -> None:
    """A finish reason of `length` marks the completion truncated."""
    cut = [{"message": {"content": "half"}, "finish_reason": "length"}]
    server.replies = [_answer(choices=cut)]

    assert _model(server, ledger).complete("s", "u", max_output_tokens=8).truncated


def test_a_spent_budget_sends_nothing(server: _Server, ledger: BudgetLedger) -> None:
    """The sixth call of five is refused before it leaves; so is one whose bound does not fit."""
    server.replies = [_answer() for _ in range(5)]
    model = _model(server, ledger)

    with pytest.raises(BudgetExhausted):
        model.complete("s", "x" * 30_000, max_output_tokens=8)
    for _ in range(5):
        model.complete("s", "u", max_output_tokens=8)
    with pytest.raises(BudgetExhausted):
        model.complete("s", "u", max_output_tokens=8)

    assert len(server.got) == 5


@pytest.mark.parametrize(
    "settings",
    [
        ModelSettings(),
        ModelSettings(provider="openai"),
        ModelSettings(provider="openai", name="m", base_url="https://api.example/v1"),
        ModelSettings(provider="openai", name="m", base_url="http://api.example/v1"),
        ModelSettings(provider="openai", name="m", base_url="ftp://127.0.0.1/v1"),
        ModelSettings(provider="openai", name="m", base_url="https://user:pw@api.example/v1"),
    ],
)
def test_a_model_that_cannot_be_used_is_missing(
    settings: ModelSettings, ledger: BudgetLedger
) -> None:
    """Not configured, half configured, no key, plain HTTP abroad: work waits, visibly."""
    with pytest.raises(MissingModel):
        budgeted_model(settings, ledger, Breaker(ledger._file, ledger._clock), {}, PURPOSE)


def test_plain_http_is_for_this_machine_only() -> None:
    """Loopback names and addresses, and nothing that merely looks like them."""
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(
        is_loopback(host) for host in ("localhost.example", "10.0.0.1", "127.0.0.1.example", "")
    )
    with pytest.raises(ConfigError):
        Endpoint("http://127.0.0.1.example/v1")


@given(st.text(max_size=200))
def test_the_token_bound_is_never_below_one_token_a_byte(text: str) -> None:
    """Byte-level tokenizers make at most one token of a byte."""
    assert upper_bound(text) >= len(text.encode("utf-8", "replace"))


def _heard(*texts: str) -> list[Record]:
    return [
        UserMessage(text=text, line=number, at=number, session_id="s")
        for number, text in enumerate(texts, 1)
    ]


TALK = (
    "The nightly import writes to the staging bucket first, remember the harbor master signs it.",
    "Good, and the tide tables come from the port authority every Monday at six.",
)


def _fact(**more: object) -> dict[str, object]:
    fact: dict[str, object] = {
        "kind": "fact",
        "statement": "Tide tables come from the port authority every Monday.",
        "line": 2,
        "excerpt": "the tide tables come from the port authority every Monday",
        "confidence": 0.8,
    }
    return {**fact, **more}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "gossip"}, "unknown_kind"),
        ({"statement": "short"}, "bad_statement"),
        ({"excerpt": "the tide tables come from the moon"}, "not_literal"),
        ({"line": 1}, "not_literal"),
        ({"line": 99}, "not_literal"),
        ({"confidence": 3}, "bad_confidence"),
        ({"confidence": "high"}, "bad_confidence"),
        ({"line": "2"}, "malformed"),
        ({"statement": "Las tablas de mareas vienen de la autoridad portuaria."}, "not_english"),
    ],
)
def test_a_bad_fact_costs_itself_and_not_the_answer(change: dict[str, object], reason: str) -> None:
    """Every fact is checked alone; the valid ones of a paid answer are kept."""
    model = ScriptedModel([json.dumps({"facts": [_fact(), _fact(**change)]})])

    reading = read_with_model(model, _heard(*TALK), max_chars=9_000, max_output_tokens=99)

    assert len(reading.facts) == 1
    assert reading.dropped == {reason: 1}


def test_an_unreadable_answer_is_counted_and_teaches_nothing() -> None:
    """Prose instead of JSON: nothing, with a number."""
    model = ScriptedModel(["I found nothing interesting, sorry!"])

    reading = read_with_model(model, _heard(*TALK), max_chars=9_000, max_output_tokens=99)

    assert (reading.facts, reading.dropped) == ((), {"unreadable_answer": 1})


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_the_whole_facts_of_a_cut_answer_count(cut: int) -> None:
    """Cut off at the output limit, an answer loses its last fact, not those before it."""
    text = json.dumps({"facts": [_fact(), _fact(statement="The berths API runs on port 5544.")]})

    (first, *_) = whole_facts(text[:-cut])

    assert first == _fact()
    assert len(whole_facts(text[:-cut])) == (1 if cut == 40 else 2)
    assert whole_facts("The facts are: none") == []


def test_a_fenced_answer_is_read_and_other_json_refused() -> None:
    """The outermost object counts, fenced or not."""
    assert parse_answer('```json\n{"facts": []}\n```') == []
    for text in ("[]", '{"facts": {}}', "{", "{" * 5_000 + "}", "x" * 30_000):
        with pytest.raises(Invalid):
            parse_answer(text)


def test_a_window_without_a_person_costs_no_call() -> None:
    """Only an agent talking to itself: nothing is asked."""
    model = ScriptedModel([])
    alone = [AssistantMessage(text=TALK[0], line=1, at=1, session_id="s")]

    assert read_with_model(model, alone, max_chars=9_000, max_output_tokens=99).facts == ()
    assert model.asked == []


def test_a_bundle_is_redacted_and_bounded() -> None:
    """Secrets never leave the machine; what does not fit is counted."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    records: list[Record] = [
        *_heard(f"the token is {secret}, use it for the release please"),
        ToolResult(
            tool="bash",
            call_id="c",
            input="env",
            output=f"TOKEN={secret}\n" + "x" * 9_000,
            is_error=False,
            exit_code=0,
            line=2,
            at=1,
            session_id="s",
        ),
        *(
            replace(record, line=9)
            for record in _heard("y" * 900)
            if isinstance(record, UserMessage)
        ),
    ]

    shown, left_out = bundle(records, 700)

    text = "\n".join(line.text for line in shown)
    assert secret not in text
    assert len(text) <= 700
    assert left_out == 1
