"""Why something is as it is, in a person's words: why a fact counts, why a job waits or ended.

Owns those sentences, so that every verb says the same thing in the same words. Pure: values in,
words out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ops.output import count, duration
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


WAITING: Final = {
    "model": "waits for a language model",
    "budget": "the day's budget is spent",
    "paused": "paused: ops resume",
    "breaker": "the model's provider is not asked for now",
}
"""Why a job waits, in words; other reasons are words already."""


def why_it_waits(job: JobView, now: int) -> str:
    """Why a job waits, when it comes, and what went wrong; "" for one that is simply due."""
    if job.state is not JobState.AVAILABLE:
        return job.error
    why = job.error if job.waiting_for == "retry" else WAITING.get(job.waiting_for, job.waiting_for)
    soon = job.run_at > now and job.waiting_for != "model"
    later = f"again in {duration(job.run_at - now)}" if soon else ""
    tried = f"after {count(job.attempt, 'attempt')}" if job.attempt else ""
    return ", ".join(part for part in (why, later, tried) if part)


HELD: Final = {
    "model": "for a language model (optional)",
    "budget": "for the next day's budget",
    "retry": "to be tried again",
    "paused": "until they are resumed: ops resume",
    "breaker": "for the model's provider",
}
"""What held work waits for."""


def held_words(reason: str, number: int) -> str:
    """`2 wait for a language model (optional)`."""
    return f"{number:,} {'waits' if number == 1 else 'wait'} {HELD.get(reason, f'({reason})')}"
