"""`ops repair queue`: what it says, what it leaves alone, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops.cli import main
from ops.exits import Exit
from storage.clock import SystemClock
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.queue_owner import Owner


def run(home: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, object]]:
    """Exit code and answer of one run."""
    code = main(["repair", "queue", "--json", "--home", str(home)])
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return code, answer


def test_a_damaged_queue_is_set_aside_once(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named, replaced, and sound the second time."""
    paths = HomePaths(home)
    open_queue(paths, clock=SystemClock()).close()
    paths.queue.write_bytes(b"garbage" * 900)

    first_code, first = run(home, capsys)
    second_code, second = run(home, capsys)

    assert (first_code, second_code) == (Exit.OK, Exit.OK)
    assert (first["changed"], second["changed"]) == (True, False)
    assert "curation.sqlite" in str(first["damage"])
    assert Path(str(first["kept_in"])).is_dir()


def test_a_running_consumer_is_not_disturbed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what to do first."""
    paths = HomePaths(home)
    open_queue(paths, clock=SystemClock()).close()
    owner = Owner(paths)

    code, answer = run(home, capsys)
    owner.close()

    assert code != Exit.OK
    assert "ops stop" in str(answer)


def test_in_words_for_people(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the old file is, and what happens next."""
    paths = HomePaths(home)
    open_queue(paths, clock=SystemClock()).close()
    paths.queue.write_bytes(b"garbage" * 900)

    main(["repair", "queue", "--home", str(home)])

    said = capsys.readouterr().out
    assert "set aside in" in said
    assert "before tomorrow" in said
