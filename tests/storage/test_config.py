"""Settings: precedence, and mistakes that are told instead of swallowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.config import Settings, load_settings
from storage.errors import ConfigError
from storage.paths import HomePaths
from storage.records import ProjectId

PROJECT = ProjectId("p_0123456789ab")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_no_files_mean_the_defaults(home: Path) -> None:
    """A home without settings works, and reading settings creates nothing."""
    settings = load_settings(HomePaths(home), {})

    assert settings == Settings()
    assert list(home.iterdir()) == []


def test_environment_beats_project_beats_home(home: Path) -> None:
    """The narrower source wins, key by key."""
    paths = HomePaths(home)
    project = paths.project(PROJECT)
    _write(paths.config, "[budget]\ncalls_per_day = 7\ntokens_per_day = 70\n[queue]\nworkers = 3\n")
    _write(project.config, "[budget]\ncalls_per_day = 8\ntokens_per_day = 80\n")

    settings = load_settings(paths, {"PI_MEMORY_DAEMON_MAX_CALLS": "9"}, project)

    assert settings.budget.calls_per_day == 9
    assert settings.budget.tokens_per_day == 80
    assert settings.queue.workers == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[budgett]\n", "did you mean budget?"),
        ("[budget]\ncals_per_day = 1\n", "did you mean calls_per_day?"),
        ("[budget]\ncalls_per_day = '1'\n", "expected int, got str"),
        ("[budget]\ncalls_per_day = true\n", "expected int, got bool"),
        ("[queue]\nworkers = 0\n", "expected at least 1"),
        ("[encoder]\nprovider = 'magic'\n", "expected one of"),
        ("budget = 3\n", "must be a table"),
        ("[budget\n", "cannot be read as TOML"),
    ],
)
def test_a_mistake_is_named(home: Path, text: str, told: str) -> None:
    """An error says which key, what was expected and what was found."""
    paths = HomePaths(home)
    _write(paths.config, text)

    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        load_settings(paths, {})


def test_a_bad_environment_value_names_its_variable(home: Path) -> None:
    """The variable is the place where a person will look."""
    with pytest.raises(ConfigError, match="PI_MEMORY_DAEMON_MAX_CALLS"):
        load_settings(HomePaths(home), {"PI_MEMORY_DAEMON_MAX_CALLS": "many"})
