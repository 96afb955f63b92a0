"""The model's runtime keeps to itself: no report to its maker, no file outside the home."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from retrieval.embedding import OnnxEncoder
from storage.config import EncoderSettings
encoder = OnnxEncoder(EncoderSettings())
assert encoder.encode(["a short text"]).shape == (1, 384)
threading.Event().wait(1.0)
"""


def test_loading_the_encoder_reports_nothing_to_anybody(tmp_path: Path) -> None:
    """In an environment that says nothing (no CI variable), an encode leaves no file in HOME.

    The runtime's telemetry first makes a device id there; with it off, nothing appears.
    """
    root = Path(__file__).resolve().parents[2]
    user = tmp_path / "user"
    user.mkdir()

    subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, str(root)],
        env={"HOME": str(user), "PATH": "/usr/bin:/bin"},
        check=True,
        timeout=120,
    )

    assert [str(path.relative_to(user)) for path in user.rglob("*")] == []
