"""Task `verify`: prove a project's store against its own history, while nobody waits.

It changes nothing. A store that is not sound makes a dead job with the first problem as its reason,
so `ops health` says it before a person meets it.
"""

from __future__ import annotations

from collections.abc import Mapping

from storage.errors import Corrupt
from storage.records import JsonValue
from tasks.context import Context, Finished


def run(context: Context, _args: Mapping[str, JsonValue]) -> Finished:
    """Verify the store.

    Raises:
        Corrupt: it is not sound; `ops verify` lists every problem.
    """
    if not context.project_paths.database.exists():
        return Finished(note="no store yet")
    report = context.open_authority().verify()
    if not report.sound:
        others = len(report.problems) - 1
        more = f" (and {others} more: ops verify)" if others else ""
        raise Corrupt(f"{report.problems[0].detail}{more}")
    return Finished(note=f"{report.events} events, {report.documents} documents, sound")
