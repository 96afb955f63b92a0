"""An explicit statement from a person (`ops remember`): into the log, and a sync at once."""

from __future__ import annotations

from storage import session_log
from storage.activity import Activity
from storage.clock import Clock
from storage.declarations import explicit
from storage.errors import Refused
from storage.paths import HomePaths
from storage.records import FactKind, ProjectId
from storage.session_log import Said
from storage.spool import Entry
from tasks import triggers

HOST = "cli"


def remember(
    paths: HomePaths,
    project: ProjectId,
    text: str,
    *,
    clock: Clock,
    kind: FactKind | None = None,
    session_id: str = HOST,
) -> FactKind:
    """The kind under which the statement was accepted; it is on disk when this returns.

    Raises:
        Refused: too short or too long to be a statement, or it holds something like a credential.
        Unavailable: the log cannot be written, or neither the queue nor its spool.
    """
    declared = explicit(text)
    if declared is None:
        raise Refused(
            "a statement has 12 to 500 characters, three words that carry meaning, no credential"
        )
    now = clock.now_ms()
    said = Said(
        kind=kind or declared.kind,
        statement=declared.statement,
        sentence=declared.sentence,
        session_id=session_id,
        host=HOST,
        at=now,
    )
    session_log.append(paths.project(project), [said], now)
    asked = Entry(
        project=project, counted=Activity(inserts=1), specs=(triggers.urgent_sync(project),)
    )
    triggers.accepted(paths, clock, asked)
    return said.kind
