"""A disk that fails at any one write, sync or truncation leaves the old store or the new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

from storage.authority import ProjectAuthority
from storage.authority import payloads as say
from storage.authority.port import Container
from storage.errors import MemorydError
from tests.storage.memory_samples import ROOMY, a_document, a_fact, a_quote, opened

MOST_POINTS = 24
"""Fault points tried of one commit, spread over all of them, the first and the last included."""


class Switch:
    """Counts the operations that change a file, and fails the chosen one."""

    def __init__(self) -> None:
        self.count = 0
        self.fail_at = 0

    def step(self) -> None:
        self.count += 1
        if self.fail_at and self.count >= self.fail_at:
            raise apsw.IOError("injected")

    def arm(self, at: int) -> None:
        self.count, self.fail_at = 0, at


class FaultyFile(apsw.VFSFile):
    def __init__(
        self, base: str, switch: Switch, name: apsw.URIFilename | str | None, flags: list[int]
    ) -> None:
        super().__init__(base, name, flags)
        self._switch = switch

    def xWrite(self, data: bytes, offset: int) -> None:
        self._switch.step()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._switch.step()
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:
        self._switch.step()
        super().xTruncate(newsize)


class FaultyDisk(apsw.VFS):
    def __init__(self, switch: Switch) -> None:
        self._base = apsw.vfs_names()[0]
        super().__init__("faulty", self._base, makedefault=True)
        self._switch = switch

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> apsw.VFSFile:
        return FaultyFile(self._base, self._switch, name, flags)


@pytest.fixture
def switch() -> Iterator[Switch]:
    """Every database opened while it is in use lies on the faulty disk."""
    made = Switch()
    disk = FaultyDisk(made)
    yield made
    made.arm(0)
    disk.unregister()


@pytest.fixture(params=["compact", "indexed"])
def container(request: pytest.FixtureRequest) -> Container:
    chosen: Container = request.param
    return chosen


def append_pair(store: ProjectAuthority, name: str) -> None:
    store.append(
        [
            say.document_upserted(a_document(f"Text of {name}. " * 40, name=name)),
            say.fact_recorded(a_fact(f"Fact {name}."), [a_quote(name)]),
        ]
    )


def names(store: ProjectAuthority) -> set[str]:
    with store.read() as reads:
        documents = {d.external_id for d in reads.documents() if d.namespace == "notes"}
        facts = {fact.statement.removeprefix("Fact ").rstrip(".") for fact in reads.facts()}
    assert documents == facts
    return documents


def faults(store: ProjectAuthority) -> list[str]:
    return [p.detail for p in store.verify().problems if p.check != "journal tail"]


def points(total: int) -> list[int]:
    step = max(1, total // MOST_POINTS)
    return sorted({*range(1, total + 1, step), total})


def test_an_append_on_a_failing_disk_is_old_or_new(
    home: Path, switch: Switch, container: Container
) -> None:
    """Whichever write fails, the store opens, proves sound, and goes on."""
    store = opened(home, container)
    append_pair(store, "first")
    switch.arm(0)
    append_pair(store, "second")
    total = switch.count
    assert total > 3
    expected = {"first", "second"}

    for point in points(total):
        name = f"p{point}"
        switch.arm(point)
        done = False
        with suppress(MemorydError):
            append_pair(store, name)
            done = True
        switch.arm(0)
        store.close()
        store = opened(home, container, create=False)

        store.replay()
        found = names(store)
        assert found in (expected, expected | {name})
        assert name in found or not done, "an acknowledged append is lost"
        assert faults(store) == []
        expected = found
    append_pair(store, "last")
    assert names(store) == expected | {"last"}
    store.close()


def test_the_same_handle_survives_a_failed_append(
    home: Path, switch: Switch, container: Container
) -> None:
    """Without reopening: what failed is out or whole, and the next append works."""
    store = opened(home, container)
    append_pair(store, "first")
    for point in (1, 2, 3, 5, 8):
        switch.arm(point)
        with suppress(MemorydError):
            append_pair(store, f"p{point}")
        switch.arm(0)
        append_pair(store, f"after{point}")

        assert f"after{point}" in names(store)
        assert faults(store) == []
    store.close()


def test_a_promotion_on_a_failing_disk_is_all_or_nothing(home: Path, switch: Switch) -> None:
    """Compact whole or indexed whole; a retry finishes it."""
    store = opened(home, "compact", settings=ROOMY)
    append_pair(store, "first")
    store.close()
    probe = home / "probe"
    probe.mkdir(mode=0o700)
    other = opened(probe, "compact")
    append_pair(other, "first")
    switch.arm(0)
    other.promote()
    total = switch.count
    other.close()

    for point in points(total):
        store = opened(home, create=False)
        if store.container == "indexed":
            break
        switch.arm(point)
        with suppress(MemorydError):
            store.promote()
        switch.arm(0)
        store.close()
        again = opened(home, create=False)
        assert names(again) == {"first"}
        assert faults(again) == []
        again.close()
    final = opened(home, create=False)
    final.promote()
    assert final.container == "indexed"
    assert final.verify().problems == ()
    final.close()
