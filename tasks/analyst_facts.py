"""From proposals to events: identity, evidence, language, and what a new statement replaces.

Owns the rules of one batch against one snapshot: the same statement becomes another quote, the same
utterance copied into another file becomes nothing, a statement in another language waits for its
translation, "use B, not A" ends "use A", whichever of the two was read first. Everything goes
through admission; what that refuses is dropped with its reason, never silently.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from storage import statements
from storage.admission import (
    MAX_EVIDENCE,
    admit_declaration,
    admit_evidence,
    admit_fact,
    admit_tool_result,
)
from storage.authority import payloads
from storage.authority.facts import STRONG
from storage.authority.reads import Reads
from storage.errors import Refused
from storage.events import EventDraft
from storage.language import detect
from storage.records import (
    TERMINAL_STANDINGS,
    DeferredStatement,
    Evidence,
    Fact,
    FactId,
    FactKind,
    Origin,
    ProjectId,
    RedactedText,
    SourceRef,
    Standing,
    digest_of,
    fact_id,
)
from storage.redaction import is_learnable
from storage.replacement import forbids, replaces, terms
from tasks.analyst import NAME, Proposal
from tasks.analyst_model import ModelFact

MAX_SUPERSEDES: Final = 32
_REPLACED: Final = RedactedText("a later statement replaces it")
_RULES: Final = frozenset(
    {FactKind.CORRECTION, FactKind.DECISION, FactKind.PREFERENCE, FactKind.CONSTRAINT}
)
"""Kinds whose statements may end another."""


@dataclass(slots=True)
class _Known:
    """A fact as this batch will leave it."""

    fact_id: FactId
    kind: FactKind
    statement: str
    valid_at: int
    ended_at: int | None
    remedy: str
    evidence: list[Evidence]

    @property
    def is_strong(self) -> bool:
        return any(item.provenance in STRONG for item in self.evidence)


@dataclass(slots=True)
class Intake:
    """One batch being put together against one snapshot."""

    reads: Reads
    project: ProjectId
    now: int
    drafts: list[EventDraft] = field(default_factory=list)
    recorded: int = 0
    corroborated: int = 0
    superseded: int = 0
    deferred: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    _facts: dict[FactId, _Known | None] = field(default_factory=dict)
    _waiting: dict[str, DeferredStatement] | None = None

    def add(self, proposal: Proposal) -> None:
        """Take one extractive proposal."""
        at = proposal.at or self.now
        try:
            statement, evidence = _admitted(proposal, at)
        except Refused:
            self.dropped["refused"] += 1
            return
        if proposal.declared and not (verdict := detect(statement)).english:
            self.defer(proposal.kind, statement, verdict.lang, evidence, at)
            return
        self.record(
            original=statement,
            statement=statement,
            kind=proposal.kind,
            evidence=[evidence],
            at=at,
            confidence=1.0 if proposal.declared else 0.9,
            tags=dict(proposal.tags),
            analyst=NAME,
        )

    def add_imported(self, fact: ModelFact, adapter: str, locator: str, analyst: str) -> None:
        """Take a model's fact: knowledge that waits for review until stronger words agree."""
        at = fact.shown.at or self.now
        source = SourceRef(
            adapter=adapter,
            locator=locator,
            line=fact.shown.number,
            session_id=fact.shown.session_id,
        )
        try:
            evidence = admit_evidence(
                fact.excerpt, origin=Origin.IMPORTED_SOURCE, source=source, observed_at=at
            )
        except Refused:
            self.dropped["refused"] += 1
            return
        self.record(
            original=fact.statement,
            statement=fact.statement,
            kind=fact.kind,
            evidence=[evidence],
            at=at,
            confidence=fact.confidence,
            tags={},
            analyst=analyst,
        )

    def record(
        self,
        *,
        original: str,
        statement: str,
        kind: FactKind,
        evidence: list[Evidence],
        at: int,
        confidence: float,
        tags: dict[str, str],
        analyst: str,
    ) -> FactId | None:
        """A fact, or more quotes for the one that is there; None when admission refused it."""
        identity, known = self._identity(kind, original, at, evidence)
        if known is not None:
            self._corroborate(known, evidence)
            return identity
        rejects = terms(statement).rejects if kind in _RULES else frozenset()
        if rejects:
            tags[statements.REJECTS_TAG] = "|".join(sorted(rejects))[:500]
        replaced = self._replaced(identity, statement, rejects, at)
        try:
            fact = admit_fact(
                fact_id=identity,
                kind=kind,
                statement=statement,
                evidence=evidence[:MAX_EVIDENCE],
                valid_at=at,
                recorded_at=self.now,
                confidence=confidence,
                standing=Standing.SUPPORTED,
                supersedes=[old.fact_id for old in replaced],
                tags=tags,
                analyst=analyst,
            )
        except Refused:
            self.dropped["refused"] += 1
            return None
        self._record(fact, evidence, replaced)
        return identity

    def defer(self, kind: FactKind, original: str, lang: str, evidence: Evidence, at: int) -> None:
        """Let a statement wait for its translation, or quote it again when it was translated."""
        identity, known = self._identity(kind, original, at, [evidence])
        if known is not None:
            self._corroborate(known, [evidence])
            return
        waiting = self._deferred()
        statement_id = "st_" + digest_of(identity, evidence.evidence_id)[:32]
        if statement_id in waiting or any(
            _is_copy(evidence, other.evidence) for other in waiting.values()
        ):
            return
        statement = DeferredStatement(
            statement_id=statement_id,
            kind=kind,
            original=RedactedText(original),
            lang=lang,
            evidence=evidence,
            deferred_at=self.now,
        )
        waiting[statement_id] = statement
        self.drafts.append(payloads.statement_deferred(statement))
        self.deferred.append(statement_id)

    def _identity(
        self, kind: FactKind, original: str, at: int, evidence: list[Evidence]
    ) -> tuple[FactId, _Known | None]:
        """The id of a statement; said again after its end, it is a new fact with its own id."""
        turn = 1
        while True:
            wording = original if turn == 1 else f"{original}\n{turn}"
            identity = fact_id(self.project, kind, wording)
            known = self._known(identity)
            if known is None or known.ended_at is None or at <= known.ended_at:
                return identity, known
            if any(
                item.evidence_id == quote.evidence_id
                for item in known.evidence
                for quote in evidence
            ):
                return identity, known
            turn += 1

    def _corroborate(self, known: _Known, evidence: list[Evidence]) -> None:
        for quote in evidence:
            if any(_is_copy(quote, other) for other in known.evidence):
                continue
            known.evidence.append(quote)
            self.drafts.append(payloads.fact_corroborated(known.fact_id, quote))
            self.corroborated += 1

    def _record(self, fact: Fact, evidence: list[Evidence], replaced: list[_Known]) -> None:
        self.drafts.extend(payloads.fact_recorded_in_parts(fact, evidence))
        self.recorded += 1
        for old in replaced:
            old.ended_at = fact.valid_at
            self.superseded += 1
        remedy = fact.tags.get("remedy", "")
        known = _Known(
            fact.fact_id, fact.kind, fact.statement, fact.valid_at, None, remedy, list(evidence)
        )
        self._facts[fact.fact_id] = known
        later = self._later_rule(known)
        if later is not None:
            known.ended_at = later.valid_at
            self.superseded += 1
            self.drafts.append(
                payloads.fact_resolved(
                    fact.fact_id,
                    Standing.SUPERSEDED,
                    later.valid_at,
                    _REPLACED,
                    replacement=later.fact_id,
                )
            )

    def _replaced(
        self, identity: FactId, statement: str, rejects: frozenset[str], at: int
    ) -> list[_Known]:
        """Current facts, not younger and strongly supported, that the statement ends."""
        found: dict[FactId, _Known] = {}
        for term in sorted(rejects):
            rows = (row.fact_id for row in statements.mentioning(self.reads, term))
            for candidate in [*rows, *self._facts]:
                old = self._known(candidate)
                if (
                    old is not None
                    and old.fact_id != identity
                    and old.ended_at is None
                    and old.valid_at <= at
                    and old.is_strong
                    and _ends(statement, old)
                ):
                    found[old.fact_id] = old
        return list(found.values())[:MAX_SUPERSEDES]

    def _later_rule(self, fresh: _Known) -> _Known | None:
        """The first younger statement that ends this one: sources are not read in order of time."""
        rows = [row.fact_id for row in statements.rejecting(self.reads, fresh.valid_at)]
        for candidate in [*rows, *self._facts]:
            rule = self._known(candidate)
            if (
                rule is not None
                and rule.fact_id != fresh.fact_id
                and rule.kind in _RULES
                and rule.valid_at > fresh.valid_at
                and rule.ended_at is None
                and _ends(rule.statement, fresh)
            ):
                return rule
        return None

    def _known(self, identity: FactId) -> _Known | None:
        if identity not in self._facts:
            fact = self.reads.fact(identity)
            self._facts[identity] = None if fact is None else _known(fact, self.reads)
        return self._facts[identity]

    def _deferred(self) -> dict[str, DeferredStatement]:
        if self._waiting is None:
            self._waiting = {item.statement_id: item for item in self.reads.deferred()}
        return self._waiting


def _known(fact: Fact, reads: Reads) -> _Known:
    ended = fact.invalid_at
    if ended is None and fact.standing in TERMINAL_STANDINGS:
        ended = fact.expired_at or fact.recorded_at
    return _Known(
        fact.fact_id,
        fact.kind,
        fact.statement,
        fact.valid_at,
        ended,
        fact.tags.get("remedy", ""),
        reads.evidence(fact.fact_id),
    )


def _admitted(proposal: Proposal, at: int) -> tuple[RedactedText, Evidence]:
    """The redacted statement and its quote.

    Raises:
        Refused: out of bounds, or a statement that holds, or lost, a credential.
    """
    if not is_learnable(proposal.statement):
        raise Refused("a statement with a hole where a credential was teaches nothing")
    if proposal.declared:
        declared = admit_declaration(
            proposal.statement, proposal.excerpt, source=proposal.source, observed_at=at
        )
        return declared.statement, declared.evidence
    evidence = admit_tool_result(
        proposal.excerpt,
        source=proposal.source,
        tool_call_id=proposal.tool_call_id or f"line-{proposal.source.line}",
        observed_at=at,
    )
    return RedactedText(proposal.statement), evidence


def _ends(statement: str, old: _Known) -> bool:
    if old.kind is FactKind.PROCEDURE and old.remedy:
        return forbids(statement, old.remedy)
    return replaces(statement, old.statement)


def _is_copy(quote: Evidence, other: Evidence) -> bool:
    """One utterance: the same line, or the same words at the same millisecond by the same adapter.

    Forks and resumed sessions copy entries into new files with their times.
    """
    if quote.evidence_id == other.evidence_id:
        return True
    return (
        quote.source.adapter == other.source.adapter
        and quote.observed_at == other.observed_at
        and quote.excerpt == other.excerpt
    )
