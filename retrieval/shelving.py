"""What an index keeps of one search entry: when it holds, what sort it is, where it stands.

The same rule for a whole build and for a single changed document.
"""

from __future__ import annotations

from dataclasses import dataclass

from retrieval.door import UNCONFIRMED
from retrieval.eligibility import Interval, entry_interval
from retrieval.structure import Place, place_named
from storage.authority.searchable import Entry


@dataclass(frozen=True, slots=True)
class Shelved:
    """One chunk as the arrays hold it, its words apart."""

    interval: Interval
    title: str
    """The words that count beside the text's own."""
    unconfirmed: bool
    namespace: str
    kind: str
    names: tuple[str, ...]
    place: Place | None


def shelved(entry: Entry) -> Shelved | None:
    """What the arrays hold of an entry; None where it may never be shown.

    A terminal fact without an end and an imported instruction are in no index, so they count in no
    frequency either.
    """
    interval = entry_interval(entry)
    if interval is None:
        return None
    if entry.fact_id is not None and entry.fact_kind is not None:
        return Shelved(
            interval=interval,
            # A fact's title repeats its kind or its words: counting it would skew short texts.
            title="",
            unconfirmed=entry.standing in UNCONFIRMED,
            namespace=entry.namespace,
            kind=entry.fact_kind.value,
            names=(entry.fact_id, entry.chunk_id),
            place=None,
        )
    named = tuple(name for name in (entry.external_id, entry.uri) if name)
    return Shelved(
        interval=interval,
        title=entry.title,
        unconfirmed=False,
        namespace=entry.namespace,
        kind=entry.kind,
        names=(*named, entry.chunk_id),
        place=_place(entry),
    )


def _place(entry: Entry) -> Place | None:
    # Most documents say nothing about themselves: decoding that would cost a build a second.
    if '"session"' not in entry.metadata:
        return None
    return place_named(entry.described(), entry.namespace, entry.source, entry.observed_at)
