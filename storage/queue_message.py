"""The bytes of a job's message: versioned JSON, never code.

Kind, project and subject are columns, so a message that cannot be read still shows what it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

from storage.errors import Invalid, UnknownJob
from storage.jobs import MAX_MESSAGE_BYTES, MESSAGE_VERSION
from storage.records import JsonValue, canonical_json


def encode_args(args: Mapping[str, JsonValue]) -> bytes:
    """The message of a job.

    Raises:
        Invalid: not JSON, or larger than MAX_MESSAGE_BYTES.
    """
    try:
        message = canonical_json({"v": MESSAGE_VERSION, "args": args})
    except (TypeError, ValueError, RecursionError) as cause:
        raise Invalid("a job's arguments must be plain JSON") from cause
    if len(message) > MAX_MESSAGE_BYTES:
        raise Invalid(
            f"a job's message has {len(message)} bytes; at most {MAX_MESSAGE_BYTES} are allowed"
        )
    return message


def decode_args(message: bytes) -> Mapping[str, JsonValue]:
    """The arguments in a message.

    Raises:
        UnknownJob: not a message of this version.
    """
    try:
        value = json.loads(message)
    except (ValueError, RecursionError) as cause:
        raise UnknownJob("the message is not JSON") from cause
    if not isinstance(value, dict) or not isinstance(version := value.get("v"), int):
        raise UnknownJob("the message has no version")
    if version != MESSAGE_VERSION:
        raise UnknownJob(f"the message has version {version}; this memoryd reads {MESSAGE_VERSION}")
    args = value.get("args")
    if not isinstance(args, dict):
        raise UnknownJob("the message has no arguments")
    return cast("Mapping[str, JsonValue]", args)
