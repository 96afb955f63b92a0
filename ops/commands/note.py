"""`ops remember` and `ops sync`: adding to the memory, and asking for a look at the sessions."""

from __future__ import annotations

import click

from ops.backlog import is_waiting
from ops.ids import bare, shortened_to
from ops.invocation import Invocation, shared_options
from ops.output import show
from ops.project import Project, current_project, opened
from ops.refusals import why_refused
from ops.services import consumer_pids
from storage.clock import utc_day
from storage.declarations import explicit
from storage.errors import Refused
from storage.records import (
    TERMINAL_STANDINGS,
    Fact,
    FactKind,
    JsonValue,
    Origin,
    statement_key,
)


@click.command()
@click.argument("words", nargs=-1, required=True, metavar="STATEMENT...")
@click.option(
    "--kind", type=click.Choice([kind.value for kind in FactKind]), help="[default: as worded]"
)
@shared_options(project=True)
def remember(invocation: Invocation, words: tuple[str, ...], kind: str | None) -> None:
    """Remember one statement, in your words (several words are taken as one statement).

    It is on disk when this returns; the consumer takes it into the memory, now or later.
    """
    from hooks.record import remember as record

    project = current_project(invocation)
    text = " ".join(words)
    declared = explicit(text)
    if declared is None:
        raise Refused(why_refused(text) or "That is no statement: a sentence that stands alone.")
    wanted = FactKind(kind) if kind else None
    known = _known(invocation, project, declared.statement, wanted)
    if known:
        value: dict[str, JsonValue] = {"ok": True, "known": True, "kind": None, "consumer": None}
        show(invocation.as_json, value, [known])
        return
    accepted = record(
        invocation.paths,
        project.binding.project_id,
        text,
        clock=invocation.clock,
        kind=wanted,
    )
    runs = bool(consumer_pids(invocation.paths))
    hint = "The consumer takes it in now." if runs else "It waits for the consumer: ops start"
    value = {"ok": True, "known": False, "kind": accepted.value, "consumer": runs}
    show(invocation.as_json, value, [f"Noted as a {accepted.value}. {hint}"])


def _known(invocation: Invocation, project: Project, statement: str, kind: FactKind | None) -> str:
    """What to say when the statement is known, or waits already; "" when it is new.

    A fact that only a model or an agent stands behind is not: a person's word confirms it.
    """
    key = statement_key(statement)
    with opened(invocation, project) as authority, authority.read() as reads:
        facts = reads.facts()
        for fact in facts:
            if _holds(fact, kind) and statement_key(fact.statement) == key:
                origins = {item.origin for item in reads.evidence(fact.fact_id)}
                if Origin.USER_STATEMENT in origins:
                    length = shortened_to(item.fact_id for item in facts)
                    since = utc_day(fact.valid_at)
                    return f"Known already, since {since} ({bare(fact.fact_id)[:length]})."
        if is_waiting(reads, project.paths, statement):
            runs = bool(consumer_pids(invocation.paths))
            return "Known already: it waits for the consumer" + ("." if runs else ": ops start")
    return ""


def _holds(fact: Fact, kind: FactKind | None) -> bool:
    return fact.standing not in TERMINAL_STANDINGS and kind in {None, fact.kind}


@click.command()
@shared_options(project=True)
def sync(invocation: Invocation) -> None:
    """Look at this project's sessions now, before other work.

    The consumer looks every few minutes by itself (`ops schedule`), and when a session ends.
    """
    from ops.commands.project import ask_for_sync

    project = current_project(invocation)
    ask_for_sync(invocation, project.binding.project_id)
    runs = bool(consumer_pids(invocation.paths))
    hint = "Watch it: ops queue watch" if runs else "It waits for the consumer: ops start"
    value: dict[str, JsonValue] = {"ok": True, "consumer": runs}
    folder = project.binding.location
    show(invocation.as_json, value, [f"The sessions of {folder} are looked at now. {hint}"])
