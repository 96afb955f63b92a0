"""A receipt: what one prompt was answered with, why each line was there, and what was left out.

Holds ids, scores, counts and our own words; of the prompt its length and a digest, which tells
whether two prompts were the same and nothing else. Never a statement, an excerpt or a prompt.
Values and their JSON; `storage.receipt_log` keeps the lines, `hooks.receipts` makes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from retrieval.results import Cut, Leg, Recall, Scores, Status, cut_named, scores_from, scores_json
from storage.errors import Invalid
from storage.records import JsonValue

VERSION: Final = 1
DIGITS: Final = 4
_STATUSES: Final[tuple[Status, ...]] = ("ok", "partial", "abstained")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One remembered thing that a prompt brought up."""

    document_key: str
    scores: Scores
    cut: Cut | None = None
    """Why it was not shown; None for one that was."""
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one prompt was answered with."""

    receipt_id: str
    at: int
    host: str
    session_id: str
    prompt_digest: str
    prompt_chars: int
    status: Status
    reason: str = ""
    shadow: bool = False
    """Nothing was put into the prompt; this is what would have been."""
    by_server: bool = True
    """Else by the hook itself, from SQLite."""
    generation: int = 0
    ms: float = 0.0
    """From the question to the answer, inside memoryd."""
    block_bytes: int = 0
    block_tokens: int = 0
    """About how many; see `retrieval.tokens`."""
    found: tuple[Found, ...] = ()
    """What was shown, in its order, then the best of what was not."""
    omitted: int = 0
    gaps: tuple[str, ...] = ()
    legs: tuple[Leg, ...] = ()

    @property
    def shown(self) -> tuple[Found, ...]:
        """What stood in the block."""
        return tuple(one for one in self.found if one.cut is None)

    @property
    def left(self) -> tuple[Found, ...]:
        """The best of what did not."""
        return tuple(one for one in self.found if one.cut is not None)


def digest_of_prompt(prompt: str) -> str:
    """16 hex characters that equal prompts share."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def found_in(recall: Recall) -> tuple[Found, ...]:
    """What an answer showed, then what it named as left out."""
    shown = (
        Found(document_key=item.document_key, scores=item.scores, truncated=item.truncated)
        for item in recall.items
    )
    left = (
        Found(document_key=one.document_key, scores=one.scores, cut=one.why) for one in recall.left
    )
    return (*shown, *left)


def to_json(receipt: Receipt) -> dict[str, JsonValue]:
    """The receipt as one plain JSON object."""
    return {
        "v": VERSION,
        "id": receipt.receipt_id,
        "at": receipt.at,
        "host": receipt.host,
        "session": receipt.session_id,
        "prompt": receipt.prompt_digest,
        "chars": receipt.prompt_chars,
        "status": receipt.status,
        "reason": receipt.reason,
        "shadow": receipt.shadow,
        "server": receipt.by_server,
        "generation": receipt.generation,
        "ms": round(receipt.ms, 2),
        "bytes": receipt.block_bytes,
        "tokens": receipt.block_tokens,
        "found": [_found_json(one) for one in receipt.found],
        "omitted": receipt.omitted,
        "gaps": list(receipt.gaps),
        "legs": [[leg.name, leg.candidates, leg.ms, leg.gap] for leg in receipt.legs],
    }


def from_json(value: Mapping[str, JsonValue]) -> Receipt:
    """The receipt that `to_json` wrote.

    Raises:
        Invalid: it did not write that, or a newer memoryd did.
    """
    try:
        if value["v"] != VERSION:
            raise ValueError("another version")
        return Receipt(
            receipt_id=str(value["id"]),
            at=_whole(value["at"]),
            host=str(value["host"]),
            session_id=str(value["session"]),
            prompt_digest=str(value["prompt"]),
            prompt_chars=_whole(value["chars"]),
            status=_word(value["status"]),
            reason=str(value["reason"]),
            shadow=value["shadow"] is True,
            by_server=value["server"] is True,
            generation=_whole(value["generation"]),
            ms=_number(value["ms"]),
            block_bytes=_whole(value["bytes"]),
            block_tokens=_whole(value["tokens"]),
            found=tuple(_found(one) for one in _list(value["found"])),
            omitted=_whole(value["omitted"]),
            gaps=tuple(str(gap) for gap in _list(value["gaps"])),
            legs=tuple(_leg(_list(leg)) for leg in _list(value["legs"])),
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise Invalid(f"not a receipt ({type(cause).__name__})") from cause


def _found_json(one: Found) -> dict[str, JsonValue]:
    scores = one.scores
    short = replace(
        scores,
        fused=round(scores.fused, DIGITS),
        lexical=round(scores.lexical, DIGITS),
        dense=None if scores.dense is None else round(scores.dense, DIGITS),
        exact=round(scores.exact, DIGITS),
        coverage=round(scores.coverage, DIGITS),
        margin=round(scores.margin, DIGITS),
    )
    return {
        "key": one.document_key,
        "cut": one.cut,
        "truncated": one.truncated,
        "scores": scores_json(short),
    }


def _found(value: JsonValue) -> Found:
    if not isinstance(value, Mapping):
        raise TypeError("not an object")
    cut = value["cut"]
    return Found(
        document_key=str(value["key"]),
        scores=scores_from(value["scores"]),
        cut=None if cut is None else cut_named(cut),
        truncated=value["truncated"] is True,
    )


def _leg(parts: Sequence[JsonValue]) -> Leg:
    name, candidates, ms, gap = parts
    return Leg(name=str(name), candidates=_whole(candidates), ms=_number(ms), gap=str(gap))


def _list(value: JsonValue) -> Sequence[JsonValue]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return value


def _whole(value: JsonValue) -> int:
    if not isinstance(value, int):
        raise TypeError("not a whole number")
    return value


def _number(value: JsonValue) -> float:
    if not isinstance(value, int | float):
        raise TypeError("not a number")
    return float(value)


def _word(value: JsonValue) -> Status:
    for known in _STATUSES:
        if value == known:
            return known
    raise ValueError("unknown status")
