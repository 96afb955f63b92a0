"""Receipts are written a line at a time, bounded in bytes and days, and survive torn lines."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import receipt_log
from storage.clock import DAY_MS, utc_day
from storage.errors import Unavailable
from storage.paths import ProjectPaths
from tests.support import START_AT


def paths_of(home: Path) -> ProjectPaths:
    """A project's files."""
    return ProjectPaths(home / "p_test")


def numbers(paths: ProjectPaths) -> list[object]:
    """What is kept, newest first."""
    return [value["n"] for value in receipt_log.newest_first(paths)]


def test_the_last_one_comes_first_over_days(home: Path) -> None:
    """Order is that of writing, whatever day it was."""
    paths = paths_of(home)
    for n, at in enumerate((START_AT, START_AT, START_AT + DAY_MS)):
        receipt_log.append(paths, {"n": n}, now=at, keep_days=14)

    assert numbers(paths) == [2, 1, 0]
    file = paths.receipts / f"{utc_day(START_AT)}.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(paths.receipts.stat().st_mode) == 0o700


def test_nothing_is_there_before_the_first(home: Path) -> None:
    """Reading makes no folder."""
    assert numbers(paths_of(home)) == []
    assert list(home.iterdir()) == []


@given(tail=st.binary(min_size=1, max_size=60).filter(lambda tail: b"\n" not in tail))
def test_a_torn_line_costs_only_itself(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    """Whatever a dead writer left at the end, what came before and after is read."""
    paths = paths_of(tmp_path_factory.mktemp("receipts"))
    receipt_log.append(paths, {"n": 1}, now=START_AT, keep_days=14)
    with (paths.receipts / f"{utc_day(START_AT)}.jsonl").open("ab") as file:
        file.write(b"\n{" + tail)
    receipt_log.append(paths, {"n": 2}, now=START_AT, keep_days=14)

    assert numbers(paths) == [2, 1]


def test_a_day_has_two_files_at_most(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full file becomes the older one; the newest receipts stay, the bytes stay bounded."""
    monkeypatch.setattr(receipt_log, "FILE_BYTES", 1_000)
    paths = paths_of(home)
    for n in range(300):
        receipt_log.append(paths, {"n": n, "pad": "x" * 20}, now=START_AT, keep_days=14)

    kept = numbers(paths)
    assert kept == list(range(299, 299 - len(kept), -1))
    assert len(list(paths.receipts.iterdir())) == 2
    assert sum(file.stat().st_size for file in paths.receipts.iterdir()) < 2_200


def test_old_days_go_with_the_first_receipt_of_a_new_one(home: Path) -> None:
    """Fourteen days and no more; files that are not ours stay."""
    paths = paths_of(home)
    for day in range(20):
        receipt_log.append(paths, {"n": day}, now=START_AT + day * DAY_MS, keep_days=14)
    (paths.receipts / "mine.txt").write_text("a person's", "utf-8")
    receipt_log.append(paths, {"n": 20}, now=START_AT + 20 * DAY_MS, keep_days=3)

    assert numbers(paths) == [20, 19, 18, 17]
    assert (paths.receipts / "mine.txt").exists()


def test_two_writers_lose_nothing(home: Path) -> None:
    """The server and a hook without it may write at once: every line is whole."""
    paths = paths_of(home)

    def write(first: int) -> None:
        for n in range(first, first + 100):
            receipt_log.append(paths, {"n": n, "pad": "y" * 500}, now=START_AT, keep_days=14)

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1_000, 2_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(numbers(paths)) == 300


def test_what_is_too_long_is_no_receipt(home: Path) -> None:
    """A bound on every line: nothing is written, and the caller is told."""
    paths = paths_of(home)
    long = {"n": "x" * receipt_log.LINE_BYTES}

    assert receipt_log.append(paths, long, now=START_AT, keep_days=14) is False
    assert numbers(paths) == []


def test_a_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    """A file that somebody else put there is not written into, and its name is told."""
    paths = paths_of(home)
    receipt_log.append(paths, {"n": 1}, now=START_AT, keep_days=14)
    foreign = tmp_path / "foreign"
    foreign.write_text("", "utf-8")
    (paths.receipts / f"{utc_day(START_AT + DAY_MS)}.jsonl").symlink_to(foreign)

    with pytest.raises(Unavailable):
        receipt_log.append(paths, {"n": 2}, now=START_AT + DAY_MS, keep_days=14)

    assert foreign.read_text("utf-8") == ""
    assert numbers(paths) == [1]
