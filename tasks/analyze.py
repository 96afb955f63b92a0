"""Learning from one window of one source.

Reads at most a window, lets the rules (or, on the second cursor, the model) propose, and publishes
everything in one stamped commit: facts, quotes, waiting statements and the cursor. The window and
what was learnt from it are in memory together or not at all, so a crash repeats a read, never loses
or doubles a fact. A source that changed under the reader publishes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from storage.authority import payloads
from storage.authority.reads import Reads
from storage.errors import Invalid, SourceUnavailable, Stale
from storage.events import EventDraft
from storage.jobs import JobKind, JobSpec, Priority
from storage.log import get_logger
from storage.outcomes import Outcomes
from storage.records import JsonValue, SourceCursor
from tasks.analyst import propose
from tasks.analyst_facts import Intake
from tasks.analyst_model import Reading, read_with_model
from tasks.commit import commit
from tasks.context import Context, Finished
from tasks.sources import SourceAdapter, Window
from tasks.sources.catalogue import adapters
from tasks.sources.transcript import SourceState, has_news, is_unchanged
from tasks.sync import MODEL, RULES, analyze_job, cursor_name, fresh_cursor

WINDOW_BYTES: Final = 4_194_304
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
        return _was_applied(context, again, cursor, waiting=waiting)
    try:
        window = adapter.read(cursor, limit=WINDOW_BYTES if reader == RULES else MODEL_WINDOW_BYTES)
    except SourceUnavailable as cause:
        get_logger().warning("source.unavailable", adapter=adapter_name, error=type(cause).__name__)
        return Finished(note="the source is gone")
    get_logger().info("source.scanned", adapter=adapter_name, records=len(window.records))
    lesson = (_by_rules if reader == RULES else _by_model)(context, adapter, window)
    after = lesson.after
    if after == cursor:
        return Finished(note="no complete line yet")

    def build(reads: Reads) -> tuple[Intake, Sequence[EventDraft]]:
        if not is_unchanged(after):
            raise Stale("the source changed while it was read")
        intake = Intake(reads, context.project, context.clock.now_ms())
        lesson.teach(intake)
        return intake, [*intake.drafts, payloads.source_advanced(after)]

    intake = commit(context, authority, build)
    if intake is None:
        return _was_applied(context, again, after, waiting=True)
    return Finished(
        successors=(
            *((again,) if window.more else ()),
            *_follow_ups(context, bool(intake.deferred), bool(intake.recorded)),
        ),
        note=_note(intake, window, lesson.passed_over),
    )


@dataclass(frozen=True, slots=True)
class _Lesson:
    """What a window taught: said once, taught to as many snapshots as it takes."""

    after: SourceCursor
    teach: Callable[[Intake], None]
    passed_over: Counter[str]


def _was_applied(
    context: Context, again: JobSpec, cursor: SourceCursor, *, waiting: bool
) -> Finished:
    """The commit is there and only its acknowledgement was lost: ask for what it may have asked."""
    more = (again,) if has_news(cursor) else ()
    return Finished(successors=(*more, *_follow_ups(context, waiting)), note="was applied")


def _arguments(args: Mapping[str, JsonValue]) -> tuple[str, str, str]:
    match args:
        case {"adapter": str(adapter), "locator": str(locator)}:
            reader = args.get("reader", RULES)
            if reader in (RULES, MODEL):
                return adapter, locator, str(reader)
    raise Invalid("an analyze job names its adapter and its source")


def _by_rules(context: Context, adapter: SourceAdapter, window: Window) -> _Lesson:
    """The extractive analyst's proposals; the cursor carries its open outcomes."""
    after = window.cursor_after
    state = SourceState.parse(after.state)
    outcomes = Outcomes.resume(state.outcomes)
    proposals = propose(
        window.records, adapter=adapter.name, locator=after.locator, outcomes=outcomes
    )
    state.outcomes = outcomes.carry()
    after = replace(
        after, observations=after.observations + len(proposals.found), state=state.encode()
    )

    def teach(intake: Intake) -> None:
        for proposal in proposals.found:
            intake.add(proposal)

    return _Lesson(after, teach, proposals.passed_over)


def _by_model(context: Context, adapter: SourceAdapter, window: Window) -> _Lesson:
    """The model's facts, all imported; a request refused for good passes its window by."""
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
        reading = Reading((), Counter({"request_refused": 1}))

    def teach(intake: Intake) -> None:
        for fact in reading.facts:
            intake.add_imported(fact, adapter.name, after.locator, model.name)

    after = replace(after, observations=after.observations + len(reading.facts))
    return _Lesson(after, teach, reading.dropped)


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


def _note(intake: Intake, window: Window, passed_over: Counter[str]) -> str:
    counts: Counter[str] = Counter(
        {
            "recorded": intake.recorded,
            "corroborated": intake.corroborated,
            "superseded": intake.superseded,
            "deferred": len(intake.deferred),
        }
    )
    dropped = intake.dropped + passed_over
    counts.update({f"dropped {reason}": count for reason, count in dropped.items()})
    counts.update({f"skipped {reason}": count for reason, count in window.gaps.items()})
    if window.restarted:
        counts["restarted"] = 1
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)[:200]
