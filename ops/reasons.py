"""Why something is as it is, in a person's words: why a fact counts, why a job waits or ended.

Owns those sentences, so that every verb says the same thing in the same words. Pure: values in,
words out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ops.output import count, duration
from storage.circuits import CircuitView, Trouble
from storage.jobs import JobState, JobView
from storage.records import Evidence, Fact, FactKind, Origin

REMEMBERED: Final = "cli"
"""Host and session of what somebody typed into `ops remember`."""
EXTRACTIVE: Final = "extractive"
NO_MODEL: Final = frozenset({"", EXTRACTIVE, "record"})
"""Analysts that are rules, not models."""
_ARTICLES: Final = {FactKind.LEARNING: "a lesson"}


def why_it_counts(fact: Fact, evidence: Sequence[Evidence]) -> str:
    """What made this a fact: whose words, or what was seen; and how often."""
    first = evidence[0] if evidence else None
    if first is None:
        return "nothing stands behind it any more"
    if "remedy" in fact.tags:
        why = "seen in a session: it failed, and then it passed"
    elif first.origin is Origin.USER_STATEMENT:
        why = _said(fact, first)
    elif first.origin is Origin.HOST_OBSERVATION:
        why = "seen in a session"
    elif first.origin is Origin.AGENT_REPORT:
        why = "an agent's report"
    else:
        why = f"read from a conversation by {fact.analyst or 'a model'}, nobody confirmed it"
    return why if len(evidence) == 1 else f"{why}, {count(len(evidence), 'time')}"


def _said(fact: Fact, first: Evidence) -> str:
    if first.source.session_id == REMEMBERED:
        return "you told it with `ops remember`"
    said = f"{_ARTICLES.get(fact.kind, f'a {fact.kind.value}')} in your words"
    return said if fact.analyst in NO_MODEL else f"{said}, translated by {fact.analyst}"


def rule_of(fact: Fact) -> str:
    """Which rule or model proposed it."""
    if fact.analyst not in NO_MODEL:
        return f"the model {fact.analyst}"
    if "remedy" in fact.tags:
        return "the rule for repaired failures (no model)"
    return "the rule for declared statements (no model)"


_CLASS: Final = re.compile(r"^[A-Z][A-Za-z]+: (?=.)")


def plain(error: str) -> str:
    """What went wrong, without the name of an exception before it."""
    return _CLASS.sub("", error)


WAITING: Final = {
    "model": "waits for a language model",
    "budget": "the day's budget is spent",
    "paused": "paused: ops resume",
    "provider": "waits for the model's provider to be well again",
    "settings": "a setting is wrong: ops doctor",
    "source": "its session cannot be read now",
    "later": "not yet",
}
"""Why a job waits, in words; other reasons are words already."""


def why_it_waits(job: JobView, now: int) -> str:
    """Why a job waits, when it comes, and what went wrong; "" for one that is simply due."""
    error = plain(job.error)
    if job.state is not JobState.AVAILABLE:
        return error
    why = error if job.waiting_for == "retry" else WAITING.get(job.waiting_for, job.waiting_for)
    soon = job.run_at > now and job.waiting_for != "model"
    later = f"again in {duration(job.run_at - now)}" if soon else ""
    tried = f"after {count(job.attempt, 'attempt')}" if job.attempt else ""
    return ", ".join(part for part in (why, later, tried) if part)


HELD: Final = {
    "model": "for a language model (optional)",
    "budget": "for the next day's budget",
    "retry": "to be tried again",
    "paused": "until they are resumed: ops resume",
    "provider": "for the model's provider to be well again",
    "settings": "for a setting to be corrected: ops doctor",
    "source": "for a session that cannot be read now",
    "later": "for their time",
}
"""What held work waits for."""


def held_words(reason: str, number: int) -> str:
    """`2 wait for a language model (optional)`."""
    return f"{number:,} {'waits' if number == 1 else 'wait'} {HELD.get(reason, f'({reason})')}"


REFUSED: Final = {
    Trouble.AUTH.value: "it does not accept our key",
    Trouble.QUOTA.value: "our quota there is spent",
    Trouble.ERRORS.value: "it failed several times",
}


def circuit_words(view: CircuitView, now: int) -> str:
    """How a provider that failed lately is treated."""
    why = REFUSED.get(view.reason, view.reason)
    if not view.is_open or view.probe_at is None:
        return f"{view.provider} failed {count(view.failures, 'time')} lately, and is asked on"
    soon = f"in {duration(view.probe_at - now)}" if view.probe_at > now else "with the next job"
    return f"{view.provider} is left alone: {why}; tried again {soon}"
