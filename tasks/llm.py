"""Language models for background work, and the budget that stands in front of each.

Owns the port, the OpenAI-compatible implementation, and the only factory: what it hands out
reserves an upper bound before a request leaves and settles what the answer says it used. A request
that left and failed stays charged at its bound. No hidden retry: retrying is the queue's, counted.
Failures open the provider's circuit (`storage.circuits`), which is asked before anything else.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlsplit

from retrieval.endpoint import Answer, Endpoint
from storage.budget import BudgetLedger, Reservation, Usage
from storage.circuits import Breaker, Trouble
from storage.config import ModelSettings
from storage.errors import (
    ConfigError,
    Invalid,
    MemorydError,
    MissingModel,
    ModelUnavailable,
    QuotaSpent,
)
from storage.log import get_logger
from storage.records import JsonValue

PER_MESSAGE_TOKENS: Final = 64
"""Allowance for roles and separators around each message."""


_QUOTA_TEXT: Final = re.compile(
    r"^\W*(?:error\W+)?(?:(?:you(?:'ve| have)?|your|the|this|monthly|daily|weekly)\b.{0,80}?)?"
    r"(?:insufficient[_ ](?:quota|credits?|funds|balance)|rate[_ -]?limit(?:ed| exceeded| reached)"
    r"|(?:exceeded|reached|hit|used up|out of|run out of|exhausted)\b.{0,40}?"
    r"\b(?:quota|(?:usage|rate|spending|token|request) limit|credits?)\b"
    r"|(?:quota|(?:usage|rate|spending|token|request) limit|credits?)\b.{0,30}?"
    r"\b(?:exceeded|reached|exhausted|used up))",
    re.IGNORECASE,
)
_QUOTA_ANYWHERE: Final = re.compile(
    r"quota|credits?\b|(?:usage|rate|spending|token|request)[_ -]?limit", re.IGNORECASE
)
MAX_QUOTA_CHARS: Final = 400
PROBE_SLACK_MS: Final = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """On whose account a call is made."""

    kind: str
    project: str
    job_id: str
    work_class: str = "bulk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A model's answer."""

    text: str
    usage: Usage | None
    """None when the endpoint did not say."""
    truncated: bool = False
    """It ran into the output limit."""


class LanguageModel(Protocol):
    """Text in, text out; it has no tools."""

    @property
    def name(self) -> str:
        """The model's name, for provenance."""
        ...

    def complete(self, system: str, user: str, *, max_output_tokens: int) -> Completion:
        """One answer.

        Raises:
            ModelUnavailable: no usable answer; the call stays charged.
            ProviderPaused: the provider refused us lately; nothing was sent or charged.
            BudgetExhausted: the day's budget does not hold another call.
            MissingModel: the endpoint does not accept our key.
            Invalid: the endpoint refuses this request for good.
        """
        ...


class OpenAIModel:
    """Any endpoint that speaks `/chat/completions`."""

    def __init__(self, endpoint: Endpoint, name: str) -> None:
        self._endpoint = endpoint
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def complete(self, system: str, user: str, *, max_output_tokens: int) -> Completion:
        answer = self._endpoint.post(
            "/chat/completions",
            {
                "model": self._name,
                "messages": [
                    {"role": "system", "content": system},
                    {"role": "user", "content": user},
                ],
                "temperature": 0,
                "max_tokens": max_output_tokens,
                "stream": False,
            },
        )
        _require_success(answer)
        return _completion(answer.body)


class BudgetedModel:
    """A model behind the breaker and the ledger: admitted, reserved, called, settled."""

    def __init__(
        self,
        model: LanguageModel,
        ledger: BudgetLedger,
        breaker: Breaker,
        purpose: Purpose,
        *,
        provider: str,
        timeout_s: float,
    ) -> None:
        self._model = model
        self._ledger = ledger
        self._breaker = breaker
        self._purpose = purpose
        self._provider = provider
        self._probe_ms = int(timeout_s * 1_000) + PROBE_SLACK_MS

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, system: str, user: str, *, max_output_tokens: int) -> Completion:
        self._breaker.admit(self._provider, probe_ms=self._probe_ms)
        try:
            reservation = self._reserve(upper_bound(system, user) + max_output_tokens)
        except BaseException:
            self._breaker.withdraw(self._provider)
            raise
        started = time.monotonic()
        try:
            completion = self._model.complete(system, user, max_output_tokens=max_output_tokens)
            _require_no_quota_text(completion, user)
        except BaseException as cause:
            # It may have reached the provider: charged as if it had used all it was allowed.
            self._settle(reservation, None)
            with suppress(MemorydError):
                self._note_failure(cause)
            raise
        self._settle(reservation, completion.usage)
        get_logger().info(
            "model.called", model=self.name, duration_ms=int((time.monotonic() - started) * 1_000)
        )
        with suppress(MemorydError):
            self._note_success()
        return completion

    def _reserve(self, tokens: int) -> Reservation:
        purpose = self._purpose
        reservation = self._ledger.reserve(
            tokens=tokens,
            kind=purpose.kind,
            project=purpose.project,
            model=self._model.name,
            job_id=purpose.job_id,
            work_class=purpose.work_class,
        )
        get_logger().info("budget.reserved", model=self.name, tokens=tokens)
        return reservation

    def _settle(self, reservation: Reservation, usage: Usage | None) -> None:
        try:
            self._ledger.settle(reservation, usage)
        except MemorydError:
            # The hold stays, which costs budget; it must not cost the answer that was paid for, or
            # hide why there is none.
            return
        used = reservation.tokens if usage is None else usage.total
        get_logger().info("budget.settled", model=self.name, tokens=used)

    def _note_success(self) -> None:
        if self._breaker.succeeded(self._provider):
            get_logger().info("model.resumed", model=self.name)

    def _note_failure(self, cause: BaseException) -> None:
        get_logger().warning("model.failed", model=self.name, error=type(cause).__name__)
        match cause:
            case MissingModel():
                trouble = Trouble.AUTH
            case QuotaSpent():
                trouble = Trouble.QUOTA
            case ModelUnavailable():
                trouble = Trouble.ERRORS
            case Invalid():
                # It refuses this request: it is well, and says so.
                self._note_success()
                return
            case _:
                self._breaker.withdraw(self._provider)
                return
        if self._breaker.failed(self._provider, trouble):
            get_logger().error("model.paused", model=self.name, problem=trouble.value)


def budgeted_model(
    settings: ModelSettings,
    ledger: BudgetLedger,
    breaker: Breaker,
    environment: Mapping[str, str],
    purpose: Purpose,
) -> LanguageModel:
    """The configured model behind breaker and ledger; the only way to get one.

    Raises:
        MissingModel: none is configured, it is configured by half, or its key is not set.
    """
    if settings.provider == "none":
        raise MissingModel
    if not settings.name or not settings.base_url:
        raise MissingModel("model.name and model.base_url are needed for this provider")
    key = environment.get(settings.api_key_env, "")
    try:
        endpoint = Endpoint(settings.base_url, key=key, timeout_s=settings.timeout_s)
    except ConfigError as cause:
        raise MissingModel(str(cause)) from cause
    if not key and not endpoint.is_local:
        raise MissingModel(f"{settings.api_key_env} is not set in the environment")
    return BudgetedModel(
        OpenAIModel(endpoint, settings.name),
        ledger,
        breaker,
        purpose,
        provider=urlsplit(settings.base_url).netloc.lower(),
        timeout_s=settings.timeout_s,
    )


def upper_bound(*messages: str) -> int:
    """At most so many input tokens: byte-level tokenizers never make more tokens than bytes.

    About four times the usual count for English; the hold is replaced by the real usage as soon as
    the answer is there, so the slack costs concurrency, not budget.
    """
    return sum(len(text.encode("utf-8", "replace")) + PER_MESSAGE_TOKENS for text in messages)


def _require_success(answer: Answer) -> None:
    """Raise for what is no answer, error objects sent with status 200 included."""
    if answer.status in (401, 403):
        raise MissingModel(f"the model endpoint does not accept our key ({answer.status})")
    if answer.status in (402, 429) or _says_quota(answer.body.get("error")):
        raise QuotaSpent(f"the provider's own quota is spent ({answer.status})")
    if answer.status in (400, 404, 413, 422):
        raise Invalid(f"the model endpoint refused the request ({answer.status})")
    if answer.status != 200 or answer.body.get("error"):
        raise ModelUnavailable(f"the model endpoint answered with an error ({answer.status})")


def _says_quota(error: JsonValue) -> bool:
    if isinstance(error, Mapping):
        return any(_says_quota(error.get(key)) for key in ("code", "type", "message"))
    return isinstance(error, str) and bool(_QUOTA_TEXT.search(error[:MAX_QUOTA_CHARS]))


def _require_no_quota_text(completion: Completion, user: str) -> None:
    """Some gateways answer 200 and say in prose that nothing is left; that is no answer.

    What was asked about may itself be such a sentence, so a text that was sent is no sign.
    """
    text = completion.text.strip()
    found = len(text) <= MAX_QUOTA_CHARS and _QUOTA_TEXT.search(text)
    if found and not _QUOTA_ANYWHERE.search(user):
        raise QuotaSpent("the provider answered that its quota is spent")


def _completion(body: Mapping[str, JsonValue]) -> Completion:
    match body.get("choices"):
        case [{"message": {"content": str(text)}, **rest}, *_] if text.strip():
            return Completion(
                text=text, usage=_usage(body), truncated=rest.get("finish_reason") == "length"
            )
        case _:
            raise ModelUnavailable("the model endpoint answered without a message")


def _usage(body: Mapping[str, JsonValue]) -> Usage | None:
    usage = body.get("usage")
    if not isinstance(usage, Mapping):
        return None
    given, made = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if given is None or made is None:
        return None
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens") or 0
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens") or 0
    return Usage(
        input_tokens=given,
        cached_tokens=min(cached, given),
        output_tokens=made,
        reasoning_tokens=min(reasoning, made),
    )


def _count(usage: JsonValue, key: str) -> int | None:
    value = usage.get(key) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
