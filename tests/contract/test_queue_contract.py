"""What every backend of the queue must do: keys, leases, outcomes, order, fairness.

Written against `storage.queue_port` only. Another SQL backend adds itself to BACKENDS
(`tests.contract.queues`). What people do to jobs is in `test_queue_people`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storage.errors import Invalid, LeaseLost
from storage.jobs import MAX_MESSAGE_BYTES, JobKind, JobState, Priority
from storage.leases import backoff_ms
from storage.queue_port import Queue, Take
from tests.contract.queues import LEASE_MS, ME, claimed, spec, state_of
from tests.support import ManualClock


def test_an_enqueue_joins_the_job_that_waits_with_its_key(queue: Queue) -> None:
    """One key waits once; the newest arguments and the higher class win."""
    first = queue.enqueue([spec(args={"revision": "a"})])
    second = queue.enqueue([spec(args={"revision": "b"}, priority=Priority.INTERACTIVE)])

    job = claimed(queue)

    assert first == second == [job.job_id]
    assert b'"revision":"b"' in job.message
    assert job.priority == Priority.INTERACTIVE
    assert queue.claim(ME) is None


def test_events_during_a_run_make_exactly_one_follow_up(queue: Queue) -> None:
    """The follow-up waits for the running job, and both run."""
    queue.enqueue([spec()])
    running = claimed(queue)
    ids = [queue.enqueue([spec()])[0] for _ in range(5)]

    blocked = queue.claim(ME)
    queue.acknowledge(running)
    follow_up = claimed(queue)
    queue.acknowledge(follow_up)

    assert blocked is None
    assert set(ids) == {follow_up.job_id}
    assert follow_up.job_id != running.job_id
    assert queue.claim(ME) is None


def test_an_event_does_not_join_a_job_that_already_ran(queue: Queue) -> None:
    """Its effect may be applied, so its re-run may only acknowledge: the event needs a new id."""
    old = queue.enqueue([spec()])[0]
    queue.retry(claimed(queue), "locked")
    new = queue.enqueue([spec()])[0]

    assert new != old
    assert state_of(queue, old) is JobState.DISCARDED
    view = queue.job(new)
    assert view is not None
    assert (view.attempt, view.waiting_for) == (1, "retry")


def test_a_retry_that_meets_a_follow_up_hands_its_history_over(
    queue: Queue, clock: ManualClock
) -> None:
    """One job waits per key; attempts and backoff survive the hand-over."""
    queue.enqueue([spec()])
    running = claimed(queue)
    follow_up = queue.enqueue([spec()])[0]

    run_at = queue.retry(running, "locked")

    view = queue.job(follow_up)
    assert view is not None
    assert (view.attempt, view.run_at, view.waiting_for) == (1, run_at, "retry")
    assert state_of(queue, running.job_id) is JobState.DISCARDED
    clock.advance(run_at - clock.now_ms())
    assert claimed(queue).attempt == 2


def test_a_crash_that_meets_a_follow_up_is_remembered(queue: Queue, clock: ManualClock) -> None:
    """Steady events must not give a poison task a fresh start after every crash."""
    crashes = []
    for _ in range(2):
        queue.enqueue([spec()])
        running = claimed(queue)
        queue.enqueue([spec()])
        clock.advance(LEASE_MS)
        queue.reap(max_crashes=3)
        waiting = queue.jobs(state=JobState.AVAILABLE)
        crashes.append([view.crashes for view in waiting])
        assert state_of(queue, running.job_id) is JobState.DISCARDED

    assert crashes == [[1], [2]]


def test_acknowledge_and_successors_are_one_step(queue: Queue) -> None:
    """A refused successor leaves the job leased; an accepted one waits when the job is done."""
    queue.enqueue([spec()])
    job = claimed(queue)
    too_big = spec("x", args={"text": "x" * MAX_MESSAGE_BYTES})
    with pytest.raises(Invalid):
        queue.acknowledge(job, [spec("a"), too_big])
    before = state_of(queue, job.job_id)

    ids = queue.acknowledge(job, [spec("a", kind=JobKind.ANALYZE)])

    assert before is JobState.LEASED
    assert state_of(queue, job.job_id) is JobState.COMPLETED
    assert claimed(queue).job_id == ids[0]


def test_an_acknowledgement_can_bring_the_next_job(queue: Queue) -> None:
    """One transaction: the job is done, its successors wait, and the best due job is leased."""
    queue.enqueue([spec("first"), spec("second", project="p2")])
    first = claimed(queue)

    second = queue.acknowledge_and_claim(
        first, Take(owner=ME), [spec("urgent", priority=Priority.INTERACTIVE)]
    )

    assert second is not None
    assert (second.subject, second.attempt) == ("urgent", 1)
    assert queue.holds(second)
    assert state_of(queue, first.job_id) is JobState.COMPLETED
    third = queue.acknowledge_and_claim(second, Take(owner=ME))
    assert third is not None
    assert third.subject == "second"
    assert queue.acknowledge_and_claim(third, Take(owner=ME)) is None
    assert queue.drained()


def test_a_follow_up_of_the_same_key_comes_with_the_acknowledgement(queue: Queue) -> None:
    """The key is free in the very transaction that ends its run."""
    queue.enqueue([spec()])
    running = claimed(queue)
    follow_up = queue.enqueue([spec()])[0]

    again = queue.acknowledge_and_claim(running, Take(owner=ME))

    assert again is not None
    assert again.job_id == follow_up


def test_a_stale_acknowledgement_claims_nothing(queue: Queue, clock: ManualClock) -> None:
    """Whoever lost its lease gets no work for it, and a refused successor leaves all as it was."""
    queue.enqueue([spec("a"), spec("b", project="p2")])
    stale = claimed(queue)
    clock.advance(LEASE_MS)
    queue.reap()
    current = claimed(queue)
    too_big = spec("x", args={"text": "x" * MAX_MESSAGE_BYTES})

    with pytest.raises(LeaseLost):
        queue.acknowledge_and_claim(stale, Take(owner=ME))
    with pytest.raises(Invalid):
        queue.acknowledge_and_claim(current, Take(owner=ME), [too_big])

    assert queue.counts()[JobState.LEASED] == 1
    assert queue.holds(current)


def test_what_may_be_taken_holds_for_the_fused_claim_too(queue: Queue) -> None:
    """Floor and full classes: a thread that is kept for corrections is not given bulk work."""
    queue.enqueue([spec("one"), spec("two"), spec("gc", priority=Priority.MAINTENANCE)])
    first = claimed(queue)

    nothing = queue.acknowledge_and_claim(first, Take(owner=ME, floor=Priority.CORRECTION))
    full = frozenset({int(Priority.BULK)})
    low = queue.claim(ME, closed=full)

    assert nothing is None
    assert low is not None
    assert low.subject == "gc"
    assert queue.claim(ME, closed=full) is None
    assert queue.next_due(closed=full) is None
    assert queue.next_due() is not None


@pytest.mark.parametrize(
    "ending", ["acknowledge", "fused", "retry", "snooze", "discard", "bury", "interrupt"]
)
def test_no_ending_is_accepted_from_a_stale_token(
    queue: Queue, clock: ManualClock, ending: str
) -> None:
    """Of two runs that both believe they hold a job, only the one with its token may end it."""
    queue.enqueue([spec()])
    stale = claimed(queue)
    clock.advance(LEASE_MS)
    queue.reap()
    current = claimed(queue)
    endings: dict[str, Callable[[], object]] = {
        "acknowledge": lambda: queue.acknowledge(stale),
        "fused": lambda: queue.acknowledge_and_claim(stale, Take(owner=ME)),
        "retry": lambda: queue.retry(stale, "x"),
        "snooze": lambda: queue.snooze(stale, clock.now_ms(), "budget"),
        "discard": lambda: queue.discard(stale, "x"),
        "bury": lambda: queue.bury(stale, "x"),
        "interrupt": lambda: queue.interrupt(stale),
    }

    with pytest.raises(LeaseLost):
        endings[ending]()

    assert queue.holds(current)
    assert not queue.holds(stale)


def test_backoff_doubles_up_to_fifteen_minutes_with_jitter_below(queue: Queue) -> None:
    """min(15 min, 1 s x 2^n): the whole is the limit, half of it the least."""
    wholes = [backoff_ms(attempt, 0.999_999_9) for attempt in range(1, 14)]
    halves = [backoff_ms(attempt, 0.0) for attempt in range(1, 14)]

    assert wholes[:4] == [999, 1999, 3999, 7999]
    assert wholes[-1] == 899_999
    assert halves[0] == 500
    assert halves[-1] == 450_000


def test_snooze_and_interrupt_use_no_attempt_and_retry_does(
    queue: Queue, clock: ManualClock
) -> None:
    """Waiting for a budget or a polite stop is not a failure."""
    queue.enqueue([spec()])
    queue.snooze(claimed(queue), clock.now_ms() + 1000, "budget", "spent")
    clock.advance(1000)
    queue.interrupt(claimed(queue))
    third = claimed(queue)
    queue.retry(third, "x")

    view = queue.job(third.job_id)
    assert view is not None
    assert (third.attempt, view.attempt) == (1, 1)


def test_a_crash_counts_apart_from_attempts_and_poison_dies(
    queue: Queue, clock: ManualClock
) -> None:
    """Three lost workers end a job as dead, whatever its attempts; its neighbours go on."""
    poison = queue.enqueue([spec("poison")])[0]
    for _ in range(3):
        job = claimed(queue)
        assert job.attempt == 1
        clock.advance(LEASE_MS)
        queue.reap(max_crashes=3)
    queue.enqueue([spec("good")])

    view = queue.job(poison)
    assert view is not None
    assert (view.state, view.crashes) == (JobState.DEAD, 3)
    assert view.error == "poison: its worker was lost 3 times"
    assert claimed(queue).subject == "good"


def test_a_reboot_frees_every_lease_and_blames_nobody(queue: Queue, clock: ManualClock) -> None:
    """Readings of an earlier boot are void, and a power cut is not a crash of the job."""
    queue.enqueue([spec()])
    claimed(queue)
    clock.reboot()

    found = queue.reap()

    assert found.returned == 1
    again = claimed(queue)
    assert (again.attempt, again.crashes) == (1, 0)


def test_higher_classes_go_first_and_waiting_raises_a_class(
    queue: Queue, clock: ManualClock
) -> None:
    """Interactive before bulk before maintenance, but nothing starves."""
    queue.enqueue([spec("old", priority=Priority.MAINTENANCE)])
    clock.advance(31 * 60_000)
    queue.enqueue(
        [
            spec("bulk"),
            spec("now", priority=Priority.INTERACTIVE),
            spec("fix", priority=Priority.CORRECTION),
        ]
    )

    order = [claimed(queue).subject for _ in range(4)]

    # Half an hour makes maintenance as urgent as a person, and it waited longer.
    assert order == ["old", "now", "fix", "bulk"]


def test_projects_take_turns_within_a_class(queue: Queue) -> None:
    """A project with a thousand jobs does not make another wait for all of them."""
    queue.enqueue([spec(str(n), project="big") for n in range(20)])
    queue.enqueue([spec(str(n), project="small") for n in range(3)])

    order = [claimed(queue).project for _ in range(8)]

    assert order == ["big", "small", "big", "small", "big", "small", "big", "big"]


def test_a_floor_leaves_lower_classes_alone(queue: Queue) -> None:
    """A thread that is kept for corrections takes no bulk work."""
    queue.enqueue([spec("bulk"), spec("fix", priority=Priority.CORRECTION)])

    job = claimed(queue, floor=Priority.CORRECTION)

    assert job.subject == "fix"
    assert queue.claim(ME, floor=Priority.CORRECTION) is None


def test_a_later_job_waits_for_its_time(queue: Queue, clock: ManualClock) -> None:
    """`next_due` tells how long a worker may sleep."""
    at = clock.now_ms() + 5_000
    queue.enqueue([spec(run_at=at)])
    early = queue.claim(ME)

    due = queue.next_due()
    clock.advance(5_000)

    assert early is None
    assert due == at
    assert claimed(queue).subject == ""
