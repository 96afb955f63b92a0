"""Task `rollup`: close the budget's finished windows.

A hold whose job is long gone is unknown spending: it stays counted, and is no longer shown as being
spent. Windows past their limit go. What the last finished window came to is logged.
"""

from __future__ import annotations

from collections.abc import Mapping

from storage import queue_control
from storage.log import get_logger
from storage.queue import open_queue
from storage.records import JsonValue
from tasks.context import Context, Finished


def run(context: Context, _args: Mapping[str, JsonValue]) -> Finished:
    """Close what is over."""
    queue = open_queue(context.paths, clock=context.clock)
    try:
        with queue.file.write("NORMAL") as db:
            closed = queue_control.roll_up(db, context.clock.now_ms())
    finally:
        queue.close()
    get_logger().info("budget.rolled_up", calls=closed.calls, tokens=closed.tokens)
    return Finished(
        note=f"{closed.unknown} holds became unknown, {closed.windows} windows removed; the last"
        f" finished one: {closed.calls} calls, {closed.tokens} tokens"
    )
