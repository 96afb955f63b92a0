"""Closed journal files at rest: the same history in fewer bytes, proven, and forgotten with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from storage import backup, forget
from storage.authority import ProjectAuthority, journal, packing, segments
from storage.authority import payloads as say
from storage.authority.journal import Stream
from storage.authority.needles import in_bytes
from storage.clock import DAY_MS
from storage.errors import Corrupt
from storage.events import Event
from storage.paths import HomePaths
from storage.repair import repair
from tests.storage.memory_samples import (
    PROJECT,
    ROOMY,
    T0,
    StepClock,
    a_document,
    a_fact,
    a_quote,
    opened,
    paths_in,
)

WORDS = "Ananas grows on no tree at all"
NEXT_DAY = T0 + DAY_MS


def fill(store: ProjectAuthority) -> None:
    """A day of some ten kilobytes, with a fact that will be forgotten."""
    store.append([say.fact_recorded(a_fact(f"{WORDS}."), [a_quote(WORDS)])])
    for number in range(12):
        text = f"Note {number}. " + f"Words of note {number}, and more. " * 12
        store.append([say.document_upserted(a_document(text, name=f"note-{number}"))])


@pytest.fixture
def clock() -> StepClock:
    return StepClock()


@pytest.fixture
def store(home: Path, clock: StepClock) -> Iterator[ProjectAuthority]:
    authority = opened(home, "indexed", clock=clock)
    fill(authority)
    yield authority
    authority.close()


def history(store: ProjectAuthority) -> list[Event]:
    with store.snapshot() as (_, events):
        return list(events)


def files(home: Path) -> list[str]:
    return sorted(file.suffix for file in paths_in(home).events.rglob("*") if file.is_file())


def packed_file(home: Path) -> Path:
    return next(paths_in(home).events.rglob("*.br"))


def packed(store: ProjectAuthority, clock: StepClock) -> tuple[int, int]:
    clock.at = NEXT_DAY
    return store.pack()


def problems(home: Path) -> list[str]:
    with closing(opened(home, create=False)) as store:
        return [f"{problem.check}: {problem.detail}" for problem in store.verify().problems]


def test_a_day_that_is_over_lies_there_smaller_and_says_the_same(
    store: ProjectAuthority, clock: StepClock, home: Path
) -> None:
    """Same events, same anchors, a quarter of the bytes; the open day stays plain."""
    before = history(store)
    size = next(paths_in(home).events.rglob("*.jsonl")).stat().st_size
    assert store.pack() == (0, 0)

    count, saved = packed(store, clock)

    assert (count, files(home)) == (1, [".br"])
    assert packed_file(home).stat().st_size == size - saved < size / 3
    assert packed_file(home).stat().st_mode & 0o777 == 0o600
    assert history(store) == before
    assert (store.replay(), store.verify().problems) == (0, ())
    store.append([say.document_upserted(a_document("Later.", name="later"))])
    assert files(home) == [".br", ".jsonl"]
    assert store.pack() == (0, 0)
    assert store.rebuild() == len(before) + 1
    assert store.verify().problems == ()


def test_a_clock_that_steps_back_adds_nothing_to_a_packed_day(
    store: ProjectAuthority, clock: StepClock, home: Path
) -> None:
    """The writer takes a new name, so the packed file stays what it is."""
    packed(store, clock)
    kept = packed_file(home).read_bytes()

    clock.at = T0
    store.append([say.document_upserted(a_document("Before midnight.", name="late"))])

    assert packed_file(home).read_bytes() == kept
    assert files(home) == [".br", ".jsonl"]
    assert store.verify().problems == ()


def test_a_file_that_is_full_is_closed_on_its_own_day(
    store: ProjectAuthority, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its writer goes on in another file, and the full one is packed at once."""
    monkeypatch.setattr(packing, "SEGMENT_BYTES", 6_000)

    store.append([say.document_upserted(a_document("Elsewhere.", name="next"))])

    assert files(home) == [".jsonl", ".jsonl"]
    assert store.pack()[0] == 1
    assert store.verify().problems == ()
    assert {event.writer for event in history(store)} == {
        stream.writer for stream in journal.streams(paths_in(home).events)
    }


def test_what_a_crash_left_beside_the_plain_file_does_not_count(
    store: ProjectAuthority, clock: StepClock, home: Path
) -> None:
    """Both forms, or half a packed one: the plain file is the truth, and packing ends it."""
    before = history(store)
    plain = next(paths_in(home).events.rglob("*.jsonl"))
    kept = plain.read_bytes()
    packed(store, clock)
    plain.write_bytes(kept)
    plain.chmod(0o600)
    torn = plain.with_name(f".{plain.name}.br.0011.tmp")
    torn.write_bytes(b"half")

    assert history(store) == before
    assert store.verify().problems == ()
    assert store.pack()[0] == 1

    assert files(home) == [".br"]
    assert history(store) == before


def test_a_file_that_changed_meanwhile_is_not_replaced(
    store: ProjectAuthority, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packing goes on without the lock; what was blanked in that time stays blank."""
    real = packing._write

    def slow(plain: Path, target: Path, size: int) -> None:
        real(plain, target, size)
        os.utime(plain, ns=(1, 1))

    monkeypatch.setattr(packing, "_write", slow)
    monkeypatch.setattr(packing, "SEGMENT_BYTES", 6_000)

    assert store.pack() == (0, 0)
    assert files(home) == [".jsonl"]


def test_forgotten_words_are_in_no_packed_file(
    store: ProjectAuthority, clock: StepClock, home: Path
) -> None:
    """Also where a crash left the packed form beside the plain one; the chain still proves."""
    packed(store, clock)
    file = packed_file(home)
    assert in_bytes(b"".join(segments.frames(file)), [WORDS])
    kept = file.read_bytes()
    target = a_fact(f"{WORDS}.").fact_id

    forget.forget(HomePaths(home), PROJECT, target, clock=clock, settings=ROOMY)

    for stream in journal.streams(paths_in(home).events):
        with journal.opened(paths_in(home).events, stream) as content:
            assert not in_bytes(content.read(), [WORDS])
    assert not list(paths_in(home).events.rglob("*.br"))
    assert store.verify().problems == ()
    # A crash between a name and the other: the old packed form lies there again.
    file.write_bytes(kept)
    next_target = a_document(name="note-3").key
    forget.forget(HomePaths(home), PROJECT, next_target, clock=clock, settings=ROOMY)
    assert not file.exists()


def test_a_backup_of_packed_history_restores_whole(
    store: ProjectAuthority, clock: StepClock, home: Path, tmp_path: Path
) -> None:
    """A copy holds the content, however it lay there."""
    before = history(store)
    packed(store, clock)
    target = tmp_path / "copy.sqlite"
    backup.back_up(paths_in(home), PROJECT, target, clock=clock, settings=ROOMY)
    store.append([say.document_upserted(a_document("After.", name="after"))])
    store.close()

    backup.restore(paths_in(home), PROJECT, target, clock=clock, settings=ROOMY, force=True)

    with closing(opened(home, create=False)) as again:
        assert history(again) == before
        assert again.verify().problems == ()


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.02, 0.3, 0.6, 0.9, 1.0])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_wrong_byte_in_a_packed_file_is_reported_and_mended(
    store: ProjectAuthority, clock: StepClock, home: Path, share: float, bit: int
) -> None:
    """Head, lengths, checksum, content: verify names it, repair keeps all that the tables know."""
    packed(store, clock)
    with store.read() as reads:
        facts, documents = reads.facts(), list(reads.documents())
    file = packed_file(home)
    data = bytearray(file.read_bytes())
    data[int(share * (len(data) - 1))] ^= 1 << bit
    file.write_bytes(bytes(data))
    store.close()

    assert any(found.startswith("journal") for found in problems(home))
    done = repair(paths_in(home), PROJECT, clock=StepClock(NEXT_DAY), settings=ROOMY)

    assert [cut.file for cut in done.cuts] == [f"{file.parent.name}/{file.name}"]
    assert (paths_in(home).memory / done.cuts[0].kept_in).read_bytes() == bytes(data)
    assert problems(home) == []
    with closing(opened(home, create=False)) as again, again.read() as reads:
        assert [fact.fact_id for fact in reads.facts()] == [fact.fact_id for fact in facts]
        assert {d.key for d in reads.documents()} == {d.key for d in documents}


def test_frames_around_a_damaged_one_are_kept(tmp_path: Path) -> None:
    """What can be read is given, cut apart where it was; where lengths lie, nothing is guessed."""
    lines = b"".join(b"%07d\n" % number for number in range(50_000))
    file = tmp_path / "a.jsonl.br"
    source = tmp_path / "a.jsonl"
    source.write_bytes(lines)
    with source.open("rb") as read, file.open("wb") as out:
        segments.write(read, len(lines), out)
    assert segments.salvage(file) == (lines, True)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))

    found, whole = segments.salvage(file)

    assert not whole
    assert len(lines) - segments.FRAME_BYTES <= len(found) < len(lines)
    with pytest.raises(Corrupt):
        list(segments.frames(file))


@pytest.mark.parametrize("start", [0, 1, 131_071, 131_072, 131_073, 399_999, 400_000])
def test_a_packed_file_is_read_from_any_offset(tmp_path: Path, start: int) -> None:
    """As a plain one is."""
    lines = b"".join(b"%07d\n" % number for number in range(50_000))
    stream = Stream("2026-01-02", "writer_00000000000000aa")
    stream.packed(tmp_path).parent.mkdir()
    source = tmp_path / "plain"
    source.write_bytes(lines)
    with source.open("rb") as read, stream.packed(tmp_path).open("wb") as out:
        segments.write(read, len(lines), out)

    with journal.opened(tmp_path, stream, start) as file:
        assert file.read() == lines[start:]
    assert journal.length(tmp_path, stream) == len(lines)


def test_a_link_in_place_of_a_packed_file_is_refused(
    store: ProjectAuthority, clock: StepClock, home: Path, tmp_path: Path
) -> None:
    """Neither read nor followed."""
    packed(store, clock)
    file = packed_file(home)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(file, elsewhere)
    file.symlink_to(elsewhere)

    with pytest.raises(Corrupt):
        store.verify()
