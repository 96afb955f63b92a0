"""One hook without a server: `python -I -m hooks HOST EVENT --home H`, the payload on stdin.

Answers a prompt from SQLite within its deadline, writes the event down in a process that outlives
this one (a host kills its hook as soon as it has the answer), and starts the server for the next
time. Prints the host's own JSON or nothing, and exits 0 whatever happens.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from hooks import plain_records

if __name__ == "__main__":
    # Before anything of ours: half of a hook's time would go into its classes.
    plain_records.install()

from hooks.events import PromptSubmitted
from storage.paths import HomePaths, home_directory

if TYPE_CHECKING:
    from hooks.events import HookEvent
    from hooks.recall import Prompted
    from hooks.receipts import Answered

MAX_INPUT: Final = 8_388_608
DEADLINE_MS: Final = 170
"""What is left of a host's patience once an interpreter has started twice."""
MAX_RECEIPT: Final = 16_384
"""Every system's pipe takes so much at once, without a reader."""


def main(argv: Sequence[str]) -> None:
    """Do what one hook asks for.

    Raises:
        Exception: anything; the caller is the outermost entry and fails open.
    """
    if os.environ.get("MEMORYD_INTERNAL", "") not in ("", "0") or len(argv) < 2:
        return
    # Nothing lives long enough here to be worth looking for cycles, a twentieth of the imports.
    gc.disable()
    from hooks.hosting import host_named

    host = host_named(argv[0])
    payload = _payload()
    event: HookEvent | None = None
    if host is not None and payload is not None:
        event = host.parse(argv[1], payload)
    if host is None or event is None:
        return
    paths = HomePaths(home_directory(_option(argv, "--home"), os.environ))
    if not paths.shared.is_dir():
        return
    if not isinstance(event, PromptSubmitted):
        _keep(paths, event)
        return
    answered = _in_background(paths, event)
    found = _prompted(paths, event)
    shown = host.render(event, found.outcome)
    if found.answered is not None:
        # Before the answer: whoever reads that may kill this process at once.
        os.write(answered, _receipt(found.answered))
    if shown is not None:
        sys.stdout.write(json.dumps(shown, separators=(",", ":")) + "\n")
        sys.stdout.flush()
    os.close(answered)


def _prompted(paths: HomePaths, event: PromptSubmitted) -> Prompted:
    from hooks.recall_client import prompted_from_sqlite
    from storage.clock import SystemClock

    return prompted_from_sqlite(
        paths, event, clock=SystemClock(), environment=os.environ, deadline_ms=DEADLINE_MS
    )


def _receipt(answered: Answered) -> bytes:
    """What the process in the background writes down; nothing that a pipe would not take at once.

    The prompt stays here, and the project's name and days go with it: that process knows neither.
    """
    from hooks.receipts import receipt_of
    from retrieval.receipts import to_json

    told = {
        "project": answered.project,
        "keep_days": answered.keep_days,
        "receipt": to_json(receipt_of(answered)),
    }
    raw = json.dumps(told, separators=(",", ":")).encode("ascii")
    return raw if len(raw) <= MAX_RECEIPT else b""


def _keep_receipt(paths: HomePaths, raw: bytes) -> None:
    from storage.receipt_log import append
    from storage.records import ProjectId

    if raw:
        told = json.loads(raw)
        project, receipt = paths.project(ProjectId(told["project"])), told["receipt"]
        append(project, receipt, now=receipt["at"], keep_days=told["keep_days"])


def _in_background(paths: HomePaths, event: HookEvent) -> int:
    """Let a process of its own, away from the agent's session and pipes, write the event down.

    It begins when the descriptor that this returns is closed, if only by the end of this process
    (a host may kill it at any moment): until then the processor belongs to the answer.
    """
    waiting, answered = os.pipe()
    if os.fork():
        os.close(waiting)
        return answered
    try:
        os.setsid()
        os.close(answered)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        told = b""
        while part := os.read(waiting, MAX_RECEIPT):
            told += part
        try:
            _keep(paths, event)
        finally:
            _keep_receipt(paths, told)
    except BaseException as problem:
        _note(paths, problem)
    finally:
        os._exit(0)


def _keep(paths: HomePaths, event: HookEvent) -> None:
    from hooks.recall_client import start_server
    from storage.clock import SystemClock

    try:
        from hooks.capture import Capture

        Capture(paths, SystemClock()).handle(event)
    finally:
        start_server(paths)


def _payload() -> Mapping[str, object] | None:
    raw = sys.stdin.buffer.read(MAX_INPUT + 1)
    if len(raw) > MAX_INPUT:
        return None
    value = json.loads(raw.decode("utf-8", "replace"))
    return value if isinstance(value, dict) else None


def _option(argv: Sequence[str], name: str) -> str | None:
    for at in range(2, len(argv) - 1):
        if argv[at] == name:
            return argv[at + 1]
    return None


def _note(paths: HomePaths, problem: BaseException) -> None:
    from hooks.eventlog import EventLog
    from storage.clock import SystemClock

    EventLog(paths.logs / "hooks.log", SystemClock()).write(
        "hook.failed", problem=type(problem).__name__
    )


def run(argv: Sequence[str]) -> None:
    """`main`, and exit 0: any other code, and any text beside JSON, would reach the agent."""
    try:
        main(argv)
    except BaseException as problem:
        try:
            _note(HomePaths(home_directory(_option(argv, "--home"), os.environ)), problem)
        except BaseException:
            os._exit(0)
    finally:
        os._exit(0)


if __name__ == "__main__":
    run(sys.argv[1:])
