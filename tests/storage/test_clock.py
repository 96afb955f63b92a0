"""Instants: what is a date, what is not, and how it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.clock import MAX_AT, SystemClock, iso, parse_instant, utc_day
from storage.errors import Invalid


@given(st.integers(0, MAX_AT))
def test_every_instant_survives_its_text(at: int) -> None:
    """`iso` and `parse_instant` are each other's inverse over all of 1970 to 9999."""
    assert parse_instant(iso(at)) == at


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01", 0),
        ("2026-11-30T12:00:00Z", 1_796_040_000_000),
        ("2026-11-30T12:00:00", 1_796_040_000_000),
        ("2026-11-30T13:00:00+01:00", 1_796_040_000_000),
        (1_796_040_000, 1_796_040_000_000),
        (1_796_040_000_000, 1_796_040_000_000),
        (1_796_040_000.5, 1_796_040_000_500),
    ],
)
def test_iso_seconds_and_milliseconds_are_dates(value: object, expected: int) -> None:
    """ISO text (no offset = UTC), epoch seconds and epoch milliseconds name the same instant."""
    assert parse_instant(value) == expected


@pytest.mark.parametrize(
    "value",
    ["", "soon", "2026-02-30", "2026-13-01", "26-11-30", None, True, float("nan"), float("inf"),
     -1, MAX_AT + 1, "1969-12-31T23:59:59Z", [], {}],
)  # fmt: skip
def test_impossible_dates_are_refused(value: object) -> None:
    """What is not a date between 1970 and 9999 is an error, never "now"."""
    with pytest.raises(Invalid):
        parse_instant(value)


def test_the_system_clock_is_sane() -> None:
    """Wall time is this century, boot time never goes back, the boot id is stable."""
    clock = SystemClock()

    first, second = clock.boot_ms(), clock.boot_ms()

    assert 1_700_000_000_000 < clock.now_ms() < MAX_AT
    assert 0 <= first <= second
    assert clock.boot_id() == clock.boot_id() != ""


def test_a_day_is_a_utc_day() -> None:
    """The last millisecond of a UTC day belongs to it, the next one does not."""
    assert (utc_day(86_399_999), utc_day(86_400_000)) == ("1970-01-01", "1970-01-02")
