"""`ops forget`: a memory gone for good; `ops feedback`: what became of a recalled fact."""

from __future__ import annotations

import sys
from typing import Final

import click

from ops.exits import Exit
from ops.invocation import Invocation, shared_options
from ops.output import count, printable, show
from ops.project import Project, current_project, opened
from storage.authority.payloads import SIGNALS, Signal
from storage.errors import Invalid
from storage.records import FactId, JsonValue

ELSEWHERE: Final = (
    "Backups and exports in other places still hold it: delete them. What is restored or imported"
    " here forgets it again."
)


@click.command()
@click.argument("target", metavar="[ID]", required=False)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@shared_options(project=True)
def forget(invocation: Invocation, target: str | None, dry_run: bool, yes: bool) -> int:
    """Forget a fact or a document for good.

    ID is an id from `ops facts` or `ops documents`, or its start. The text disappears from tables,
    indexes, history, logs and our own backups; history still proves itself. There is no way back.
    Backups and exports that you put elsewhere are out of reach: delete them. Restored or imported
    here, they forget it again.
    Without ID, an interrupted forgetting is finished.
    """
    from storage.forget import forget as erase

    project = current_project(invocation)
    if target is not None and (dry_run or (not yes and sys.stdin.isatty())):
        lines, value = _preview(invocation, project, target)
        if dry_run:
            show(invocation.as_json, value, lines)
            return Exit.OK
        show(False, {}, lines)
        click.confirm("Forget this for good?", abort=True)
    done = erase(
        invocation.paths,
        project.binding.project_id,
        target,
        clock=invocation.clock,
        settings=project.settings.storage,
    )
    answer: dict[str, JsonValue] = {
        "ok": not done.left,
        "facts": list(done.plan.facts) if done.plan else [],
        "documents": list(done.plan.documents) if done.plan else [],
        "erased_events": done.plan.events if done.plan else 0,
        "files": list(done.cleaned),
        "backups": list(done.backups),
        "left": list(done.left),
    }
    shown = [_summary(len(done.plan.facts), len(done.plan.documents))] if done.plan else []
    shown += [f"also changed: {name}" for name in (*done.cleaned, *done.backups)]
    shown += [f"still holds the text: {name}" for name in done.left]
    if done.plan is not None:
        shown.append(ELSEWHERE)
    show(invocation.as_json, answer, shown or ["Nothing is waiting to be forgotten."])
    return Exit.UNHEALTHY if done.left else Exit.OK


def _preview(
    invocation: Invocation, project: Project, target: str
) -> tuple[list[str], dict[str, JsonValue]]:
    from storage.forget import preview

    with opened(invocation, project) as authority:
        plan = preview(authority, target)
        with authority.read() as reads:
            found = [reads.fact(fact_id) for fact_id in plan.facts]
    statements = [printable(fact.statement) for fact in found if fact is not None]
    lines = [*statements, *plan.documents]
    lines += [f"stays, because {user} rests on it too: {quote}" for quote, user in plan.shared]
    value: dict[str, JsonValue] = {
        "ok": True,
        "facts": list(plan.facts),
        "documents": list(plan.documents),
        "evidence": list(plan.evidence),
        "stays": [list(pair) for pair in plan.shared],
        "events": plan.events,
    }
    return lines, value


def _summary(facts: int, documents: int) -> str:
    return f"{count(facts, 'fact')} and {count(documents, 'document')} are forgotten for good."


@click.command()
@click.argument("fact", metavar="ID")
@click.argument("signal", type=click.Choice(SIGNALS))
@shared_options(project=True)
def feedback(invocation: Invocation, fact: str, signal: Signal) -> None:
    """Say what became of a recalled fact.

    A fact that is wrong or stale needs a review from then on.
    """
    from storage.usefulness import give_feedback

    project = current_project(invocation)
    with opened(invocation, project) as authority:
        with authority.read() as reads:
            found = [item.fact_id for item in reads.facts() if item.fact_id.startswith(fact)]
        if len(found) != 1:
            wanted = "more than one fact begins with" if found else "there is no fact"
            raise Invalid(f"{wanted} {fact!r}")
        after = give_feedback(authority, FactId(found[0]), signal, invocation.clock.now_ms())
        with authority.read() as reads:
            counts = reads.counts(after.fact_id)
    value: dict[str, JsonValue] = {
        "ok": True,
        "fact": after.fact_id,
        "standing": after.standing.value,
        **dict(zip(SIGNALS, counts, strict=True)),
    }
    show(invocation.as_json, value, [f"Noted as {signal}; the fact is {after.standing.value}."])
