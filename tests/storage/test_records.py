"""Ids and canonical bytes: the same content has the same name, everywhere and always."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from storage.records import (
    FactKind,
    ProjectId,
    canonical_json,
    digest_of,
    document_key,
    fact_id,
)

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()))


@given(ANY_TEXT)
def test_a_document_key_round_trips_any_id(external_id: str) -> None:
    """Nothing in an id (NUL, slash, lone surrogate) is lost or escapes its place."""
    namespace, _, encoded = document_key("notes", external_id).partition(":")

    padded = encoded + "=" * (-len(encoded) % 4)

    assert namespace == "notes"
    assert base64.urlsafe_b64decode(padded).decode("utf-8", "surrogatepass") == external_id


@given(st.lists(ANY_TEXT, min_size=1), st.lists(ANY_TEXT, min_size=1))
def test_different_parts_have_different_digests(left: list[str], right: list[str]) -> None:
    """Moving a boundary between parts changes the digest."""
    assert (digest_of(*left) == digest_of(*right)) == (left == right)


@given(st.dictionaries(ANY_TEXT, st.one_of(st.integers(), ANY_TEXT, st.booleans(), st.none())))
def test_canonical_json_is_one_spelling_of_one_value(value: dict[str, object]) -> None:
    """Key order does not matter, the bytes are ASCII, and the value comes back."""
    plain = {key: item for key, item in value.items() if isinstance(item, str | int | None)}
    backwards = dict(reversed(list(plain.items())))

    assert canonical_json(plain) == canonical_json(backwards)
    assert json.loads(canonical_json(plain)) == plain


def test_wording_decides_identity_but_not_its_dress() -> None:
    """Case, spacing and a full stop do not make a new fact; another kind or project does."""
    here, there = ProjectId("p_a"), ProjectId("p_b")
    one = fact_id(here, FactKind.CORRECTION, "Use pnpm, never npm.")

    assert one == fact_id(here, FactKind.CORRECTION, " use  PNPM, never npm")
    assert one != fact_id(there, FactKind.CORRECTION, "Use pnpm, never npm.")
    assert one != fact_id(here, FactKind.DECISION, "Use pnpm, never npm.")
