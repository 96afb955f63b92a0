"""`ops learned`, `facts` and `recall`: what a project's memory holds, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ops.backlog import backlog, waiting_count
from ops.ids import chosen
from ops.invocation import Invocation, shared_options
from ops.lessons import (
    Lesson,
    dossier,
    fact_rows,
    known,
    lesson_json,
    lessons_of,
    newest_first,
    rows,
)
from ops.output import count, pairs, show, table
from ops.project import current_project, opened
from storage.clock import DAY_MS, parse_instant, utc_day
from storage.errors import Invalid
from storage.records import Fact, JsonValue

if TYPE_CHECKING:
    from rich.console import RenderableType


class Day(click.ParamType[int]):
    """A date or an instant; a date alone means its end, so that the day itself is included."""

    name = "date"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        text = str(value)
        try:
            # Epoch seconds or milliseconds come as digits.
            at = parse_instant(int(text) if text.isascii() and text.isdigit() else text)
        except Invalid:
            self.fail(f"{value!r} is not a date such as 2026-05-31 or 2026-05-31T12:00Z.", param)
        is_day = len(text) == len("2026-05-31") and not text.isdigit()
        return at + DAY_MS - 1 if is_day else at


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=10, show_default=True)
@click.option("--all", "everything", is_flag=True, help="What was replaced since, too.")
@click.option("--why", is_flag=True, help="Every quote, the rule, the times, what it replaced.")
@click.option("--as-of", type=Day(), help="Only what had been learned by this date (UTC).")
@shared_options(project=True)
def learned(
    invocation: Invocation, limit: int, everything: bool, why: bool, as_of: int | None
) -> None:
    """Show what was learned last, why it counts, and where it was said."""
    project = current_project(invocation)
    with opened(invocation, project) as authority, authority.read() as reads:
        facts = [item for item in reads.facts() if as_of is None or item.recorded_at <= as_of]
        wanted = facts if everything else known(facts)
        lessons = lessons_of(reads, newest_first(wanted)[:limit], facts)
        waits = backlog(invocation, reads, project.paths)
        waiting = waiting_count(reads, project.paths)
    value: dict[str, JsonValue] = {
        "learned": [lesson_json(lesson) for lesson in lessons],
        "waiting": waiting,
    }
    if not lessons:
        empty = "Nothing has been learned yet."
        show(invocation.as_json, value, [empty, *(waits or ["How it stands: ops status"])])
        return
    if why:
        show(invocation.as_json, value, [*_dossiers(lessons, facts), *waits])
        return
    columns = ("kind", "what was learned, why it counts, and where it was said")
    shown = table(columns, rows(lessons, invocation.clock.now_ms()))
    hidden = _not_shown(len(wanted) - len(lessons), len(facts) - len(wanted))
    show(invocation.as_json, value, [shown, *hidden, *waits])


def _not_shown(more: int, ended: int) -> list[str]:
    left = [f"{more:,} more: ops learned --limit {more + 1_000}"] if more else []
    replaced = f"{count(ended, 'fact')} {'was' if ended == 1 else 'were'} replaced since"
    return left + ([f"{replaced}: ops learned --all"] if ended else [])


def _dossiers(lessons: list[Lesson], facts: list[Fact]) -> list[RenderableType | str]:
    known_by_id = {str(fact.fact_id): fact for fact in facts}
    shown: list[RenderableType | str] = []
    for lesson in lessons:
        shown += [*([""] if shown else []), pairs(dossier(lesson, known_by_id))]
    return shown


@click.command()
@click.argument("fact_id", metavar="[ID]", required=False)
@click.option("--as-of", type=Day(), help="What held at this date (UTC).")
@click.option("--all", "everything", is_flag=True, help="Ended and contradicted facts too.")
@shared_options(project=True)
def facts(invocation: Invocation, fact_id: str | None, as_of: int | None, everything: bool) -> None:
    """List what is known; with ID (or how it begins), everything about that one fact."""
    project = current_project(invocation)
    with opened(invocation, project) as authority, authority.read() as reads:
        everyone = reads.facts()
        found = _chosen_facts(everyone, fact_id, as_of, everything)
        lessons = lessons_of(reads, found, everyone)
        waits = backlog(invocation, reads, project.paths)
    value: dict[str, JsonValue] = {"facts": [lesson_json(lesson) for lesson in lessons]}
    if fact_id is not None:
        show(invocation.as_json, value, _dossiers(lessons, everyone))
        return
    when = f" on {utc_day(as_of)}" if as_of is not None else ""
    empty = f"No fact holds{when}." if not everything else "There are no facts yet."
    columns = ("kind", "what is known, how far, since when, and its id")
    closing = f"{count(len(lessons), 'fact')}{when}. All about one: ops facts ID"
    told = [table(columns, fact_rows(lessons)), closing] if lessons else [empty]
    show(invocation.as_json, value, [*told, *waits])


def _chosen_facts(
    everyone: list[Fact], fact_id: str | None, as_of: int | None, everything: bool
) -> list[Fact]:
    if fact_id is not None:
        ids = [str(fact.fact_id) for fact in everyone]
        wanted = chosen(fact_id, ids, "fact", "ops facts --all")
        return [fact for fact in everyone if fact.fact_id == wanted]
    if as_of is None:
        return everyone if everything else known(everyone)
    if everything:
        return [fact for fact in everyone if fact.recorded_at <= as_of]
    return [fact for fact in everyone if fact.holds_at(as_of)]


@click.command()
@click.argument("question", nargs=-1, required=True, metavar="QUESTION...")
@click.option("--as-of", type=Day(), help="Ask what held at this date (UTC).")
@click.option("--explain", is_flag=True, help="Scores, legs, timing, and what came nearest.")
@click.option("--block", "block_only", is_flag=True, help="Print the exact block an agent gets.")
@shared_options(project=True)
def recall(
    invocation: Invocation,
    question: tuple[str, ...],
    as_of: int | None,
    explain: bool,
    block_only: bool,
) -> None:
    """Ask the memory as an agent's prompt would."""
    from ops.answers import answer_json, answer_lines, ask_patiently, explanation

    project = current_project(invocation)
    with opened(invocation, project) as authority, authority.read() as reads:
        waits = backlog(invocation, reads, project.paths)
    answer = ask_patiently(invocation, project, " ".join(question), as_of=as_of, explain=explain)
    if block_only and not invocation.as_json:
        if not answer.block:
            reason = answer.recall.reason or "no match"
            print(f"Nothing fits ({reason}): an agent gets no block.", file=sys.stderr)
        sys.stdout.write(answer.block + ("\n" if answer.block else ""))
        return
    people = [*answer_lines(answer), *(explanation(answer) if explain else ()), *waits]
    show(invocation.as_json, answer_json(answer), people)
