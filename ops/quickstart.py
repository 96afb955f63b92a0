"""`python -I -m ops.quickstart`, started by `ops/bin/quickstart`: the first run in one command.

Owns the object that `--json` prints when nothing was done. Leaves the run itself to
`ops.first_run`, and beginning and ending to `ops.entry`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ops import entry

PROGRAM: Final = "quickstart"
NOTHING: Final[Mapping[str, bool | int | float | str]] = MappingProxyType(
    {
        "ok": False,
        "transcripts": 0,
        "observations": 0,
        "learned": 0,
        "embedded": 0,
        "question": "",
        "recalled": 0,
        "block": "",
        "block_bytes": 0,
        "seconds_setup": 0.0,
        "seconds_run": 0.0,
    }
)
"""Every key of the object on the last line of `--json`."""


def load() -> entry.Main:
    """The first run; importing it takes a moment."""
    from ops.first_run import main

    return main


if __name__ == "__main__":
    sys.exit(entry.run(PROGRAM, load, NOTHING, sys.argv[1:]))
