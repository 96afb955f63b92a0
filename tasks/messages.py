"""Huey's messages as JSON: for tasks that somebody registers on our Huey besides ours.

Ours have messages of their own (`storage.queue_message`). Pickle would run whatever a writer of the
file put in it, on a mere listing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from storage.errors import Invalid, UnknownJob
from storage.jobs import MAX_MESSAGE_BYTES

HUEY_VERSION: Final = 1
INSTANTS: Final = frozenset({"eta", "expires", "expires_resolved"})
NESTED: Final = frozenset({"on_complete", "on_error"})


class JsonSerializer:
    """Huey's serializer port. `message` is Huey's Message type; it stays in `tasks.queue`."""

    def __init__(self, message: Callable[..., Any]) -> None:  # Any: Huey has no types
        self._message = message

    def serialize(self, data: Any) -> bytes:
        """JSON bytes of a message or of a plain value.

        Raises:
            Invalid: not JSON, or too large.
        """
        try:
            fields = getattr(data, "_asdict", None)
            value = {"huey": HUEY_VERSION, **_plain(data)} if fields else {"value": data}
            text = json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")
        except (TypeError, ValueError, RecursionError) as cause:
            raise Invalid("a task's arguments must be plain JSON") from cause
        if len(text) > MAX_MESSAGE_BYTES:
            raise Invalid(
                f"a task's message has {len(text)} bytes; {MAX_MESSAGE_BYTES} is the most"
            )
        return text

    def deserialize(self, data: bytes) -> Any:
        """The message or value in the bytes.

        Raises:
            UnknownJob: not ours, or of a newer version.
        """
        try:
            value = json.loads(data)
            if "value" in value:
                return value["value"]
            if value.pop("huey") != HUEY_VERSION:
                raise UnknownJob("the task's message has another version")
            return self._rich(value)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
            raise UnknownJob("the task's message cannot be read") from cause

    def _rich(self, value: Mapping[str, Any]) -> Any:
        fields = dict(value)
        for name in INSTANTS:
            if isinstance(fields.get(name), str):
                fields[name] = datetime.fromisoformat(fields[name])
        for name in NESTED:
            if fields.get(name) is not None:
                fields[name] = self._rich(fields[name])
        if fields.get("chord_config") is not None:
            cid, size, index, callback = fields["chord_config"]
            fields["chord_config"] = (cid, size, index, self._rich(callback))
        fields["args"] = tuple(fields.get("args") or ())
        return self._message(**fields)


def _plain(message: Any) -> dict[str, Any]:
    fields: dict[str, Any] = message._asdict()
    for name in INSTANTS:
        if isinstance(fields[name], datetime):
            fields[name] = fields[name].isoformat()
        elif isinstance(fields[name], timedelta):
            fields[name] = fields[name].total_seconds()
    for name in NESTED:
        if fields[name] is not None:
            fields[name] = _plain(fields[name])
    if fields["chord_config"] is not None:
        cid, size, index, callback = fields["chord_config"]
        fields["chord_config"] = [cid, size, index, _plain(callback)]
    return fields
