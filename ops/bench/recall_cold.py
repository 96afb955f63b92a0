"""One question answered by a fresh process from SQLite: what recall costs where no server runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hooks.recall import Ask
from hooks.recall_client import recall_from_sqlite
from storage.clock import SystemClock
from storage.paths import HomePaths

DEADLINE_MS = 60_000


def main(argv: list[str]) -> int:
    """Answer the question of `HOME CHECKOUT QUESTION`; prints how many items that gave."""
    found = recall_from_sqlite(
        HomePaths(Path(argv[0])),
        Ask(cwd=argv[1], query=argv[2]),
        clock=SystemClock(),
        environment=dict(os.environ),
        deadline_ms=DEADLINE_MS,
    )
    sys.stdout.write(f"{len(found.items)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
