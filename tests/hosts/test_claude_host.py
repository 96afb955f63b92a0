"""The real Claude Code with our plugin: it reports, it injects, and no server can hurt it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from hooks.events import (
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    TurnEnded,
)
from hooks.hosts.install import claude_target, install_claude, uninstall_claude
from tests.hosts.agents import CLAUDE, ClaudeHome, Run, within
from tests.hosts.fake_server import FakeServer, Manner
from tests.hosts.mock_model import Exchange, MockModel, Reply, ToolCall

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("installed_agents")]

BLOCK: Final = "recalled: this repository uses pnpm"
# What a run may take longer than one without memoryd. The agreed 250 ms are proven where they can
# be measured alone (test_pi_link, test_hook_client); a whole agent on a busy machine needs air, and
# a server that is waited for would make it hang until its time-out.
SLACK_MS: Final = 250 + 2750


def bash(command: str) -> Reply:
    """A reply that runs `command`."""
    return Reply(tools=(ToolCall("Bash", {"command": command, "description": "run"}),))


CHILD: Final = {
    "description": "child",
    "prompt": "child task",
    "subagent_type": "general-purpose",
    "run_in_background": False,
}
SCRIPT: Final = [
    Exchange("build it", (bash("echo ready"), bash("echo building; exit 3"), Reply("It failed."))),
    Exchange("delegate", (Reply(tools=(ToolCall("Agent", CHILD),)), Reply("Delegated."))),
    Exchange("child task", (bash("echo child"), Reply("Child done."))),
    Exchange("who am I", (bash('echo "parent=$MEMORYD_SESSION"'), Reply("Told."))),
]


@pytest.fixture
def model() -> Iterator[MockModel]:
    """A running scripted model."""
    with MockModel(SCRIPT) as running:
        yield running


def install(user: ClaudeHome, socket: Path, fallback: list[str] | None = None) -> None:
    """Install memoryd for `user`; its server command ends at once."""
    install_claude(
        user.config_dir,
        socket=socket,
        interpreter=Path(sys.executable),
        server_argv=["/bin/false"],
        fallback_argv=fallback or [],
    )


@pytest.fixture
def home(short_dir: Path, model: MockModel) -> ClaudeHome:
    """A user of Claude Code with memoryd installed."""
    user = ClaudeHome(short_dir / "user", model.url)
    install(user, short_dir / "s")
    return user


def test_one_run_reports_its_whole_life(short_dir: Path, home: ClaudeHome) -> None:
    """Start, prompt, both kinds of tool result, stop and end arrive with their facts."""
    with FakeServer(short_dir / "s") as server:
        run = home.run("-p", "build it")
        server.wait_for("SessionEnd")

    start, prompt, good, bad, stop, end = server.events()
    assert (run.code, run.out.strip()) == (0, "It failed.")
    assert isinstance(start, SessionStarted)
    assert isinstance(prompt, PromptSubmitted)
    assert isinstance(good, ToolFinished)
    assert isinstance(bad, ToolFinished)
    assert isinstance(stop, TurnEnded)
    assert isinstance(end, SessionEnded)
    assert (start.cwd, start.reason, start.subagent) == (str(home.project), "startup", False)
    assert prompt.prompt == "build it"
    assert (good.exit_code, good.is_error, good.output_excerpt) == (0, False, "ready")
    assert (bad.exit_code, bad.is_error, bad.input_excerpt) == (3, True, "echo building; exit 3")
    assert stop.settled
    (transcript,) = home.transcripts
    assert {start.transcript, end.transcript} == {str(transcript)}


def test_the_block_reaches_the_model(short_dir: Path, home: ClaudeHome, model: MockModel) -> None:
    """Every model call of the turn sees what was recalled for its prompt, once."""
    with FakeServer(short_dir / "s", block=BLOCK):
        run = home.run("-p", "build it")

    assert run.code == 0
    assert [json.dumps(r.body["messages"]).count(BLOCK) for r in model.requests] == [1, 1, 1]


def test_without_a_server_the_fallback_reaches_the_model(
    short_dir: Path, home: ClaudeHome, model: MockModel
) -> None:
    """The first prompt of a cold start can be answered by the fallback command."""
    answer = {"hookEventName": "UserPromptSubmit", "additionalContext": BLOCK}
    code = f"print({json.dumps(json.dumps({'hookSpecificOutput': answer}))})"
    install(home, short_dir / "s", [sys.executable, "-I", "-S", "-c", code])

    run = home.run("-p", "build it")

    assert run.code == 0
    assert all(request.holds(BLOCK) for request in model.requests)


def test_a_child_of_the_agent_is_a_subagent(short_dir: Path, home: ClaudeHome) -> None:
    """Tool results of a child are told apart from the person's own session."""
    with FakeServer(short_dir / "s") as server:
        run = home.run("-p", "delegate")
        server.wait_for("SessionEnd")

    tools = [event for event in server.events() if isinstance(event, ToolFinished)]
    assert run.code == 0
    assert [(event.tool, event.subagent) for event in tools] == [("Bash", True), ("Agent", False)]


def test_commands_of_the_session_see_who_started_them(
    short_dir: Path, home: ClaudeHome, model: MockModel
) -> None:
    """An agent started by this one's shell finds the mark in its environment."""
    with FakeServer(short_dir / "s") as server:
        home.run("-p", "who am I")

    session = server.events()[0].session_id
    assert model.requests[-1].holds(f"parent=claude:{session}")


def test_our_own_model_calls_are_not_observed(short_dir: Path, home: ClaudeHome) -> None:
    """A Claude Code started for memoryd itself sends nothing: it must not learn from itself."""
    with FakeServer(short_dir / "s", block=BLOCK) as server:
        run = home.run("-p", "build it", env={"MEMORYD_INTERNAL": "1"})

    assert run.code == 0
    assert server.frames == []


def test_after_uninstalling_claude_is_as_before(short_dir: Path, home: ClaudeHome) -> None:
    """Nothing of ours runs any more."""
    uninstall_claude(home.config_dir)

    with FakeServer(short_dir / "s", block=BLOCK) as server:
        run = home.run("-p", "build it")

    assert run.code == 0
    assert server.frames == []


def test_claude_code_itself_finds_the_plugin_valid(home: ClaudeHome) -> None:
    """The host's own validator accepts what is installed."""
    target = claude_target(home.config_dir)

    command = [str(CLAUDE), "plugin", "validate", str(target)]
    run = home.execute(command, home.environment(), timeout_s=30)

    assert run.code == 0, run.out + run.err


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without memoryd, to compare with: the slower of two."""
    with MockModel(SCRIPT) as model:
        user = ClaudeHome(tmp_path_factory.mktemp("plain"), model.url)
        return max((user.run("-p", "build it") for _ in range(2)), key=lambda run: run.took_ms)


@pytest.mark.parametrize("manner", [None, "silent", "garbage", "hang_up", "deaf"])
def test_a_bad_server_changes_nothing_but_the_time_agreed(
    short_dir: Path, home: ClaudeHome, undisturbed: Run, manner: Manner | None
) -> None:
    """No server, a mute one, a mad one: same answer, same exit code, no long wait."""
    limit_ms = undisturbed.took_ms + SLACK_MS

    def attempt() -> Run:
        if manner is None:
            return home.run("-p", "build it")
        with FakeServer(short_dir / "s", manner):
            return home.run("-p", "build it")

    run = within(limit_ms, attempt)

    assert (run.code, run.out, run.err) == (0, undisturbed.out, undisturbed.err)
    assert run.took_ms < limit_ms
