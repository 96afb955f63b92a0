"""The files of an evaluation: texts, questions and which text answers which question.

JSON lines with `id` and `text` (or `query`); the field names of public collections (`_id`, `text`)
are understood too. Owns reading and checking them; promises that an error names file and line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from storage.clock import parse_instant
from storage.errors import Invalid
from storage.records import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusText:
    """One text to remember."""

    id: str
    text: str
    title: str = ""
    observed_at: int | None = None
    valid_to: int | None = None
    source: str = ""
    session: str = ""
    order: int | None = None
    lang: str = ""
    group: str = ""
    """Texts of one group make one memory; a question asks the memory of its own group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalQuery:
    """One question."""

    id: str
    query: str
    expansions: tuple[str, ...] = ()
    as_of: int | None = None
    kind: str = ""
    lang: str = ""
    group: str = ""


def read_corpus(path: Path) -> list[CorpusText]:
    """The texts, in the file's order.

    Raises:
        Invalid: a line is not such a text, or an id stands twice.
    """
    texts = [_text(entry, where) for where, entry in _entries(path)]
    _distinct(path, [text.id for text in texts])
    return texts


def read_queries(path: Path) -> list[EvalQuery]:
    """The questions, in the file's order.

    Raises:
        Invalid: as `read_corpus`.
    """
    queries = [_query(entry, where) for where, entry in _entries(path)]
    _distinct(path, [query.id for query in queries])
    return queries


def read_qrels(path: Path) -> dict[str, frozenset[str]]:
    """Question id to the ids of its answers: `query TAB document [TAB grade]`, grade 0 = none.

    Raises:
        Invalid: a line has fewer than two columns.
    """
    answers: dict[str, set[str]] = {}
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        columns = line.split("\t")
        if len(columns) < 2:
            raise Invalid(f"{path.name}:{number}: expected query TAB document TAB grade")
        if len(columns) < 3 or columns[2].strip() != "0":
            answers.setdefault(columns[0], set()).add(columns[1])
    return {query: frozenset(found) for query, found in answers.items()}


def read_results(path: Path) -> list[Mapping[str, JsonValue]]:
    """The lines that `ops eval run` wrote.

    Raises:
        Invalid: a line is not a JSON object.
    """
    return [entry for _, entry in _entries(path)]


def read_ids(path: Path) -> frozenset[str]:
    """One id a line."""
    return frozenset(line.strip() for line in path.read_text("utf-8").splitlines() if line.strip())


def _entries(path: Path) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        where = f"{path.name}:{number}"
        try:
            entry = json.loads(line)
        except ValueError as cause:
            raise Invalid(f"{where}: not JSON") from cause
        if not isinstance(entry, dict):
            raise Invalid(f"{where}: not an object")
        yield where, entry


def _text(entry: Mapping[str, JsonValue], where: str) -> CorpusText:
    order = entry.get("order")
    observed = _instant(entry, where, "observed_at")
    if observed is None and isinstance(date := entry.get("date"), str):
        observed = spoken_date(date)
    return CorpusText(
        id=_required(entry, where, "id", "_id"),
        text=_required(entry, where, "text"),
        title=_string(entry, "title"),
        observed_at=observed,
        valid_to=_instant(entry, where, "valid_to"),
        source=_string(entry, "source"),
        session=_string(entry, "session"),
        order=order if isinstance(order, int) and not isinstance(order, bool) else None,
        lang=_string(entry, "lang"),
        group=_string(entry, "group"),
    )


def _query(entry: Mapping[str, JsonValue], where: str) -> EvalQuery:
    expansions = entry.get("expansions") or ()
    if isinstance(expansions, str) or not isinstance(expansions, Sequence):
        raise Invalid(f"{where}: expansions are a list of texts")
    return EvalQuery(
        id=_required(entry, where, "id", "_id"),
        query=_required(entry, where, "query", "text"),
        expansions=tuple(str(item) for item in expansions),
        as_of=_instant(entry, where, "as_of"),
        kind=_string(entry, "kind") or _string(entry, "category"),
        lang=_string(entry, "lang"),
        group=_string(entry, "group"),
    )


def spoken_date(written: str) -> int | None:
    """UTC ms of "1:56 pm on 8 May, 2023"; None for anything else."""
    try:
        found = datetime.strptime(written.strip(), "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(found.timestamp() * 1000)


def _required(entry: Mapping[str, JsonValue], where: str, *names: str) -> str:
    for name in names:
        value = entry.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str):
            return value
    raise Invalid(f"{where}: {names[0]} is missing")


def _string(entry: Mapping[str, JsonValue], name: str) -> str:
    value = entry.get(name)
    return "" if value is None else str(value)


def _instant(entry: Mapping[str, JsonValue], where: str, name: str) -> int | None:
    value = entry.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Invalid(f"{where}: {name} is neither UTC milliseconds nor a date")
    return int(value) if isinstance(value, int | float) else parse_instant(value)


def _distinct(path: Path, ids: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise Invalid(f"{path.name}: the id {name!r} stands twice")
        seen.add(name)
