"""Learning from one window of one source.

Reads at most a window, lets the rules (or, on the second cursor, the model) propose, and publishes
everything in one stamped commit: facts, quotes, waiting statements and the cursor. The window and
what was learnt from it are in memory together or not at all, so a crash repeats a read, never loses
or doubles a fact. A source that changed under the reader publishes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from storage.admission import admit_evidence
from storage.authority import payloads
from storage.errors import Invalid, Refused, SourceUnavailable, Stale
from storage.jobs import JobKind, JobSpec, Priority
from storage.outcomes import Outcomes
from storage.records import JsonValue, Origin, SourceCursor, SourceRef
from tasks.analyst import propose
from tasks.analyst_facts import Intake
from tasks.analyst_model import read_with_model
from tasks.context import Context, Finished
from tasks.sources import SourceAdapter, Window
from tasks.sources.catalogue import adapters
from tasks.sources.transcript import SourceState, has_news, is_unchanged
from tasks.sync import MODEL, RULES, analyze_job, cursor_name, fresh_cursor

WINDOW_BYTES: Final = 1_048_576
MODEL_WINDOW_BYTES: Final = 131_072
"""Tool output is cut hard for a model, so its windows hold more than it is shown."""


def run(context: Context, args: Mapping[str, JsonValue]) -> Finished:
    """Read the next window of a source and publish what it teaches.

    Raises:
        Invalid: the arguments name no source.
        Stale: the source changed while it was read.
    """
    adapter_name, locator, reader = _arguments(args)
    adapter = adapters(
        context.paths, context.project, context.environment, context.settings.sources
    ).get(adapter_name)
    if adapter is None:
        return Finished(note="this source is switched off")
    authority = context.open_authority()
    name = cursor_name(adapter_name, reader)
    with authority.read() as reads:
        cursor = reads.cursor(name, locator) or fresh_cursor(name, locator)
        repeated = reads.is_applied(context.lease.stamp.job_id)
        waiting = bool(reads.deferred())
    again = analyze_job(context.project, adapter_name, locator, reader)
    if repeated:
        # The commit is there and only its acknowledgement was lost: enqueue what it may have asked.
        more = (again,) if has_news(cursor) else ()
        return Finished(successors=(*more, *_follow_ups(context, waiting)), note="was applied")
    try:
        window = adapter.read(cursor, limit=WINDOW_BYTES if reader == RULES else MODEL_WINDOW_BYTES)
    except SourceUnavailable:
        return Finished(note="the source is gone")
    with authority.read() as reads:
        intake = Intake(reads, context.project, context.clock.now_ms())
        learn = _by_rules if reader == RULES else _by_model
        after = learn(context, adapter, window, intake)
    if after == cursor and not intake.drafts:
        return Finished(note="no complete line yet")
    if not is_unchanged(after):
        raise Stale("the source changed while it was read")
    context.lease.check()
    authority.append(
        [*intake.drafts, payloads.source_advanced(after)],
        stamp=context.lease.stamp,
        guard=context.lease.check,
    )
    return Finished(
        successors=(
            *((again,) if window.more else ()),
            *_follow_ups(context, bool(intake.deferred), bool(intake.recorded)),
        ),
        note=_note(intake, window),
    )


def _arguments(args: Mapping[str, JsonValue]) -> tuple[str, str, str]:
    match args:
        case {"adapter": str(adapter), "locator": str(locator)}:
            reader = args.get("reader", RULES)
            if reader in (RULES, MODEL):
                return adapter, locator, str(reader)
    raise Invalid("an analyze job names its adapter and its source")


def _by_rules(
    context: Context, adapter: SourceAdapter, window: Window, intake: Intake
) -> SourceCursor:
    """Take the extractive analyst's proposals; the cursor carries its open outcomes."""
    after = window.cursor_after
    state = SourceState.parse(after.state)
    outcomes = Outcomes.resume(state.outcomes)
    proposals = propose(
        window.records, adapter=adapter.name, locator=after.locator, outcomes=outcomes
    )
    for proposal in proposals.found:
        intake.add(proposal)
    state.outcomes = outcomes.carry()
    return replace(
        after, observations=after.observations + len(proposals.found), state=state.encode()
    )


def _by_model(
    context: Context, adapter: SourceAdapter, window: Window, intake: Intake
) -> SourceCursor:
    """Take the model's facts, all imported; a request refused for good passes its window by."""
    model = context.model()
    settings = context.settings.model
    after = window.cursor_after
    try:
        reading = read_with_model(
            model,
            window.records,
            max_chars=settings.max_input_chars,
            max_output_tokens=settings.max_output_tokens,
        )
    except Invalid:
        intake.dropped["request_refused"] += 1
        return after
    intake.dropped.update(reading.dropped)
    for fact in reading.facts:
        at = fact.shown.at or intake.now
        source = SourceRef(
            adapter=adapter.name,
            locator=after.locator,
            line=fact.shown.number,
            session_id=fact.shown.session_id,
        )
        try:
            evidence = admit_evidence(
                fact.excerpt, origin=Origin.IMPORTED_SOURCE, source=source, observed_at=at
            )
        except Refused:
            intake.dropped["refused"] += 1
            continue
        intake.record(
            original=fact.statement,
            statement=fact.statement,
            kind=fact.kind,
            evidence=[evidence],
            at=at,
            confidence=fact.confidence,
            tags={},
            analyst=model.name,
        )
    return replace(after, observations=after.observations + len(reading.facts))


def _follow_ups(context: Context, deferred: bool, recorded: bool = True) -> tuple[JobSpec, ...]:
    """What new statements ask for: vectors, and translations when a model could make them."""
    jobs: list[JobSpec] = []
    if recorded and context.settings.encoder.provider != "none":
        jobs.append(JobSpec(kind=JobKind.EMBED, project=context.project))
    if deferred:
        jobs.append(
            JobSpec(kind=JobKind.TRANSLATE, project=context.project, priority=Priority.CORRECTION)
        )
    return tuple(jobs)


def _note(intake: Intake, window: Window) -> str:
    counts: Counter[str] = Counter(
        {
            "recorded": intake.recorded,
            "corroborated": intake.corroborated,
            "superseded": intake.superseded,
            "deferred": len(intake.deferred),
        }
    )
    counts.update({f"dropped {reason}": count for reason, count in intake.dropped.items()})
    counts.update({f"skipped {reason}": count for reason, count in window.gaps.items()})
    if window.restarted:
        counts["restarted"] = 1
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)[:200]
