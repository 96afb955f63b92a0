"""Of each host's transcripts only this project's are found, and only what was said is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.config import SourceSettings
from tasks.sources import Checkouts, PathLeft, Record, ToolResult, UserMessage
from tasks.sources.catalogue import claude_projects, pi_sessions
from tasks.sources.claude import ClaudeSource
from tasks.sources.claude import folder_name as claude_folder
from tasks.sources.pi import PiSource
from tasks.sources.pi import folder_name as pi_folder
from tests.learning import claude_line, lines, pi_header, pi_ran, pi_result, pi_said, read_all

HERE = "/home/dev/harbor"
MARKER = "use marker-3f9a, never the other one"


def _texts(records: list[Record]) -> list[str]:
    return [record.text for record in records if isinstance(record, UserMessage)]


def _write(path: Path, objects: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(objects))
    return path


def _read_pi(tmp_path: Path, objects: list[dict[str, object]]) -> list[Record]:
    path = _write(tmp_path / "s.jsonl", objects)
    return read_all(PiSource(tmp_path, Checkouts((HERE,)), max_line_bytes=1 << 20), str(path))


def _read_claude(tmp_path: Path, objects: list[dict[str, object]]) -> list[Record]:
    path = _write(tmp_path / "c.jsonl", objects)
    return read_all(ClaudeSource(tmp_path, Checkouts((HERE,)), max_line_bytes=1 << 20), str(path))


@pytest.mark.parametrize(
    ("directory", "ours"),
    [
        ("/home/dev/harbor", True),
        ("/home/dev/harbor/src/deep", True),
        ("/home/dev/harbor/", True),
        ("/home/dev/harbor-2", False),
        ("/home/dev", False),
        ("/home/dev/harbor/vendor/tide", False),
        ("/home/dev/harbor/vendor/tide/src", False),
        ("/home/dev/harbor/../other", False),
        ("harbor", False),
        ("", False),
    ],
)
def test_a_directory_belongs_to_the_nearest_checkout_around_it(directory: str, ours: bool) -> None:
    """Names that merely begin alike are foreign; a project inside another is its own."""
    checkouts = Checkouts((HERE,), foreign=("/home/dev/harbor/vendor/tide", "/home/dev/other"))

    assert checkouts.contains(directory) is ours


def test_pi_finds_sessions_of_this_checkout_only(tmp_path: Path) -> None:
    """The folder name narrows, the header decides; files without a header are nobody's."""
    own = tmp_path / pi_folder(HERE)
    _write(own / "a.jsonl", [pi_header(HERE)])
    _write(own / "liar.jsonl", [pi_header("/home/dev/other")])
    _write(own / "headless.jsonl", [pi_said(1, "whose am I")])
    _write(tmp_path / pi_folder(HERE + "/src") / "b.jsonl", [pi_header(HERE + "/src")])
    _write(tmp_path / pi_folder(HERE + "-2") / "c.jsonl", [pi_header(HERE + "-2")])
    _write(tmp_path / pi_folder("/home/dev/other") / "d.jsonl", [pi_header("/home/dev/other")])
    (own / "not-a-session.txt").write_text("x")
    (own / "link.jsonl").symlink_to(own / "a.jsonl")

    found = PiSource(tmp_path, Checkouts((HERE,)), max_line_bytes=1 << 20).discover()

    assert sorted(Path(path).name for path in found) == ["a.jsonl", "b.jsonl"]


def test_pi_reads_nothing_of_another_projects_session(tmp_path: Path) -> None:
    """Even handed its path, the adapter reads no word of a foreign session."""
    assert _read_pi(tmp_path, [pi_header("/home/dev/other"), pi_said(1, MARKER)]) == []
    assert _read_pi(tmp_path, [pi_said(1, MARKER)]) == []


def test_pi_drops_what_nobody_typed(tmp_path: Path) -> None:
    """Custom messages (our recall comes as one), system, summaries, edits, labels: no record."""
    entry = {"id": "00000001", "parentId": None, "timestamp": "2026-11-30T10:00:00.000Z"}
    injected: list[dict[str, object]] = [
        {"type": "custom_message", "customType": "memoryd", "content": MARKER, **entry},
        {"type": "custom", "customType": "memoryd", "data": {"text": MARKER}, **entry},
        {"type": "message", "message": {"role": "system", "content": MARKER}, **entry},
        {"type": "message", "message": {"role": "custom", "content": MARKER}, **entry},
        {"type": "message", "message": {"role": "compactionSummary", "content": MARKER}, **entry},
        {"type": "message", "message": {"role": "branchSummary", "content": MARKER}, **entry},
        {"type": "compaction", "summary": MARKER, **entry},
        {"type": "branch_summary", "summary": MARKER, **entry},
        {"type": "context_edit", "targetId": "1", "replacement": MARKER, **entry},
        {"type": "label", "label": MARKER, **entry},
        {"type": "session_info", "name": MARKER, **entry},
        pi_said(2, f'<private_memory trust="untrusted">{MARKER}</private_memory>', after=1),
        pi_said(3, f"<memory>{MARKER}"),
    ]

    records = _read_pi(tmp_path, [pi_header(HERE), *injected, pi_said(4, "typed by a person")])

    assert MARKER not in repr(records)
    assert _texts(records) == ["typed by a person"]


def test_pi_tells_a_jump_to_an_earlier_entry(tmp_path: Path) -> None:
    """A branch is left where an entry does not follow the one before; both sides were said."""
    objects = [
        pi_header(HERE),
        pi_said(1, "first"),
        pi_said(2, "second"),
        pi_said(3, "third", after=1),
    ]

    records = _read_pi(tmp_path, objects)

    assert _texts(records) == ["first", "second", "third"]
    assert [record.line for record in records if isinstance(record, PathLeft)] == [4]


def test_pi_keeps_private_commands_private(tmp_path: Path) -> None:
    """A person's `!!command` was kept from the model, so its output is kept from memory."""
    entry = {"type": "message", "timestamp": "2026-11-30T10:00:00.000Z"}
    run = {"role": "bashExecution", "command": "make", "output": "ok", "exitCode": 0}
    secret = {**run, "command": "cat .env", "output": MARKER, "excludeFromContext": True}

    records = _read_pi(
        tmp_path,
        [
            pi_header(HERE),
            {**entry, "id": "1", "parentId": None, "message": run},
            {**entry, "id": "2", "parentId": "1", "message": secret},
        ],
    )

    assert [r.input for r in records if isinstance(r, ToolResult)] == ["make"]


def test_pi_results_know_their_command_and_exit_code(tmp_path: Path) -> None:
    """The exit code stands in the text only; the command comes from the call."""
    objects = [
        pi_header(HERE),
        pi_ran(1, "pnpm test"),
        pi_result(2, "boom\n\nCommand exited with code 3", failed=True),
    ]

    (result,) = [r for r in _read_pi(tmp_path, objects) if isinstance(r, ToolResult)]

    assert (result.input, result.is_error, result.exit_code) == ("pnpm test", True, 3)


def test_claude_finds_main_transcripts_only(tmp_path: Path) -> None:
    """Sub-agents' files are not found, wherever this or an older version puts them."""
    own = tmp_path / claude_folder(HERE)
    line = [claude_line(1, "user", "hello", HERE)]
    _write(own / "main.jsonl", line)
    _write(own / "agent-a1.jsonl", line)
    _write(own / "main" / "subagents" / "agent-b2.jsonl", line)
    _write(tmp_path / claude_folder(HERE + "/src") / "sub.jsonl", line)
    _write(tmp_path / claude_folder("/home/dev/other") / "other.jsonl", line)
    foreign: list[dict[str, object]] = [
        {"type": "summary"},
        claude_line(1, "user", "hello", "/home/dev/harbor-2"),
    ]
    _write(tmp_path / claude_folder("/home/dev/harbor-2") / "foreign.jsonl", foreign)

    found = ClaudeSource(tmp_path, Checkouts((HERE,)), max_line_bytes=1 << 20).discover()

    assert [Path(path).name for path in found] == ["main.jsonl", "sub.jsonl"]


def test_claude_reads_only_lines_of_this_checkout(tmp_path: Path) -> None:
    """Two paths can share a folder name: each line's own directory decides."""
    objects = [
        claude_line(1, "user", "ours", HERE),
        claude_line(2, "user", MARKER, "/home/dev-harbor"),
        claude_line(3, "user", MARKER, ""),
    ]

    assert _texts(_read_claude(tmp_path, objects)) == ["ours"]


def test_claude_drops_what_nobody_typed(tmp_path: Path) -> None:
    """Meta, compaction, sidechains, attachments, reminders, command wrappers: no record."""
    wrapped = [
        f"<system-reminder>{MARKER}</system-reminder>",
        f'<private_memory trust="untrusted">\n{MARKER}',
        f"<command-name>/x</command-name><command-args>{MARKER}</command-args>",
        f"<local-command-stdout>{MARKER}</local-command-stdout>",
        f"<task-notification>{MARKER}</task-notification>",
        f"<some-new_wrapper>{MARKER}</some-new_wrapper>",
        f"This session is being continued from a previous conversation. {MARKER}",
        f"Caveat: The messages below were generated by the user. {MARKER}",
    ]
    objects: list[dict[str, object]] = [
        claude_line(1, "user", MARKER, HERE, isMeta=True),
        claude_line(2, "user", MARKER, HERE, isCompactSummary=True),
        claude_line(3, "user", MARKER, HERE, isSidechain=True),
        claude_line(4, "user", MARKER, HERE, agentId="a1"),
        claude_line(
            5, "assistant", [{"type": "text", "text": MARKER}], HERE, isApiErrorMessage=True
        ),
        {
            **claude_line(6, "user", "x", HERE),
            "type": "attachment",
            "attachment": {"type": "hook_additional_context", "content": [MARKER]},
        },
        {"type": "queue-operation", "operation": "enqueue", "content": MARKER},
        {"type": "last-prompt", "lastPrompt": MARKER},
        {"type": "summary", "summary": MARKER},
        *(claude_line(10 + n, "user", text, HERE) for n, text in enumerate(wrapped)),
        claude_line(30, "user", f"typed\n<system-reminder>{MARKER}</system-reminder>\ntoo", HERE),
    ]

    records = _read_claude(tmp_path, objects)

    assert MARKER not in repr(records)
    assert [text.split() for text in _texts(records)] == [["typed", "too"]]


def test_claude_results_are_no_prompts_and_unfinished_ones_no_results(tmp_path: Path) -> None:
    """A tool result comes as role user; interrupted and background commands prove nothing."""
    use = {"type": "tool_use", "name": "Bash", "input": {"command": "make"}}
    done = {"type": "tool_result", "content": "Exit code 2\nno rule", "is_error": True}
    objects: list[dict[str, object]] = []
    extras: list[dict[str, object]] = [{}, {"interrupted": True}, {"backgroundTaskId": "b1"}]
    for number, extra in enumerate(extras):
        call = f"t{number}"
        objects += [
            claude_line(2 * number, "assistant", [{**use, "id": call}], HERE),
            claude_line(
                2 * number + 1,
                "user",
                [{**done, "tool_use_id": call}],
                HERE,
                toolUseResult={"stdout": "", **extra},
            ),
        ]

    records = _read_claude(tmp_path, objects)

    results = [r for r in records if isinstance(r, ToolResult)]
    assert [(r.call_id, r.input, r.is_error, r.exit_code) for r in results] == [
        ("t0", "make", True, 2)
    ]
    assert _texts(records) == []


def test_the_hosts_folders_follow_settings_then_environment_then_home() -> None:
    """An explicit folder wins; the host's own variable comes next; then the default."""
    home = {"HOME": "/home/dev"}

    assert pi_sessions(home, SourceSettings()) == Path("/home/dev/.pi/agent/sessions")
    assert pi_sessions({**home, "PI_CODING_AGENT_DIR": "/x"}, SourceSettings()) == Path(
        "/x/sessions"
    )
    assert pi_sessions(home, SourceSettings(pi_sessions="~/s")) == Path("/home/dev/s")
    assert claude_projects(home, SourceSettings()) == Path("/home/dev/.claude/projects")
    assert claude_projects({**home, "CLAUDE_CONFIG_DIR": "/c"}, SourceSettings()) == Path(
        "/c/projects"
    )
    assert claude_projects(home, SourceSettings(claude_projects="/p")) == Path("/p")
