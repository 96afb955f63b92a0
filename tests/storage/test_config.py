"""Settings: precedence, and mistakes that are told instead of swallowed."""

from __future__ import annotations

import re
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


def test_limits_shares_and_concurrency_are_tables(home: Path) -> None:
    """A project, a kind, a model or a class may have its own limit; each names what it binds."""
    paths = HomePaths(home)
    _write(
        paths.config,
        "[budget.limits]\n'project:p' = {calls = 5}\n[budget.shares]\n'kind:gc' = 1\n"
        "[queue.concurrency]\nbulk = 2\n",
    )

    settings = load_settings(paths, {})

    assert settings.budget.limits == {"project:p": {"calls": 5}}
    assert settings.budget.shares == {"kind:gc": 1.0}
    assert settings.queue.concurrency == {"bulk": 2}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[budgett]\n", "did you mean budget?"),
        ("[budget]\ncals_per_day = 1\n", "did you mean calls_per_day?"),
        ("[budget]\ncalls_per_day = '1'\n", "expected int, got str"),
        ("[budget]\ncalls_per_day = true\n", "expected int, got bool"),
        ("[queue]\nworkers = 0\n", "expected at least 1"),
        ("[encoder]\nprovider = 'magic'\n", "expected one of"),
        ("[budget]\nzone = 'Mars/Olympus'\n", "no such time zone"),
        ("[budget]\nlimits = 3\n", "expected a table"),
        ("[budget.limits]\n'projekt:a' = {calls = 1}\n", "expected project:<name>"),
        ("[budget.limits]\n'kind:translat' = {calls = 1}\n", "did you mean translate?"),
        ("[budget.limits]\n'model:m' = {cals = 1}\n", "budget.limits.model:m: expected one of"),
        ("[budget.limits]\n'model:m' = {calls = -1}\n", "expected a whole number"),
        ("[budget.shares]\n'class:bulk' = 2\n", "from 0 to 1"),
        ("[budget.shares]\n'class:bulk' = 0.6\n'kind:gc' = 0.6\n", "more than 1 together"),
        ("[queue.concurrency]\nbulky = 1\n", "did you mean bulk?"),
        ("[queue.concurrency]\nbulk = 0\n", "expected at least 1"),
        ("[schedule]\nmissed = 'maybe'\n", "expected one of"),
        ("budget = 3\n", "must be a table"),
        ("[budget\n", "cannot be read as TOML"),
    ],
)
def test_a_mistake_is_named(home: Path, text: str, told: str) -> None:
    """An error says which key, what was expected and what was found."""
    paths = HomePaths(home)
    _write(paths.config, text)

    with pytest.raises(ConfigError, match=re.escape(told)):
        load_settings(paths, {})


def test_a_bad_environment_value_names_its_variable(home: Path) -> None:
    """The variable is the place where a person will look."""
    with pytest.raises(ConfigError, match="PI_MEMORY_DAEMON_MAX_CALLS"):
        load_settings(HomePaths(home), {"PI_MEMORY_DAEMON_MAX_CALLS": "many"})
