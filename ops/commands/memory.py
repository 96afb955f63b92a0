"""`ops recall`, `learned`, `facts`, `remember`: what a project's memory holds, and adding to it."""

from __future__ import annotations

import sys

import click

from ops.invocation import Invocation, shared_options
from ops.lessons import fact_rows, lesson_json, lessons_of, newest_first, rows
from ops.output import count, show, table
from ops.project import current_project, opened
from ops.services import consumer_pids
from storage.clock import DAY_MS, parse_instant, utc_day
from storage.errors import Invalid
from storage.records import FactKind, JsonValue


class Day(click.ParamType[int]):
    """A date or an instant; a date alone means its end, so that the day itself is included."""

    name = "date"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        try:
            at = parse_instant(value)
        except Invalid:
            self.fail(f"{value!r} is not a date such as 2026-05-31 or 2026-05-31T12:00Z.", param)
        return at + DAY_MS - 1 if len(str(value)) == len("2026-05-31") else at


@click.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=10, show_default=True)
@shared_options(project=True)
def learned(invocation: Invocation, limit: int) -> None:
    """Show the newest facts and where they were said."""
    project = current_project(invocation)
    with opened(invocation, project) as authority, authority.read() as reads:
        lessons = lessons_of(reads, newest_first(reads.facts())[:limit])
    value: dict[str, JsonValue] = {"learned": [lesson_json(lesson) for lesson in lessons]}
    empty = "Nothing has been learned yet. `ops status` shows whether the consumer runs."
    columns = ("kind", "what was learned, and where it was said")
    show(invocation.as_json, value, [table(columns, rows(lessons)) if lessons else empty])


@click.command()
@click.option("--as-of", type=Day(), help="What held at this date (UTC).")
@click.option("--all", "everything", is_flag=True, help="Ended and contradicted facts too.")
@shared_options(project=True)
def facts(invocation: Invocation, as_of: int | None, everything: bool) -> None:
    """List what is known: by default what holds now."""
    project = current_project(invocation)
    at = invocation.clock.now_ms() if as_of is None else as_of
    with opened(invocation, project) as authority, authority.read() as reads:
        found = reads.facts() if everything else reads.facts(as_of=at)
        if everything and as_of is not None:
            found = [fact for fact in found if fact.recorded_at <= as_of]
        lessons = lessons_of(reads, found)
    value: dict[str, JsonValue] = {"facts": [lesson_json(lesson) for lesson in lessons]}
    when = f" on {utc_day(as_of)}" if as_of is not None else ""
    empty = f"No fact holds{when}." if not everything else "There are no facts yet."
    columns = ("kind", "what is known, how far, and since when")
    closing = f"{count(len(lessons), 'fact')}{when}. `--json` shows the evidence of each."
    show(
        invocation.as_json,
        value,
        [table(columns, fact_rows(lessons)), closing] if lessons else [empty],
    )


@click.command()
@click.argument("question")
@click.option("--as-of", type=Day(), help="Ask what held at this date (UTC).")
@click.option("--explain", is_flag=True, help="Scores, legs, timing, and what was missing.")
@click.option("--block", "block_only", is_flag=True, help="Print the exact block an agent gets.")
@shared_options(project=True)
def recall(
    invocation: Invocation, question: str, as_of: int | None, explain: bool, block_only: bool
) -> None:
    """Ask the memory as an agent's prompt would."""
    from ops.answers import answer_json, answer_lines, ask, explanation

    project = current_project(invocation)
    with opened(invocation, project):
        pass  # a damaged memory is an error to a person; to a prompt it is an empty answer
    answer = ask(invocation, project, question, as_of=as_of)
    if block_only and not invocation.as_json:
        sys.stdout.write(answer.block + ("\n" if answer.block else ""))
        return
    people = [*answer_lines(answer), *(explanation(answer) if explain else ())]
    show(invocation.as_json, answer_json(answer), people)


@click.command()
@click.argument("text")
@click.option(
    "--kind", type=click.Choice([kind.value for kind in FactKind]), help="[default: as worded]"
)
@shared_options(project=True)
def remember(invocation: Invocation, text: str, kind: str | None) -> None:
    """Remember one statement, in your words.

    It is on disk when this returns; the consumer takes it into the memory, now or later.
    """
    from hooks.record import remember as record

    project = current_project(invocation)
    accepted = record(
        invocation.paths,
        project.binding.project_id,
        text,
        clock=invocation.clock,
        kind=FactKind(kind) if kind else None,
    )
    runs = bool(consumer_pids(invocation.paths))
    hint = "The consumer takes it in now." if runs else "The consumer takes it in: ops start"
    value: dict[str, JsonValue] = {"ok": True, "kind": accepted.value, "consumer": runs}
    show(invocation.as_json, value, [f"Noted as a {accepted.value}. {hint}"])
