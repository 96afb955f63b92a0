"""`ops chaos authority` says what it tried and what was lost, and fails when anything was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ops.chaos import authority
from ops.chaos.acts import acts
from ops.chaos.storm import StormTally
from ops.cli import cli
from ops.exits import Exit
from storage.records import JsonValue

NAMES = {"images", "legal_states", "faults", "lost", "mixed", "unopenable", "verify_failures"}


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """One act and no processes: what they prove is proven in tests/faults."""
    first = acts()[:1]
    monkeypatch.setattr(authority, "acts", lambda: first)
    monkeypatch.setattr(authority, "storm", lambda *_, **__: StormTally())


def invoked(*more: str) -> tuple[int, dict[str, JsonValue]]:
    done = CliRunner().invoke(cli, ["chaos", "authority", "--seconds", "1", "--json", *more])
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.usefixtures("brief")
def test_a_sound_store_gives_zeros_and_exit_code_0() -> None:
    """The figures are one JSON object."""
    code, figures = invoked()

    assert code == 0
    assert figures.keys() >= NAMES
    assert (figures["lost"], figures["mixed"], figures["unopenable"]) == (0, 0, 0)
    assert isinstance(figures["images"], int)
    assert figures["images"] > 0


@pytest.mark.usefixtures("brief")
def test_a_loss_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs it in a script need not read the figures."""
    lossy = StormTally(lost=2)
    monkeypatch.setattr(authority, "storm", lambda *_, **__: lossy)

    code, figures = invoked("--seed", "3")

    assert code == Exit.UNHEALTHY
    assert figures["lost"] == 4


def test_examples_are_bounded(tmp_path: Path) -> None:
    """A store that breaks everywhere does not fill the screen."""
    tally = authority.Tally()

    for number in range(50):
        tally.wrong("lost", "somewhere", str(number))

    assert tally.lost == 50
    assert len(tally.examples) == authority.EXAMPLES
