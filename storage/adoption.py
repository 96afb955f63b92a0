"""Facts that come from another project's memory, under the ids that this project gives them.

An id is keyed on the project and the original wording. Taken in under its old id, a fact that this
project learns by itself later would be there twice. So wherever the wording is still to be found
(the statement, or a quote that was translated), the fact takes the id that it would have had here;
links follow. A fact whose wording is found nowhere keeps its id. Works on values only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from storage.authority.restated import WholeFact
from storage.records import DeferredStatement, FactId, ProjectId, fact_id

TURNS: Final = 8
"""A wording that was said again after its end has a number behind it; more are not looked for."""


def ids_here(
    facts: Iterable[WholeFact], source: ProjectId, project: ProjectId
) -> dict[FactId, FactId]:
    """The id in `project` of each fact of `source` whose wording is found."""
    if source == project:
        return {}
    found = ((item.fact.fact_id, _id_here(item, source, project)) for item in facts)
    return {old: new for old, new in found if new is not None}


def moved(item: WholeFact, ids: Mapping[FactId, FactId]) -> WholeFact:
    """The fact and its links under the ids of here."""
    fact = item.fact
    links = tuple((ids.get(FactId(to), FactId(to)), link, at) for to, link, at in item.links)
    own = replace(
        fact, fact_id=ids.get(fact.fact_id, fact.fact_id), supersedes=_moved(fact.supersedes, ids)
    )
    return replace(item, fact=own, links=links)


def moved_statement(item: DeferredStatement, ids: Mapping[FactId, FactId]) -> DeferredStatement:
    """The waiting statement, naming what it replaces by the ids of here."""
    return replace(item, supersedes=_moved(item.supersedes, ids))


def _moved(names: Sequence[FactId], ids: Mapping[FactId, FactId]) -> tuple[FactId, ...]:
    return tuple(ids.get(name, name) for name in names)


def _id_here(item: WholeFact, source: ProjectId, project: ProjectId) -> FactId | None:
    kind = item.fact.kind
    for wording in (item.fact.statement, *(quote.excerpt for quote in item.evidence)):
        for turn in range(1, TURNS + 1):
            said = wording if turn == 1 else f"{wording}\n{turn}"
            if fact_id(source, kind, said) == item.fact.fact_id:
                return fact_id(project, kind, said)
    return None
