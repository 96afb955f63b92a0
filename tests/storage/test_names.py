"""Ids that hosts choose: kept as they are unless they hold a credential."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.names import is_clean_path, opaque
from storage.redaction import is_clean
from tests.credentials import seeds

TOKENS = [seed.secret for seed in seeds() if seed.secret == seed.phrase]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "bash",
        "Bash",
        "mcp__files__read_text",
        "9f8c3a12",
        "s-12",
        "toolu_" + "01A09q90qw90lq917835lq9",
        "call_" + "Xk2mTz7Lr4WnQv8B",
        str(uuid.UUID(int=7)),
        "sitzung-größe",
    ],
)
def test_an_ordinary_id_stays(name: str) -> None:
    """What hosts really use comes through unchanged, so nothing loses its partner."""
    assert opaque(name) == name


@pytest.mark.parametrize("token", TOKENS)
def test_a_credential_becomes_a_digest(token: str) -> None:
    """The same one each time, different ones apart, and nothing of it left."""
    hidden = opaque(token)

    assert hidden.startswith("id-")
    assert hidden == opaque(token)
    assert hidden != opaque(token + token)
    assert token[8:20] not in hidden
    if "/" not in token:
        assert not is_clean_path(f"/home/ana/{token}/x.jsonl")
        assert not is_clean_path(f"/home/ana/x/{token}.jsonl")


@given(st.text(max_size=60))
def test_what_is_kept_is_clean(name: str) -> None:
    """Whatever the id was; hiding it twice changes nothing."""
    hidden = opaque(name)

    assert is_clean(hidden)
    assert opaque(hidden) == hidden


def test_the_paths_of_sessions_are_clean() -> None:
    """Where the hosts keep them, dates, digests and all."""
    for path in (
        "/home/ana/.claude/projects/-home-ana-code-harbor/" + f"{uuid.UUID(int=2**100)}.jsonl",
        "/home/ana/.pi/agent/sessions/--home-ana-harbor--/2026-11-30T10-00-00-000Z_9f8c3a12.jsonl",
        "/private/var/folders/zz/zyxvpxvq6csfxvn_n0000000000000/T/x.jsonl",
    ):
        assert is_clean_path(path)
