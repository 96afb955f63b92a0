"""What a failed verb tells its caller: an exit code, one sentence, and what to do about it.

Owns the mapping from `storage.errors` (and the operating system's errors) to both. Promises that
every foreseeable cause has a sentence; an error that is not in the tree is a defect and is raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from ops.output import printable
from storage import errors


class Exit(IntEnum):
    """Exit codes of every verb."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_READY = 3
    UNHEALTHY = 4
    INTERRUPTED = 130


EXIT_MEANINGS: dict[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "refused or failed; the sentence says why",
    Exit.USAGE: "a wrong option, argument or setting",
    Exit.NOT_READY: "no memory here yet, or a needed file or service is not usable now",
    Exit.UNHEALTHY: "something is broken: a failed check, or a damaged store",
    Exit.INTERRUPTED: "stopped with Ctrl-C",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as people read it."""

    code: Exit
    sentence: str
    hint: str = ""


_HINTS: tuple[tuple[type[errors.MemorydError], Exit, str], ...] = (
    (errors.NotInitialized, Exit.NOT_READY, "Run `ops init` in the project's folder."),
    (errors.NewerSchema, Exit.UNHEALTHY, "Update memoryd, or use another --home."),
    (errors.WrongOwner, Exit.UNHEALTHY, "Nothing was changed. See `ops doctor`."),
    (errors.Corrupt, Exit.UNHEALTHY, "Nothing was changed. `ops verify`, then `ops repair`."),
    (errors.ConfigError, Exit.USAGE, "Correct that setting; README lists all of them."),
    (errors.Busy, Exit.NOT_READY, "Try again in a moment; `ops status` shows what runs."),
    (errors.Transient, Exit.NOT_READY, "Try again in a moment."),
    (errors.BudgetExhausted, Exit.NOT_READY, "`ops budget` shows when the day's budget returns."),
    (errors.MissingModel, Exit.NOT_READY, "Set model.provider, model.name and model.base_url."),
    (errors.DiskFull, Exit.NOT_READY, "Nothing was lost; then run the same command again."),
    (errors.Unavailable, Exit.NOT_READY, "`ops doctor` checks what memoryd needs."),
    (errors.Invalid, Exit.FAILED, ""),
    (errors.MemorydError, Exit.FAILED, ""),
)


def failure_of(error: errors.MemorydError | OSError) -> Failure:
    """The code, sentence and hint of one error."""
    if isinstance(error, OSError):
        where = f"{printable(str(error.filename))}: " if error.filename else ""
        if error.errno in errors.FULL_ERRNOS:
            return failure_of(errors.DiskFull(f"{where}the disk is full: free some space"))
        sentence = f"{where}{error.strerror or error}"
        return Failure(Exit.NOT_READY, sentence, "Check the path, its permissions and the disk.")
    for kind, code, hint in _HINTS:
        if isinstance(error, kind):
            return Failure(code, "\n".join(map(printable, str(error).split("\n"))), hint)
    raise AssertionError("MemorydError is the last row")
