"""Huey's key-value corner: revocations, locks and counters of tasks that are not ours.

Results are not kept. Keys age out with the rest of the queue (`storage.queue_control.prune`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import apsw

PEEK: Final = "SELECT value FROM huey_values WHERE key = ?"
PEEK_MANY: Final = (
    "SELECT key, value FROM huey_values WHERE key IN (SELECT value FROM json_each(?))"
)
ANY: Final = "SELECT 1 FROM huey_values LIMIT 1"
PUT: Final = """
INSERT INTO huey_values (key, value, set_at) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, set_at = excluded.set_at
"""
PUT_IF_EMPTY: Final = """
INSERT INTO huey_values (key, value, set_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING key
"""
POP: Final = "DELETE FROM huey_values WHERE key = ? RETURNING value"
ALL: Final = "SELECT key, value FROM huey_values ORDER BY key"
CLEAR: Final = "DELETE FROM huey_values"
INCREMENT: Final = """
INSERT INTO huey_values (key, value, set_at) VALUES (:key, CAST(:amount AS BLOB), :now)
ON CONFLICT (key) DO UPDATE SET set_at = excluded.set_at,
  value = CAST(CAST(CAST(value AS TEXT) AS INTEGER) + :amount AS BLOB)
RETURNING CAST(CAST(value AS TEXT) AS INTEGER)
"""


def peek(db: apsw.Connection, key: str) -> bytes | None:
    """The value of a key."""
    rows = db.execute(PEEK, (key,)).fetchall()
    return cast("bytes", rows[0][0]) if rows else None


def any_value(db: apsw.Connection) -> bool:
    """Whether there is a key at all."""
    return bool(db.execute(ANY).fetchall())


def peek_many(db: apsw.Connection, keys_json: str) -> dict[str, bytes]:
    """The values of those keys (a JSON list) that exist."""
    return dict(cast("Sequence[tuple[str, bytes]]", db.execute(PEEK_MANY, (keys_json,)).fetchall()))


def put(db: apsw.Connection, key: str, value: bytes, now: int) -> None:
    """Set a key."""
    db.execute(PUT, (key, value, now))


def put_if_empty(db: apsw.Connection, key: str, value: bytes, now: int) -> bool:
    """Set a key unless it is set; whether it was."""
    return bool(db.execute(PUT_IF_EMPTY, (key, value, now)).fetchall())


def pop(db: apsw.Connection, key: str) -> bytes | None:
    """The value of a key, which is gone afterwards."""
    rows = db.execute(POP, (key,)).fetchall()
    return cast("bytes", rows[0][0]) if rows else None


def increment(db: apsw.Connection, key: str, amount: int, now: int) -> int:
    """Add to a counter; its new value."""
    rows = db.execute(INCREMENT, {"key": key, "amount": str(amount), "now": now}).fetchall()
    return cast("int", rows[0][0])


def everything(db: apsw.Connection) -> dict[str, bytes]:
    """All keys and values."""
    return dict(cast("Sequence[tuple[str, bytes]]", db.execute(ALL).fetchall()))


def clear(db: apsw.Connection) -> None:
    """Forget all keys."""
    db.execute(CLEAR)
