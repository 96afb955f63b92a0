"""README tells the truth: its commands run, its tables match the code."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest

from ops.exits import EXIT_MEANINGS
from storage.config import ENVIRONMENT, Settings
from storage.log import EVENTS
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STAMP = ROOT / ".venv/.memoryd-stamp"


def _commands() -> list[str]:
    return [line for block in BLOCK.findall(README) for line in block.splitlines() if line.strip()]


def _rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    section = README.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = section[section.index("\n| ") + 1 :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


@pytest.mark.slow
def test_every_command_shown_runs(tmp_path: Path) -> None:
    """In the order of the text, as a new user with an empty home: each one ends with 0.

    The other of the two commands, ./ops/bin/test, is what runs this test: only its help is asked.
    """
    if not STAMP.is_file():
        pytest.skip("this checkout's .venv was not made by ./ops/bin/test or ./ops/bin/quickstart")
    user, project = tmp_path / "user", tmp_path / "project"
    for folder in (user, project):
        folder.mkdir()
    environment = {
        "HOME": str(user),
        "PATH": f"{user}/.local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
    }
    failed = {}
    for command in _commands():
        asked = "./ops/bin/test --help" if command == "./ops/bin/test" else command
        ours = asked.startswith("./ops/bin/") or "$PWD/.venv" in asked
        done = subprocess.run(
            ["/bin/sh", "-c", asked],
            cwd=ROOT if ours else project,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0 or "Traceback" in done.stderr:
            failed[command] = (done.returncode, done.stdout[-500:], done.stderr[-500:])

    assert failed == {}
    assert list(user.glob(".prjct")) == [], "the last commands shown remove everything"
    assert list(project.iterdir()) == []


def test_the_two_commands_are_shown() -> None:
    """The whole of getting started is two lines."""
    assert {"./ops/bin/quickstart", "./ops/bin/test"} <= set(_commands())


def test_the_table_of_settings_is_complete_and_right() -> None:
    """Every key with its default and its environment variable, and no key that does not exist."""
    variables = {f"{section}.{key}": name for name, (section, key) in ENVIRONMENT.items()}
    settings = Settings()
    expected = {
        f"{section.name}.{item.name}": (
            json.dumps(getattr(getattr(settings, section.name), item.name)),
            variables.get(f"{section.name}.{item.name}", ""),
        )
        for section in fields(Settings)
        for item in fields(getattr(settings, section.name))
    }

    shown = {row[0].strip("`"): (row[1].strip("`"), row[2].strip("`")) for row in _rows("Settings")}

    assert shown == expected


def test_the_table_of_log_events_is_complete() -> None:
    """What may stand in the log is a closed list; README explains each entry."""
    assert {row[0].strip("`") for row in _rows("Logs")} == EVENTS
    assert [row[0] for row in _rows("Logs") if len(row[1]) < 10] == []


def test_the_exit_codes_are_named() -> None:
    """Each code with the meaning that `ops --help` gives it, in the same order."""
    said = README.split("Exit codes:")[1].split("\n\n")[0]

    assert re.findall(r"\b(\d+) [a-z]", said) == [str(code.value) for code in EXIT_MEANINGS]


def test_no_line_is_too_long_to_read_in_a_terminal() -> None:
    """Prose wraps at 110 columns; tables may be wider."""
    prose = [line for line in README.splitlines() if not line.startswith("|")]

    assert [line for line in prose if len(line) > 110] == []
