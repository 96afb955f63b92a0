"""What the first run reads: recognising sessions, whose they are, and copying without secrets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.material import (
    Transcript,
    belongs_to,
    found_transcripts,
    jobs_for,
    recognised,
    sample_project,
    sample_transcripts,
    strangers,
)
from ops.originals import original_of
from storage.clock import SystemClock
from storage.config import SourceSettings, StorageSettings
from storage.errors import Invalid, Refused
from storage.paths import HomePaths
from storage.projects import bind
from storage.records import ProjectId
from tasks.sources.pi import folder_name

LIMIT = 100_000
OURS = ProjectId("p_0123456789ab")


def _secret() -> str:
    return "ghp_" + "Q1w2E3r4T5y6" * 3


def _write(path: Path, lines: Sequence[Mapping[str, object] | bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"".join(
            line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
        )
    )
    return path


def _copied(file: Path, paths: HomePaths) -> list[dict[str, object] | None]:
    """The lines of the private copy, None for one that cannot be read."""
    transcript = recognised(file, max_line_bytes=LIMIT)
    location = Path("/our/project")
    (job,) = jobs_for([transcript], paths, OURS, location=location, max_line_bytes=LIMIT)
    lines = Path(str(job.args["locator"])).read_text("utf-8").splitlines()
    return [json.loads(line) if line.startswith("{") else None for line in lines]


PI = {"type": "session", "version": 3, "id": "s", "cwd": "/their/project"}
CLAUDE = {"type": "user", "sessionId": "s", "cwd": "/their/project", "message": {"content": "Hi"}}


def test_both_kinds_of_session_are_recognised(tmp_path: Path) -> None:
    """By their structure, not by their place or name; and the bundled ones are of both kinds."""
    pi = recognised(_write(tmp_path / "a.jsonl", [PI]), max_line_bytes=LIMIT)
    claude = recognised(
        _write(tmp_path / "b.txt", [{"type": "summary"}, CLAUDE]), max_line_bytes=LIMIT
    )
    bundled = [recognised(path, max_line_bytes=LIMIT) for path in sample_transcripts()]

    assert (pi.adapter, pi.cwd) == ("pi", "/their/project")
    assert claude.adapter == "claude"
    assert sorted(item.adapter for item in bundled) == ["claude", "pi"]


@pytest.mark.parametrize(
    "content",
    [b"", b"just text\n", b'{"cwd": "/x"}\n', b'{"type": "session", "cwd": 3}\n', b"\0" * 100],
    ids=["empty", "text", "no session", "no folder", "zeros"],
)
def test_what_is_no_session_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    """The sentence names the file; nothing else happens."""
    file = tmp_path / "notes.jsonl"
    file.write_bytes(content)

    with pytest.raises(Invalid, match=r"notes\.jsonl is not a session"):
        recognised(file, max_line_bytes=LIMIT)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    """Neither can be read as a file."""
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(Invalid, match="is not a file that can be read"):
            recognised(path, max_line_bytes=LIMIT)


def test_sessions_are_found_for_their_own_folder_only(tmp_path: Path) -> None:
    """As the background sync finds them: by the folder that the session itself names."""
    user, project, other = tmp_path / "user", tmp_path / "work", tmp_path / "work2"
    for folder in (project, other):
        folder.mkdir()
        sessions = user / ".pi/agent/sessions" / folder_name(str(folder))
        _write(sessions / "s.jsonl", [{**PI, "cwd": str(folder)}])

    found = found_transcripts(project, {"HOME": str(user)}, SourceSettings())
    none = found_transcripts(project, {"HOME": str(user)}, SourceSettings(pi=False))

    assert [Path(path).parent.name for path in found] == [folder_name(str(project))]
    assert none == []


def test_a_session_of_our_own_is_read_where_it_lies(home: Path, tmp_path: Path) -> None:
    """Only a stranger's session is copied."""
    paths, project = HomePaths(home), tmp_path / "work"
    project.mkdir()
    binding = bind(paths, project, clock=SystemClock(), settings=StorageSettings())
    file = _write(tmp_path / "s.jsonl", [{**PI, "cwd": str(project / "deep/inside")}])
    transcript = recognised(file, max_line_bytes=LIMIT)

    (job,) = jobs_for(
        [transcript],
        paths,
        binding.project_id,
        location=binding.location,
        max_line_bytes=LIMIT,
    )

    assert belongs_to(transcript, paths, binding.project_id)
    assert not belongs_to(Transcript(file, "pi", "/elsewhere"), paths, binding.project_id)
    assert job.args["locator"] == str(file)


def test_a_copy_moves_the_folder_and_keeps_every_line_in_its_place(
    home: Path, tmp_path: Path
) -> None:
    """Unreadable, oversized and empty lines leave a gap of one line; a torn end is left out."""
    said = {"type": "message", "message": {"role": "user", "content": "Hello there"}}
    file = _write(
        tmp_path / "s.jsonl",
        [PI, b"{broken\n", b"x" * (LIMIT + 1) + b"\n", b"\r\n", said, b'{"torn'],
    )

    copied = _copied(file, HomePaths(home))

    assert copied == [{**PI, "cwd": "/our/project"}, None, None, None, said]


def test_a_copy_holds_no_credential_and_no_statement_around_one(home: Path, tmp_path: Path) -> None:
    """The sentence goes as a whole: redacted, it would read like a clean statement."""
    text = f"Always use pnpm here. Remember that the key is {_secret()} for now. Tests run nightly."
    said = {"type": "message", "message": {"role": "user", "content": text}}
    file = _write(tmp_path / "s.jsonl", [PI, said])

    copied = json.dumps(_copied(file, HomePaths(home)))

    assert _secret() not in copied
    assert "Remember" not in copied
    assert "Always use pnpm here." in copied
    assert "Tests run nightly." in copied


def test_copying_again_leaves_the_same_file(home: Path, tmp_path: Path) -> None:
    """A second run must not make the source look new: not even its inode changes."""
    paths = HomePaths(home)
    file = _write(tmp_path / "s.jsonl", [PI, CLAUDE])
    _copied(file, paths)
    (copy,) = paths.project(OURS).root.rglob("*.jsonl")
    before = (copy.stat().st_ino, copy.stat().st_mtime_ns)

    _copied(file, paths)
    again = (copy.stat().st_ino, copy.stat().st_mtime_ns)
    _write(file, [PI, CLAUDE, CLAUDE])
    _copied(file, paths)

    assert again == before
    assert copy.stat().st_ino != before[0]
    assert copy.stat().st_mode & 0o777 == 0o600


LINES = st.lists(
    st.one_of(
        st.just(b"\n"),
        st.binary(max_size=30).map(lambda raw: raw.replace(b"\n", b"") + b"\n"),
        st.dictionaries(st.sampled_from(["type", "cwd", "x"]), st.text(max_size=10)),
    ),
    max_size=8,
)


@given(lines=LINES)
@settings(max_examples=60, deadline=None)
def test_line_numbers_survive_copying(
    lines: list[Mapping[str, object] | bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever stands between them, every readable line keeps its number."""
    folder = tmp_path_factory.mktemp("copy")
    marked = [PI, *lines, {"type": "mark"}]
    file = _write(folder / "s.jsonl", marked)

    copied = _copied(file, HomePaths(folder / "home"))

    assert copied[len(marked) - 1] == {"type": "mark"}


def test_the_samples_project_is_a_private_folder_of_ours(home: Path) -> None:
    """It stands inside the home: nothing of the user's is ever bound for a trial."""
    folder = sample_project(HomePaths(home))

    assert folder.is_relative_to(home)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "message", "x": NaN}\n',
        b'{"type": "message", "x": [Infinity, 1]}\n',
        b'{"type": "message", "x": {"deep": -1e999}}\n',
        b'{"type": "message", "x": ' + b"[" * 900 + b"]" * 900 + b"}\n",
    ],
    ids=["NaN", "Infinity", "1e999", "nested"],
)
def test_a_line_that_json_cannot_hold_counts_as_unreadable(
    line: bytes, home: Path, tmp_path: Path
) -> None:
    """It leaves its place, like every damaged line; the lines around it are kept."""
    said = {"type": "message", "message": {"role": "user", "content": "Hello there"}}
    file = _write(tmp_path / "s.jsonl", [PI, line, said])

    copied = _copied(file, HomePaths(home))

    assert copied[0] == {**PI, "cwd": "/our/project"}
    assert copied[1] is None or copied[1]["type"] == "message"
    assert copied[2] == said
    (copy,) = HomePaths(home).project(OURS).root.rglob("s-*.jsonl")
    assert not any(word in copy.read_bytes() for word in (b"NaN", b"Infinity"))


def test_empty_lines_are_not_counted_as_damage(home: Path, tmp_path: Path) -> None:
    """Only a line that held something counts as skipped; a giant and a broken one do."""
    file = _write(tmp_path / "s.jsonl", [PI, b"\n", b"{broken\n", b"x" * LIMIT + b"\n", PI])

    _copied(file, HomePaths(home))

    (copy,) = HomePaths(home).project(OURS).root.rglob("s-*.jsonl")
    assert sorted(copy.read_bytes().split(b"\n")[1:-2]) == [b"", b"?", b"?"]


def test_a_session_that_begins_with_a_giant_line_is_recognised(tmp_path: Path) -> None:
    """What it is may stand behind megabytes, readable or passed over."""
    readable = {"type": "summary", "text": "x" * 2_000_000}
    file = _write(tmp_path / "s.jsonl", [readable, b"y" * 9_000_000 + b"\n", PI])

    found = recognised(file, max_line_bytes=8_388_608)

    assert (found.adapter, found.cwd) == ("pi", "/their/project")


def test_links_in_a_ring_are_refused_by_name(tmp_path: Path) -> None:
    """No file stands behind them: the sentence is the one of a missing file."""
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.symlink_to(two)
    two.symlink_to(one)

    with pytest.raises(Invalid, match=r"one\.jsonl is not a file that can be read"):
        recognised(one, max_line_bytes=LIMIT)


def test_a_session_of_another_memory_is_refused_with_both_folders(
    home: Path, tmp_path: Path
) -> None:
    """What one project learned must not flow into another; an unbound folder's may, and is told."""
    paths, clock = HomePaths(home), SystemClock()
    ours, theirs, nobodys = (tmp_path / name for name in ("ours", "theirs", "nobodys"))
    for folder in (ours, theirs, nobodys):
        folder.mkdir()
    bind(paths, theirs, clock=clock, settings=StorageSettings())
    foreign = Transcript(tmp_path / "s.jsonl", "pi", str(theirs / "deep"))
    free = Transcript(tmp_path / "t.jsonl", "pi", str(nobodys))
    own = Transcript(tmp_path / "u.jsonl", "pi", str(ours / "deep"))

    for _ in range(2):  # before and after the folder has a memory itself
        with pytest.raises(Refused) as refused:
            strangers([own, foreign], paths, ours)
        assert str(theirs) in str(refused.value)
        assert str(ours) in str(refused.value)
        assert strangers([own, free], paths, ours) == [free]
        bind(paths, ours, clock=clock, settings=StorageSettings())


def test_a_copy_leads_back_to_the_file_that_was_named(home: Path, tmp_path: Path) -> None:
    """People see their own file; a copy without a note, or another path, stands for itself."""
    file = _write(tmp_path / "s.jsonl", [PI])
    _copied(file, HomePaths(home))
    (copy,) = HomePaths(home).project(OURS).root.rglob("s-*.jsonl")
    lost = copy.with_name("lost.jsonl")

    assert original_of(str(copy)) == str(file)
    assert original_of(str(lost)) == str(lost)
    assert original_of(str(file)) == str(file)
    (copy.parent / "originals.json").write_text("[")
    assert original_of(str(copy)) == str(copy)
