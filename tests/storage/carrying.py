"""A memory with a bit of everything, to be backed up and carried elsewhere."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from storage.authority import ProjectAuthority
from storage.authority import payloads as say
from storage.records import (
    DeferredStatement,
    FactKind,
    ProjectId,
    RedactedText,
)
from tests.storage.memory_samples import (
    T0,
    a_document,
    a_fact,
    a_quote,
    dump,
    opened,
)

OTHER = ProjectId("p_ffffffffffff")


def fill(store: ProjectAuthority) -> None:
    old = a_fact("Use npm.")
    store.append([say.fact_recorded(old, [a_quote("npm", line=1)])])
    new = a_fact("Use pnpm.", supersedes=[old.fact_id], valid_at=T0 + 5)
    store.append([say.fact_recorded(new, [a_quote("pnpm", line=2)])])
    store.append([say.document_upserted(a_document())])
    store.append([say.retrieval_feedback(new.fact_id, "helpful")])
    store.append(
        [
            say.statement_deferred(
                DeferredStatement(
                    statement_id="st_1",
                    kind=FactKind.DECISION,
                    original=RedactedText("nimm pnpm"),
                    lang="de",
                    evidence=a_quote("nimm pnpm", line=3),
                    deferred_at=T0,
                )
            )
        ]
    )


def state(home: Path) -> dict[str, list[object]]:
    with closing(opened(home, create=False)) as store, store.read() as reads:
        return dump(reads)
