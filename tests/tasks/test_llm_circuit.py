"""The breaker in front of a model: what opens it, what it costs, what closes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from retrieval.endpoint import Answer
from storage.budget import BudgetLedger
from storage.circuits import FIRST_PAUSE_MS, Breaker, views
from storage.config import BudgetSettings
from storage.errors import BudgetExhausted, MemorydError, ProviderPaused
from storage.paths import HomePaths
from storage.queue import open_queue
from tasks.llm import BudgetedModel, OpenAIModel, Purpose
from tests.support import ManualClock

HOST = "models.example"
GOOD = Answer(200, {"choices": [{"message": {"content": "a good answer"}}]})


class ScriptedEndpoint:
    """Answers from a list, and counts."""

    def __init__(self) -> None:
        self.answers: list[Answer | MemorydError] = []
        self.served = 0

    def post(self, path: str, body: object) -> Answer:
        """The next answer."""
        self.served += 1
        answer = self.answers.pop(0)
        if isinstance(answer, MemorydError):
            raise answer
        return answer


class Bench:
    """A model behind breaker and ledger."""

    def __init__(self, home: Path, calls: int = 100) -> None:
        self.clock = ManualClock()
        self.queue = open_queue(HomePaths(home), clock=self.clock)
        self.endpoint = ScriptedEndpoint()
        self.ledger = BudgetLedger(
            self.queue.file, self.clock, BudgetSettings(calls_per_day=calls, shares={})
        )
        self.model = BudgetedModel(
            OpenAIModel(self.endpoint, "m-1"),  # type: ignore[arg-type]
            self.ledger,
            Breaker(self.queue.file, self.clock),
            Purpose(kind="analyze", project="p", job_id="1-a"),
            provider=HOST,
            timeout_s=10,
        )

    def ask(self, answer: Answer | MemorydError, user: str = "u") -> str:
        """The class of what came of one call, or the text."""
        self.endpoint.answers = [answer]
        try:
            return self.model.complete("s", user, max_output_tokens=8).text
        except MemorydError as cause:
            return type(cause).__name__

    def open_reasons(self) -> list[str]:
        """Reasons of the open circuits."""
        return [view.reason for view in views(self.queue.file.db) if view.is_open]


@pytest.fixture
def bench(home: Path) -> Iterator[Bench]:
    """With a hundred calls a day."""
    made = Bench(home)
    yield made
    made.queue.close()


def said(text: str) -> Answer:
    """A success with this text."""
    return Answer(200, {"choices": [{"message": {"content": text}}]})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(401, {}), "auth"),
        (Answer(403, {}), "auth"),
        (Answer(429, {}), "quota"),
        (Answer(402, {}), "quota"),
        (Answer(400, {"error": {"code": "insufficient_quota", "message": "x"}}), "quota"),
        (Answer(200, {"error": {"message": "You exceeded your current quota."}}), "quota"),
        (said("You've reached your usage limit. Try again at 5 pm."), "quota"),
        (said("Error: rate limit exceeded, please slow down"), "quota"),
        (said("Your monthly credits are used up."), "quota"),
        (said("You have exceeded your current quota, please check your plan."), "quota"),
    ],
)
def test_a_refusal_pauses_the_provider_and_costs_nothing_more(
    bench: Bench, answer: Answer, reason: str
) -> None:
    """One call is charged; what comes after it neither leaves nor is charged."""
    bench.ask(answer)

    after = [bench.ask(GOOD) for _ in range(3)]

    assert bench.open_reasons() == [reason]
    assert after == ["ProviderPaused"] * 3
    assert bench.endpoint.served == 1
    assert bench.ledger.today().calls_used + bench.ledger.today().calls_held == 1


@pytest.mark.parametrize(
    "answer",
    [
        said("The importer retries when the rate limit of the API is hit."),
        said('{"facts": []}'),
        said("x" * 500 + " quota exceeded"),
        Answer(400, {"error": "too long"}),
        Answer(422, {}),
    ],
)
def test_answers_about_quotas_and_refused_requests_pause_nothing(
    bench: Bench, answer: Answer
) -> None:
    """A provider that refuses one request, or speaks of limits, is well."""
    bench.ask(answer)

    assert bench.open_reasons() == []
    assert bench.ask(GOOD) == "a good answer"


def test_a_translated_sentence_about_a_quota_is_an_answer(bench: Bench) -> None:
    """What was asked about may be such a sentence itself."""
    text = "You have exceeded your quota."

    assert bench.ask(said(text), user="Has excedido tu quota.") == text
    assert bench.open_reasons() == []


def test_errors_in_a_row_pause_and_a_probe_resumes(bench: Bench) -> None:
    """Three 5xx; then one probe after the pause, and everything goes on."""
    outcomes = [bench.ask(Answer(503, {})) for _ in range(4)]
    bench.clock.advance(FIRST_PAUSE_MS)
    failed_probe = bench.ask(Answer(503, {}))
    bench.clock.advance(FIRST_PAUSE_MS)
    still = bench.ask(GOOD)
    bench.clock.advance(FIRST_PAUSE_MS)
    probe = bench.ask(GOOD)

    assert outcomes == ["ModelUnavailable"] * 3 + ["ProviderPaused"]
    assert (failed_probe, still, probe) == (
        "ModelUnavailable", "ProviderPaused", "a good answer",
    )  # fmt: skip
    assert bench.open_reasons() == []


def test_a_probe_that_the_budget_refuses_is_given_back(home: Path) -> None:
    """The next caller may probe at once when there is budget again."""
    bench = Bench(home, calls=1)
    bench.ask(Answer(401, {}))
    bench.clock.advance(FIRST_PAUSE_MS)

    with pytest.raises(BudgetExhausted):
        bench.model.complete("s", "u", max_output_tokens=8)
    with pytest.raises(BudgetExhausted):
        bench.model.complete("s", "u", max_output_tokens=8)

    bench.queue.close()


def test_the_pause_says_until_when(bench: Bench) -> None:
    """So that the job sleeps exactly so long, without using an attempt."""
    bench.ask(Answer(401, {}))

    with pytest.raises(ProviderPaused) as paused:
        bench.model.complete("s", "u", max_output_tokens=8)

    assert paused.value.until_at == bench.clock.now_ms() + FIRST_PAUSE_MS
