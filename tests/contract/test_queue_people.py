"""What every backend of the queue must let people do: pause, cancel, revive, let go, look."""

from __future__ import annotations

import pytest

from storage.errors import Invalid, LeaseLost
from storage.jobs import MAX_MESSAGE_BYTES, JobKind, JobState, Priority
from storage.queue_port import Queue
from storage.records import JsonValue
from tests.contract.queues import ME, claimed, spec, state_of
from tests.support import ManualClock


@pytest.mark.parametrize(
    ("pause", "left"),
    [
        ({"kind": JobKind.SYNC}, {("gc", "p1"), ("gc", "p2")}),
        ({"project": "p1"}, {("sync", "p2"), ("gc", "p2")}),
        ({}, set()),
    ],
)
def test_a_pause_holds_back_what_it_names_until_resumed(
    queue: Queue, pause: dict[str, object], left: set[tuple[str, str]]
) -> None:
    """By kind, by project, or whole; waiting jobs show why they wait."""
    kinds = (JobKind.SYNC, JobKind.GC)
    queue.enqueue([spec(kind=kind, project=name) for kind in kinds for name in ("p1", "p2")])
    queue.pause(**pause)  # type: ignore[arg-type]
    taken = set()
    while job := queue.claim(ME):
        taken.add((job.kind, job.project))
    shown = {view.waiting_for for view in queue.jobs(state=JobState.AVAILABLE)}

    resumed = queue.resume(**pause)  # type: ignore[arg-type]

    assert taken == left
    assert shown == {"paused"}
    assert resumed
    assert queue.claim(ME) is not None


def test_a_cancelled_run_loses_its_lease_and_its_key(queue: Queue) -> None:
    """Cancelling ends waiting and running jobs alike; the run can publish nothing."""
    queue.enqueue([spec()])
    running = claimed(queue)
    waiting = queue.enqueue([spec("other")])[0]

    assert queue.cancel(running.job_id)
    assert queue.cancel(waiting)

    with pytest.raises(LeaseLost):
        queue.acknowledge(running)
    assert queue.counts()[JobState.CANCELLED] == 2
    assert not queue.cancel(running.job_id)
    assert not queue.cancel("no-such-job")


def test_a_dead_job_can_be_dismissed_and_keeps_its_reason(queue: Queue) -> None:
    """Whoever has seen it need not see it for 90 days; it can still be put back."""
    queue.enqueue([spec()])
    job = claimed(queue)
    queue.bury(job, "the disk was gone")

    assert queue.cancel(job.job_id)

    (view,) = queue.jobs()
    assert (view.state, view.error) == (JobState.CANCELLED, "the disk was gone")
    assert not queue.cancel(job.job_id)
    assert queue.revive(job.job_id) is not None


def test_a_revived_job_is_new_to_the_authority(queue: Queue) -> None:
    """A new id and fresh counters: an effect of the old run must not hide the new one."""
    queue.enqueue([spec()])
    job = claimed(queue)
    queue.bury(job, "broken")

    revived = queue.revive(job.job_id)

    again = claimed(queue)
    assert revived == again.job_id != job.job_id
    assert (again.attempt, again.crashes) == (1, 0)
    assert queue.revive("1-ffff") is None


def test_a_revival_joins_the_job_that_waits(queue: Queue) -> None:
    """The key stays unique."""
    queue.enqueue([spec()])
    dead = claimed(queue)
    queue.bury(dead, "broken")
    waiting = queue.enqueue([spec()])[0]

    assert queue.revive(dead.job_id) == waiting
    assert state_of(queue, dead.job_id) is JobState.DEAD


@pytest.mark.parametrize(
    "args",
    [{"text": "x" * MAX_MESSAGE_BYTES}, {"when": object()}, {"number": float("nan")}],
    ids=["too large", "not JSON", "not a number"],
)
def test_a_message_that_is_not_small_json_is_refused_at_the_door(
    queue: Queue, args: dict[str, JsonValue]
) -> None:
    """Nothing of the batch is enqueued."""
    with pytest.raises(Invalid):
        queue.enqueue([spec("good"), spec("bad", args=args)])

    assert queue.counts()[JobState.AVAILABLE] == 0


def test_a_held_job_keeps_its_time_unless_a_person_asks(queue: Queue, clock: ManualClock) -> None:
    """An event does not defeat a backoff or a spent budget; a request does."""
    queue.enqueue([spec()])
    queue.snooze(claimed(queue), clock.now_ms() + 3_600_000, "budget")
    queue.enqueue([spec()])
    early = queue.claim(ME)

    queue.enqueue([spec(priority=Priority.INTERACTIVE)])

    assert early is None
    assert claimed(queue).priority == Priority.INTERACTIVE


def test_jobs_that_wait_for_a_reason_can_be_let_go(queue: Queue, clock: ManualClock) -> None:
    """A model was configured: what waited for one starts now, in that project only."""
    for name in ("p1", "p2"):
        queue.enqueue([spec(project=name)])
        queue.snooze(claimed(queue), clock.now_ms() + 3_600_000, "model")

    freed = queue.release_waiting("model", "p1")

    assert freed == 1
    assert claimed(queue).project == "p1"
    assert queue.claim(ME) is None
    assert queue.release_waiting("model", "p1") == 0


def test_health_reads_say_how_long_work_has_waited(queue: Queue, clock: ManualClock) -> None:
    """The age of the longest-due job; paused and later work is not due."""
    queue.enqueue([spec("a"), spec("later", run_at=clock.now_ms() + 10**9)])
    clock.advance(4_000)
    age = queue.oldest_ready_age_ms()
    queue.pause()

    assert age == 4_000
    assert queue.oldest_ready_age_ms() == 0
    assert queue.drained()
    queue.resume()
    assert not queue.drained()
