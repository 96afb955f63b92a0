"""Mechanical consolidation: one statement, one fact. No model, no new words.

Facts that say the same in the same words fold into the best supported one, which takes over their
evidence. Near duplicates are only proposed: a fact that no strong evidence carries is marked for
review, a declared one is never touched. Running it again changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from storage import statements
from storage.authority import payloads
from storage.authority.reads import Reads
from storage.events import EventDraft
from storage.jobs import JobKind, JobSpec, Priority
from storage.records import FactId, JsonValue, RedactedText, Standing, statement_key
from storage.statements import Row
from storage.terms import terms
from tasks.commit import commit
from tasks.context import Context, Finished

NEAR: Final = 0.85
"""Jaccard overlap of terms from which two statements of one kind are near duplicates."""
MIN_TERMS: Final = 4
BATCH: Final = 200
_RANK: Final = {Standing.SUPPORTED: 0, Standing.CANDIDATE: 1, Standing.NEEDS_REVIEW: 2}
_SAME: Final = RedactedText("the same statement, better supported")
_NEAR: Final = RedactedText("nearly the same as another statement")


@dataclass(frozen=True, slots=True)
class _Plan:
    folds: list[tuple[Row, Row]]
    """(weaker, best)."""
    reviews: list[tuple[Row, Row]]


def run(context: Context, args: Mapping[str, JsonValue]) -> Finished:
    """Fold and propose, at most one batch."""
    authority = context.open_authority()
    now = context.clock.now_ms()

    def build(reads: Reads) -> tuple[tuple[int, _Plan], Sequence[EventDraft]]:
        rows = list(statements.current(reads))
        plan = _plan(reads, rows)
        return (len(rows), plan), list(_drafts(reads, plan, now))

    again = JobSpec(
        kind=JobKind.CONSOLIDATE, project=context.project, priority=Priority.MAINTENANCE
    )
    done = commit(context, authority, build)
    if done is None:
        return Finished(successors=(again,), note="was applied")
    count, plan = done
    if not plan.folds and not plan.reviews:
        return Finished(note=f"{count} facts, nothing to fold")
    full = len(plan.folds) + len(plan.reviews) >= BATCH
    return Finished(
        successors=(again,) if full else (),
        note=f"{len(plan.folds)} folded, {len(plan.reviews)} proposed for review",
    )


def _plan(reads: Reads, rows: Sequence[Row]) -> _Plan:
    folds: list[tuple[Row, Row]] = []
    survivors: list[Row] = []
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.kind.value, statement_key(row.statement)].append(row)
    for group in groups.values():
        best = group[0] if len(group) == 1 else min(group, key=lambda row: _order(reads, row))
        survivors.append(best)
        folds += [(row, best) for row in group if row is not best]
    reviews = [
        (weaker, other)
        for weaker, other in _near(survivors)
        if weaker.standing is Standing.CANDIDATE
    ]
    return _Plan(folds[:BATCH], reviews[: max(0, BATCH - len(folds))])


def _order(reads: Reads, row: Row) -> tuple[int, int, int, FactId]:
    """Best first: standing, then evidence, then age."""
    count = statements.evidence_count(reads, row.fact_id)
    return _RANK[row.standing], -count, row.valid_at, row.fact_id


def _drafts(reads: Reads, plan: _Plan, now: int) -> Iterator[EventDraft]:
    for weaker, best in plan.folds:
        for quote in reads.evidence(weaker.fact_id):
            yield payloads.fact_corroborated(best.fact_id, quote)
        yield payloads.fact_resolved(
            weaker.fact_id,
            Standing.SUPERSEDED,
            max(now, weaker.valid_at),
            _SAME,
            replacement=best.fact_id,
        )
    for weaker, _ in plan.reviews:
        yield payloads.fact_resolved(weaker.fact_id, Standing.NEEDS_REVIEW, now, _NEAR)


def _near(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """(weaker, other) pairs of near duplicates of one kind, each weaker one once.

    Prefix filtering (Chaudhuri, Ganti, Kaushik 2006): two sets that overlap by `NEAR` share one of
    their rarest terms, so only those are looked up, not every pair compared.
    """
    sets = [frozenset(terms(row.statement)) for row in rows]
    frequency = Counter(term for found in sets for term in found)
    seen: dict[tuple[str, str], list[int]] = defaultdict(list)
    order = sorted(range(len(rows)), key=lambda i: (_RANK[rows[i].standing], rows[i].valid_at, i))
    for index in order:
        found = sets[index]
        if len(found) < MIN_TERMS:
            continue
        rarest = _prefix(found, frequency)
        candidates = {other for term in rarest for other in seen[rows[index].kind.value, term]}
        match = next(
            (other for other in sorted(candidates) if _overlap(found, sets[other]) >= NEAR), None
        )
        if match is not None:
            yield rows[index], rows[match]
        for term in rarest:
            seen[rows[index].kind.value, term].append(index)


def _prefix(found: Iterable[str], frequency: Mapping[str, int]) -> list[str]:
    ordered = sorted(found, key=lambda term: (frequency[term], term))
    return ordered[: len(ordered) - ceil(NEAR * len(ordered)) + 1]


def _overlap(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b)
