"""The first run: from real sessions to the block that the next prompt would carry, in one command.

What `ops.quickstart` starts. Owns the order of the steps and what
is said about each; every step is the product's own code. Promises to stop what it started, however
it ends, and that running it again changes nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from ops import entry
from ops.answers import Answer, ask
from ops.commands.project import repository_root
from ops.drain import Progress, wait_drained
from ops.exits import Exit, failure_of
from ops.folders import located
from ops.invocation import Invocation, invoked
from ops.lessons import Lesson, known, lessons_of, newest_first
from ops.material import (
    SAMPLE_QUESTION,
    Transcript,
    found_transcripts,
    jobs_for,
    recognised,
    sample_project,
    sample_transcripts,
    strangers,
    sync_job,
)
from ops.originals import skipped_lines
from ops.output import write_json
from ops.project import (
    Project,
    current_project,
    opened,
    require_choice,
    require_project_folder,
)
from ops.quickstart import NOTHING, PROGRAM
from ops.report import Report
from ops.services import STOPS, Keeper, others_run, require_ground, uninterrupted
from storage.config import load_settings
from storage.errors import Corrupt, Invalid, MemorydError, Unavailable
from storage.projects import bind, lookup, unlink
from storage.queue import open_queue
from storage.records import JsonValue

if TYPE_CHECKING:
    from storage.authority.reads import Stats

ENSURE_EVERY_S: Final = 1.0
WARM_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the caller asked for."""

    folder: Path | None
    transcripts: tuple[Path, ...]
    question: str | None
    keep: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be read, and into whose memory."""

    folder: Path
    origin: str
    """`found`, `given` or `sample`."""
    files: tuple[Path, ...]
    """Transcripts named by the caller or by us; the found ones are left to the sync."""
    count: int
    strange: tuple[Transcript, ...] = ()
    """Named transcripts that were recorded in other folders, which have no memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the run came to."""

    transcripts: int
    stats: Stats
    lessons: tuple[Lesson, ...]
    answer: Answer
    progress: Progress
    new: int
    """Facts that this run added."""


def plan(wish: Wish, invocation: Invocation) -> Plan:
    """Which transcripts to read: the named ones, else this user's own, else the sample.

    Raises:
        Invalid: a named file is not a transcript.
        Refused: it is one of a project that has a memory of its own.
    """
    settings = load_settings(invocation.paths, invocation.environment)
    folder = wish.folder or repository_root(Path.cwd())
    if wish.transcripts:
        most = settings.sources.max_line_bytes
        given = [recognised(path, max_line_bytes=most) for path in wish.transcripts]
        return Plan(
            folder=folder,
            origin="given",
            files=wish.transcripts,
            count=len(given),
            strange=tuple(strangers(given, invocation.paths, folder)),
        )
    found = found_transcripts(folder.resolve(), invocation.environment, settings.sources)
    if found:
        return Plan(folder=folder, origin="found", files=(), count=len(found))
    files = tuple(sample_transcripts())
    return Plan(
        folder=sample_project(invocation.paths), origin="sample", files=files, count=len(files)
    )


def run(wish: Wish, invocation: Invocation, report: Report) -> Outcome:
    """The whole first run.

    Raises:
        MemorydError, OSError: said by the caller; everything started was stopped.
    """
    planned = plan(wish, invocation)
    report.planned(planned.origin, planned.folder, planned.count, wish.folder, invocation.paths)
    for transcript in planned.strange:
        report.strange(transcript, planned.folder)
    fresh = _bind(planned, invocation, report)
    invocation = replace(invocation, folder=planned.folder)
    project = current_project(invocation)
    before = _stats(invocation, project)
    keeper = Keeper(invocation.paths, invocation.environment)
    try:
        asked_at = _begin(planned, invocation, project, keeper, report, fresh=fresh)
        progress = _wait(invocation, project, keeper, report, since=asked_at)
        answer = _answer(wish, planned, invocation, project, report)
        stats = _stats(invocation, project)
        lessons = _lessons(invocation, project)
        report.skipped(_skipped(invocation, project))
        if wish.keep:
            report.kept([one.program.title for one in keeper.release()])
    finally:
        _stop(keeper)
    return Outcome(
        transcripts=planned.count,
        stats=stats,
        lessons=tuple(lessons),
        answer=answer,
        progress=progress,
        new=stats.facts_current - before.facts_current,
    )


def _bind(planned: Plan, invocation: Invocation, report: Report) -> bool:
    """Give the folder its memory; whether it had none before.

    Raises:
        Corrupt: it has one whose file is gone. Such a file is restored, never made anew.
    """
    known = lookup(invocation.paths, planned.folder)
    if known is not None and located(known, planned.folder):
        database = invocation.paths.project(known.project_id).database
        if not database.exists():
            raise Corrupt(
                f"The memory of {known.location} is missing: {database}. Restore it"
                " (ops restore FILE), or give it up and begin another: ops project unlink"
            )
        known_before = True
    else:
        known_before = False
        if planned.origin != "sample":
            require_project_folder(invocation, planned.folder)
            require_choice(invocation, planned.folder)
    settings = load_settings(invocation.paths, invocation.environment)
    bound = bind(
        invocation.paths,
        planned.folder,
        clock=invocation.clock,
        settings=settings.storage,
        environment=invocation.environment,
    )
    if not known_before and planned.origin != "sample":
        report.bound(bound.location)
    return not known_before


def _begin(
    planned: Plan,
    invocation: Invocation,
    project: Project,
    keeper: Keeper,
    report: Report,
    *,
    fresh: bool,
) -> int:
    """Start the programs and enqueue the reading; when it was enqueued.

    A folder that got its memory only now is released again when this fails: nothing was learned.
    """
    try:
        report.step("Starting the consumer and the recall server")
        require_ground(invocation.paths, invocation.environment)
        report.others(others_run(invocation.paths))
        keeper.ensure()
        asked_at = invocation.clock.now_ms()
        _enqueue(planned, invocation, project)
    except BaseException:
        if fresh:
            with uninterrupted(), suppress(MemorydError):
                unlink(invocation.paths, project.binding.location)
        raise
    return asked_at


def _stop(keeper: Keeper) -> None:
    # Ctrl-C now must not leave behind what is being stopped.
    with uninterrupted():
        keeper.stop()


def _enqueue(planned: Plan, invocation: Invocation, project: Project) -> None:
    binding = project.binding
    most = project.settings.sources.max_line_bytes
    transcripts = [recognised(path, max_line_bytes=most) for path in planned.files]
    jobs = jobs_for(
        transcripts,
        invocation.paths,
        binding.project_id,
        location=binding.location,
        max_line_bytes=most,
    )
    with closing(open_queue(invocation.paths, clock=invocation.clock)) as queue:
        queue.enqueue([*jobs, sync_job(binding.project_id)])


def _wait(
    invocation: Invocation, project: Project, keeper: Keeper, report: Report, *, since: int
) -> Progress:
    looked = time.monotonic()

    def between(progress: Progress) -> None:
        nonlocal looked
        report.progress(progress.line)
        if time.monotonic() - looked >= ENSURE_EVERY_S:
            looked = time.monotonic()
            keeper.ensure()

    with report.waiting():
        progress = wait_drained(
            invocation.paths,
            project.binding.project_id,
            invocation.clock,
            between=between,
            since=since,
        )
    report.done(progress)
    return progress


def _answer(
    wish: Wish, planned: Plan, invocation: Invocation, project: Project, report: Report
) -> Answer:
    question = wish.question or _question(planned, invocation, project)
    report.step("Asking the memory a question")
    # The first question makes the server load its index and its encoder, behind the answer.
    ask(invocation, project, question)
    _wait_warm(invocation)
    return ask(invocation, project, question)


def _question(planned: Plan, invocation: Invocation, project: Project) -> str:
    if planned.origin == "sample":
        return SAMPLE_QUESTION
    lessons = _lessons(invocation, project)
    if not lessons:
        return "What should I know before I start?"
    return f"What do you know about this: {lessons[0].fact.statement[:200]}"


def _wait_warm(invocation: Invocation) -> None:
    from hooks.recall_client import call

    pause, deadline = threading.Event(), time.monotonic() + WARM_WITHIN_S
    while time.monotonic() < deadline:
        with suppress(Unavailable, Invalid):
            stats = call(invocation.paths, "stats", {}, timeout_ms=1_000)
            if isinstance(stats, Mapping) and stats.get("encoder") not in {"cold", "warming"}:
                return
        pause.wait(0.05)


def _stats(invocation: Invocation, project: Project) -> Stats:
    with opened(invocation, project) as authority, authority.read() as reads:
        return reads.stats()


def _skipped(invocation: Invocation, project: Project) -> int:
    """Lines of the project's sessions that nothing could read."""
    with opened(invocation, project) as authority, authority.read() as reads:
        return skipped_lines(reads)


def _lessons(invocation: Invocation, project: Project) -> list[Lesson]:
    with opened(invocation, project) as authority, authority.read() as reads:
        facts = reads.facts()
        return lessons_of(reads, newest_first(known(facts)), facts)


def summary(
    outcome: Outcome | None, question: str, seconds_setup: float, seconds_run: float
) -> dict[str, JsonValue]:
    """The object on the last line of `--json`."""
    timed: dict[str, JsonValue] = {
        **NOTHING,
        "question": question,
        "seconds_setup": round(seconds_setup, 2),
        "seconds_run": round(seconds_run, 2),
    }
    if outcome is None:
        return timed
    block = outcome.answer.block
    return timed | {
        "ok": not outcome.progress.lost,
        "transcripts": outcome.transcripts,
        "observations": outcome.stats.observations,
        "learned": outcome.stats.facts_current,
        "embedded": outcome.stats.vectors,
        "question": outcome.answer.question,
        "recalled": len(outcome.answer.recall.items),
        "block": block,
        "block_bytes": len(block.encode("utf-8")),
    }


def _seconds_setup(environment: Mapping[str, str], now: float) -> float:
    """What came before this program, as the launcher measured it."""
    started = environment.get("MEMORYD_SETUP_STARTED", "")
    try:
        return max(0.0, now - float(started))
    except ValueError:
        return 0.0


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--home", metavar="DIR", help="Where memory lives.  [default: ~/.prjct]")
@click.option(
    "--project",
    metavar="DIR",
    help="The project whose sessions to read.  [default: the current repository]",
)
@click.option(
    "--transcript",
    "transcripts",
    metavar="FILE",
    multiple=True,
    help="Read this session, whatever folder it names. May be given several times.",
)
@click.option("--question", metavar="TEXT", help="What to ask the memory at the end.")
@click.option("--keep", is_flag=True, help="Leave the consumer and the recall server running.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on the last line.")
def quickstart(
    home: str | None,
    project: str | None,
    transcripts: tuple[str, ...],
    question: str | None,
    keep: bool,
    as_json: bool,
) -> int:
    """Show memoryd working: read sessions, learn from them, and answer one question.

    Reads this user's Pi and Claude Code sessions of the project (never changing them), the named
    transcripts, or, when there are none, a bundled sample. Everything it starts is stopped again.
    """
    began = time.monotonic()
    invocation = invoked(home=home, as_json=as_json, project=project)
    seconds_setup = _seconds_setup(invocation.environment, time.time_ns() / 1e9)
    wish = Wish(
        folder=invocation.folder if project else None,
        # `Path.expanduser` raises for a user that does not exist.
        transcripts=tuple(Path(os.path.expanduser(path)) for path in transcripts),  # noqa: PTH111
        question=question,
        keep=keep,
    )
    report = Report(as_json=as_json)
    try:
        outcome = run(wish, invocation, report)
    except (MemorydError, OSError) as error:
        failure = failure_of(error)
        report.failed(failure)
        if as_json:
            value = summary(None, question or "", seconds_setup, time.monotonic() - began)
            write_json({**value, "error": failure.sentence, "hint": failure.hint})
        return failure.code
    seconds_run = time.monotonic() - began
    report.finished(outcome.lessons, outcome.answer, outcome.new, outcome.progress, seconds_run)
    if as_json:
        write_json(summary(outcome, question or "", seconds_setup, seconds_run))
    return Exit.FAILED if outcome.progress.lost else Exit.OK


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # TERM and HUP end like Ctrl-C: through every `finally`, so that nothing is left running. Only
    # the first counts: a second one must not break off what the first one cleans up.
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(argv: Sequence[str]) -> int:
    """Run the first run; its exit code."""
    for number in STOPS:
        # What a caller has switched off (nohup, a job in the background) stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    as_json = "--json" in argv
    try:
        done = quickstart.main(args=list(argv), prog_name=PROGRAM, standalone_mode=False)
    except click.UsageError as error:
        sentence = " ".join(error.format_message().split())
        entry.report(
            PROGRAM, sentence, "See ./ops/bin/quickstart --help.", NOTHING if as_json else None
        )
        return Exit.USAGE
    except (KeyboardInterrupt, click.Abort):
        sentence = "Stopped; nothing was left running. What was learned so far is kept."
        print(f"\n{sentence}", file=sys.stderr)
        if as_json:
            entry.report(PROGRAM, sentence, "", NOTHING)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        entry.silence()
        return Exit.FAILED
    except OSError as error:
        # If it was standard output that failed, it fails again here: `ops.entry` says so.
        sys.stdout.flush()
        failure = failure_of(error)
        entry.report(PROGRAM, failure.sentence, failure.hint, NOTHING if as_json else None)
        return failure.code
    return int(done) if isinstance(done, int) else Exit.OK
