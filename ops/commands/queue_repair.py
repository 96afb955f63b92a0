"""`ops repair queue`: set a damaged queue aside and begin a new one from the sources."""

from __future__ import annotations

from ops.invocation import Invocation
from ops.output import count, show
from storage.config import load_settings
from storage.projects import bindings
from storage.records import JsonValue


def repair_queue(invocation: Invocation) -> None:
    """Look at the queue's file; only a damaged one is replaced.

    Raises:
        Busy: a consumer runs on it.
        NewerSchema, Unavailable: nothing was changed.
    """
    from storage.queue_repair import repair_queue as mend

    paths = invocation.paths
    settings = load_settings(paths, invocation.environment)
    projects = tuple(dict.fromkeys(binding.project_id for binding in bindings(paths)))
    done = mend(paths, invocation.clock, settings.budget, projects)
    value: dict[str, JsonValue] = {
        "ok": True,
        "changed": bool(done.damage),
        "damage": done.damage,
        "kept_in": str(done.kept_in) if done.kept_in else None,
        "rows_kept": done.rows_kept,
        "tables_lost": list(done.tables_lost),
        "budget_closed": done.budget_closed,
        "jobs": done.jobs,
    }
    if not done.damage:
        show(invocation.as_json, value, ["The queue is sound; nothing was changed."])
        return
    lines = [
        f"{done.damage}.",
        f"The file is set aside in {done.kept_in}; a new one is in its place.",
        f"{count(done.jobs, 'project')} will be read again; {done.rows_kept:,} rows were kept.",
    ]
    if done.budget_closed:
        lines.append("What was spent today is unknown, so no model is asked again before tomorrow.")
    show(invocation.as_json, value, lines)
