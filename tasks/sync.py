"""Looking for news: which sources of a project hold lines that were not read yet.

Nothing is read here but sizes and heads: a source that differs from its cursor gets a job. Our own
log goes first, for corrections wait there; transcripts are bulk work. With a model configured each
transcript has a second reader with a cursor of its own, so a missing or spent model never holds
back what the rules can learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from storage.jobs import JobKind, JobSpec, Priority
from storage.names import is_clean_path
from storage.records import JsonValue, ProjectId, SourceCursor, digest_of
from tasks.context import Context, Finished
from tasks.sources import session_log
from tasks.sources.catalogue import adapters
from tasks.sources.transcript import has_news

RULES: Final = "rules"
MODEL: Final = "model"
MAX_JOBS: Final = 2_000
"""Bounds one transaction; another sync finds the rest."""
AGAIN_MS: Final = 60_000


def run(context: Context, args: Mapping[str, JsonValue]) -> Finished:
    """One job for each source with news."""
    found = adapters(context.paths, context.project, context.environment, context.settings.sources)
    authority = context.open_authority()
    with authority.read() as reads:
        cursors = {(item.adapter, item.locator): item for item in reads.cursors()}
    readers = [RULES] if context.settings.model.provider == "none" else [RULES, MODEL]
    jobs: list[JobSpec] = []
    folders: dict[str, bool] = {}
    seen = named = 0
    full = False
    for adapter in found.values():
        for locator in adapter.discover():
            seen += 1
            folder = str(Path(locator).parent)
            if folder not in folders:
                folders[folder] = is_clean_path(folder)
            if not (folders[folder] and is_clean_path(Path(locator).name)):
                # Cursors, quotes and jobs name their source, so this one is never opened.
                named += 1
                continue
            for reader in readers:
                if reader == MODEL and adapter.name == session_log.NAME:
                    continue
                name = cursor_name(adapter.name, reader)
                cursor = cursors.get((name, locator), fresh_cursor(name, locator))
                if full or not has_news(cursor):
                    continue
                full = len(jobs) >= MAX_JOBS
                if not full:
                    jobs.append(analyze_job(context.project, adapter.name, locator, reader))
    note = f"{seen} sources, {len(jobs)} with news"
    note += f", {named} left alone: a credential in the name" if named else ""
    if full:
        # What was left out still has news, and nothing else may ever ask for it.
        at = context.clock.now_ms() + AGAIN_MS
        jobs.append(JobSpec(kind=JobKind.SYNC, project=context.project, run_at=at))
    return Finished(successors=tuple(jobs), note=note)


def analyze_job(project: ProjectId, adapter: str, locator: str, reader: str) -> JobSpec:
    """The job that reads the next window of a source."""
    urgent = adapter == session_log.NAME
    return JobSpec(
        kind=JobKind.ANALYZE,
        project=project,
        subject=f"{cursor_name(adapter, reader)}|{digest_of(locator)[:16]}",
        args={"adapter": adapter, "locator": locator, "reader": reader},
        priority=Priority.CORRECTION if urgent else Priority.BULK,
    )


def cursor_name(adapter: str, reader: str) -> str:
    """The adapter's name in its cursor: the model reads with a cursor of its own."""
    return adapter if reader == RULES else f"{adapter}+{reader}"


def fresh_cursor(name: str, locator: str) -> SourceCursor:
    """The start of a source."""
    return SourceCursor(adapter=name, locator=locator, offset=0, line=0)
