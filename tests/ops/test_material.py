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
)
from storage.clock import SystemClock
from storage.config import SourceSettings, StorageSettings
from storage.errors import Invalid
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
