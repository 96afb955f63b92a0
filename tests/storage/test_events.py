"""Events: sealed, chained, bounded, and still provable once a payload is erased."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.errors import Corrupt, Invalid
from storage.events import (
    MAX_DOCUMENT_EVENT_BYTES,
    MAX_EVENT_BYTES,
    Event,
    EventDraft,
    EventType,
    check,
    envelope_hash,
    parse,
    seal,
)
from storage.records import JobStamp, JsonValue, canonical_json

payloads = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=4,
)


def sealed(payload: dict[str, JsonValue], kind: EventType = EventType.JOB_APPLIED) -> Event:
    return seal(
        EventDraft(kind, payload),
        event_id="evt_1",
        writer="writer_1",
        writer_seq=3,
        recorded_at=7,
        previous_hash="p",
        more=2,
        job=JobStamp(job_id="j", token=4),
    )


@given(payloads)
def test_a_line_reads_back_as_the_same_event(payload: dict[str, JsonValue]) -> None:
    """One spelling, lossless, on one line, whatever text the payload holds."""
    event = sealed(payload)

    assert b"\n" not in event.line()
    assert parse(json.loads(event.line())) == event


@given(payloads, st.text(max_size=9))
def test_a_line_is_canonical_json(payload: dict[str, JsonValue], job: str) -> None:
    """Put together from parts, it is spelled as the encoder would spell the whole."""
    event = replace(sealed(payload), job=JobStamp(job_id=job, token=1), writer=job)

    line = event.line()

    assert canonical_json(json.loads(line)) == line
    assert json.loads(line)["payload"] == payload


def test_a_replaced_payload_is_the_one_that_is_written() -> None:
    """What `seal` remembers of the first payload does not outlive it."""
    event = replace(sealed({"text": "secret"}), payload=None)

    assert b"secret" not in event.line()
    assert json.loads(event.line())["payload"] is None


def test_an_erased_payload_leaves_the_chain_provable() -> None:
    """The hash covers the payload's own hash, so the words can go for good."""
    event = sealed({"note": "forget me"})
    erased = replace(event, payload=None)

    check(erased)

    assert erased.hash == event.hash == envelope_hash(erased)
    assert b"forget me" not in erased.line()
    assert parse(json.loads(erased.line())) == erased


@pytest.mark.parametrize(
    "changes",
    [
        {"writer_seq": 4},
        {"recorded_at": 8},
        {"more": 0},
        {"previous_hash": "q"},
        {"job": None},
        {"payload": {"note": "other"}},
        {"event_id": "evt_2"},
        {"type": EventType.SOURCE_ADVANCED},
    ],
)
def test_any_changed_field_is_noticed(changes: dict[str, object]) -> None:
    """Everything that matters is under the hash."""
    with pytest.raises(Corrupt):
        check(replace(sealed({"note": "x"}), **changes))  # type: ignore[arg-type]


def test_events_are_bounded_by_kind() -> None:
    """64 KiB an event, 2 MiB a document."""
    assert sealed({"t": "x" * (MAX_EVENT_BYTES - 8)}).payload
    with pytest.raises(Invalid):
        sealed({"t": "x" * MAX_EVENT_BYTES})
    assert sealed({"t": "x" * MAX_EVENT_BYTES}, EventType.DOCUMENT_UPSERTED).payload

    with pytest.raises(Invalid):
        sealed({"t": "x" * MAX_DOCUMENT_EVENT_BYTES}, EventType.DOCUMENT_UPSERTED)


def test_a_payload_that_is_not_json_is_invalid() -> None:
    """No NaN, no objects of ours."""
    with pytest.raises(Invalid):
        sealed({"x": float("nan")})
    with pytest.raises(Invalid):
        sealed({"x": object()})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"v": 2},
        {**json.loads(sealed({}).line()), "type": "gossip"},
        {**json.loads(sealed({}).line()), "payload": []},
        {**json.loads(sealed({}).line()), "job": "x"},
        {**json.loads(sealed({}).line()), "seq": "many"},
    ],
)
def test_a_malformed_line_is_corrupt(document: JsonValue) -> None:
    """Unknown types and versions included: the reducer is never asked to guess."""
    with pytest.raises(Corrupt):
        parse(document)
