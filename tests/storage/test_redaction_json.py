"""Metadata is redacted like text: every key, every value, whatever shape it has."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Mapping
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from storage.records import JsonValue
from storage.redaction import redact, redact_json

TOKEN = "gh" + "p_" + "".join(random.Random(5).choices(string.ascii_letters + string.digits, k=36))
PASSWORD = "v7" + "Kq2xRw" + "9mTz4L"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=20,
)


def test_keys_and_values_lose_their_secrets_at_every_level() -> None:
    """A token in a key, in a list and three levels down leaves; the structure stays."""
    value: JsonValue = {"tool": {"args": [{"note": f"use {TOKEN}"}, TOKEN], TOKEN: 1}}

    assert redact_json(value) == {
        "tool": {
            "args": [{"note": "use [redacted:github-token]"}, "[redacted:github-token]"],
            "[redacted:github-token]": 1,
        }
    }


def test_a_key_names_its_value() -> None:
    """What an assignment would give away in text, a field gives away in an object."""
    value: JsonValue = {
        "user": "bob",
        "password": PASSWORD,
        "nested": {"clientSecret": TOKEN[4:]},
        "passwords": "none",
        "maxTokens": 100_000,
        "passcode": 493_201,
    }

    assert redact_json(value) == {
        "user": "bob",
        "password": "[redacted:password]",
        "nested": {"clientSecret": "[redacted:secret]"},
        "passwords": "none",
        "maxTokens": 100_000,
        "passcode": "[redacted:password]",
    }


def test_a_flag_names_the_next_argument() -> None:
    """An argument list hides its password as a command line does; so does a name/value pair."""
    value: JsonValue = {
        "argv": ["login", "--password", PASSWORD, "--host", "db1"],
        "env": [{"name": "DB_PASSWORD", "value": PASSWORD}, {"name": "DB_HOST", "value": "db1"}],
        "headers": {"Cookie": f"sid={TOKEN[4:]}; theme=dark", "Authorization": "Bearer " + TOKEN},
    }

    redacted = cast("Mapping[str, Any]", redact_json(value))

    assert redacted["argv"] == ["login", "--password", "[redacted:password]", "--host", "db1"]
    assert redacted["env"][0]["value"] == "[redacted:password]"
    assert redacted["env"][1] == {"name": "DB_HOST", "value": "db1"}
    assert redacted["headers"]["Cookie"] == "sid=[redacted:cookie]; theme=dark"
    assert TOKEN not in redacted["headers"]["Authorization"]


def test_two_secret_keys_keep_both_their_values() -> None:
    """Keys that become the same placeholder are numbered, never merged."""
    other = TOKEN[:-2] + "Zz"

    redacted = redact_json({TOKEN: 1, other: 2})

    assert redacted == {"[redacted:github-token]": 1, "[redacted:github-token]#2": 2}


def test_depth_is_bounded_and_oddities_do_not_raise() -> None:
    """A value nested without end, or one that holds itself, ends in a placeholder."""
    deep: JsonValue = TOKEN
    for _ in range(5_000):
        deep = [deep]
    loop: dict[str, JsonValue] = {"password": PASSWORD}
    loop["self"] = loop

    assert "[redacted:too-deep]" in json.dumps(redact_json(deep))
    assert PASSWORD not in json.dumps(redact_json(loop))
    assert redact_json(cast("JsonValue", {"raw": b"bytes", 7: object()})) == {
        "raw": "[redacted:unsupported]",
        "7": "[redacted:unsupported]",
    }


def test_nan_and_infinity_are_left_to_whoever_encodes() -> None:
    """Numbers are not text: they pass as they are."""
    redacted = redact_json([float("inf"), 1.5, True, None])

    assert redacted == [float("inf"), 1.5, True, None]


@settings(max_examples=150, deadline=None)
@given(json_values)
def test_redacting_json_twice_changes_nothing(value: JsonValue) -> None:
    """Idempotent for any value, as for text."""
    once = redact_json(value)

    assert redact_json(once) == once


@settings(max_examples=150, deadline=None)
@given(json_values, st.text(max_size=8))
def test_a_planted_token_never_survives(value: JsonValue, key: str) -> None:
    """Wherever a token is planted, the encoded result does not hold it."""
    planted: JsonValue = {key: [value, {TOKEN: value}, f"x {TOKEN}"]}

    assert TOKEN not in json.dumps(redact_json(planted))
    assert redact(json.dumps(redact_json(planted))).count(TOKEN) == 0
