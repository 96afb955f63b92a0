"""Many processes on one store: writers, readers, a pinned reader, kill -9, a promotion in between.

`Storm` starts this module as its processes. A writer appends a document and a fact in one batch and
prints the name once it is acknowledged; a reader checks at every look that it sees whole batches
and nothing going away. Each prints `!<what>` where something is not as promised.
"""

from __future__ import annotations

import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ops.chaos.acts import Place, a_document, a_fact, a_quote
from storage.authority import Container, ProjectAuthority
from storage.authority import payloads as say
from storage.errors import Busy, MemorydError
from storage.records import JsonValue

WRITERS: Final = 8
READERS: Final = 8
NUMBERS: Final = 1_000_000
PAUSE_S: Final = 0.002
KILL_SHARE: Final = 0.5
"""How often one of the writers is killed, at each look five times a second."""


@dataclass(slots=True)
class StormTally:
    """What many processes did, and what of it was lost."""

    appended: int = 0
    looks: int = 0
    kills: int = 0
    held_back: int = 0
    """Appends told to wait because a reader pins the write-ahead log; a named answer, no loss."""
    locked: int = 0
    lost: int = 0
    mixed: int = 0
    other: int = 0
    verify_failures: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def harmless(self) -> bool:
        return not (self.locked or self.lost or self.mixed or self.other or self.verify_failures)

    def json(self) -> dict[str, JsonValue]:
        """The figures by name."""
        return {
            "appended": self.appended,
            "looks": self.looks,
            "kills": self.kills,
            "held_back": self.held_back,
            "locked": self.locked,
            "lost": self.lost,
            "mixed": self.mixed,
            "other": self.other,
            "verify_failures": self.verify_failures,
            "examples": list(self.examples[:12]),
        }


class _Child:
    """One process and what it has said."""

    def __init__(self, role: str, place: Place, number: int) -> None:
        argv = [sys.executable, "-m", "ops.chaos.storm", role, str(place.home), str(number)]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.role = role
        self.said: list[str] = []
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A line that a kill cut short was not said.
            if line.endswith("\n"):
                self.said.append(line.strip())

    def stop(self) -> int:
        """Ask it to finish and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._finish()
        return self.process.returncode

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self._finish()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _finish(self) -> None:
        self.process.wait(60)
        self._listener.join(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


def storm(
    folder: Path,
    container: Container,
    chance: random.Random,
    *,
    seconds: float,
    writers: int = WRITERS,
    readers: int = READERS,
) -> StormTally:
    """Let them all loose on one store for a while; a compact one is promoted half-way."""
    place, tally = Place(folder / f"storm-{container}"), StormTally()
    place.home.mkdir(mode=0o700)
    place.open(create=True, container=container).close()
    gone: list[_Child] = []
    numbers = iter(range(NUMBERS))
    with ExitStack() as stack:
        pinned = stack.enter_context(_pinned(place))
        living = [_Child("write", place, next(numbers)) for _ in range(writers)]
        watching = [_Child("read", place, next(numbers)) for _ in range(readers)]
        promoted = container == "indexed"
        for elapsed in _for(seconds):
            if elapsed > seconds / 2 and not promoted:
                with closing(place.open()) as store:
                    store.promote()
                promoted = True
            if chance.random() < KILL_SHARE:
                victim = chance.randrange(len(living))
                living[victim].kill()
                tally.kills += 1
                gone.append(living[victim])
                living[victim] = _Child("write", place, next(numbers))
        for child in [*living, *watching]:
            if child.stop() != 0:
                tally.other += 1
                tally.examples.append(f"{child.role}: exit code {child.process.returncode}")
        tally.mixed += pinned()
    _count(tally, [*gone, *living, *watching])
    _prove(tally, place, _acknowledged([*gone, *living]))
    return tally


def _for(seconds: float) -> Iterator[float]:
    started, pause = time.monotonic(), threading.Event()
    while (elapsed := time.monotonic() - started) < seconds:
        yield elapsed
        pause.wait(0.2)


@contextmanager
def _pinned(place: Place) -> Iterator[Callable[[], int]]:
    """A reader that holds one snapshot all the time."""
    with closing(place.open()) as store, store.read() as reads:
        before = reads.stats()
        yield lambda: int(reads.stats() != before)


def _acknowledged(children: list[_Child]) -> set[str]:
    return {line for child in children for line in child.said if not line.startswith(("!", "?"))}


def _count(tally: StormTally, children: list[_Child]) -> None:
    for child in children:
        for line in child.said:
            match line.split(" ", 1)[0]:
                case "!locked":
                    tally.locked += 1
                case "!held":
                    tally.held_back += 1
                    continue
                case "!mixed":
                    tally.mixed += 1
                case "!other":
                    tally.other += 1
                case "?looked":
                    tally.looks += 1
                    continue
                case _:
                    tally.appended += 1
                    continue
            tally.examples.append(f"{child.role}: {line}")


def _prove(tally: StormTally, place: Place, acknowledged: set[str]) -> None:
    with closing(place.open()) as store:
        store.replay()
        documents, facts = _names(store)
        problems = [p for p in store.verify().problems if p.check != "journal tail"]
        store.append([say.document_upserted(a_document("afterwards"))])
    tally.lost += len(acknowledged - documents)
    tally.mixed += len(documents ^ facts)
    tally.verify_failures += len(problems)
    tally.examples += [f"verify: {problem.check}: {problem.detail}" for problem in problems]


def _names(store: ProjectAuthority) -> tuple[set[str], set[str]]:
    """Batches that are visible by their document, and by their fact."""
    with store.read() as reads:
        documents = {d.external_id for d in reads.documents() if d.namespace == "notes"}
        facts = {str(fact.valid_at) for fact in reads.facts()}
    return documents, facts


def write(place: Place, number: int) -> None:
    """Append until standard input closes; one name a batch, unique to this writer."""
    count = number * NUMBERS
    with closing(place.open()) as store:
        while not _asked_to_stop():
            count += 1
            fact = a_fact(count)
            name = str(fact.valid_at)
            batch = [
                say.document_upserted(a_document(name)),
                say.fact_recorded(fact, [a_quote(count)]),
            ]
            try:
                store.append(batch)
            except Busy as busy:
                print(f"!{'locked' if 'locked' in str(busy) else 'held'} {busy}", flush=True)
            except MemorydError as error:
                print(f"!other {type(error).__name__}: {error}", flush=True)
            else:
                print(name, flush=True)


def read(place: Place, _: int) -> None:
    """Look until standard input closes."""
    seen: set[str] = set()
    with closing(place.open()) as store:
        while not _asked_to_stop():
            try:
                documents, facts = _names(store)
            except Busy as busy:
                print(f"!locked {busy}", flush=True)
                continue
            except MemorydError as error:
                print(f"!other {type(error).__name__}: {error}", flush=True)
                continue
            if documents != facts or not seen <= documents:
                print("!mixed half a batch, or one that went away", flush=True)
            seen = documents
            print("?looked", flush=True)


def _asked_to_stop() -> bool:
    return bool(select.select([sys.stdin], [], [], PAUSE_S)[0])


def main(role: str, home: str, number: str) -> None:
    """One process of a storm."""
    (write if role == "write" else read)(Place(Path(home)), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
