"""`ops why`: what was put into which prompt, and why."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from ops.invocation import Invocation, shared_options
from ops.output import show
from ops.project import Project, current_project, opened
from storage.errors import Invalid, Refused
from storage.records import JsonValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval.receipts import Receipt


@click.command()
@click.argument("receipt", metavar="[RECEIPT]", required=False)
@click.option("--last", is_flag=True, help="The prompt that was answered last.")
@click.option("--session", metavar="S", help="Only prompts of this session (or how it begins).")
@click.option("--limit", type=click.IntRange(1, 10_000), default=10, show_default=True)
@shared_options(project=True)
def why(
    invocation: Invocation, receipt: str | None, last: bool, session: str | None, limit: int
) -> None:
    """Show what was put into which prompt, why each line, and what was left out.

    Lists the last prompts; with RECEIPT (or how it begins) or --last, everything about one: what it
    was given, which legs found each line and how far it was above the bar, the lines of the
    sessions behind it, and what came close but was left out. Receipts hold no prompts.
    """
    from ops.receipts import details, listing, receipt_json, told_of

    if receipt is not None and (last or session):
        raise click.UsageError("Name a RECEIPT, or use --last or --session.")
    project = current_project(invocation)
    known = (one for one in _receipts(project) if _is_of(one, session))
    if receipt is None and not last:
        found = list(islice(known, limit))
        listed: dict[str, JsonValue] = {"receipts": [receipt_json(one) for one in found]}
        show(invocation.as_json, listed, listing(found) if found else _none(project, session))
        return
    chosen = next(known, None) if receipt is None else _named(known, receipt)
    if chosen is None:
        show(invocation.as_json, {"receipts": []}, _none(project, session))
        return
    with opened(invocation, project) as authority, authority.read() as reads:
        told = told_of(reads, chosen.found)
    show(invocation.as_json, receipt_json(chosen, told), details(chosen, told))


def _receipts(project: Project) -> Iterator[Receipt]:
    from retrieval.receipts import from_json
    from storage.receipt_log import newest_first

    for value in newest_first(project.paths):
        try:
            yield from_json(value)
        except Invalid:
            # Written by another version: it explains itself there, not here.
            continue


def _is_of(receipt: Receipt, session: str | None) -> bool:
    return session is None or receipt.session_id.startswith(session)


def _named(known: Iterator[Receipt], wanted: str) -> Receipt:
    """The one receipt whose id begins so.

    Raises:
        Refused: none does, or several do.
    """
    found = [one for one in known if one.receipt_id.startswith(wanted.strip().lower())]
    if len(found) != 1:
        what = (
            f"{wanted} begins {len(found):,} receipts" if found else f"There is no receipt {wanted}"
        )
        raise Refused(f"{what}: see `ops why`.")
    return found[0]


def _none(project: Project, session: str | None) -> list[str]:
    settings = project.settings.recall
    if session:
        return [f"No prompt of a session {session} has a receipt."]
    if not settings.enabled:
        return ["Nothing is put into prompts: the setting recall.enabled is false."]
    if settings.receipt_days == 0:
        return ["No receipts are written: the setting recall.receipt_days is 0."]
    return ["No prompt was answered here yet. Connect an agent: ops host install --help"]
