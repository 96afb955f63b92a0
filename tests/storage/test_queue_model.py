"""The queue against a model of it in memory: any order of events, crashes and clocks."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from storage.errors import LeaseLost
from storage.jobs import JobKind, JobSpec, JobState
from storage.leases import ClaimedJob
from storage.paths import HomePaths
from storage.queue import open_queue
from storage.queue_owner import Owner
from storage.queue_port import Take
from storage.records import ProjectId
from tests.support import ManualClock

LEASE_MS = 10_000
MAX_CRASHES = 3
Key = tuple[str, str]
KEYS: list[Key] = [("p1", "a"), ("p2", "a")]


@dataclass
class Row:
    """A job in the model."""

    key: Key
    state: JobState
    run_at: int
    ran: bool = False
    attempt: int = 0
    crashes: int = 0
    held: bool = False
    token: int = 0
    owner: str = ""
    until: int = 0
    boot: str = ""


class QueueMachine(RuleBasedStateMachine):
    """Drives the queue and the model with the same events and compares them."""

    @initialize()
    def start(self) -> None:
        """An empty queue, two consumers."""
        self.folder = tempfile.TemporaryDirectory()
        self.paths = HomePaths(Path(self.folder.name) / "home")
        self.clock = ManualClock()
        self.queue = open_queue(
            self.paths, clock=self.clock, durability="OFF", enqueue_durability="OFF"
        )
        self.queue._jitter = lambda: 0.0
        self.owners = [Owner(self.paths), Owner(self.paths)]
        self.rows: dict[str, Row] = {}
        self.claims: list[ClaimedJob] = []

    def teardown(self) -> None:
        """Everything that was acknowledged is still there, and the file is sound."""
        assert self.queue.file.db.pragma("integrity_check") == "ok"
        for owner in self.owners:
            owner.close()
        self.queue.close()
        self.folder.cleanup()

    # The model

    def find(self, key: Key, state: JobState) -> str | None:
        """The job of a key in a state."""
        return next(
            (name for name, row in self.rows.items() if row.key == key and row.state is state),
            None,
        )

    def put_back(self, name: str, run_at: int, *, held: bool) -> None:
        """A leased job returns; a follow-up takes its place."""
        row = self.rows[name]
        follow_up = self.find(row.key, JobState.AVAILABLE)
        row.token, row.owner = 0, ""
        if follow_up is None:
            row.state, row.run_at, row.held = JobState.AVAILABLE, run_at, held
            return
        row.state = JobState.DISCARDED
        heir = self.rows[follow_up]
        heir.attempt = max(heir.attempt, row.attempt)
        heir.crashes = max(heir.crashes, row.crashes)
        if heir.run_at < run_at:
            heir.run_at, heir.held = run_at, held

    def current(self, job: ClaimedJob) -> bool:
        """Whether the model says that this claim still holds."""
        return self.rows[job.job_id].token == job.token

    # Events

    @rule(key=st.sampled_from(KEYS), later=st.sampled_from([0, 0, 0, 5_000]))
    def enqueue(self, key: Key, later: int) -> None:
        """An event: joins, makes a follow-up, or supersedes a job that ran."""
        now = self.clock.now_ms()
        at = now + later
        spec = JobSpec(
            kind=JobKind.SYNC,
            project=ProjectId(key[0]),
            subject=key[1],
            run_at=at if later else None,
        )
        (name,) = self.queue.enqueue([spec])
        waiting = self.find(key, JobState.AVAILABLE)
        if waiting is not None and not self.rows[waiting].ran:
            row = self.rows[waiting]
            row.run_at = row.run_at if row.held else min(row.run_at, at)
            assert name == waiting
            return
        assert name not in self.rows
        fresh = Row(key, JobState.AVAILABLE, at)
        if waiting is not None:
            old = self.rows[waiting]
            old.state = JobState.DISCARDED
            fresh.attempt, fresh.crashes = old.attempt, old.crashes
            if old.held:
                fresh.held, fresh.run_at = True, old.run_at
        self.rows[name] = fresh

    @rule(consumer=st.integers(0, 1))
    def claim(self, consumer: int) -> None:
        """A due job whose key does not run, if there is one; never another."""
        job = self.queue.claim(self.owners[consumer].name, lease_ms=LEASE_MS)
        self.claimed(job, consumer)

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), consumer=st.integers(0, 1))
    def end_and_claim(self, data: st.DataObject, consumer: int) -> None:
        """A good ending and the next claim are one step, or neither happened."""
        job = data.draw(st.sampled_from(self.claims))
        holds = self.current(job)
        self.claims.remove(job)
        take = Take(owner=self.owners[consumer].name, lease_ms=LEASE_MS)
        try:
            given = self.queue.acknowledge_and_claim(job, take)
        except LeaseLost:
            assert not holds
            return
        assert holds
        row = self.rows[job.job_id]
        row.state, row.token, row.owner = JobState.COMPLETED, 0, ""
        self.claimed(given, consumer)

    def claimed(self, job: ClaimedJob | None, consumer: int) -> None:
        """What a claim gave, against what the model allows."""
        now = self.clock.now_ms()
        eligible = {
            name
            for name, row in self.rows.items()
            if row.state is JobState.AVAILABLE
            and row.run_at <= now
            and self.find(row.key, JobState.LEASED) is None
        }
        if job is None:
            assert not eligible
            due = self.queue.next_due()
            assert due is None or due > now
            return
        assert job.job_id in eligible
        row = self.rows[job.job_id]
        row.state, row.ran, row.held = JobState.LEASED, True, False
        row.attempt += 1
        row.token, row.owner = job.token, self.owners[consumer].name
        row.until, row.boot = self.clock.boot_ms() + LEASE_MS, self.clock.boot_id()
        assert (job.attempt, job.crashes) == (row.attempt, row.crashes)
        self.claims.append(job)

    @precondition(lambda self: self.claims)
    @rule(
        data=st.data(),
        ending=st.sampled_from(
            ["done", "retry", "snooze", "interrupt", "discard", "bury", "renew"]
        ),
    )
    def end(self, data: st.DataObject, ending: str) -> None:
        """A consumer ends a claim, current or stale; only a current one counts."""
        job = data.draw(st.sampled_from(self.claims))
        holds = self.current(job)
        now = self.clock.now_ms()
        if ending == "renew":
            renewed = self.queue.renew([job], lease_ms=LEASE_MS)
            assert renewed == ({job.token} if holds else set())
            if holds:
                self.rows[job.job_id].until = self.clock.boot_ms() + LEASE_MS
            return
        self.claims.remove(job)
        try:
            at = self._end(job, ending)
        except LeaseLost:
            assert not holds
            return
        assert holds
        row = self.rows[job.job_id]
        finals = {
            "done": JobState.COMPLETED,
            "discard": JobState.DISCARDED,
            "bury": JobState.DEAD,
        }
        if ending in finals:
            row.state, row.token, row.owner = finals[ending], 0, ""
            return
        if ending in ("snooze", "interrupt"):
            row.attempt -= 1
        self.put_back(job.job_id, at or now, held=ending in ("retry", "snooze"))

    def _end(self, job: ClaimedJob, ending: str) -> int:
        match ending:
            case "done":
                self.queue.acknowledge(job)
            case "retry":
                return self.queue.retry(job, "again")
            case "snooze":
                until = self.clock.now_ms() + 7_000
                self.queue.snooze(job, until, "budget")
                return until
            case "interrupt":
                self.queue.interrupt(job)
            case "discard":
                self.queue.discard(job, "no")
            case _:
                self.queue.bury(job, "no")
        return 0

    @rule()
    def reap(self) -> None:
        """Lapsed leases, dead owners and earlier boots are freed; nothing else is."""
        alive = {owner.name for owner in self.owners}
        now, boot_ms, boot = self.clock.now_ms(), self.clock.boot_ms(), self.clock.boot_id()
        self.queue.reap(max_crashes=MAX_CRASHES)
        for name, row in list(self.rows.items()):
            if row.state is not JobState.LEASED:
                continue
            rebooted = row.boot != boot
            if not rebooted and row.until > boot_ms and row.owner in alive:
                continue
            row.attempt -= 1
            row.crashes += not rebooted
            if row.crashes >= MAX_CRASHES:
                row.state, row.token, row.owner = JobState.DEAD, 0, ""
            else:
                self.put_back(name, now, held=False)

    @rule(consumer=st.integers(0, 1))
    def crash(self, consumer: int) -> None:
        """A process dies; another one takes its place under another name."""
        self.owners[consumer].close()
        self.owners[consumer] = Owner(self.paths)

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """A person ends a job, waiting or running, or dismisses a dead one."""
        name = data.draw(st.sampled_from(sorted(self.rows)))
        row = self.rows[name]
        is_open = row.state in (JobState.AVAILABLE, JobState.LEASED, JobState.DEAD)
        assert self.queue.cancel(name) == is_open
        if is_open:
            row.state, row.token, row.owner = JobState.CANCELLED, 0, ""

    @rule(ms=st.sampled_from([1, 900, 4_000, 11_000]))
    def advance(self, ms: int) -> None:
        """Time passes."""
        self.clock.advance(ms)

    @rule(ms=st.sampled_from([-86_400_000, -3_000, 3_000, 86_400_000]))
    def step_wall(self, ms: int) -> None:
        """Somebody sets the clock."""
        self.clock.step_wall(ms)

    @rule()
    def reboot(self) -> None:
        """The machine starts again; the old processes are gone with their claims."""
        self.clock.reboot()

    # What must hold at every moment

    @invariant()
    def every_job_is_where_the_model_says(self) -> None:
        """Count is conserved: each id that was ever returned stands in exactly one state."""
        found = {view.job_id: view for view in self.queue.jobs(limit=10_000)}
        assert found.keys() == self.rows.keys()
        for name, row in self.rows.items():
            view = found[name]
            assert (name, view.state) == (name, row.state)
            if row.state in (JobState.AVAILABLE, JobState.LEASED):
                assert (view.attempt, view.crashes) == (row.attempt, row.crashes)
            if row.state is JobState.AVAILABLE:
                assert (view.run_at, bool(view.waiting_for)) == (row.run_at, row.held)

    @invariant()
    def one_waits_and_one_runs_per_key(self) -> None:
        """Never two of a kind at once."""
        for state in (JobState.AVAILABLE, JobState.LEASED):
            keys = [(view.project, view.subject) for view in self.queue.jobs(state=state)]
            assert len(keys) == len(set(keys))


def test_the_queue_does_what_its_model_does() -> None:
    """Enqueue, claim, crash, expire, finish, cancel, event during a run, clock jumps, reboots."""
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=120,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
