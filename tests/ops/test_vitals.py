"""`ops health` is honest: it judges by what the background did, and says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ops.exits import Exit
from storage.circuits import Breaker, Trouble
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.projects import bind
from storage.queue import JobQueue, open_queue
from storage.queue_owner import Owner
from storage.records import ProjectId
from tests.ops.person import Typist

MINUTE = 60_000
HOUR = 60 * MINUTE


@pytest.fixture
def queue(home: Path) -> Iterator[JobQueue]:
    with closing(open_queue(HomePaths(home), clock=SystemClock())) as opened:
        yield opened


@pytest.fixture
def consumer(queue: JobQueue) -> Iterator[Owner]:
    """A consumer as far as its lock goes: it is this process, and does nothing."""
    with closing(Owner(queue.paths)) as owner:
        yield owner


@pytest.fixture
def person(home: Path, capsys: pytest.CaptureFixture[str]) -> Typist:
    return Typist(home, capsys)


def _sql(queue: JobQueue, statement: str, *values: int | str | None) -> None:
    with closing(apsw.Connection(str(queue.paths.queue))) as db:
        db.execute(statement, values)


def _scheduled(queue: JobQueue, name: str, *, next_in: int, last: int | None) -> None:
    now = queue.clock.now_ms()
    statement = "INSERT INTO schedules VALUES (?, '*/5 * * * *', 'UTC', ?, ?, 0)"
    _sql(queue, statement, name, now + next_in, None if last is None else now - last)


def _verdicts(person: Typist) -> tuple[int, dict[str, str]]:
    code, _, _ = person.types("health")
    return code, {check["name"]: check["verdict"] for check in person.asks("health")["checks"]}


def _failing(person: Typist) -> tuple[int, list[str]]:
    code, verdicts = _verdicts(person)
    return code, [name for name, verdict in verdicts.items() if verdict == "fail"]


def test_a_working_background_is_healthy(person: Typist, queue: JobQueue, consumer: Owner) -> None:
    """Exit code 0, every check a line, every kind with its last success."""
    _scheduled(queue, "checkpoint", next_in=MINUTE, last=MINUTE)

    code, out, _ = person.types("health")
    names = _verdicts(person)[1]

    assert code == Exit.OK
    assert "The background is healthy." in out
    assert {f"last {kind.value}" for kind in JobKind} <= names.keys()
    assert len(out.splitlines()) >= len(names) + 2


def test_no_consumer_is_not_healthy(person: Typist, queue: JobQueue) -> None:
    """Nothing is learned then, whatever else is well: exit code 4 and the command to type."""
    code, out, _ = person.types("health")

    assert code == Exit.UNHEALTHY
    assert "ops start" in out


def test_a_consumer_that_only_exists_is_not_alive(
    person: Typist, queue: JobQueue, consumer: Owner
) -> None:
    """A process with a lock that leaves a due schedule alone makes no rounds."""
    _scheduled(queue, "checkpoint", next_in=-3 * MINUTE, last=None)

    code, failing = _failing(person)
    _, out, _ = person.types("health")

    assert (code, failing) == (Exit.UNHEALTHY, ["consumer"])
    assert "looked at nothing for 3 min" in out


def test_work_that_nobody_takes_fails(person: Typist, queue: JobQueue, consumer: Owner) -> None:
    """Due for a minute while nothing runs, or for ten whatever runs; paused work is a person's."""
    late = queue.clock.now_ms() - 2 * MINUTE
    queue.enqueue([JobSpec(kind=JobKind.GC, project=ProjectId(""), run_at=late)])
    idle = _failing(person)
    queue.pause(kind=JobKind.GC)
    paused = _verdicts(person)
    queue.resume(kind=JobKind.GC)
    queue.enqueue([JobSpec(kind=JobKind.EMBED, project=ProjectId(""), run_at=late - MINUTE)])
    assert queue.claim(consumer.name) is not None
    busy = _verdicts(person)

    assert idle == (Exit.UNHEALTHY, ["oldest due"])
    assert (paused[0], paused[1]["oldest due"], paused[1]["pauses"]) == (Exit.OK, "ok", "warn")
    assert (busy[0], busy[1]["oldest due"]) == (Exit.OK, "warn")


def test_a_lapsed_lease_that_nobody_takes_back_is_stuck(
    person: Typist, queue: JobQueue, consumer: Owner
) -> None:
    """The reaper frees one at its next round; one from before a restart of the machine as well."""
    queue.enqueue([JobSpec(kind=JobKind.GC, project=ProjectId(""))])
    assert queue.claim(consumer.name) is not None
    sound = _failing(person)
    _sql(queue, "UPDATE jobs SET lease_until = lease_until - 120000")
    lapsed = _failing(person)
    _sql(queue, "UPDATE jobs SET lease_until = lease_until + 120000, boot = 'before'")
    before = _failing(person)

    assert sound == (Exit.OK, [])
    assert lapsed == before == (Exit.UNHEALTHY, ["leases"])


def test_a_schedule_that_fires_without_a_success_fails(
    person: Typist, queue: JobQueue, consumer: Owner, tmp_path: Path
) -> None:
    """Asked for an hour ago and never done; without any project there is nothing to sync."""
    _scheduled(queue, "sync", next_in=MINUTE, last=HOUR)
    nobody = _failing(person)
    bind(queue.paths, tmp_path, clock=queue.clock, settings=StorageSettings())
    somebody = _failing(person)
    _sql(queue, "INSERT INTO last_success VALUES ('sync', '', ?)", queue.clock.now_ms())
    done = _failing(person)

    assert nobody == done == (Exit.OK, [])
    assert somebody == (Exit.UNHEALTHY, ["last sync"])


def test_a_job_that_died_today_fails_an_old_one_warns(
    person: Typist, queue: JobQueue, consumer: Owner
) -> None:
    """The number, the last one, and where its reason stands."""
    queue.enqueue([JobSpec(kind=JobKind.GC, project=ProjectId(""))])
    claimed = queue.claim(consumer.name)
    assert claimed is not None
    queue.bury(claimed, "no use")
    fresh = _failing(person)
    _sql(queue, "UPDATE jobs SET finished_at = finished_at - 200000000")
    code, old = _verdicts(person)

    assert fresh == (Exit.UNHEALTHY, ["dead jobs"])
    assert (code, old["dead jobs"]) == (Exit.OK, "warn")


def test_budget_pauses_and_open_circuits_show(
    person: Typist, queue: JobQueue, consumer: Owner
) -> None:
    """Waiting for tomorrow's budget is a warning with the hour; a refused key is a failure."""
    queue.enqueue([JobSpec(kind=JobKind.TRANSLATE, project=ProjectId(""))])
    claimed = queue.claim(consumer.name)
    assert claimed is not None
    queue.snooze(claimed, queue.clock.now_ms() + HOUR, "budget")
    spent = _verdicts(person)
    Breaker(queue.file, queue.clock).failed("api.example", Trouble.AUTH)
    refused = _failing(person)
    _, out, _ = person.types("health")

    assert (spent[0], spent[1]["held work"]) == (Exit.OK, "warn")
    assert refused == (Exit.UNHEALTHY, ["provider"])
    assert "api.example is left alone: it does not accept our key" in out


def test_without_a_queue_there_is_nothing_to_judge(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3, and no home is made."""
    code, _, err = Typist(tmp_path / "none", capsys).types("health")

    assert code == Exit.NOT_READY
    assert "ops init" in err
    assert list(tmp_path.iterdir()) == []
