"""Who holds a lease and when it ends: lock files of processes, boot time, the reaper, the plan."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import leases
from storage.jobs import JobKind, JobSpec, JobState
from storage.paths import HomePaths
from storage.queue import JobQueue, open_queue
from storage.queue_owner import Owner, dead_owners, is_alive, living_owners, sweep
from storage.records import ProjectId
from tests.conftest import ROOT
from tests.support import ManualClock

DAY_MS = 86_400_000
HOLDER = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from storage.paths import HomePaths
from storage.queue_owner import Owner
owner = Owner(HomePaths(Path(sys.argv[1])))
print(owner.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def clock() -> ManualClock:
    """A clock that moves by hand."""
    return ManualClock()


@pytest.fixture
def queue(home: Path, clock: ManualClock) -> Iterator[JobQueue]:
    """A queue with one job."""
    made = open_queue(HomePaths(home), clock=clock)
    made.enqueue([JobSpec(kind=JobKind.SYNC, project=ProjectId("p1"))])
    yield made
    made.close()


def test_a_wall_clock_step_neither_ends_nor_extends_a_lease(
    queue: JobQueue, clock: ManualClock, home: Path
) -> None:
    """Leases live on boot time: a day forth or back frees nothing, 60 s of boot time do."""
    owner = Owner(HomePaths(home))
    job = queue.claim(owner.name)
    assert job is not None
    freed = []
    for step in (DAY_MS, -2 * DAY_MS, DAY_MS):
        clock.step_wall(step)
        freed.append(queue.reap().returned)
    clock.advance(59_999)
    freed.append(queue.reap().returned)
    clock.advance(1)

    last = queue.reap()

    owner.close()
    assert freed == [0, 0, 0, 0]
    assert (last.returned, last.lapsed) == (1, 1)


def test_renewal_moves_only_leases_that_are_still_held(
    queue: JobQueue, clock: ManualClock, home: Path
) -> None:
    """The answer names the tokens that live on, so a lost one is noticed."""
    owner = Owner(HomePaths(home))
    job = queue.claim(owner.name, lease_ms=3_000)
    assert job is not None
    clock.advance(2_000)
    kept = queue.renew([job], lease_ms=3_000)
    clock.advance(2_000)
    alive = queue.reap().returned
    clock.advance(1_000)
    queue.reap()

    lost = queue.renew([job], lease_ms=3_000)

    owner.close()
    assert kept == {job.token}
    assert alive == 0
    assert lost == set()


def test_a_killed_process_is_seen_by_its_lock(
    queue: JobQueue, clock: ManualClock, home: Path
) -> None:
    """kill -9 frees the kernel's lock: the reaper needs no timeout."""
    paths = HomePaths(home)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(home), str(ROOT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        job = queue.claim(name)
        assert job is not None
        while_alive = (is_alive(paths, name), living_owners(paths), queue.reap().returned)
        process.kill()
        process.wait(10)

        found = queue.reap()

    assert while_alive == (True, (name,), 0)
    assert (found.returned, found.lapsed) == (1, 0)
    again = queue.claim("1-other")
    assert again is not None
    assert (again.crashes, again.attempt) == (1, 1)
    assert dead_owners(paths, [name]) == (name,)
    assert sweep(paths) == 1
    assert living_owners(paths) == ()


def test_an_owner_name_is_never_reused_and_goes_with_its_file(home: Path) -> None:
    """A recycled pid must not look like the process that died."""
    paths = HomePaths(home)
    first, second = Owner(paths), Owner(paths)
    names = (first.name, second.name)
    first.close()
    first.close()

    assert names[0] != names[1]
    assert not is_alive(paths, names[0])
    assert is_alive(paths, names[1])
    second.close()
    assert list(paths.workers.iterdir()) == []


def test_thousands_of_lapsed_leases_are_freed_in_batches(home: Path, clock: ManualClock) -> None:
    """A long outage must not hold the write lock for minutes: each batch is its own transaction."""
    queue = open_queue(HomePaths(home), clock=clock)
    queue.enqueue(
        [JobSpec(kind=JobKind.EMBED, project=ProjectId("p"), subject=str(n)) for n in range(5_000)]
    )
    with queue.file.write("NORMAL") as db:
        db.execute(
            "UPDATE jobs SET state = 'leased', owner = '1-gone', token = id, lease_until = 1,"
            " boot = ?, attempt = 1",
            (clock.boot_id(),),
        )

    found = queue.reap()

    assert found.returned == 5_000
    assert queue.counts()[JobState.AVAILABLE] == 5_000
    queue.close()


def test_the_claim_seeks_and_never_scans_the_line(queue: JobQueue) -> None:
    """A plan that scans `jobs` would make a long queue slow; only the partial indexes are used."""
    values = {"owner": "x", "token": 1, "until": 1, "boot": "b", "now": 1, "floor": 0, "closed": ""}

    plan = [
        str(row[3]) for row in queue.file.db.execute("EXPLAIN QUERY PLAN " + leases.CLAIM, values)
    ]

    tables = [step for step in plan if step.split()[0] == "SCAN"]
    # The last one stops at its first row.
    assert tables == ["SCAN lanes", "SCAN lanes", "SCAN huey_values"], plan
