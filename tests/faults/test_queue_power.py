"""A power cut at any moment: whatever was acknowledged is there when the machine starts again."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.records import ProjectId
from tests.support import ManualClock

STEPS = ("enqueue", "enqueue", "run", "PASSIVE", "RESTART", "TRUNCATE", "lend", "cut")


class Disk:
    """What a cut would leave of the queue's files: their bytes as of the last sync.

    Pages that were written but not synced are lost here, all of them: the harshest legal cut for
    the log. A checkpoint of SQLite's syncs the log before it copies and the file after it.
    """

    def __init__(self, home: Path) -> None:
        self.paths = HomePaths(home)
        self.files: dict[str, bytes] = {}
        self.sync_all()

    def sync_all(self) -> None:
        """Both files are durable as they are."""
        for end in ("", "-wal"):
            self._keep(end)

    def sync_log(self, _fd: int) -> None:
        """The log is."""
        self._keep("-wal")

    def _keep(self, end: str) -> None:
        path = Path(f"{self.paths.queue}{end}")
        self.files[end] = path.read_bytes() if path.exists() else b""

    def after_a_cut(self, folder: Path) -> HomePaths:
        """A home with what is left."""
        paths = HomePaths(folder)
        paths.shared.mkdir(parents=True, mode=0o700)
        for end, data in self.files.items():
            path = Path(f"{paths.queue}{end}")
            path.touch(mode=0o600)
            path.write_bytes(data)
        return paths


@settings(
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=14))
def test_what_was_acknowledged_outlives_a_power_cut(
    monkeypatch: pytest.MonkeyPatch, steps: list[str]
) -> None:
    """However enqueues, endings and checkpoints of two processes follow each other."""
    with tempfile.TemporaryDirectory() as folder:
        home, clock = Path(folder) / "home", ManualClock()
        home.mkdir(mode=0o700)
        queue = open_queue(HomePaths(home), clock=clock)
        disk = Disk(home)
        monkeypatch.setattr("storage.queue_file._sync_data", disk.sync_log)
        acknowledged: list[str] = []
        for number, step in enumerate([*steps, "cut"]):
            if step == "enqueue":
                acknowledged += queue.enqueue([_spec(number)])
            elif step == "lend":
                # Another process, which opens, asks and leaves as a hook does.
                with closing(open_queue(HomePaths(home), clock=clock)) as hook:
                    acknowledged += hook.enqueue([_spec(number)])
            elif step == "run":
                job = queue.claim("1-me")
                if job is not None:
                    queue.acknowledge(job)
            elif step == "cut":
                _must_hold(disk, Path(folder) / f"cut{number}", acknowledged, clock)
            else:
                queue.file.checkpoint(step)  # type: ignore[arg-type]
                disk.sync_all()
        queue.close()


def _must_hold(disk: Disk, folder: Path, acknowledged: list[str], clock: ManualClock) -> None:
    found = open_queue(disk.after_a_cut(folder), clock=clock)
    missing = [name for name in acknowledged if found.job(name) is None]
    sound = found.file.db.pragma("integrity_check")
    found.close()
    shutil.rmtree(folder)
    assert (missing, sound) == ([], "ok")


def _spec(number: int) -> JobSpec:
    return JobSpec(kind=JobKind.EMBED, project=ProjectId("p1"), subject=str(number))


def test_the_model_of_the_disk_loses_what_was_not_synced(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the rule above would prove nothing: without the sync, an enqueue does not survive."""
    queue = open_queue(HomePaths(home), clock=ManualClock())
    disk = Disk(home)
    monkeypatch.setattr("storage.queue_file._sync_data", lambda _: None)
    (name,) = queue.enqueue([_spec(1)])

    after = open_queue(disk.after_a_cut(home / "cut"), clock=ManualClock())

    assert after.job(name) is None
    after.close()
    queue.close()
