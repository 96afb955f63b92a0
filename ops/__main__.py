"""`python -I -m ops`: the command line, as the `ops` launcher starts it."""

from __future__ import annotations

import sys

from ops import entry


def load() -> entry.Main:
    """The command line; importing it takes a moment."""
    from ops.cli import main

    return main


if __name__ == "__main__":
    sys.exit(entry.run("ops", load, {"ok": False}, sys.argv[1:]))
