"""Forgetting for good: a tombstone first, then every byte, and only then is it said to be done.

The tombstone's commit is the moment at which the memory is gone for every reader. Payloads are
erased last, because the texts to look for in files and backups are read from them: a crash at any
step leaves a store that `verify` calls unfinished, and the next run goes on from there. Takes the
maintenance lock, so that no backup is made of a half-erased store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage import erasure
from storage.atomic import file_lock, sync_directory
from storage.authority import ProjectAuthority, copies, forgetting, open_authority, tombstones
from storage.authority.forgetting import Plan
from storage.authority.reads import Reads
from storage.authority.tombstones import Forgetting
from storage.clock import Clock
from storage.config import StorageSettings
from storage.erasure import Wanted
from storage.errors import Corrupt, Invalid, MemorydError, Stale
from storage.events import Event
from storage.paths import HomePaths, ProjectPaths
from storage.records import DocumentKey, EvidenceId, FactId, ProjectId

ATTEMPTS: Final = 8
LOCK_NAME: Final = "maintenance.lock"
SELECT_GONE: Final = "SELECT id, what FROM forgotten ORDER BY what, id"
SELECT_GONE_QUOTES: Final = "SELECT id FROM forgotten WHERE what = 'evidence'"
SELECT_KNOWN: Final = "SELECT 1 FROM forgotten WHERE id = ? LIMIT 1"


class _Moved(Stale):
    """The store changed between the plan and its commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What one run did."""

    plan: Plan | None
    """None when an earlier run had decided it and this one only finished."""
    cleaned: tuple[str, ...]
    """Files beside the store that were changed or removed."""
    backups: tuple[str, ...]
    left: tuple[str, ...]
    """Files that hold the text still, and why: not ours to change, or damaged."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Ids of what was forgotten and did not come back: no text."""

    facts: frozenset[str] = frozenset()
    documents: frozenset[str] = frozenset()
    quotes: frozenset[str] = frozenset()
    statements: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return sum(map(len, (self.facts, self.documents, self.quotes, self.statements)))


def preview(authority: ProjectAuthority, target: str) -> Plan:
    """What forgetting would take along; changes nothing.

    Raises:
        Invalid: there is no such fact or document.
    """
    with authority.snapshot() as (reads, history):
        return forgetting.plan(reads, history, [forgetting.resolve_target(reads, target)])


def forget(
    home: HomePaths,
    project: ProjectId,
    target: str | None,
    *,
    clock: Clock,
    settings: StorageSettings,
) -> Forgotten:
    """Forget one fact or document; None only finishes what was interrupted.

    Raises:
        Invalid: there is no such fact or document.
        Busy: somebody reads old pages; what is done stays done, run it again.
        Corrupt: the store or its history is damaged; repair it first.
    """
    paths = home.project(project)
    with file_lock(paths.memory / LOCK_NAME):
        copies.clear_workshops(paths.memory / "backups")
        with closing(open_authority(paths, project, clock=clock, settings=settings)) as authority:
            plan = None
            if target is not None and not _is_forgotten(authority, target):
                plan = _bury(authority, lambda reads: [forgetting.resolve_target(reads, target)])
            if plan is None and not is_unfinished(authority):
                return Forgotten(plan=None, cleaned=(), backups=(), left=())
            return _finish(home, project, authority, plan, clock, settings)


def is_unfinished(authority: ProjectAuthority) -> bool:
    """Whether forgotten text may still lie somewhere."""
    with authority.read() as reads:
        return reads.db.execute(tombstones.IS_ERASING).fetchone() is not None


def _finish(
    home: HomePaths,
    project: ProjectId,
    authority: ProjectAuthority,
    plan: Plan | None,
    clock: Clock,
    settings: StorageSettings,
) -> Forgotten:
    paths = home.project(project)
    with authority.snapshot() as (reads, history):
        wanted = _wanted(reads, history, paths)
        gone = _gone(reads)
    cleaned: list[str] = []
    left: list[str] = []
    backups: list[str] = []
    if wanted.needles or wanted.places:
        cleaned = erasure.clean_project(home, project, wanted)
        if erasure.clean_queue(home, wanted):
            cleaned.append(home.queue.name)
    for file in sorted((paths.memory / "backups").glob("*.sqlite")):
        try:
            if _clean_backup(file, project, gone, wanted, clock, settings):
                backups.append(file.name)
        except MemorydError as fault:
            left.append(f"backups/{file.name}: {fault}")
    authority.erase(wanted.needles)
    if not left:
        authority.erased()
    # What is not ours to change (a person's own file) is named, and does not keep this from ending.
    left += erasure.leftovers(home, project, wanted)
    return Forgotten(plan=plan, cleaned=tuple(cleaned), backups=tuple(backups), left=tuple(left))


def _bury(
    authority: ProjectAuthority,
    targets_in: Callable[[Reads], list[str]],
    gone: Gone | None = None,
) -> Plan | None:
    """Commit the tombstone; None when nothing of the targets is there."""
    gone = gone or Gone()
    for _ in range(ATTEMPTS):
        seen = authority.generation()
        with authority.snapshot() as (reads, history):
            targets = targets_in(reads)
            plan = forgetting.plan(
                reads, history, targets, quotes=gone.quotes, statements=gone.statements
            )
        if not targets and not plan.events:
            return None

        def guard(seen: int = seen) -> None:
            if authority.generation() != seen:
                raise _Moved

        try:
            authority.append(plan.drafts, guard=guard)
        except _Moved:
            continue
        return plan
    raise Stale("the memory kept changing; nothing was forgotten, try again")


def _wanted(reads: Reads, history: Iterable[Event], paths: ProjectPaths) -> Wanted:
    """The texts that stand in payloads still to be erased, and their lines in our own log."""
    gone = tombstones.skeletons(reads.db)
    quotes = frozenset(str(row[0]) for row in reads.db.execute(SELECT_GONE_QUOTES).fetchall())
    needles: set[str] = set()
    places: set[tuple[str, int]] = set()
    own = str(paths.session_log)
    for event in history:
        if event.event_id in gone and event.event_id not in gone.lost and event.payload:
            needles |= forgetting.texts_of(event, event.payload, quotes)
            for locator, line in forgetting.places_of(event.payload, quotes):
                if locator.startswith(own):
                    places.add((locator, line))
    return Wanted(needles=tuple(sorted(needles)), places=frozenset(places))


def gone_in(authority: ProjectAuthority) -> Gone:
    """What a store was told to forget, for another store of the same memory to forget too."""
    with authority.read() as reads:
        return _gone(reads)


def forget_again(store: ProjectAuthority, gone: Gone, paths: ProjectPaths) -> None:
    """Forget in an older store of a memory what its later store forgot, and remember that it did.

    Raises:
        Corrupt: the store or its history is damaged.
    """
    _bury(store, lambda reads: _present(reads, gone.facts | gone.documents), gone)
    with store.read() as reads:
        known = {(str(item), str(what)) for item, what in reads.db.execute(SELECT_GONE)}
    rest = Forgetting(
        facts=tuple(FactId(i) for i in sorted(gone.facts) if (i, "fact") not in known),
        documents=tuple(
            DocumentKey(i) for i in sorted(gone.documents) if (i, "document") not in known
        ),
        evidence=tuple(EvidenceId(i) for i in sorted(gone.quotes) if (i, "evidence") not in known),
        statements=tuple(i for i in sorted(gone.statements) if (i, "statement") not in known),
    )
    if rest != Forgetting():
        # Also what it never heard of: it may lie in a source that is read again from there.
        store.append(tombstones.drafts(rest))
    if not is_unfinished(store):
        return
    with store.snapshot() as (reads, history):
        wanted = _wanted(reads, history, paths)
    store.erase(wanted.needles)
    store.erased()


def _gone(reads: Reads) -> Gone:
    found: dict[str, set[str]] = {
        what: set() for what in ("fact", "document", "evidence", "statement")
    }
    for item, what in reads.db.execute(SELECT_GONE).fetchall():
        back = (what == "fact" and reads.fact(FactId(str(item))) is not None) or (
            what == "document" and reads.document(DocumentKey(str(item))) is not None
        )
        if not back:
            found[str(what)].add(str(item))
    return Gone(*(frozenset(ids) for ids in found.values()))


def _is_forgotten(authority: ProjectAuthority, target: str) -> bool:
    with authority.read() as reads:
        known = reads.db.execute(SELECT_KNOWN, (target,)).fetchone() is not None
        return known and not _present(reads, [target])


def _present(reads: Reads, ids: Iterable[str]) -> list[str]:
    return [
        item
        for item in sorted(ids)
        if reads.fact(FactId(item)) is not None or reads.document(DocumentKey(item)) is not None
    ]


def _clean_backup(
    file: Path,
    project: ProjectId,
    gone: Gone,
    wanted: Wanted,
    clock: Clock,
    settings: StorageSettings,
) -> bool:
    """Forget inside one backup: it is unpacked, told to forget, proven and put back.

    Raises:
        Corrupt: it cannot be read or does not prove sound; it is left as it is.
    """
    made = copies.info(file)
    if made.project != project:
        raise Invalid("belongs to another project")
    with copies.workshop(file.parent) as folder:
        staged = copies.unpack(file, folder / "store")
        with closing(open_authority(staged, project, clock=clock, settings=settings)) as store:
            targets = gone.facts | gone.documents
            plan = _bury(store, lambda reads: _present(reads, targets), gone)
            if plan is None and not is_unfinished(store):
                return False
            store.erase(wanted.needles)
            store.erased()
            report = store.verify()
        if not report.sound:
            raise Corrupt(f"does not prove sound ({report.problems[0].detail})")
        fresh = folder / file.name
        copies.write(staged, project, fresh, made_at=made.made_at, check=lambda _: None)
        fresh.replace(file)
        sync_directory(file.parent)
    return True
