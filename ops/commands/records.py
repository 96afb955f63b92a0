"""`ops evidence`, `documents`, `history`: what stands behind the facts, and what happened when."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import click

from ops.commands.memory import Day
from ops.invocation import Invocation, shared_options
from ops.lessons import place, shortened
from ops.output import count, moment, moment_json, show, table
from ops.project import current_project, opened
from storage.authority.standing import FACT_NAMESPACE, recorded_at_of
from storage.errors import Invalid
from storage.events import Event
from storage.records import Document, JsonValue


@click.command()
@click.argument("fact", metavar="[ID]", required=False)
@click.option("--as-of", type=Day(), help="Only what had been said by this date (UTC).")
@shared_options(project=True)
def evidence(invocation: Invocation, fact: str | None, as_of: int | None) -> None:
    """List the quotes behind all facts, or one.

    ID is a fact's id, or its start.
    """
    project = current_project(invocation)
    with opened(invocation, project) as authority, authority.read() as reads:
        facts = [item for item in reads.facts() if item.fact_id.startswith(fact or "")]
        if fact and not facts:
            raise Invalid(f"there is no fact {fact!r}")
        quotes = [
            (item.fact_id, quote)
            for item in facts
            for quote in reads.evidence(item.fact_id)
            if as_of is None or quote.observed_at <= as_of
        ]
    value: dict[str, JsonValue] = {
        "evidence": [
            {
                "evidence_id": quote.evidence_id,
                "fact_id": fact_id,
                "quote": quote.excerpt,
                "origin": quote.origin.value,
                "provenance": quote.provenance.value,
                "adapter": quote.source.adapter,
                "file": quote.source.locator,
                "line": quote.source.line,
                "observed_at": moment_json(quote.observed_at),
            }
            for fact_id, quote in quotes
        ]
    }
    rows = [
        (
            fact_id[:12],
            f"“{shortened(quote.excerpt)}”\n{place(quote.source)}",
            quote.provenance.value,
            moment(quote.observed_at),
        )
        for fact_id, quote in quotes
    ]
    listed = table(("fact", "words", "how it is known", "when"), rows)
    show(
        invocation.as_json,
        value,
        [listed, count(len(rows), "quote")] if rows else ["There are no quotes."],
    )


@click.command()
@click.option("--as-of", type=Day(), help="Only what was known and valid at this date (UTC).")
@click.option("--all", "everything", is_flag=True, help="The documents of facts too.")
@shared_options(project=True)
def documents(invocation: Invocation, as_of: int | None, everything: bool) -> None:
    """List the documents that can be recalled."""
    project = current_project(invocation)
    with opened(invocation, project) as authority, authority.read() as reads:
        found = [
            (document, recorded_at_of(reads, document))
            for document in reads.documents()
            if everything or document.namespace != FACT_NAMESPACE
        ]
    if as_of is not None:
        found = [(item, at) for item, at in found if at <= as_of and _is_valid(item, as_of)]
    value: dict[str, JsonValue] = {
        "documents": [
            {
                "document_key": item.key,
                "namespace": item.namespace,
                "name": item.external_id,
                "kind": item.kind,
                "title": item.title,
                "bytes": len(item.text.encode("utf-8", "surrogatepass")),
                "adapter": item.adapter,
                "trust": item.trust.value,
                "valid_from": moment_json(item.valid_from),
                "valid_to": moment_json(item.valid_to),
                "recorded_at": moment_json(at),
            }
            for item, at in found
        ]
    }
    rows = [
        (f"{item.title or item.external_id}\n{item.key}", item.kind, item.adapter, moment(at))
        for item, at in found
    ]
    listed = table(("document", "kind", "from", "taken in"), rows)
    show(
        invocation.as_json,
        value,
        [listed, count(len(rows), "document")] if rows else ["There are no documents."],
    )


@click.command()
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True)
@click.option("--as-of", type=Day(), help="Only what had happened by this date (UTC).")
@shared_options(project=True)
def history(invocation: Invocation, limit: int, as_of: int | None) -> None:
    """List what happened to a memory, newest first."""
    from storage.portable import history_line

    project = current_project(invocation)
    with opened(invocation, project) as authority, authority.snapshot() as (_, events):
        kept: deque[Event] = deque(maxlen=limit)
        kept.extend(event for event in events if as_of is None or event.recorded_at <= as_of)
    newest = list(reversed(kept))
    value: dict[str, JsonValue] = {
        "history": [
            {**history_line(event), "at": moment_json(event.recorded_at)} for event in newest
        ]
    }
    rows = [(moment(event.recorded_at), event.type.value, _about(event)) for event in newest]
    shown = [table(("when", "what", "about"), rows)]
    show(invocation.as_json, value, [*shown] if rows else ["Nothing has happened yet."])


def _is_valid(document: Document, at: int) -> bool:
    begun = document.valid_from is None or document.valid_from <= at
    return begun and (document.valid_to is None or at < document.valid_to)


def _about(event: Event) -> str:
    """A few words for people; an erased event has none."""
    body = event.payload
    if body is None:
        return "(forgotten)"
    inner = body.get("fact", body.get("document"))
    if isinstance(inner, Mapping):
        return shortened(str(inner.get("statement") or inner.get("title") or inner.get("source")))
    for name in ("fact", "key", "locator", "id", "file", "note"):
        if body.get(name):
            return shortened(str(body[name]), 80)
    return ""
