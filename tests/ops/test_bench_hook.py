"""The hook's bench: every client in every state of the daemon, and nothing left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from ops.bench.hook import asked_as
from ops.bench.hook_world import STATES
from ops.cli import cli


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:  # Any: numbers by client and state
    """A small run without Node."""
    argv = ["bench", "hook", "--samples", "4", "--documents", "3", "--node", "no-such-node"]

    done = CliRunner().invoke(cli, [*argv, "--json"])

    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_each_client_is_timed_in_each_state(figures: dict[str, Any]) -> None:
    """Positive times in order, a floor beside each, and the worst of them on top."""
    for client in ("claude", "in_process"):
        for state in STATES:
            found = figures[client][state]
            assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"] <= found["max_ms"]
            assert found["floor_p50_ms"] > 0
    assert figures["max_ms"] >= figures["claude"]["hung"]["max_ms"]


def test_an_idle_server_answers_every_prompt_and_a_hung_one_none(figures: dict[str, Any]) -> None:
    """What is timed is an answer with the memory in it, not a failure that comes quickly."""
    assert figures["claude"]["idle"]["answered"] == 1
    assert figures["in_process"]["idle"]["answered"] == 1
    assert figures["claude"]["locked"]["answered"] == 1
    assert figures["claude"]["hung"]["answered"] == 0


def test_a_host_that_cannot_be_run_is_named_as_such(figures: dict[str, Any]) -> None:
    """No figure is made up for Pi where there is no Node."""
    assert "no-such-node" in figures["pi"]


def test_no_prompt_is_asked_twice_in_a_row() -> None:
    """A cache of answers would otherwise be what is measured."""
    assert len({asked_as(number) for number in range(50)}) == 50
