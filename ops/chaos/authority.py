"""`ops chaos authority`: power cuts, failing disks and killed processes against the store.

After each harm a store must open, show the old or the new state and nothing else, hold what was
acknowledged, prove sound, and take the next append. Leaves what is legal after a cut to `images`,
what is done to `acts`, and processes to `storm`.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import apsw

from ops.chaos.acts import COLLECTION, Act, Place, a_document, acts, indexing
from ops.chaos.disk import Disk, Harm, Harmed, Op, watched
from ops.chaos.images import (
    EXHAUSTIVE_BITS,
    Image,
    Tree,
    images,
    legal_states,
    most_open,
    snapshot,
)
from ops.chaos.storm import StormTally, storm
from storage.authority import Container, ProjectAuthority
from storage.authority.proof import DERIVED_TABLES
from storage.authority.reads import Reads
from storage.errors import MemorydError
from storage.records import JsonValue

State = tuple[object, ...]
AFTER: Final = "after the harm"
EXAMPLES: Final = 12
ROUND_IMAGES: Final = 8
"""Of each act, before it is the next one's turn."""
ROUND_FAULTS: Final = 3
HARMS: Final[tuple[tuple[Harm, bool], ...]] = (
    ("io", False), ("full", True), ("full", False), ("io", True),
)  # fmt: skip


@dataclass(slots=True)
class Tally:
    """What was tried, and what went wrong."""

    images: int = 0
    legal_states: int = 0
    faults: int = 0
    lost: int = 0
    mixed: int = 0
    unopenable: int = 0
    verify_failures: int = 0
    stuck: int = 0
    """The next append failed."""
    untranslated: int = 0
    """An error that is none of ours reached the caller."""
    examples: list[str] = field(default_factory=list)

    @property
    def harmless(self) -> bool:
        return (
            not any((self.lost, self.mixed, self.unopenable, self.verify_failures, self.stuck))
            and not self.untranslated
        )

    def wrong(self, what: str, where: str, detail: str) -> None:
        """Count one fault of ours."""
        setattr(self, what, getattr(self, what) + 1)
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{what}: {where}: {detail}")

    def json(self) -> dict[str, JsonValue]:
        """The figures by name."""
        return {
            "images": self.images,
            "legal_states": self.legal_states,
            "faults": self.faults,
            "lost": self.lost,
            "mixed": self.mixed,
            "unopenable": self.unopenable,
            "verify_failures": self.verify_failures,
            "stuck": self.stuck,
            "untranslated": self.untranslated,
            "examples": list(self.examples),
        }


@dataclass(frozen=True, slots=True)
class Case:
    """An act that was carried out once while its disk was watched."""

    act: Act
    start: Tree
    log: tuple[Op, ...]
    acknowledged: int
    """The log's length when the act returned."""
    old: State
    new: State

    @property
    def title(self) -> str:
        return f"{self.act.name} ({self.act.container})"


def watched_case(folder: Path, act: Act) -> Case:
    """Carry the act out once, on a disk that remembers."""
    place = Place(folder / "watched")
    place.home.mkdir(mode=0o700)
    act.prepare(place)
    start = snapshot(place.home)
    old = _state_at(place, act)
    Image(0, start).lay_out(_emptied(place.home))
    with watched(place.home, syncing=False) as disk:
        store = place.open()
        act.do(place, store)
        acknowledged = len(disk.log)
        store.close()
        log = tuple(disk.log)
    new = _state_at(place, act)
    shutil.rmtree(place.home)
    return Case(act, start, log, acknowledged, old, new)


def cut_power(
    folder: Path, case: Case, source: Iterator[Image], tally: Tally, *, most: int
) -> bool:
    """Judge the next `most` images of the case; False when there were fewer."""
    place = Place(folder / "image")
    place.home.mkdir(mode=0o700)
    judged = 0
    with watched(place.home, syncing=False) as disk:
        for image in islice(source, most):
            _lay_out(place.home, image, disk)
            judged += 1
            where = f"{case.title}, cut behind call {image.point} of {len(case.log)}"
            _judge(place, case, tally, where, done=image.point >= case.acknowledged)
    shutil.rmtree(place.home)
    tally.images += judged
    return judged == most


def fail_calls(folder: Path, case: Case, tally: Tally, chance: random.Random, *, most: int) -> None:
    """Fail the k-th call of the act, once or from there on, as broken or as full: for every k."""
    place = Place(folder / "failing")
    place.home.mkdir(mode=0o700)
    start = Image(0, case.start)
    with watched(place.home, syncing=False) as disk:
        _lay_out(place.home, start, disk)
        disk.harm = Harmed()
        with closing(place.open()) as store:
            case.act.do(place, store)
            total = disk.harm.seen
        plans = [Harmed(at, how, sticky) for at in range(1, total + 1) for how, sticky in HARMS]
        for harm in plans if len(plans) <= most else chance.sample(plans, most):
            _lay_out(place.home, start, disk)
            tally.faults += 1
            _fail_one(place, case, tally, disk, harm)
    shutil.rmtree(place.home)


def _fail_one(place: Place, case: Case, tally: Tally, disk: Disk, harm: Harmed) -> None:
    where = f"{case.title}, call {harm.at} fails ({harm.how}{', and on' * harm.sticky})"
    disk.harm, done, store = harm, False, None
    try:
        store = place.open()
        case.act.do(place, store)
        done = True
    except (MemorydError, SystemError):
        # The latter is apsw's: a page copy ends while this disk, whose calls are Python's, fails.
        pass
    except Exception as raw:
        # Whatever else comes out is what we look for.
        tally.wrong("untranslated", where, repr(raw))
    disk.harm = Harmed()
    if store is not None:
        # The handle that met the failure goes on, as a worker's would.
        try:
            store.append([indexing(AFTER)])
        except MemorydError as fault:
            tally.wrong("stuck", where, str(fault))
        with suppress(MemorydError, apsw.Error):
            store.close()
    _judge(place, case, tally, where, done=done)


def _judge(place: Place, case: Case, tally: Tally, where: str, *, done: bool) -> None:
    act = case.act
    try:
        store = place.open()
    except MemorydError as fault:
        tally.wrong("unopenable", where, str(fault))
        return
    with closing(store):
        try:
            first = _state(store, act)
            problems = _problems(store, act, done=done)
            store.append([indexing(AFTER)])
            second = _state(store, act)
            problems += _problems(store, act, done=done)
        except MemorydError as fault:
            tally.wrong("stuck", where, f"{type(fault).__name__}: {fault}")
            return
    for seen in (first, second):
        if done and seen != case.new:
            tally.wrong("lost", where, "what was acknowledged is not there")
        elif seen not in (case.old, case.new):
            tally.wrong("mixed", where, "neither the old state nor the new one")
    if first == case.new and second != case.new:
        tally.wrong("lost", where, "what was visible went away")
    if problems:
        tally.wrong("verify_failures", where, problems[0])
    _judge_copies(place, tally, where)


def _judge_copies(place: Place, tally: Tally, where: str) -> None:
    """A backup that is there under its name is whole."""
    for copy in sorted((place.paths.memory / "backups").glob("*.sqlite")):
        with closing(apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)) as db:
            try:
                found = db.execute("PRAGMA integrity_check").fetchall()
            except apsw.Error as fault:
                found = [(str(fault),)]
        if found != [("ok",)]:
            tally.wrong("verify_failures", where, f"a backup is damaged: {found[0][0]}")


def _problems(store: ProjectAuthority, act: Act, *, done: bool) -> list[str]:
    passing = {"journal tail"} if done else {"journal tail", *act.passing}
    return [
        f"{problem.check}: {problem.detail}"
        for problem in store.verify().problems
        if problem.check not in passing
    ]


def _state_at(place: Place, act: Act) -> State:
    with closing(place.open()) as store:
        return _state(store, act)


def _state(store: ProjectAuthority, act: Act) -> State:
    """All that history decides, and the vectors; what came after the harm left out."""
    with store.read() as reads:
        rows = [
            row for table, order in DERIVED_TABLES.items() for row in _rows(reads, table, order)
        ]
        return (*rows, *reads.vectors(COLLECTION))


def _rows(reads: Reads, table: str, order: str) -> list[tuple[object, ...]]:
    later = a_document(AFTER).key
    found = reads.db.execute(f"SELECT * FROM {table} ORDER BY {order}")
    return [(table, *row) for row in found if later not in row]


def _lay_out(home: Path, image: Image, disk: Disk) -> None:
    image.lay_out(_emptied(home))
    disk.begin()


def _emptied(home: Path) -> Path:
    for entry in home.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    return home


@dataclass(slots=True)
class _Turn:
    """An act, the images of it that are still to be judged, and how it went on."""

    case: Case
    source: Iterator[Image]
    seed: str
    whole: bool
    """The images are all there are, not a sample."""
    exhausted: bool = False

    @classmethod
    def of(cls, folder: Path, act: Act, seed: str) -> _Turn:
        case = watched_case(folder, act)
        whole = most_open(case.start, case.log) <= EXHAUSTIVE_BITS
        return cls(case, _images(case, seed), seed, whole)

    def take(self, folder: Path, tally: Tally, round_: int) -> None:
        """One round of both harms."""
        folder.mkdir(mode=0o700)
        if not (self.whole and self.exhausted) and not cut_power(
            folder, self.case, self.source, tally, most=ROUND_IMAGES
        ):
            self.exhausted = True
            self.source = _images(self.case, f"{self.seed} {round_}")
        chance = random.Random(f"{self.seed} {round_}")  # noqa: S311 -- repeatable on purpose
        fail_calls(folder, self.case, tally, chance, most=ROUND_FAULTS)
        shutil.rmtree(folder)


def _images(case: Case, seed: str) -> Iterator[Image]:
    chance = random.Random(seed)  # noqa: S311 -- repeatable on purpose
    return images(case.start, case.log, chance)


def run(folder: Path, *, seconds: float, seed: int) -> tuple[dict[str, JsonValue], bool]:
    """Harm of every sort until the time is over: figures, and whether nothing was lost.

    Half of the time goes to processes, on either container; power cuts and failing calls share the
    rest, act by act. Every act has one round at least, however short the time.
    """
    started, tally = time.monotonic(), Tally()
    storms: dict[Container, StormTally] = {}
    containers: tuple[Container, ...] = ("compact", "indexed")
    for container in containers:
        chance = random.Random(f"{seed} {container}")  # noqa: S311 -- repeatable on purpose
        storms[container] = storm(folder, container, chance, seconds=seconds / 4)
    turns = [_Turn.of(folder, act, f"{seed} {number}") for number, act in enumerate(acts())]
    tally.legal_states = sum(legal_states(turn.case.start, turn.case.log) for turn in turns)
    rounds = 0
    while not rounds or time.monotonic() - started < seconds:
        rounds += 1
        for number, turn in enumerate(turns):
            if rounds > 1 and time.monotonic() - started > seconds:
                break
            turn.take(folder / f"{rounds}-{number}", tally, rounds)
    for found in storms.values():
        tally.lost += found.lost
        tally.mixed += found.mixed
        tally.verify_failures += found.verify_failures
    figures = tally.json()
    figures["acts"] = len(turns)
    figures["acts_exhausted"] = [turn.case.title for turn in turns if turn.whole and turn.exhausted]
    figures["processes"] = {name: found.json() for name, found in storms.items()}
    figures["seconds"] = round(time.monotonic() - started)
    return figures, tally.harmless and all(found.harmless for found in storms.values())
