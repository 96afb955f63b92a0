"""The short version of `ops chaos queue`: everything at once, and the provider keeps count."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.chaos.queue import MUST_BE_ZERO, run

SECONDS = 4.0


@pytest.mark.slow
def test_i1_i2_i11_a_storm_loses_doubles_and_overspends_nothing(tmp_path: Path) -> None:
    """Kills, stops, freezes, held locks and set clocks; what was really served stays in budget."""
    said: list[str] = []

    figures, harmless = run(tmp_path / "home", seconds=SECONDS, seed=3, tell=said.append)

    assert {name: figures[name] for name in MUST_BE_ZERO} == dict.fromkeys(MUST_BE_ZERO, 0), figures
    assert harmless
    assert int(str(figures["acked"])) > 20
    assert "seed 3" in said[0]
