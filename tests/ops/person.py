"""Somebody at a terminal: types verbs into one home, reads what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from ops.cli import cli, main
from storage.paths import HomePaths


def _takes(words: tuple[str, ...]) -> bool:
    """Whether a verb is about one project's folder."""
    verb = cli.get_command(click.Context(cli), words[0])
    return verb is not None and any(option.name == "project" for option in verb.params)


class Typist:
    """Types `ops` verbs about one home and, where a verb takes it, one project's folder."""

    def __init__(
        self, home: Path, capsys: pytest.CaptureFixture[str], project: Path | None = None
    ) -> None:
        self.paths = HomePaths(home)
        self._capsys = capsys
        self._project = project

    def types(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        where = ["--project", str(self._project)] if self._project and _takes(words) else []
        code = main([*words, "--home", str(self.paths.home), *where])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def asks(self, *words: str) -> dict[str, Any]:  # Any: the answer's own JSON
        """The object that `--json` answers with."""
        _, out, _ = self.types(*words, "--json")
        found: dict[str, Any] = json.loads(out)
        return found
