"""One execution while Huey's own machinery carries it: what it came to, and what it enqueues.

Owns no decision: `tasks.queue` fills it, `tasks.lease` judges it. What a task enqueues once it has
executed waits here, so that it becomes part of the acknowledgement.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from storage.queue_line import Line
from tasks.lease import ActiveLease, Done


@dataclass(slots=True)
class Run:
    """One execution under a lease."""

    lease: ActiveLease
    done: Done | None = None
    error: BaseException | None = None
    executed: bool = False
    revocation: str = ""
    """Huey's key for revoking a job of ours."""
    outbox: list[Line] = field(default_factory=list)
