"""The log: events from a list, and nobody's words."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from storage.errors import Unavailable
from storage.log import (
    EVENTS,
    LOG_NAME,
    RotatingFile,
    configure,
    get_logger,
    keep_plain,
    logged_about,
)
from storage.paths import HomePaths
from tasks.lease import Outcome
from tests.conftest import ROOT
from tests.support import ManualClock


@pytest.fixture(autouse=True)
def fresh_configuration() -> Iterator[None]:
    """Logging is process-wide: put it back."""
    yield
    structlog.reset_defaults()
    logger = logging.getLogger("huey")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)


def _lines(paths: HomePaths) -> list[dict[str, object]]:
    return [json.loads(line) for line in (paths.logs / LOG_NAME).read_text().splitlines()]


def test_an_event_is_one_json_line_in_a_private_file(home: Path) -> None:
    """Stamped by our clock, with what is bound to the run."""
    paths = HomePaths(home)
    configure(paths, ManualClock(), terminal=False)
    with logged_about(job_id="1-a", attempt=2):
        get_logger().info("job.completed", duration_ms=7)

    assert _lines(paths) == [
        {
            "at": "2027-01-15T08:00:00.000Z",
            "attempt": 2,
            "duration_ms": 7,
            "event": "job.completed",
            "job_id": "1-a",
            "level": "info",
        }
    ]
    assert (paths.logs / LOG_NAME).stat().st_mode & 0o777 == 0o600


def test_free_text_has_no_way_through() -> None:
    """Unknown keys keep numbers only; known words are short and plain; odd types vanish."""
    kept = keep_plain(
        None,
        "info",
        {
            "event": "job.failed",
            "statement": "the user said so",
            "prompt": ["a"],
            "error": "X" * 500,
            "kind": 'sync"\n{"fake":1}',
            "tokens": 5,
        },
    )

    assert kept == {
        "event": "job.failed",
        "error": "X" * 120,
        "kind": "sync????fake?:1?",
        "tokens": 5,
    }


def test_an_event_that_is_not_listed_is_shown_without_its_name() -> None:
    """A name built from data would carry words."""
    assert keep_plain(None, "info", {"event": "remember the milk"}) == {"event": "log.unlisted"}
    assert "log.unlisted" in EVENTS


def test_what_libraries_say_is_reported_without_their_text(home: Path) -> None:
    """Huey's messages and tracebacks quote arguments."""
    paths = HomePaths(home)
    configure(paths, ManualClock(), terminal=False)
    logging.getLogger("huey.consumer").info("not loud enough: private")
    try:
        raise ValueError("private words")
    except ValueError:
        logging.getLogger("huey").exception("Unhandled: private words")

    (line,) = _lines(paths)
    assert (line["event"], line["problem"]) == ("library.reported", "ValueError")
    assert "private" not in json.dumps(line)


def test_a_log_that_cannot_be_opened_is_named(home: Path) -> None:
    """A folder stands in its place: one sentence, no traceback."""
    paths = HomePaths(home)
    (paths.logs / LOG_NAME).mkdir(parents=True)

    with pytest.raises(Unavailable, match=r"worker\.log"):
        configure(paths, ManualClock(), terminal=False)


def test_a_full_file_moves_aside_and_old_ones_go(tmp_path: Path) -> None:
    """The log is bounded."""
    path = tmp_path / "logs" / "x.log"
    file = RotatingFile(path, max_bytes=100, kept=2)
    for n in range(30):
        file.write(f"{n:039d}\n")
    file.close()
    file.close()

    names = sorted(entry.name for entry in path.parent.iterdir())
    assert names == ["x.log", "x.log.1", "x.log.2"]
    assert all(entry.stat().st_size <= 100 for entry in path.parent.iterdir())
    assert path.read_text().splitlines()[-1].endswith("29")


def test_every_listed_event_is_logged_somewhere() -> None:
    """The list promises nothing that no line of the program says."""
    packages = ("storage", "retrieval", "tasks", "hooks", "ops")
    sources = [ROOT / "worker.py", *(f for name in packages for f in (ROOT / name).rglob("*.py"))]
    said = {f"job.{outcome.value}" for outcome in Outcome}
    for path in sources:
        if path != ROOT / "storage/log.py":
            said |= EVENTS & set(re.findall(r'"([a-z]+\.[a-z_]+)"', path.read_text("utf-8")))
    by_the_log_itself = {"library.reported", "log.unlisted"}

    assert said | by_the_log_itself >= EVENTS
