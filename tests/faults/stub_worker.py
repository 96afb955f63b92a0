"""A real worker whose bodies do what a test's job says; run as a script, never imported by tests.

Arguments of a job: `ms` to work, `do` to misbehave. Each run that comes to its end appends one line
(job id, subject, pid) to the file named by EFFECTS: the effect that is counted.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import worker
from storage.errors import Stale
from storage.jobs import JobKind, JobSpec
from storage.records import JsonValue
from tasks.context import Context, Finished
from tasks.dispatch import Route

SPIN_S = 4.0
MAX_RUNTIME_MS = int(os.environ.get("MAX_RUNTIME_MS", "60000"))


def _append(name: str, line: str) -> None:
    fd = os.open(
        Path(os.environ["EFFECTS"]).with_suffix(name), os.O_WRONLY | os.O_APPEND | os.O_CREAT
    )
    try:
        os.write(fd, line.encode() + b"\n")
    finally:
        os.close(fd)


def body(context: Context, args: Mapping[str, JsonValue]) -> Finished:
    """Work as told."""
    name = f"{context.lease.stamp.job_id} {args.get('name', '')} {os.getpid()}"
    _append(".started", f"{name} {time.time_ns()}")
    _misbehave(str(args.get("do", "")))
    time.sleep(float(str(args.get("ms", 0))) / 1000)
    if args.get("checks"):
        context.lease.check()
    _append(".effects", name)
    then = args.get("then")
    if then:
        spec = JobSpec(
            kind=JobKind.EMBED, project=context.project, subject=str(then), args={"name": then}
        )
        return Finished(successors=(spec,))
    return Finished()


def _misbehave(what: str) -> None:
    match what:
        case "exit":
            os._exit(9)
        case "segv":
            # A true fault of this thread: a signal to the process may leave it some more steps.
            ctypes.string_at(0)
        case "hang":
            threading.Event().wait()
        case "hang in C":
            ctypes.CDLL(None).pause()
        case "stale":
            raise Stale
        case "hoard":
            # A limit a little above what is in use now: the next big allocation fails.
            used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
            before = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
            try:
                bytearray(1 << 30)
            finally:
                resource.setrlimit(resource.RLIMIT_AS, before)
        case "spin":
            # Pure Python that never gives the interpreter up by itself.
            until = time.monotonic() + SPIN_S
            while time.monotonic() < until:
                sum(range(1_000))
        case _:
            pass


if __name__ == "__main__":
    routes = {kind: Route(body, MAX_RUNTIME_MS) for kind in JobKind}
    sys.exit(worker.main(routes=routes, projects=tuple))
