"""Whether the background does its work, judged by what it did: not by whether a process exists.

Each check is one line with a verdict and what to do. Reads the queue's rows and the lock files;
changes nothing. Leaves what a machine needs to `ops.health`, and showing to `ops health`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ops.background import Projects, budget_today, projects_of, queue_reader
from ops.health import Check, Verdict
from ops.ids import job as short_job
from ops.invocation import Invocation
from ops.output import count, duration, moment
from ops.reasons import circuit_words, held_words
from ops.services import SERVER, WORKER, consumer_pids, server_answers
from ops.settings_check import settings_problems
from ops.worktables import lease_left_ms
from storage import circuits, spool
from storage.circuits import CircuitView
from storage.clock import DAY_MS
from storage.config import load_settings
from storage.jobs import HOME_KINDS, JobKind, JobState, JobView
from storage.queue_views import LeaseView
from storage.schedules import ScheduleView

if TYPE_CHECKING:
    import apsw

OVERDUE_MS: Final = 120_000
"""Rounds come once a second: a schedule that is due for longer was looked at by nobody."""
LAPSED_MS: Final = 15_000
"""The reaper frees a lapsed lease at its next round."""
SLOW_MS: Final = 60_000
STALLED_MS: Final = 600_000
BEHIND_MS: Final = 1_800_000
"""A scheduled run that was asked for and did not succeed for so long."""
SPOOLED_MS: Final = 60_000
MOST: Final = 10_000
RESTART: Final = "Start it again: ops stop, then ops start"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """What the rows and the lock files say at one moment."""

    now: int
    pids: Sequence[int]
    oldest_ms: int
    leases: Sequence[LeaseView]
    schedules: Sequence[ScheduleView]
    successes: Mapping[str, int]
    pauses: Sequence[str]
    waiting: Sequence[JobView]
    dead: Sequence[JobView]
    circuits: Sequence[CircuitView]
    bound: bool
    """Whether any folder has a memory."""


def vitals(invocation: Invocation) -> list[Check]:
    """Every check.

    Raises:
        NotInitialized: this home has no queue yet.
        Corrupt, NewerSchema, Unavailable: it cannot be read.
    """
    projects = projects_of(invocation)
    with queue_reader(invocation) as db:
        signs = _signs(invocation, db, projects)
    return [
        _consumer(signs),
        _oldest(signs),
        _leases(signs, invocation),
        *_successes(signs),
        _schedule(signs),
        _dead(signs, projects),
        _pauses(signs),
        _held(signs, invocation),
        _provider(signs),
        _spool(signs, invocation),
        *_settings(invocation),
        _server(invocation),
    ]


def _signs(invocation: Invocation, db: apsw.Connection, projects: Projects) -> Signs:
    from storage.queue_views import last_successes, leases, list_jobs, oldest_ready_age_ms, pauses
    from storage.schedules import views

    now = invocation.clock.now_ms()
    return Signs(
        now=now,
        pids=consumer_pids(invocation.paths),
        oldest_ms=oldest_ready_age_ms(db, now),
        leases=leases(db),
        schedules=views(db),
        successes=last_successes(db),
        pauses=pauses(db),
        waiting=list_jobs(db, state=JobState.AVAILABLE, limit=MOST),
        dead=list_jobs(db, state=JobState.DEAD, limit=MOST),
        circuits=circuits.views(db),
        bound=bool(projects.folders),
    )


def _consumer(signs: Signs) -> Check:
    """Alive by effect: it fires what is due, which it looks for every second."""
    if not signs.pids:
        found = "does not run"
        return Check(name=WORKER.title, verdict="fail", found=found, hint="Start it: ops start")
    process = f"process {', '.join(map(str, signs.pids))}"
    overdue = max((signs.now - entry.next_run_at for entry in signs.schedules), default=0)
    if overdue > OVERDUE_MS:
        found = f"{process} exists, but looked at nothing for {duration(overdue)}"
        return Check(name=WORKER.title, verdict="fail", found=found, hint=RESTART)
    return Check(name=WORKER.title, verdict="ok", found=f"runs ({process}) and makes its rounds")


def _oldest(signs: Signs) -> Check:
    if not signs.oldest_ms:
        return Check(name="oldest due", verdict="ok", found="nothing is due")
    found = f"due for {duration(signs.oldest_ms)}"
    if signs.oldest_ms < SLOW_MS:
        return Check(name="oldest due", verdict="ok", found=found)
    busy = count(len(signs.leases), "job runs", "jobs run")
    hint = f"{busy} meanwhile: ops leases" if signs.leases else "Nothing runs: ops start"
    stalled = signs.oldest_ms >= STALLED_MS or not signs.leases
    verdict: Verdict = "fail" if stalled else "warn"
    return Check(name="oldest due", verdict=verdict, found=found, hint=hint)


def _leases(signs: Signs, invocation: Invocation) -> Check:
    left = [(lease, lease_left_ms(lease, invocation.clock)) for lease in signs.leases]
    stuck = [lease for lease, ms in left if ms is None or ms < -LAPSED_MS]
    if not stuck:
        found = f"{count(len(signs.leases), 'job')} running, none stuck"
        return Check(name="leases", verdict="ok", found=found)
    names = ", ".join(f"{short_job(lease.job_id)} {lease.kind}" for lease in stuck)
    found = f"{len(stuck):,} of {len(signs.leases):,} lapsed and not taken back: {names}"
    hint = RESTART if signs.pids else "The next consumer takes them back: ops start"
    return Check(name="leases", verdict="fail", found=found, hint=hint)


def _successes(signs: Signs) -> Iterator[Check]:
    asked = {entry.name: entry.last_run_at for entry in signs.schedules}
    for kind in JobKind:
        at = signs.successes.get(kind.value)
        name = f"last {kind.value}"
        found = f"{moment(at)} ({duration(signs.now - at)} ago)" if at else "never"
        ran = asked.get(kind.value)
        behind = ran is not None and signs.now - ran > BEHIND_MS and (at or 0) < ran
        if behind and ran is not None and _could_run(signs, kind):
            hint = f"Asked for at {moment(ran)}: ops jobs --kind {kind.value}"
            yield Check(name=name, verdict="fail", found=found, hint=hint)
        else:
            yield Check(name=name, verdict="ok", found=found)


def _could_run(signs: Signs, kind: JobKind) -> bool:
    """Whether there was something to do: a folder to do it for, and no person's pause."""
    paused = any(scope in {"all", f"kind:{kind.value}"} for scope in signs.pauses)
    return not paused and (signs.bound or kind in HOME_KINDS)


def _schedule(signs: Signs) -> Check:
    if not signs.schedules:
        hint = "The consumer writes it when it first runs: ops start"
        return Check(name="schedule", verdict="warn", found="not written yet", hint=hint)
    missed = sum(entry.missed for entry in signs.schedules)
    told = f", {count(missed, 'run')} missed since it was made" if missed else ""
    soonest = min(signs.schedules, key=lambda entry: entry.next_run_at)
    found = f"next is {soonest.name} at {moment(soonest.next_run_at)}{told}"
    return Check(name="schedule", verdict="ok", found=found)


def _dead(signs: Signs, projects: Projects) -> Check:
    if not signs.dead:
        return Check(name="dead jobs", verdict="ok", found="none")
    fresh = [job for job in signs.dead if signs.now - (job.finished_at or 0) < DAY_MS]
    last = max(signs.dead, key=lambda job: job.finished_at or 0)
    what = f"{short_job(last.job_id)} {last.kind} of {projects.name(last.project)}"
    ago = duration(signs.now - (last.finished_at or 0))
    found = f"{len(signs.dead):,}, the last {ago} ago: {what}"
    verdict: Verdict = "fail" if fresh else "warn"
    return Check(name="dead jobs", verdict=verdict, found=found, hint="Why: ops dead")


def _pauses(signs: Signs) -> Check:
    if not signs.pauses:
        return Check(name="pauses", verdict="ok", found="none")
    found = ", ".join(signs.pauses)
    hint = "A person paused this. To go on: ops resume"
    return Check(name="pauses", verdict="warn", found=found, hint=hint)


def _held(signs: Signs, invocation: Invocation) -> Check:
    reasons = Counter(job.waiting_for for job in signs.waiting if job.waiting_for)
    told = "; ".join(held_words(reason, number) for reason, number in sorted(reasons.items()))
    if not reasons["budget"]:
        return Check(name="held work", verdict="ok", found=told or "none")
    view = budget_today(invocation)
    hint = f"The budget returns at {moment(view.reset_at)}: ops budget"
    return Check(name="held work", verdict="warn", found=told, hint=hint)


def _provider(signs: Signs) -> Check:
    told = "; ".join(circuit_words(view, signs.now) for view in signs.circuits)
    if any(view.is_open for view in signs.circuits):
        hint = "Correct the key or the quota; a probe closes it by itself."
        return Check(name="provider", verdict="fail", found=told, hint=hint)
    return Check(name="provider", verdict="ok", found=told or "no trouble noted")


def _spool(signs: Signs, invocation: Invocation) -> Check:
    files = spool.waiting(invocation.paths)
    ages = [signs.now - int(path.stat().st_mtime * 1000) for path in files if path.exists()]
    found = f"{count(len(files), 'notice')} for the queue" if files else "none"
    if max(ages, default=0) < SPOOLED_MS:
        return Check(name="notices", verdict="ok", found=found)
    hint = RESTART if signs.pids else "The consumer takes them in: ops start"
    return Check(name="notices", verdict="warn", found=f"{found}, waiting", hint=hint)


def _settings(invocation: Invocation) -> Iterator[Check]:
    settings = load_settings(invocation.paths, invocation.environment)
    problems = settings_problems(settings, invocation.environment)
    for problem in problems:
        yield Check(name="settings", verdict="fail", found=problem, hint="Correct config.toml.")
    if not problems:
        model = settings.model.name if settings.model.provider != "none" else "no language model"
        yield Check(name="settings", verdict="ok", found=model)


def _server(invocation: Invocation) -> Check:
    if server_answers(invocation.paths):
        return Check(name=SERVER.title, verdict="ok", found="answers")
    hint = "Connected agents start it when they need it; or: ops start"
    return Check(name=SERVER.title, verdict="ok", found="does not run", hint=hint)
