"""Reading a host's JSON without trusting its types: a missing or odd field is an empty one."""

import json
from collections.abc import Mapping
from typing import cast

Payload = Mapping[str, object]


def text(payload: Payload, key: str) -> str:
    """The string at `key`, else ""."""
    value = payload.get(key)
    return value if isinstance(value, str) else ""


def optional_text(payload: Payload, key: str) -> str | None:
    """The string at `key`, None when it is absent, empty or something else."""
    return text(payload, key) or None


def flag(payload: Payload, key: str) -> bool:
    """Whether `key` is exactly true."""
    return payload.get(key) is True


def number(payload: Payload, key: str) -> int | None:
    """The whole number at `key`, else None; true is not a number."""
    value = payload.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if abs(value) < 2**53 else None


def inner(payload: Payload, key: str) -> Payload:
    """The object at `key`, else an empty one."""
    value = payload.get(key)
    return cast("Payload", value) if isinstance(value, Mapping) else {}


def joined_texts(value: object) -> str:
    """The texts of a content value: a string, a block, or a list of either, one per line."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return text(cast("Payload", value), "text")
    if isinstance(value, list):
        return "\n".join(part for part in map(joined_texts, value) if part)
    return ""


def tool_input(payload: Payload, key: str) -> str:
    """What a tool was asked: its command when that is the point of it, else its JSON."""
    value = payload.get(key)
    if isinstance(value, str):
        return value
    arguments = inner(payload, key)
    command = text(arguments, "command")
    if command:
        return command
    return json.dumps(arguments, ensure_ascii=False, default=str) if arguments else ""
