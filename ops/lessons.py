"""Facts as people read them: the statement, why it counts, the words behind it, and their line.

Owns gathering them from one snapshot, what "known now" means for every verb, and their two forms
(table rows, JSON). Leaves choosing which facts to show to the verbs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ops.ids import bare, shortened_to
from ops.originals import original_of
from ops.output import duration, moment_json, styled
from ops.reasons import rule_of, why_it_counts
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
UNSURE = {
    Standing.CANDIDATE: "not confirmed yet",
    Standing.NEEDS_REVIEW: "somebody should look at it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """One fact and the quotes behind it, oldest first."""

    fact: Fact
    evidence: tuple[Evidence, ...]
    short: str
    """Its id as people see and type it."""
    replaced_by: str = ""
    """Short id of the fact that took its place."""

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

    @property
    def why(self) -> str:
        """What made it count."""
        return why_it_counts(self.fact, self.evidence)


def place(source: SourceRef) -> str:
    """`file:line`, the user's own folder shortened to `~`."""
    locator = original_of(source.locator)
    home = str(Path.home())
    if locator.startswith(home + "/"):
        locator = "~" + locator.removeprefix(home)
    return f"{locator}:{source.line}" if source.line else locator


def known(facts: Iterable[Fact]) -> list[Fact]:
    """What nothing has ended: what every verb counts and shows as known.

    A fact dated after now (the clock of the machine that said it was ahead) is known too.
    """
    return [fact for fact in facts if fact.standing not in TERMINAL_STANDINGS]


def lessons_of(
    reads: Reads, facts: Iterable[Fact], among: Sequence[Fact] | None = None
) -> list[Lesson]:
    """The facts with their evidence, from the same snapshot; `among` are all facts, if read."""
    everything = reads.facts() if among is None else among
    length = shortened_to(fact.fact_id for fact in everything)
    heirs = {old: heir.fact_id for heir in everything for old in heir.supersedes}
    return [
        Lesson(
            fact=fact,
            evidence=tuple(reads.evidence(fact.fact_id)),
            short=bare(fact.fact_id)[:length],
            replaced_by=bare(heirs.get(fact.fact_id, ""))[:length],
        )
        for fact in facts
    ]


def rows(lessons: Sequence[Lesson], now: int | None = None) -> list[tuple[str | Text, ...]]:
    """The kind beside what was learned, the words behind it, why it counts, and their place."""
    return [
        (
            styled(lesson.fact.kind.value, STANDING_STYLES[lesson.fact.standing]),
            _told(lesson, now),
        )
        for lesson in lessons
    ]


def fact_rows(lessons: Sequence[Lesson]) -> list[tuple[str | Text, ...]]:
    """The kind beside the statement, its standing, when it holds, and its id."""
    return [(lesson.fact.kind.value, _judged(lesson)) for lesson in lessons]


def newest_first(facts: Iterable[Fact]) -> list[Fact]:
    """By when it was learned, then by when it was said."""
    return sorted(facts, key=lambda fact: (-fact.recorded_at, -fact.valid_at, fact.fact_id))


def dossier(lesson: Lesson, olds: Mapping[str, Fact]) -> Iterator[tuple[str, str]]:
    """Everything about one fact, as names and values; `olds` are the facts by id."""
    fact = lesson.fact
    yield fact.kind.value, fact.statement
    yield "id", f"{lesson.short} (all of it: {fact.fact_id})"
    yield "standing", " ".join((fact.standing.value, ended(lesson))).strip()
    yield "holds", validity(fact)
    yield "learned", utc_day(fact.recorded_at)
    yield "why", f"{lesson.why}; proposed by {rule_of(fact)}"
    for item in lesson.evidence:
        yield "said", f"“{item.excerpt}”"
        yield "", f"{utc_day(item.observed_at)}, {place(item.source)}"
    for old in fact.supersedes:
        was = olds[old].statement if old in olds else "a fact that was forgotten"
        yield "replaced", f"“{was}” ({bare(old)[: len(lesson.short)]})"


def ended(lesson: Lesson) -> str:
    """How it ended, in words; "" while it holds."""
    if lesson.replaced_by:
        return f"replaced by {lesson.replaced_by}"
    return "no longer holds" if lesson.fact.standing in TERMINAL_STANDINGS else ""


def _judged(lesson: Lesson) -> Text:
    fact = lesson.fact
    over = fact.standing in TERMINAL_STANDINGS
    judged = styled(fact.statement, "dim" if over else "")
    judged.append("\n").append_text(styled(fact.standing.value, STANDING_STYLES[fact.standing]))
    told = [f" {validity(fact)}", ended(lesson) if lesson.replaced_by else "", lesson.short]
    return judged.append_text(styled(", ".join(part for part in told if part), "dim"))


def _told(lesson: Lesson, now: int | None) -> Text:
    over = ended(lesson)
    told = styled(lesson.fact.statement, "dim strike" if over else "")
    if over:
        told.append("\n").append_text(styled(over, "yellow"))
    if lesson.quote:
        told.append("\n").append_text(styled(f"“{shortened(lesson.quote)}”", "dim"))
    said = lesson.evidence[0].observed_at if lesson.evidence else lesson.fact.valid_at
    age = f"{when(said, now)}; " if now is not None else ""
    unsure = UNSURE.get(lesson.fact.standing, "")
    line = f"{age}{lesson.why}" + (f" ({unsure})" if unsure else "") + f"; {lesson.short}"
    told.append("\n").append_text(styled(line, "dim"))
    if lesson.where:
        told.append("\n").append_text(styled(lesson.where, "dim"))
    return told


def when(at: int, now: int) -> str:
    """A day and how long ago it was; one ahead of our clock says so."""
    if at > now:
        return f"{utc_day(at)} (ahead of this machine's clock)"
    return f"{utc_day(at)} ({duration(now - at)} ago)"


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
        "short_id": lesson.short,
        "kind": fact.kind.value,
        "statement": fact.statement,
        "standing": fact.standing.value,
        "confidence": fact.confidence,
        "valid_at": moment_json(fact.valid_at),
        "invalid_at": moment_json(fact.invalid_at),
        "recorded_at": moment_json(fact.recorded_at),
        "expired_at": moment_json(fact.expired_at),
        "supersedes": list(fact.supersedes),
        "replaced_by": lesson.replaced_by or None,
        "analyst": fact.analyst,
        "why": lesson.why,
        "rule": rule_of(fact),
        "evidence": [
            {
                "quote": item.excerpt,
                "origin": item.origin.value,
                "adapter": item.source.adapter,
                "file": original_of(item.source.locator),
                "line": item.source.line,
                "observed_at": moment_json(item.observed_at),
            }
            for item in lesson.evidence
        ],
    }
