"""What recall answers with: items, what was left out, and what each leg did. Values only.

A `Recall` crosses the socket as JSON and comes back equal; `from_json` refuses anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from storage.errors import Invalid
from storage.records import JsonValue, SourceRef

Status: TypeAlias = Literal["ok", "partial", "abstained"]
_STATUSES: Final[tuple[Status, ...]] = ("ok", "partial", "abstained")
Cut: TypeAlias = Literal["gate", "repeats", "limit", "bytes", "ended"]
"""Why something that was found is not shown: not close enough, says what a better one says, one
item too many, no room, does not hold any more."""
_CUTS: Final[tuple[Cut, ...]] = ("gate", "repeats", "limit", "bytes", "ended")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How one item was found, each on an absolute scale (see `retrieval.fusion`)."""

    fused: float
    """What the ranking used."""
    lexical: float = 0.0
    """BM25 as a share of the query's theoretical maximum."""
    dense: float | None = None
    """Cosine; None when there was no vector to compare."""
    exact: float = 0.0
    coverage: float = 0.0
    """Share of the query's informative words that the text contains, weighted by rarity."""
    margin: float = 0.0
    """How far above the gate's bar; 0 is just enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Something that was found and is not shown."""

    document_key: str
    why: Cut
    scores: Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One remembered thing: a fact, or an excerpt of a document (then `fact_id` is "")."""

    document_key: str
    fact_id: str
    kind: str
    text: str
    title: str = ""
    standing: str = ""
    unconfirmed: bool = False
    """Nobody vouched for it: proposed, not yet supported."""
    valid_at: int = 0
    invalid_at: int | None = None
    sources: tuple[SourceRef, ...] = ()
    truncated: bool = False
    scores: Scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What one leg did."""

    name: str
    candidates: int
    ms: float
    gap: str = ""
    """Why it did less than it could, in a few words; "" when nothing was missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The answer to one question."""

    status: Status
    items: tuple[Item, ...] = ()
    omitted: int = 0
    """Items that passed the gate but not the item limit, the redundancy filter or the bytes."""
    left: tuple[Left, ...] = ()
    """The best of what is not shown, and why: a few."""
    gaps: tuple[str, ...] = ()
    reason: str = ""
    """Why it abstained."""
    ms: float = 0.0
    legs: tuple[Leg, ...] = ()
    generation: int = 0

    def with_gap(self, gap: str) -> Recall:
        """The answer with one more thing it had to do without."""
        status: Status = "partial" if self.status == "ok" else self.status
        return replace(self, status=status, gaps=(gap, *self.gaps))

    def to_json(self) -> dict[str, JsonValue]:
        """Plain JSON values."""
        return {
            "status": self.status,
            "items": [_item_json(item) for item in self.items],
            "omitted": self.omitted,
            "left": [
                {
                    "document_key": one.document_key,
                    "why": one.why,
                    "scores": scores_json(one.scores),
                }
                for one in self.left
            ],
            "gaps": list(self.gaps),
            "reason": self.reason,
            "ms": round(self.ms, 3),
            "legs": [
                {"name": leg.name, "candidates": leg.candidates, "ms": leg.ms, "gap": leg.gap}
                for leg in self.legs
            ],
            "generation": self.generation,
        }


def abstained(reason: str, *, gaps: Sequence[str] = (), generation: int = 0) -> Recall:
    """Nothing to say, and why."""
    return Recall(status="abstained", reason=reason, gaps=tuple(gaps), generation=generation)


def from_json(value: JsonValue) -> Recall:
    """The value that `to_json` wrote.

    Raises:
        Invalid: not such a value.
    """
    try:
        document = _object(value)
        return Recall(
            status=_status(document["status"]),
            items=tuple(_item(entry) for entry in _list(document["items"])),
            omitted=_int(document["omitted"]),
            # A server of the release before does not say what it left out.
            left=tuple(_left(entry) for entry in _list(document.get("left") or [])),
            gaps=tuple(str(gap) for gap in _list(document["gaps"])),
            reason=str(document["reason"]),
            ms=_float(document["ms"]),
            legs=tuple(_leg(_object(entry)) for entry in _list(document["legs"])),
            generation=_int(document["generation"]),
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise Invalid(f"not a recall answer ({type(cause).__name__})") from cause


def _status(value: JsonValue) -> Status:
    for known in _STATUSES:
        if value == known:
            return known
    raise ValueError("unknown status")


def scores_json(scores: Scores) -> dict[str, JsonValue]:
    """Scores as plain JSON."""
    return {
        "fused": scores.fused,
        "lexical": scores.lexical,
        "dense": scores.dense,
        "exact": scores.exact,
        "coverage": scores.coverage,
        "margin": scores.margin,
    }


def scores_from(value: JsonValue) -> Scores:
    """The scores that `scores_json` wrote.

    Raises:
        KeyError, TypeError: not such a value.
    """
    entry = _object(value)
    dense = entry["dense"]
    return Scores(
        fused=_float(entry["fused"]),
        lexical=_float(entry["lexical"]),
        dense=None if dense is None else _float(dense),
        exact=_float(entry["exact"]),
        coverage=_float(entry["coverage"]),
        margin=_float(entry.get("margin", 0.0)),
    )


def cut_named(value: JsonValue) -> Cut:
    """The cut of that name.

    Raises:
        ValueError: there is none.
    """
    for known in _CUTS:
        if value == known:
            return known
    raise ValueError("unknown cut")


def _left(value: JsonValue) -> Left:
    entry = _object(value)
    return Left(
        document_key=str(entry["document_key"]),
        why=cut_named(entry["why"]),
        scores=scores_from(entry["scores"]),
    )


def _item_json(item: Item) -> dict[str, JsonValue]:
    return {
        "document_key": item.document_key,
        "fact_id": item.fact_id,
        "kind": item.kind,
        "text": item.text,
        "title": item.title,
        "standing": item.standing,
        "unconfirmed": item.unconfirmed,
        "valid_at": item.valid_at,
        "invalid_at": item.invalid_at,
        "sources": [[s.adapter, s.locator, s.line, s.session_id] for s in item.sources],
        "truncated": item.truncated,
        "scores": scores_json(item.scores),
    }


def _item(value: JsonValue) -> Item:
    entry = _object(value)
    end = entry["invalid_at"]
    return Item(
        document_key=str(entry["document_key"]),
        fact_id=str(entry["fact_id"]),
        kind=str(entry["kind"]),
        text=str(entry["text"]),
        title=str(entry["title"]),
        standing=str(entry["standing"]),
        unconfirmed=entry["unconfirmed"] is True,
        valid_at=_int(entry["valid_at"]),
        invalid_at=None if end is None else _int(end),
        sources=tuple(_source(_list(source)) for source in _list(entry["sources"])),
        truncated=entry["truncated"] is True,
        scores=scores_from(entry["scores"]),
    )


def _source(parts: Sequence[JsonValue]) -> SourceRef:
    adapter, locator, line, session = parts
    return SourceRef(
        adapter=str(adapter), locator=str(locator), line=_int(line), session_id=str(session)
    )


def _leg(entry: Mapping[str, JsonValue]) -> Leg:
    return Leg(
        name=str(entry["name"]),
        candidates=_int(entry["candidates"]),
        ms=_float(entry["ms"]),
        gap=str(entry["gap"]),
    )


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    if not isinstance(value, Mapping):
        raise TypeError("not an object")
    return value


def _list(value: JsonValue) -> Sequence[JsonValue]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError("not a list")
    return value


def _int(value: JsonValue) -> int:
    if not isinstance(value, int):
        raise TypeError("not a whole number")
    return value


def _float(value: JsonValue) -> float:
    if not isinstance(value, int | float):
        raise TypeError("not a number")
    return float(value)
