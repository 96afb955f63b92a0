"""The daemon: `python -I -m worker`, or stock `huey_consumer worker.huey`.

Runs the queue of one home until it is told to stop (TERM: running jobs finish, at most 25 s; what
is still running then is given back). Exit codes: 0 done, 1 failed, 2 usage, 3 another worker runs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from storage.clock import SystemClock
from storage.errors import MemorydError
from storage.log import configure
from storage.paths import HomePaths, home_directory

if TYPE_CHECKING:
    from tasks.queue import LeasedHuey

SHUTDOWN_S = 25
"""Below the 30 s that the service unit grants."""

_built: dict[str, LeasedHuey] = {}


def __getattr__(name: str) -> Any:
    # Built when asked for: importing this module opens no file.
    if name == "huey":
        if "huey" not in _built:
            _built["huey"] = _build(HomePaths(home_directory(None, os.environ)))
        return _built["huey"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _build(paths: HomePaths, **engine_options: Any) -> LeasedHuey:
    from tasks.queue import build_huey

    return build_huey(paths, os.environ, SystemClock(), **engine_options)


def main(argv: Sequence[str] | None = None, **engine_options: Any) -> int:
    """Run the worker; its exit code. `engine_options` go to `tasks.engine.Engine`."""
    options = _arguments(argv)
    paths = HomePaths(home_directory(options.home, os.environ))
    try:
        configure(paths, SystemClock())
        built = _build(paths, **engine_options)
        consumer = built.create_consumer(
            workers=options.workers or built.engine.settings.queue.workers,
            graceful_signal="TERM",
            shutdown_timeout=SHUTDOWN_S,
            once=options.once,
        )
    except (MemorydError, OSError) as cause:
        sys.stderr.write(f"{cause}\n")
        return 1
    # A closed terminal is a polite stop too: Huey's restart would lose -I.
    consumer._signal_actions[signal.SIGHUP] = (False, True)
    try:
        consumer.run()
    except (MemorydError, OSError) as cause:
        sys.stderr.write(f"{cause}\n")
        return 1
    finally:
        built.engine.close()
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="worker", description="Run the background work of a home."
    )
    parser.add_argument(
        "--home", help="memory home (default: PI_MEMORY_HOME, PRJCT_HOME, ~/.prjct)"
    )
    parser.add_argument("--workers", type=int, help="threads (default: the setting queue.workers)")
    parser.add_argument("--once", action="store_true", help="run what is due, then leave")
    options = parser.parse_args(argv)
    if options.workers is not None and options.workers < 1:
        parser.error("--workers must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
