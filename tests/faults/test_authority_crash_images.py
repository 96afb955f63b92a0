"""The authority after a power cut, on a failing disk, and under many processes: nothing is lost."""

from __future__ import annotations

import random
from contextlib import closing
from itertools import islice
from pathlib import Path

import pytest

from ops.chaos.acts import Act, Place, acts
from ops.chaos.authority import Case, Tally, cut_power, fail_calls, watched_case
from ops.chaos.disk import Op
from ops.chaos.images import images, legal_states, most_open
from ops.chaos.storm import storm

ACTS = acts()
TITLES = [f"{act.name}-{act.container}" for act in ACTS]
SAMPLE = 10
FAULTS = 4


def case_of(folder: Path, act: Act) -> Case:
    found = watched_case(folder, act)
    assert 0 < found.acknowledged <= len(found.log)
    return found


@pytest.mark.parametrize("act", ACTS, ids=TITLES)
def test_a_cut_at_any_call_leaves_the_old_state_or_the_new(tmp_path: Path, act: Act) -> None:
    """A sample of the legal images of each act, its points taken in turns; some calls fail too."""
    case, tally = case_of(tmp_path, act), Tally()

    cut_power(tmp_path, case, images(case.start, case.log, random.Random(7)), tally, most=SAMPLE)
    fail_calls(tmp_path, case, tally, random.Random(7), most=FAULTS)

    assert tally.harmless, tally.examples
    assert (tally.images, tally.faults) == (SAMPLE, FAULTS)


@pytest.mark.parametrize("container", ["compact", "indexed"])
def test_every_image_that_a_commit_can_leave_is_whole(tmp_path: Path, container: str) -> None:
    """Exhaustive for the smallest act of each container: no subset and no tear is left out."""
    act = next(act for act in ACTS if (act.name, act.container) == ("vectors", container))
    case, tally = case_of(tmp_path, act), Tally()
    assert most_open(case.start, case.log) <= 8

    cut_power(tmp_path, case, images(case.start, case.log, random.Random(7)), tally, most=10_000)

    assert tally.harmless, tally.examples
    assert 40 < tally.images <= legal_states(case.start, case.log)


def test_a_broken_promise_is_seen(tmp_path: Path) -> None:
    """The judge is not blind: an acknowledged act whose writes are all lost is counted."""
    act = next(act for act in ACTS if act.name == "record")
    case, tally = case_of(tmp_path, act), Tally()
    lying = Case(act, case.start, case.log, 0, case.old, case.new)

    cut_power(tmp_path, lying, images(case.start, (), random.Random(7)), tally, most=1)

    assert tally.lost > 0
    assert not tally.harmless


def test_what_a_cut_may_leave_follows_the_syncs() -> None:
    """Unsynced calls come and go, each for itself; synced ones stay; names need their folder."""
    log = [
        Op("create", "d/new"),
        Op("write", "d/new", 0, b"abc"),
        Op("sync", "d/new"),
        Op("write", "d/old", 0, b"X"),
        Op("syncdir", "d"),
    ]
    start = {"d": None, "d/old": b"old"}

    found = {
        (image.tree["d/old"], image.tree.get("d/new"))
        for image in images(start, log, random.Random(1))
    }

    assert found == {
        (b"old", None), (b"old", b""), (b"old", b"abc"), (b"Xld", None), (b"Xld", b"abc"),
    }  # fmt: skip
    last = list(islice(images(start, [*log, Op("sync", "d/old")], random.Random(1)), 100))
    assert [image.tree for image in last if image.point == 6] in (
        [], [{"d": None, "d/old": b"Xld", "d/new": b"abc"}],
    )  # fmt: skip


def test_a_write_tears_at_sectors() -> None:
    """The last write may be there up to a sector, or from one on."""
    data = b"a" * 512 + b"b" * 512

    found = {
        image.tree["f"]
        for image in images({"f": b"." * 1024}, [Op("write", "f", 0, data)], random.Random(1))
    }

    assert found == {b"." * 1024, data, b"a" * 512 + b"." * 512, b"." * 512 + b"b" * 512}


def test_many_processes_lose_nothing(tmp_path: Path) -> None:
    """8 writers, 8 readers and a pinned one, kill -9 among them, a promotion in between."""
    tally = storm(tmp_path, "compact", random.Random(7), seconds=3)

    assert tally.harmless, tally.examples
    assert tally.appended > 10
    assert tally.looks > 10
    assert tally.kills > 0
    with closing(Place(tmp_path / "storm-compact").open()) as store:
        assert store.container == "indexed"
