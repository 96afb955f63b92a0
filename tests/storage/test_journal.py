"""Journal files: whole lines, synced, bounded, and read back only when they prove themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.authority import journal
from storage.authority.journal import Stream
from storage.errors import Corrupt, Unavailable
from storage.events import Event, EventDraft, EventType, seal

WRITER = "writer_00000000000000aa"
STREAM = Stream("2026-01-02", WRITER)


def chain(count: int, *, writer: str = WRITER, batch: int = 1) -> list[Event]:
    events: list[Event] = []
    previous = ""
    for number in range(1, count + 1):
        event = seal(
            EventDraft(EventType.JOB_APPLIED, {"note": str(number)}),
            event_id=f"evt_{number}",
            writer=writer,
            writer_seq=number,
            recorded_at=number,
            previous_hash=previous,
            more=(count - number) % batch,
            job=None,
        )
        previous = event.hash
        events.append(event)
    return events


def test_what_was_appended_is_read_in_order(tmp_path: Path) -> None:
    """Two appends give one file, private, in order, with each line's place."""
    events = chain(3)
    first = journal.append(tmp_path / "events", STREAM, [event.line() for event in events[:2]])
    second = journal.append(tmp_path / "events", STREAM, [events[2].line()])

    found = list(journal.read(tmp_path / "events", STREAM))

    assert [item.event for item in found] == events
    assert (first.before, first.after, second.before) == (0, found[1].end, found[1].end)
    assert second.after == journal.size(STREAM.path(tmp_path / "events"))
    assert STREAM.path(tmp_path / "events").stat().st_mode & 0o777 == 0o600
    assert journal.streams(tmp_path / "events") == [STREAM]


def test_undo_takes_back_exactly_what_was_added(tmp_path: Path) -> None:
    """The lines before stay."""
    events = chain(2)
    journal.append(tmp_path, STREAM, [events[0].line()])
    written = journal.append(tmp_path, STREAM, [events[1].line()])

    assert written.undo()

    assert [item.event for item in journal.read(tmp_path, STREAM)] == events[:1]


def test_a_torn_last_line_ends_the_reading(tmp_path: Path) -> None:
    """Whole lines before it count, it does not."""
    events = chain(2)
    journal.append(tmp_path, STREAM, [event.line() for event in events])
    path = STREAM.path(tmp_path)
    path.write_bytes(path.read_bytes()[:-5])

    assert [item.event for item in journal.read(tmp_path, STREAM)] == events[:1]


def test_only_whole_batches_are_given(tmp_path: Path) -> None:
    """An event that says more follow is held back until they do."""
    events = chain(5, batch=2)
    journal.append(tmp_path, STREAM, [event.line() for event in events[:4]])

    found = [
        [item.event.writer_seq for item in batch]
        for batch in journal.batches(journal.read(tmp_path, STREAM))
    ]

    assert found == [[1], [2, 3]]


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[]",
        b'{"v":1}',
        chain(1, writer="writer_00000000000000bb")[0].line(),
        chain(1)[0].line().replace(b'"note":"1"', b'"note":"2"'),
        chain(1)[0].line().replace(b'"at":1', b'"at":2'),
        chain(1)[0].line().replace(b'"v":1', b'"v":2'),
        b"x" * (journal.MAX_LINE_BYTES + 2),
    ],
)
def test_a_line_that_does_not_prove_itself_is_corrupt(tmp_path: Path, line: bytes) -> None:
    """Broken JSON, another writer, a changed byte, an unknown version, a giant line."""
    journal.append(tmp_path, STREAM, [line])

    with pytest.raises(Corrupt):
        list(journal.read(tmp_path, STREAM))


def test_a_linked_file_is_not_followed(tmp_path: Path) -> None:
    """Neither read nor appended to nor measured."""
    (tmp_path / "events" / STREAM.day).mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_bytes(b"")
    STREAM.path(tmp_path / "events").symlink_to(outside)

    with pytest.raises((Corrupt, Unavailable)):
        journal.append(tmp_path / "events", STREAM, [b"{}"])
    with pytest.raises(Unavailable):
        list(journal.read(tmp_path / "events", STREAM))

    assert outside.read_bytes() == b""


def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    """A file where the folder belongs is refused by name."""
    (tmp_path / "events").write_bytes(b"")

    with pytest.raises(Unavailable):
        journal.append(tmp_path / "events", STREAM, [b"{}"])


def test_foreign_names_are_no_streams(tmp_path: Path) -> None:
    """Only day folders and writer files count."""
    (tmp_path / "2026-01-02").mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / "2026-01-02" / "other.jsonl").touch()
    (tmp_path / "2026-01-02" / f"{WRITER}.jsonl").touch()

    assert journal.streams(tmp_path) == [STREAM]
    assert journal.streams(tmp_path / "absent") == []
