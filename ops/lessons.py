"""Facts as people read them: the statement, the words behind it, and the line they stand on.

Owns gathering them from one snapshot and their two forms (table rows, JSON). Leaves choosing which
facts to show to the verbs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ops.output import moment_json, styled
from storage.authority.reads import Reads
from storage.clock import utc_day
from storage.records import TERMINAL_STANDINGS, Evidence, Fact, JsonValue, SourceRef, Standing

if TYPE_CHECKING:
    from rich.text import Text

STANDING_STYLES = {
    Standing.SUPPORTED: "green",
    Standing.CANDIDATE: "yellow",
    Standing.NEEDS_REVIEW: "yellow",
    Standing.CONTRADICTED: "red",
    Standing.SUPERSEDED: "dim",
}


@dataclass(frozen=True, slots=True)
class Lesson:
    """One fact and the quotes behind it, oldest first."""

    fact: Fact
    evidence: tuple[Evidence, ...]

    @property
    def quote(self) -> str:
        """The first words it rests on."""
        return self.evidence[0].excerpt if self.evidence else ""

    @property
    def where(self) -> str:
        """`file:line` of the first quote, and how many more there are."""
        if not self.evidence:
            return ""
        more = len(self.evidence) - 1
        return place(self.evidence[0].source) + (f" (+{more})" if more else "")


def place(source: SourceRef) -> str:
    """`file:line`, the user's own folder shortened to `~`."""
    locator = source.locator
    home = str(Path.home())
    if locator.startswith(home + "/"):
        locator = "~" + locator.removeprefix(home)
    return f"{locator}:{source.line}" if source.line else locator


def lessons_of(reads: Reads, facts: Iterable[Fact]) -> list[Lesson]:
    """The facts with their evidence, from the same snapshot."""
    return [Lesson(fact, tuple(reads.evidence(fact.fact_id))) for fact in facts]


def rows(lessons: Sequence[Lesson]) -> list[tuple[str | Text, ...]]:
    """The kind beside what was learned, the words where they differ from it, and their place."""
    return [
        (
            styled(lesson.fact.kind.value, STANDING_STYLES[lesson.fact.standing]),
            _told(lesson),
        )
        for lesson in lessons
    ]


def fact_rows(lessons: Sequence[Lesson]) -> list[tuple[str | Text, ...]]:
    """The kind beside the statement, its standing, when it holds, and its id."""
    return [(lesson.fact.kind.value, _judged(lesson.fact)) for lesson in lessons]


def newest_first(facts: Iterable[Fact]) -> list[Fact]:
    """By when it was learned, then by when it was said."""
    return sorted(facts, key=lambda fact: (-fact.recorded_at, -fact.valid_at, fact.fact_id))


def _judged(fact: Fact) -> Text:
    ended = fact.standing in TERMINAL_STANDINGS
    judged = styled(fact.statement, "dim" if ended else "")
    judged.append("\n").append_text(styled(fact.standing.value, STANDING_STYLES[fact.standing]))
    return judged.append_text(styled(f" {validity(fact)}, {fact.fact_id[:12]}", "dim"))


def _told(lesson: Lesson) -> Text:
    told = styled(lesson.fact.statement)
    if lesson.quote.strip() != lesson.fact.statement.strip():
        told.append("\n").append_text(styled(f"“{shortened(lesson.quote)}”", "dim"))
    if lesson.where:
        told.append("\n").append_text(styled(lesson.where, "dim"))
    return told


def shortened(text: str, most: int = 200) -> str:
    """`text`, its end left out when it is long."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def validity(fact: Fact) -> str:
    """When the fact holds: `since DATE`, or `DATE to DATE`."""
    since = utc_day(fact.valid_at)
    return f"since {since}" if fact.invalid_at is None else f"{since} to {utc_day(fact.invalid_at)}"


def lesson_json(lesson: Lesson) -> dict[str, JsonValue]:
    """One fact for programs."""
    fact = lesson.fact
    return {
        "fact_id": fact.fact_id,
        "kind": fact.kind.value,
        "statement": fact.statement,
        "standing": fact.standing.value,
        "confidence": fact.confidence,
        "valid_at": moment_json(fact.valid_at),
        "invalid_at": moment_json(fact.invalid_at),
        "recorded_at": moment_json(fact.recorded_at),
        "expired_at": moment_json(fact.expired_at),
        "supersedes": list(fact.supersedes),
        "analyst": fact.analyst,
        "evidence": [
            {
                "quote": item.excerpt,
                "origin": item.origin.value,
                "adapter": item.source.adapter,
                "file": item.source.locator,
                "line": item.source.line,
                "observed_at": moment_json(item.observed_at),
            }
            for item in lesson.evidence
        ],
    }
