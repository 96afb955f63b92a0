"""What the authority does to its disk, one act each, and the stores that acts start from.

Every act has an old and a new state and nothing between; each is small, so that the states a power
cut may leave can be tried in great number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import apsw

from storage.authority import Container, ProjectAuthority, open_authority
from storage.authority import payloads as say
from storage.clock import DAY_MS
from storage.config import StorageSettings
from storage.events import EventDraft
from storage.paths import HomePaths, ProjectPaths
from storage.records import (
    Collection,
    Document,
    Evidence,
    Fact,
    FactId,
    FactKind,
    JobStamp,
    Origin,
    ProjectId,
    Provenance,
    RedactedText,
    SourceRef,
    Standing,
    Trust,
    evidence_id,
    fact_id,
)

PROJECT: Final = ProjectId("p_chaos0000000")
AT: Final = 1_800_000_000_000
COLLECTION: Final = Collection(model="chaos", dims=8, fingerprint="chaos", scale=100.0)
ROOMY: Final = StorageSettings(
    compact_max_raw_bytes=1 << 30, compact_max_stored_bytes=1 << 30, compact_max_chunks=1 << 30
)


class StillClock:
    """Time stands: two runs of one act write the same."""

    def __init__(self, at: int = AT) -> None:
        self._at = at

    def now_ms(self) -> int:
        return self._at

    def boot_ms(self) -> int:
        return AT

    def boot_id(self) -> str:
        return "chaos"


@dataclass(frozen=True, slots=True)
class Place:
    """A home with one store."""

    home: Path

    @property
    def paths(self) -> ProjectPaths:
        return HomePaths(self.home).project(PROJECT)

    def open(
        self, *, create: bool = False, container: Container = "compact", at: int = AT
    ) -> ProjectAuthority:
        """A handle of its own."""
        return open_authority(
            self.paths,
            PROJECT,
            clock=StillClock(at),
            settings=ROOMY,
            create=create,
            create_container=container,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One act on a prepared store."""

    name: str
    container: Container
    do: Callable[[Place, ProjectAuthority], None]
    prepare: Callable[[Place], None]
    passing: frozenset[str] = frozenset()
    """What `verify` may say besides, between the old state and the new one."""
    promotes: bool = False


def a_fact(number: int, supersedes: Sequence[FactId] = ()) -> Fact:
    """One of a row of facts."""
    statement = RedactedText(f"Rule {number}: packages are installed with tool {number}.")
    return Fact(
        fact_id=fact_id(PROJECT, FactKind.DECISION, statement),
        kind=FactKind.DECISION,
        statement=statement,
        standing=Standing.SUPPORTED,
        confidence=0.8,
        valid_at=AT - 1_000 + number,
        recorded_at=AT,
        supersedes=tuple(supersedes),
    )


def a_quote(number: int) -> Evidence:
    """The quote behind a fact."""
    excerpt = RedactedText(f"use tool {number}")
    source = SourceRef(adapter="pi", locator="/sessions/chaos.jsonl", line=number + 1)
    return Evidence(
        evidence_id=evidence_id(source, excerpt),
        origin=Origin.USER_STATEMENT,
        provenance=Provenance.DECLARED,
        excerpt=excerpt,
        content_hash="",
        observed_at=AT,
        source=source,
    )


def a_document(name: str, *, paragraphs: int = 2) -> Document:
    """A document; more paragraphs, more chunks."""
    text = "\n\n".join(f"Paragraph {n} of {name}. " + "Words. " * 40 for n in range(paragraphs))
    return Document(
        namespace="notes",
        external_id=name,
        source="notes",
        kind="note",
        text=RedactedText(text),
        observed_at=AT,
        trust=Trust.USER,
        title=RedactedText(f"About {name}"),
        adapter="notes",
    )


def recording(number: int, supersedes: Sequence[FactId] = ()) -> EventDraft:
    """A fact enters."""
    return say.fact_recorded(a_fact(number, supersedes), [a_quote(number)])


def indexing(name: str, *, paragraphs: int = 2) -> EventDraft:
    """A document enters."""
    return say.document_upserted(a_document(name, paragraphs=paragraphs))


def acts() -> list[Act]:
    """All of them, for both containers where both have them."""
    found: list[Act] = []
    for container in ("compact", "indexed"):
        found += _common(container)
    found.append(Act(
        name="promote", container="compact", promotes=True, prepare=_prepared("compact"),
        do=lambda place, store: store.promote(),
    ))  # fmt: skip
    found.append(Act(
        name="replay", container="indexed", prepare=_with_orphan,
        do=lambda place, store: _ignored(store.replay()), passing=frozenset({"journal tail"}),
    ))  # fmt: skip
    found.append(Act(
        name="repair", container="indexed", prepare=_with_torn_tail, do=_repair,
        passing=frozenset({"journal tail"}),
    ))  # fmt: skip
    found.append(Act(
        name="pack", container="indexed", prepare=_with_much_journal, do=_pack,
    ))  # fmt: skip
    found.append(Act(
        name="forget packed", container="indexed", prepare=_with_packed_journal, do=_forget,
        passing=frozenset({"erasure"}),
    ))  # fmt: skip
    found.append(Act(
        name="migrate", container="indexed", prepare=_of_older_schema,
        do=lambda place, store: _append(store, recording(9)),
    ))  # fmt: skip
    return found


def _common(container: Container) -> list[Act]:
    prepare = _prepared(container)
    old = a_fact(0).fact_id
    changes: dict[str, Callable[[Place, ProjectAuthority], None]] = {
        "record": lambda place, store: _append(store, recording(9)),
        "supersede": lambda place, store: _append(store, recording(9, [old])),
        "index": lambda place, store: _append(store, indexing("long", paragraphs=9)),
        "replace": lambda place, store: _append(store, indexing("first", paragraphs=5)),
        "gc": lambda place, store: _append(
            store,
            say.gc_compacted(
                facts=[a_fact(1).fact_id],
                documents=[a_document("gone").key],
                collections=[COLLECTION.name],
            ),
        ),
        "job": lambda place, store: _ignored(
            store.append(
                [recording(9), indexing("second")], stamp=JobStamp(job_id="job-1", token=1)
            )
        ),
        "vectors": lambda place, store: _ignored(
            store.store_vectors(COLLECTION, [(2, bytes(range(8))), (3, bytes(8))])
        ),
        "rebuild": lambda place, store: _ignored(store.rebuild()),
        "backup": _back_up,
    }
    made = [
        Act(name=name, container=container, prepare=prepare, do=do) for name, do in changes.items()
    ]
    forget = Act(
        name="forget",
        container=container,
        prepare=prepare,
        do=_forget,
        passing=frozenset({"erasure"}),
    )
    return [*made, forget]


def _prepared(container: Container) -> Callable[[Place], None]:
    def prepare(place: Place) -> None:
        with closing(place.open(create=True, container=container)) as store:
            store.append([recording(0), indexing("first"), indexing("gone")])
            store.append([recording(1)])
            store.append([recording(2, [a_fact(1).fact_id])])
            store.append([say.document_deleted(a_document("gone").key, AT)])
            store.store_vectors(COLLECTION, [(1, bytes(range(8)))])

    return prepare


def _with_orphan(place: Place) -> None:
    """A whole batch in the journal whose commit never came."""
    _prepared("indexed")(place)
    kept = place.paths.database.read_bytes()
    with closing(place.open()) as store:
        store.append([recording(9), indexing("second")])
    place.paths.database.write_bytes(kept)


def _with_torn_tail(place: Place) -> None:
    _prepared("indexed")(place)
    file = next(iter(sorted(place.paths.events.rglob("*.jsonl"))))
    with file.open("ab") as out:
        out.write(b'{"at":1,"hash":"torn')


def _with_much_journal(place: Place) -> None:
    """More than the smallest file that is packed."""
    _prepared("indexed")(place)
    with closing(place.open()) as store:
        store.append([indexing(f"more {number}") for number in range(6)])


def _with_packed_journal(place: Place) -> None:
    _with_much_journal(place)
    with closing(place.open()) as store:
        _pack(place, store)


def _of_older_schema(place: Place) -> None:
    """As the first released schema left it."""
    _prepared("indexed")(place)
    with closing(apsw.Connection(str(place.paths.database))) as db:
        db.execute("DROP TABLE forgotten")
        db.pragma("user_version", 1)


def _append(store: ProjectAuthority, draft: EventDraft) -> None:
    store.append([draft])


def _forget(place: Place, store: ProjectAuthority) -> None:
    from storage.forget import forget

    target = a_fact(0).fact_id
    home = HomePaths(place.home)
    forget(home, PROJECT, target, clock=StillClock(), settings=ROOMY)


def _pack(place: Place, store: ProjectAuthority) -> None:
    """The day is over: its files are closed."""
    with closing(place.open(at=AT + DAY_MS)) as later:
        files, _ = later.pack()
    if not files:
        raise AssertionError("nothing was packed")


def _back_up(place: Place, store: ProjectAuthority) -> None:
    from storage.backup import back_up

    back_up(place.paths, PROJECT, None, clock=StillClock(), settings=ROOMY)


def _repair(place: Place, store: ProjectAuthority) -> None:
    from storage.repair import repair

    repair(place.paths, PROJECT, clock=StillClock(), settings=ROOMY)


def _ignored(given: object) -> None:
    del given
