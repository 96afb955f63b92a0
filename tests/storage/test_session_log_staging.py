"""The hooks' own log, and what a session holds until its turn ends."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from storage import session_log
from storage.errors import Busy, Unavailable
from storage.outcomes import Fixed
from storage.paths import HomePaths, ProjectPaths
from storage.records import FactKind, JsonValue, ProjectId
from storage.session_log import Proved, Said
from storage.staging import MAX_LOGGED, MAX_TOOLS, Staged, Staging, left_behind, of_session
from tests.support import START_AT

P, OTHER = ProjectId("p_1"), ProjectId("p_2")
DAY = "2027-01-15"


def _said(statement: str, *, session: str = "s") -> Said:
    return Said(
        kind=FactKind.CORRECTION,
        statement=statement,
        sentence=f"No, {statement}",
        session_id=session,
        host="pi",
        at=START_AT,
    )


def _proved(port: int) -> Proved:
    fixed = Fixed(
        command="make test",
        failure=f"connection refused on port {port}",
        remedies=("make up",),
        call_id="c",
        line=0,
        at=START_AT,
    )
    return Proved(fixed=fixed, session_id="s", host="pi")


def _taken(staging: Staging) -> Staged:
    seen: list[Staged] = []

    def take(staged: Staged) -> tuple[JsonValue, Sequence[str]]:
        seen.append(staged)
        return staged.carried, ()

    assert staging.flush(take)
    return seen[0]


def test_a_turn_is_one_append_and_reads_back_as_it_was(home: Path) -> None:
    """Entries survive the round trip; the file is private and named after the UTC day."""
    paths = ProjectPaths(home / P)
    entries: list[session_log.Entry] = [_said("use pnpm, never npm"), _proved(5544)]

    assert session_log.append(paths, entries, START_AT) == 2

    file = paths.session_log / f"{DAY}.jsonl"
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert [session_log.decode(line, 0) for line in lines] == entries
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_one_lesson_counts_once_and_a_turn_is_bounded(home: Path) -> None:
    """Equal statements, and failures that differ in numbers only, are one; 64 a turn at most."""
    paths = ProjectPaths(home / P)

    same: list[session_log.Entry] = [
        _said("use pnpm, never npm"),
        _said("Use pnpm, never npm."),
        _proved(1),
        _proved(2),
    ]
    assert session_log.append(paths, [*same[:1], *same[2:]], START_AT) == 2
    many = [_said(f"rule number {n} for the port") for n in range(100)]
    assert session_log.append(paths, many, START_AT) == session_log.MAX_PER_TURN
    assert same[0].key == same[1].key


def test_a_credential_never_enters_the_log(home: Path) -> None:
    """A statement with one is left out, and one that was smuggled in is not read back."""
    paths = ProjectPaths(home / P)
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

    assert session_log.append(paths, [_said(f"always use {secret} here")], START_AT) == 0
    smuggled = session_log.encode(_said(f"always use {secret} here"))
    assert session_log.decode(smuggled, 1) is None


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"v": 2, "type": "said"},
        {"v": 1, "type": "said", "at": "x", "kind": "correction", "statement": "a"},
        {"v": 1, "type": "said", "at": 1, "kind": "gossip", "statement": "a"},
        {"v": 1, "type": "proved", "at": 1, "command": "a", "failure": "b", "remedies": []},
        {"v": 1, "type": "said", "at": 1, "kind": "fact", "statement": "a b", "sentence": "c"},
    ],
)
def test_a_line_of_another_shape_is_no_entry(line: dict[str, JsonValue]) -> None:
    """Newer versions and damage are passed over; words that are not in their sentence too."""
    assert session_log.decode(line, 1) is None


def test_a_full_file_goes_on_in_its_next_part(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No log file grows without bound."""
    monkeypatch.setattr(session_log, "MAX_FILE_BYTES", 200)
    paths = ProjectPaths(home / P)

    for number in range(3):
        session_log.append(paths, [_said(f"rule number {number} for the port")], START_AT)

    assert sorted(path.name for path in paths.session_log.iterdir()) == [
        f"{DAY}.2.jsonl",
        f"{DAY}.3.jsonl",
        f"{DAY}.jsonl",
    ]


def test_staging_keeps_the_newest_results_and_every_statement(home: Path) -> None:
    """Sixty-four tool results at most, in order; statements are not pushed out by them."""
    staging = Staging(HomePaths(home), "pi", "s", P)
    staging.stage([{"t": "said", "n": 0}])
    for number in range(MAX_TOOLS + 10):
        staging.stage([{"t": "tool", "n": number}])

    staged = _taken(staging)

    assert (staged.project, staged.host, staged.session_id) == (P, "pi", "s")
    assert [line["n"] for line in staged.tools] == list(range(10, MAX_TOOLS + 10))
    assert len(staged.said) == 1


def test_a_flush_empties_staging_and_keeps_what_was_written(home: Path) -> None:
    """What is open is carried to the next turn; the keys written are remembered, bounded."""
    staging = Staging(HomePaths(home), "pi", "s", P)
    staging.stage([{"t": "said", "n": 1}])

    staging.flush(lambda _: (["open"], [f"k{n}" for n in range(MAX_LOGGED + 5)]))
    staging.stage([{"t": "said", "n": 2}])
    staged = _taken(staging)

    assert [line["n"] for line in staged.said] == [2]
    assert staged.carried == ["open"]
    assert len(staged.logged) == MAX_LOGGED


def test_a_failed_flush_leaves_staging_as_it_was(home: Path) -> None:
    """When the log cannot be written, nothing is lost: the next turn tries again."""
    staging = Staging(HomePaths(home), "pi", "s", P)
    staging.stage([{"t": "said", "n": 1}])

    def refuse(_: Staged) -> tuple[JsonValue, Sequence[str]]:
        raise Unavailable

    with pytest.raises(Unavailable):
        staging.flush(refuse)
    assert [line["n"] for line in _taken(staging).said] == [1]


def test_concurrent_hooks_lose_no_line(home: Path) -> None:
    """Tools that finish at the same time stage side by side."""

    def stage(number: int) -> None:
        done = False
        while not done:
            try:
                Staging(HomePaths(home), "claude", "s", P).stage([{"t": "tool", "n": number}])
                done = True
            except Busy:
                continue

    threads = [threading.Thread(target=stage, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    staged = _taken(Staging(HomePaths(home), "claude", "s", P))
    assert sorted(int(str(line["n"])) for line in staged.tools) == list(range(24))


def test_damaged_staging_is_dropped_and_an_ended_session_leaves_nothing(home: Path) -> None:
    """A file without its head is no staging; the last flush hands over and removes the file."""
    paths = HomePaths(home)
    staging = Staging(paths, "pi", "s", P)
    staging.stage([{"t": "said"}])
    (file,) = (paths.shared / "staging").glob("*.jsonl")
    file.write_bytes(b"{torn")

    assert not staging.flush(lambda _: (None, ()))
    staging.stage([{"t": "said"}])
    assert staging.flush(lambda _: (None, ()), last=True)
    assert list((paths.shared / "staging").glob("*.jsonl")) == []


def test_staging_of_killed_sessions_is_found_again(home: Path) -> None:
    """What nobody touched for a while belongs to a session that died."""
    paths = HomePaths(home)
    Staging(paths, "pi", "dead", P).stage([{"t": "said"}])
    (file,) = (paths.shared / "staging").glob("*.jsonl")
    touched = file.stat().st_mtime_ns // 1_000_000

    assert left_behind(paths, now=touched + 999, older_than_ms=1_000) == []
    (found,) = left_behind(paths, now=touched + 1_000, older_than_ms=1_000)
    assert found.flush(lambda staged: (staged.session_id, ()))
    assert found.project == P


def test_a_session_stages_what_it_says_where_it_says_it(home: Path) -> None:
    """One session in two projects has two files; neither holds a word of the other."""
    paths = HomePaths(home)
    for project in (P, OTHER):
        Staging(paths, "pi", "s", project).stage([{"t": "said", "n": project}])
    Staging(paths, "pi", "else", P).stage([{"t": "said"}])

    found = {staging.project: _taken(staging) for staging in of_session(paths, "pi", "s")}

    assert set(found) == {P, OTHER}
    assert all([line["n"] for line in found[p].said] == [p] for p in found)


def test_what_is_staged_beside_the_last_flush_is_not_lost(home: Path) -> None:
    """A tool that finishes while its session ends stages before or after, never in between."""
    paths = HomePaths(home)
    ending, late = Staging(paths, "pi", "s", P), Staging(paths, "pi", "s", P)
    ending.stage([{"t": "said"}])

    def take(_: Staged) -> tuple[JsonValue, Sequence[str]]:
        with pytest.raises(Busy):
            late.stage([{"t": "tool", "n": 1}])
        return None, ()

    ending.flush(take, last=True)
    late.stage([{"t": "tool", "n": 1}])

    assert [line["n"] for line in _taken(late).tools] == [1]
