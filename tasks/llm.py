"""Language models for background work, and the budget that stands in front of each.

Owns the port, the OpenAI-compatible implementation, and the only factory: what it hands out
reserves an upper bound before a request leaves and settles what the answer says it used. A request
that left and failed stays charged at its bound. No hidden retry: retrying is the queue's, counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from retrieval.endpoint import Answer, Endpoint
from storage.budget import BudgetLedger, Usage
from storage.config import ModelSettings
from storage.errors import ConfigError, Invalid, MissingModel, ModelUnavailable
from storage.records import JsonValue

PER_MESSAGE_TOKENS: Final = 64
"""Allowance for roles and separators around each message."""


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
    """A model behind the ledger: reserve, call, settle."""

    def __init__(
        self, model: LanguageModel, ledger: BudgetLedger, *, kind: str, project: str, job_id: str
    ) -> None:
        self._model = model
        self._ledger = ledger
        self._kind = kind
        self._project = project
        self._job_id = job_id

    @property
    def name(self) -> str:
        return self._model.name

    def complete(self, system: str, user: str, *, max_output_tokens: int) -> Completion:
        reservation = self._ledger.reserve(
            tokens=upper_bound(system, user) + max_output_tokens,
            kind=self._kind,
            project=self._project,
            model=self._model.name,
            job_id=self._job_id,
        )
        try:
            completion = self._model.complete(system, user, max_output_tokens=max_output_tokens)
        except BaseException:
            # It may have reached the provider: charged as if it had used all it was allowed.
            self._ledger.settle(reservation, None)
            raise
        self._ledger.settle(reservation, completion.usage)
        return completion


def budgeted_model(
    settings: ModelSettings,
    ledger: BudgetLedger,
    environment: Mapping[str, str],
    *,
    kind: str,
    project: str,
    job_id: str,
) -> LanguageModel:
    """The configured model behind the ledger; the only way to get one.

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
        OpenAIModel(endpoint, settings.name), ledger, kind=kind, project=project, job_id=job_id
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
    if answer.status in (400, 404, 413, 422):
        raise Invalid(f"the model endpoint refused the request ({answer.status})")
    if answer.status != 200 or answer.body.get("error"):
        raise ModelUnavailable(f"the model endpoint answered with an error ({answer.status})")


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
