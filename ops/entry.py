"""How a command of ours begins and ends, before and after anything else is imported.

Owns the first moments (Ctrl-C while modules load is answered like any other), the standard streams
(a closed one is told, or replaced by nothing; a full one is told), and how the process ends.
Imports nothing that takes time. Leaves what the command does to it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

Main = Callable[[Sequence[str]], int]

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAILED, NOT_READY, INTERRUPTED = 1, 3, 130
"""As in `ops.exits`, which takes too long to import here; a test compares them."""


def run(
    program: str, load: Callable[[], Main], empty: Mapping[str, object], argv: list[str]
) -> int:
    """The command's exit code. `load` imports it; `empty` is its object when nothing was done."""
    as_json = "--json" in argv

    def stopped(number: int, _frame: FrameType | None) -> None:
        # Nothing has begun: an exception thrown into a half-done import would be shown raw.
        report(program, "Stopped before it began.", "", empty if as_json else None)
        os._exit(INTERRUPTED)

    if not _streams_stand(program):
        return NOT_READY
    # What a caller has switched off (nohup, a job in the background) stays so.
    heard = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    kept = {number: signal.signal(number, stopped) for number in heard}
    main = load()
    try:
        for number, handler in kept.items():
            signal.signal(number, handler)
        code = main(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        report(program, "Stopped.", "", empty if as_json else None)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has enough; the flush at exit must not complain about it.
        silence()
        return FAILED
    except OSError as error:
        silence()
        words = f"standard output cannot be written ({error.strerror or error})."
        print(f"{program}: {words}", file=sys.stderr)
        return NOT_READY
    return code


def report(program: str, sentence: str, hint: str, empty: Mapping[str, object] | None) -> None:
    """Why a command ended: for people, or (`empty` given) the whole object for programs."""
    if empty is None:
        print(f"{program}: {sentence}", file=sys.stderr)
        if hint:
            print(f"{' ' * len(program)}  {hint}", file=sys.stderr)
        return
    value = {**empty, "ok": False, "error": sentence, "hint": hint}
    print(json.dumps(value), flush=True)


def silence() -> None:
    """Let standard output lead nowhere: what its buffer still holds cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _streams_stand(program: str) -> bool:
    """Whether there is a standard output. A closed descriptor would be given to the next file."""
    if sys.stdin is None:
        os.open(os.devnull, os.O_RDONLY)
    closed = sys.stdout is None
    if closed:
        _fill(1)
    if sys.stderr is None:
        _fill(2)
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 -- for the process's life
    if closed:
        print(f"{program}: standard output is closed: nothing could be shown.", file=sys.stderr)
    return not closed


def _fill(number: int) -> None:
    found = os.open(os.devnull, os.O_WRONLY)
    if found != number:
        os.dup2(found, number)
        os.close(found)
