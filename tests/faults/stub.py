"""Starting stub workers and reading what they did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.clock import SystemClock
from storage.jobs import JobKind, JobSpec, Priority
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import JsonValue, ProjectId
from tests.conftest import ROOT
from tests.support import wait_until

SCRIPT = Path(__file__).with_name("stub_worker.py")


class StubHome:
    """A home, its queue, and the workers started on it."""

    def __init__(self, home: Path) -> None:
        self.paths = HomePaths(home)
        self.queue: JobQueue = open_queue(self.paths, clock=SystemClock())
        self._record = home / "record"
        self._running: list[subprocess.Popen[str]] = []

    def environment(self, **extra: str) -> dict[str, str]:
        """What a worker of this home sees."""
        return {
            **os.environ,
            "PI_MEMORY_HOME": str(self.paths.home),
            "EFFECTS": str(self._record),
            "PYTHONPATH": str(ROOT),
            **extra,
        }

    def start(self, *arguments: str, ready: bool = True, **extra: str) -> subprocess.Popen[str]:
        """A worker process, listening when this returns (unless `ready` is false)."""
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments],
            env=self.environment(**extra),
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(process)
        if ready:
            wait_until(lambda: self.listens(process.pid), what="the worker listens")
        return process

    def listens(self, pid: int) -> bool:
        """Whether the worker with this pid holds its lock file."""
        return any(self.paths.workers.glob(f"{pid}-*.lock"))

    def add(
        self,
        subject: str,
        *,
        kind: JobKind = JobKind.SYNC,
        priority: Priority = Priority.BULK,
        **args: JsonValue,
    ) -> str:
        """Enqueue a stub job."""
        spec = JobSpec(
            kind=kind,
            project=ProjectId("p1"),
            subject=subject,
            priority=priority,
            args={"name": subject, **args},
        )
        return self.queue.enqueue([spec])[0]

    def effects(self) -> list[str]:
        """Names of the runs that came to their end, in order."""
        return [line.split()[1] for line in self._lines(".effects")]

    def started(self) -> list[str]:
        """Names of the runs that began, in order."""
        return [line.split()[1] for line in self._lines(".started")]

    def started_at_ns(self) -> list[int]:
        """When each run began."""
        return [int(line.split()[3]) for line in self._lines(".started")]

    def _lines(self, suffix: str) -> Sequence[str]:
        with suppress(FileNotFoundError):
            return self._record.with_suffix(suffix).read_text().splitlines()
        return ()

    def close(self) -> None:
        """End what still runs."""
        for process in self._running:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.kill()
            process.wait(20)
            if process.stderr is not None:
                process.stderr.close()
        self.queue.close()


@contextmanager
def stub_home(home: Path) -> Iterator[StubHome]:
    """A home whose workers end with the block."""
    made = StubHome(home)
    try:
        yield made
    finally:
        made.close()
