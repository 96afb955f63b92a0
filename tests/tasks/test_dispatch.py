"""Dispatch: lazy bodies, a context that is closed, settings read per job, missing models named."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from storage.errors import ConfigError, MissingModel, NotInitialized, UnknownJob
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.records import JsonValue, ProjectId
from tasks.context import Context, Finished
from tasks.dispatch import ROUTES, Dispatch, Route
from tasks.lease import ActiveLease, Heartbeat
from tests.conftest import ROOT
from tests.support import ManualClock

P1 = ProjectId("p1")


@pytest.fixture
def queue(home: Path) -> Iterator[JobQueue]:
    """An empty queue."""
    made = open_queue(HomePaths(home), clock=ManualClock())
    yield made
    made.close()


def held(queue: JobQueue, project: ProjectId = P1, kind: JobKind = JobKind.SYNC) -> ActiveLease:
    """A claimed job, held."""
    queue.enqueue([JobSpec(kind=kind, project=project, args={"a": 1})])
    job = queue.claim("1-me")
    assert job is not None
    return Heartbeat(queue, queue.clock, lease_ms=60_000).hold(job, 60_000)


def dispatch(queue: JobQueue, body: object = None) -> Dispatch:
    """A table whose every kind has one body."""
    routes = {kind: Route(body, 1_000) for kind in JobKind} if body else ROUTES  # type: ignore[arg-type]
    return Dispatch(queue, queue.paths, {}, queue.clock, routes=routes)


def test_a_body_gets_its_arguments_and_its_context(queue: JobQueue) -> None:
    """Project, paths, lease and settings are those of the job."""
    seen: list[tuple[Context, Mapping[str, JsonValue]]] = []

    def body(context: Context, args: Mapping[str, JsonValue]) -> Finished:
        seen.append((context, args))
        context.lease.check()
        return Finished(note="ok", successors=(JobSpec(kind=JobKind.EMBED, project=P1),))

    lease = held(queue)

    done = dispatch(queue, body).run(lease.job, lease)

    (context, args) = seen[0]
    assert args == {"a": 1}
    assert context.project == P1
    assert context.project_paths == queue.paths.project(P1)
    assert context.lease.stamp == lease.job.stamp
    assert (done.note, [spec.kind for spec in done.successors]) == ("ok", [JobKind.EMBED])


def test_a_project_without_a_memory_is_named(queue: JobQueue) -> None:
    """Opening makes nothing: a job must not create a store."""

    def body(context: Context, _: Mapping[str, JsonValue]) -> Finished:
        context.open_authority()
        return Finished()

    lease = held(queue)

    with pytest.raises(NotInitialized):
        dispatch(queue, body).run(lease.job, lease)

    assert not queue.paths.project(P1).root.exists()


def test_work_that_needs_a_model_waits_for_one(queue: JobQueue) -> None:
    """No model is configured by default."""

    def body(context: Context, _: Mapping[str, JsonValue]) -> Finished:
        context.model()
        return Finished()

    lease = held(queue)

    with pytest.raises(MissingModel):
        dispatch(queue, body).run(lease.job, lease)


def test_settings_are_read_for_every_job(queue: JobQueue) -> None:
    """A project's own file counts, and a wrong one is named."""
    found: list[int] = []

    def body(context: Context, _: Mapping[str, JsonValue]) -> Finished:
        found.append(context.settings.recall.max_items)
        return Finished()

    table = dispatch(queue, body)
    lease = held(queue)
    table.run(lease.job, lease)
    config = queue.paths.project(P1).config
    config.parent.mkdir(parents=True)
    config.write_text("[recall]\nmax_items = 9\n")
    table.run(lease.job, lease)
    config.write_text("[recall]\nmax_item = 9\n")
    with pytest.raises(ConfigError, match="max_items"):
        table.run(lease.job, lease)

    assert found == [4, 9]


def test_a_kind_without_a_body_is_unknown(queue: JobQueue) -> None:
    """Kept as dead by its lease."""
    lease = held(queue)
    table = Dispatch(queue, queue.paths, {}, queue.clock, routes={})

    with pytest.raises(UnknownJob):
        table.run(lease.job, lease)

    assert table.max_runtime_ms("sync") == table.max_runtime_ms("from the future") > 0


def test_every_kind_has_a_body_that_can_be_imported() -> None:
    """The table names real functions."""
    code = (
        "from importlib import import_module\n"
        "from tasks.dispatch import ROUTES\n"
        "for route in ROUTES.values():\n"
        "    module, _, name = route.body.partition(':')\n"
        "    assert callable(getattr(import_module(module), name)), route.body\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert set(ROUTES) == set(JobKind)


def test_the_table_itself_loads_no_body() -> None:
    """A worker that only syncs never loads an encoder."""
    code = "import sys, tasks.queue\nprint('numpy' in sys.modules, 'tasks.embed' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "False"]


def test_the_checkpoint_body_prunes_and_moves_the_wal(queue: JobQueue) -> None:
    """It needs no project, and it moves the queue's log into the file."""
    lease = held(queue, ProjectId(""), JobKind.CHECKPOINT)
    for n in range(30):
        queue.enqueue([JobSpec(kind=JobKind.EMBED, project=P1, subject=str(n))])
    grown = queue.file.wal_frames()

    done = dispatch(queue).run(lease.job, lease)

    assert done.note == "pruned 0 rows, checkpointed 0 stores, 0 busy"
    assert grown > 0
    assert queue.file.wal_frames() == 0
