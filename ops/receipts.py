"""Receipts as people read them: what a prompt was given, why each line, and what was left out.

Owns joining a receipt, which holds ids and numbers only, with what the memory says today: the
statement, its quotes and their lines. What was forgotten since is said to be gone. Leaves choosing
receipts to `ops why`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ops.ids import bare, shortened_to
from ops.lessons import place, shortened, validity
from ops.originals import original_of
from ops.output import count, moment, moment_json, pairs, printable, styled, table
from retrieval.names import external_id
from retrieval.receipts import Found, Receipt
from retrieval.results import Cut, Scores, scores_json
from storage.authority.reads import Reads
from storage.records import DocumentKey, Evidence, FactId, JsonValue

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

MEMORY: Final = "memory:"
CUTS: Final[dict[Cut, str]] = {
    "gate": "not close enough",
    "repeats": "says what a better one says",
    "limit": "one item too many",
    "bytes": "no room left",
    "ended": "did not hold any more",
}
MAX_QUOTES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One line of a receipt, and what the memory says about it today."""

    found: Found
    kind: str = ""
    text: str = ""
    """Empty when it is gone."""
    short: str = ""
    holds: str = ""
    standing: str = ""
    evidence: tuple[Evidence, ...] = ()


def told_of(reads: Reads, found: Iterable[Found]) -> list[Told]:
    """Each thing that was found with its text, from one snapshot."""
    length = shortened_to(fact.fact_id for fact in reads.facts())
    return [_told(reads, one, length) for one in found]


def _told(reads: Reads, found: Found, length: int) -> Told:
    key = DocumentKey(found.document_key)
    if key.startswith(MEMORY):
        fact = reads.fact(FactId(external_id(key)))
        if fact is None:
            return Told(found=found)
        return Told(
            found=found,
            kind=fact.kind.value,
            text=fact.statement,
            short=bare(fact.fact_id)[:length],
            holds=validity(fact),
            standing=fact.standing.value,
            evidence=tuple(reads.evidence(fact.fact_id)),
        )
    document = reads.document(key)
    if document is None:
        return Told(found=found)
    return Told(found=found, kind=document.kind, text=document.title or document.text)


def verdict(receipt: Receipt) -> str:
    """What became of the prompt, in a few words."""
    shown = len(receipt.shown)
    if not shown:
        return f"nothing: {receipt.reason or 'no match'}"
    lines = count(shown, "line")
    return f"{lines} in shadow: nothing was injected" if receipt.shadow else lines


def listing(receipts: Sequence[Receipt]) -> list[RenderableType | str]:
    """One row a prompt, newest first."""
    rows = [
        (
            receipt.receipt_id,
            moment(receipt.at),
            receipt.host,
            printable(receipt.session_id)[:18],
            verdict(receipt),
            f"{receipt.block_bytes:,}" if receipt.shown else "",
            f"{receipt.ms:.1f}",
        )
        for receipt in receipts
    ]
    columns = ("receipt", "when", "host", "session", "injected", ">bytes", ">ms")
    return [table(columns, rows), "All about one: ops why RECEIPT (or --last)"]


def details(receipt: Receipt, told: Sequence[Told]) -> list[RenderableType | str]:
    """Everything about one prompt."""
    shown = [one for one in told if one.found.cut is None]
    left = [one for one in told if one.found.cut is not None]
    parts: list[RenderableType | str] = [pairs(_facts_of(receipt))]
    if shown:
        title = "would have been injected" if receipt.shadow else "injected"
        columns = (title, "why: legs, scores, gate", ">score", ">above the bar")
        parts += ["", table(columns, [_row(one, quotes=MAX_QUOTES) for one in shown])]
    if left:
        columns = ("left out", "why", ">score", ">above the bar")
        parts += ["", table(columns, [_left_row(one) for one in left])]
        more = receipt.omitted - sum(one.found.cut not in {"gate", "ended"} for one in left)
        if more > 0:
            parts.append(styled(f"{count(more, 'more', 'more')} passed the gate", "dim"))
    if receipt.legs:
        rows = [(leg.name, f"{leg.candidates:,}", f"{leg.ms:.2f}", leg.gap) for leg in receipt.legs]
        parts += ["", table(("leg", ">candidates", ">ms", "missing"), rows)]
    return parts


def _facts_of(receipt: Receipt) -> list[tuple[str, str]]:
    by = "the recall server" if receipt.by_server else "the hook itself, from SQLite"
    rows = [
        ("receipt", receipt.receipt_id),
        ("prompt", f"{moment(receipt.at)}, {receipt.host}, session {receipt.session_id}"),
        ("", f"{count(receipt.prompt_chars, 'character')}, digest {receipt.prompt_digest}"),
        ("injected", verdict(receipt)),
        ("answered", f"in {receipt.ms:.1f} ms by {by}, generation {receipt.generation:,}"),
    ]
    if receipt.shown:
        size = f"{count(receipt.block_bytes, 'byte')}, about {count(receipt.block_tokens, 'token')}"
        rows.append(("block", f"{size}, {receipt.status}"))
    if receipt.gaps:
        rows.append(("gaps", "; ".join(receipt.gaps)))
    return rows


def _row(one: Told, *, quotes: int) -> tuple[Text | str, ...]:
    scores = one.found.scores
    known = styled(one.text or "gone since: forgotten or replaced", "" if one.text else "dim")
    about = ", ".join(part for part in (one.kind, one.standing, one.holds, one.short) if part)
    if about:
        known.append("\n").append_text(styled(about, "dim"))
    for item in one.evidence[:quotes]:
        said = f"“{shortened(item.excerpt, 80)}” {place(item.source)}"
        known.append("\n").append_text(styled(said, "dim"))
    cut = "; its end was cut off" if one.found.truncated else ""
    return known, reasons(scores) + cut, f"{scores.fused:.2f}", f"{scores.margin:+.2f}"


def _left_row(one: Told) -> tuple[Text | str, ...]:
    scores, cut = one.found.scores, one.found.cut
    why = f"{CUTS[cut] if cut else ''}; {reasons(scores)}"
    text = shortened(one.text, 90) or "gone since: forgotten or replaced"
    known = styled(text, "" if one.text else "dim")
    if one.short:
        known.append_text(styled(f" {one.short}", "dim"))
    return known, why, f"{scores.fused:.2f}", f"{scores.margin:+.2f}"


def reasons(scores: Scores) -> str:
    """Which legs found a text, and how well."""
    told = []
    if scores.exact:
        told.append(f"named {scores.exact:.2f}")
    if scores.lexical or scores.coverage:
        told.append(f"words {scores.lexical:.2f} ({scores.coverage:.0%} of them)")
    if scores.dense is not None:
        told.append(f"meaning {scores.dense:.2f}")
    return ", ".join(told) or "its neighbour in the session"


def receipt_json(receipt: Receipt, told: Sequence[Told] = ()) -> dict[str, JsonValue]:
    """One receipt for programs; with its lines when they were looked up."""
    value: dict[str, JsonValue] = {
        "receipt": receipt.receipt_id,
        "at": moment_json(receipt.at),
        "host": receipt.host,
        "session": receipt.session_id,
        "prompt_digest": receipt.prompt_digest,
        "prompt_chars": receipt.prompt_chars,
        "status": receipt.status,
        "reason": receipt.reason,
        "shadow": receipt.shadow,
        "injected": 0 if receipt.shadow else len(receipt.shown),
        "block_bytes": receipt.block_bytes,
        "block_tokens": receipt.block_tokens,
        "by_server": receipt.by_server,
        "generation": receipt.generation,
        "ms": receipt.ms,
        "omitted": receipt.omitted,
        "gaps": list(receipt.gaps),
    }
    if told:
        value["items"] = [_told_json(one) for one in told if one.found.cut is None]
        value["left_out"] = [_told_json(one) for one in told if one.found.cut is not None]
    value["legs"] = [
        {"name": leg.name, "candidates": leg.candidates, "ms": leg.ms, "gap": leg.gap}
        for leg in receipt.legs
    ]
    return value


def _told_json(one: Told) -> JsonValue:
    found = one.found
    return {
        "document_key": found.document_key,
        "fact_id": external_id(DocumentKey(found.document_key))
        if found.document_key.startswith(MEMORY)
        else None,
        "kind": one.kind,
        "text": one.text or None,
        "standing": one.standing or None,
        "cut": found.cut,
        "truncated": found.truncated,
        "scores": scores_json(found.scores),
        "evidence": [
            {
                "file": original_of(item.source.locator),
                "line": item.source.line,
                "observed_at": moment_json(item.observed_at),
            }
            for item in one.evidence
        ],
    }
