"""Cron entries: which maintenance runs when, in which zone, and what happens to missed runs.

The only user of croniter. An entry's slot is a name: the wall-clock minute for entries at fixed
hours (so the hour that autumn repeats runs once), the UTC minute for those that run every hour (so
it runs in both). What has run is in the queue's file: two consumers never run one slot twice.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, cast
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from croniter import CroniterError, croniter

from storage import schedules
from storage.clock import DAY_MS, MAX_AT, Clock, iso
from storage.config import ScheduleSettings
from storage.errors import ConfigError
from storage.jobs import HOME_KINDS, JobKind, JobSpec, Priority
from storage.log import get_logger
from storage.queue import JobQueue
from storage.queue_line import lines
from storage.records import ProjectId
from storage.schedules import ScheduleView
from storage.wakeup import ring

GRACE_MS: Final = 60_000
"""A slot found this late still ran on time."""
COMPARE_MS: Final = 60_000
MAX_SLOTS: Final = 100
HOUR_MS: Final = 3_600_000
FIELD_LIMITS: Final = (60, 24, 31, 12, 7)


class MissedRuns(StrEnum):
    """What happens to slots that passed while nobody looked."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """One maintenance schedule."""

    name: str
    kind: JobKind
    expression: str
    per_project: bool
    zone: str = "UTC"
    missed_runs: MissedRuns = MissedRuns.LATEST
    catch_up_ms: int = DAY_MS
    """Older slots are missed whatever the policy."""
    priority: Priority = Priority.MAINTENANCE

    def check(self) -> None:
        """Refuse an expression that is wrong, that never comes, or that means something else.

        Raises:
            ConfigError: with the reason.
        """
        where = f"schedule.{self.name}: {self.expression!r}"
        parts = self.expression.split()
        if len(parts) != len(FIELD_LIMITS):
            raise ConfigError(f"{where}: expected 5 fields (minute hour day month weekday)")
        for part, limit in zip(parts, FIELD_LIMITS, strict=True):
            if re.search(r"[a-zA-Z]", re.sub(r"(?i)\b[a-z]{3}\b", "", part)):
                raise ConfigError(f"{where}: {part!r} is not a number, a range or a name")
            for step in re.findall(r"/(\d+)", part):
                if not 1 <= int(step) < limit:
                    raise ConfigError(f"{where}: a step of {step} never comes in this field")
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError) as cause:
            raise ConfigError(f"{where}: no such time zone: {self.zone!r}") from cause
        try:
            next(self.occurrences(0))
        except CroniterError as cause:
            raise ConfigError(f"{where}: {cause}") from cause

    def occurrences(self, after: int) -> Iterator[int]:
        """Slots later than an instant, UTC ms, ascending."""
        zone = ZoneInfo(self.zone)
        # The base must carry its zone: a fixed offset would be an hour wrong for half the year.
        walk = croniter(self.expression, datetime.fromtimestamp(after / 1000, zone))
        last = after
        while True:
            at = int(cast("datetime", walk.get_next(datetime)).timestamp() * 1000)
            if at > last:
                last = at
                yield at

    def slot(self, at: int) -> str:
        """The name of the slot at an instant; equal names run once."""
        hours = self.expression.split()[1]
        zone = UTC if hours.startswith("*") else ZoneInfo(self.zone)
        moment = datetime.fromtimestamp(at / 1000, zone)
        return moment.strftime("%Y-%m-%dT%H:%M") + ("Z" if zone is UTC else "")


def entries(settings: ScheduleSettings) -> tuple[ScheduleEntry, ...]:
    """The entries that are switched on, every one of them checked.

    Raises:
        ConfigError: an expression is refused, with the reason.
    """
    wanted = (
        (JobKind.SYNC, settings.sync),
        (JobKind.CONSOLIDATE, settings.consolidate),
        (JobKind.GC, settings.gc),
        (JobKind.CHECKPOINT, settings.checkpoint),
        (JobKind.BACKUP, settings.backup),
        (JobKind.VERIFY, settings.verify),
        (JobKind.ROLLUP, settings.rollup),
        (JobKind.MAINTENANCE, settings.maintenance),
    )
    found = tuple(
        ScheduleEntry(
            name=kind.value,
            kind=kind,
            expression=text,
            per_project=kind not in HOME_KINDS,
            zone=settings.zone,
            missed_runs=MissedRuns(settings.missed),
            catch_up_ms=settings.catch_up_hours * HOUR_MS,
            priority=Priority.BULK if kind is JobKind.SYNC else Priority.MAINTENANCE,
        )
        for kind, text in wanted
        if text
    )
    for entry in found:
        try:
            entry.check()
        except ConfigError:
            get_logger().error("schedule.refused", schedule=entry.name)
            raise
    return found


class Planner:
    """Fires what is due. Call `tick` often; every consumer may."""

    def __init__(
        self,
        queue: JobQueue,
        clock: Clock,
        planned: Sequence[ScheduleEntry],
        projects: Callable[[], Sequence[ProjectId]],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._entries = {entry.name: entry for entry in planned}
        self._projects = projects
        self._looked_at = 0
        self._compared_at = 0
        self._next_run_at = 0
        """The earliest next run that the last look saw."""

    def register(self) -> None:
        """Write the entries; one whose expression changed gets a new next run."""
        now = self._clock.now_ms()
        with self._queue.file.write("NORMAL") as db:
            for entry in self._entries.values():
                schedules.register(
                    db, entry.name, entry.expression, entry.zone, next(entry.occurrences(now))
                )
            schedules.keep_only(db, json.dumps(sorted(self._entries)))

    def is_due(self, now: int) -> bool:
        """Whether an entry's time has come, as far as the last `tick` saw; reads nothing."""
        return now >= self._next_run_at

    def tick(self) -> int:
        """Fire what is due; returns the slots that were new."""
        now = self._clock.now_ms()
        # Walking a cron expression costs more than the rest of a round: only a clock that went
        # back, or an old comparison, makes it worth while.
        compare = now < self._looked_at or now - self._compared_at >= COMPARE_MS
        self._looked_at = now
        if compare:
            self._compared_at = now
        fired = 0
        planned = schedules.views(self._queue.file.db)
        self._next_run_at = min((view.next_run_at for view in planned), default=MAX_AT)
        for view in planned:
            entry = self._entries.get(view.name)
            if entry is None:
                continue
            if view.next_run_at > now:
                if compare:
                    self._pull_back(entry, view, now)
            else:
                fired += self._fire(entry, view, now)
        if fired:
            ring(self._queue.paths)
        return fired

    def _pull_back(self, entry: ScheduleEntry, view: ScheduleView, now: int) -> None:
        # Only a clock that was set back can leave a next run later than the next slot; without
        # this, the entry would stay silent until the old time comes again.
        if view.next_run_at - now <= GRACE_MS:
            return
        upcoming = next(entry.occurrences(now))
        if view.next_run_at > upcoming:
            self._move(view, upcoming, now)

    def _move(self, view: ScheduleView, next_run_at: int, now: int) -> None:
        with self._queue.file.write("NORMAL") as db:
            schedules.fire(
                db, view, slots=(), waiting=(), next_run_at=next_run_at, missed=0, now=now
            )

    def _fire(self, entry: ScheduleEntry, view: ScheduleView, now: int) -> int:
        due, missed, upcoming = plan(entry, view.next_run_at, now)
        specs = [
            JobSpec(
                kind=entry.kind,
                project=project,
                subject=entry.slot(at) if entry.missed_runs is MissedRuns.ALL else "",
                priority=entry.priority,
            )
            for project in (self._projects() if entry.per_project else (ProjectId(""),))
            for at in (due if entry.missed_runs is MissedRuns.ALL else due[-1:])
        ]
        with self._queue.file.write("NORMAL") as db:
            fresh = schedules.fire(
                db,
                view,
                slots=[entry.slot(at) for at in due],
                waiting=lines(specs),
                next_run_at=upcoming,
                missed=missed,
                now=now,
            )
        if fresh:
            get_logger().info("schedule.fired", schedule=entry.name, slots=fresh, jobs=len(specs))
        if missed:
            get_logger().warning("schedule.missed", schedule=entry.name, slots=missed)
        return fresh


def plan(entry: ScheduleEntry, next_run_at: int, now: int) -> tuple[list[int], int, int]:
    """The slots to run, how many were missed, and the next one, for an entry that is due.

    A long sleep is counted from the catch-up window only (older slots count as one), so that waking
    up after a year costs no more than after a day.
    """
    start = max(next_run_at, now - entry.catch_up_ms)
    missed = int(start > next_run_at)
    passed: deque[int] = deque(maxlen=MAX_SLOTS)
    upcoming = now
    for at in entry.occurrences(start - 1):
        if at > now:
            upcoming = at
            break
        missed += len(passed) == MAX_SLOTS
        passed.append(at)
    slots = list(passed)
    match entry.missed_runs:
        case MissedRuns.ALL:
            due = slots
        case MissedRuns.LATEST:
            due = slots[-1:]
        case MissedRuns.SKIP:
            due = [at for at in slots[-1:] if now - at <= GRACE_MS]
    return due, missed + len(slots) - len(due), upcoming


def describe(view: ScheduleView) -> str:
    """One line for people: last, next, missed."""
    last = iso(view.last_run_at) if view.last_run_at is not None else "never"
    return f"{view.name}: last {last}, next {iso(view.next_run_at)}, missed {view.missed}"
