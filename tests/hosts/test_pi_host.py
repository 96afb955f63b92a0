"""The real Pi with our extension: it reports, it injects, and no server can hurt it."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Final, cast

import pytest

from hooks.events import (
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    TurnEnded,
)
from hooks.hosts.install import install_pi, uninstall_pi
from tests.hosts.agents import NODE, PI, PiHome, Run, within
from tests.hosts.fake_server import FakeServer, Manner
from tests.hosts.mock_model import Exchange, Json, MockModel, Reply, Request, ToolCall

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("installed_agents")]

BLOCK: Final = "recalled: this repository uses pnpm"
# What a run may take longer than one without memoryd. The agreed 250 ms are proven where they can
# be measured alone (test_pi_link, test_hook_client); a whole agent on a busy machine needs air, and
# a server that is waited for would make it hang until its time-out.
SLACK_MS: Final = 250 + 2750

SCRIPT: Final = [
    Exchange(
        "build it",
        (
            Reply("Trying.", (ToolCall("bash", {"command": "echo building; exit 3"}),)),
            Reply("The build failed."),
        ),
    ),
    Exchange("and now", (Reply("Still failing."),)),
    Exchange(
        "delegate",
        (
            Reply(
                tools=(ToolCall("bash", {"command": f"{NODE} {PI} -p --no-session 'child task'"}),)
            ),
            Reply("Delegated."),
        ),
    ),
    Exchange("child task", (Reply("Child done."),)),
    Exchange(
        "wait for it",
        (
            Reply(
                tools=(ToolCall("bash", {"command": "touch begun; while [ ! -e go ]; do :; done"}),)
            ),
            Reply("Waited."),
        ),
    ),
]


@pytest.fixture
def model() -> Iterator[MockModel]:
    """A running scripted model."""
    with MockModel(SCRIPT) as running:
        yield running


@pytest.fixture
def home(short_dir: Path, model: MockModel) -> PiHome:
    """A user of Pi with memoryd installed; its server command ends at once."""
    user = PiHome(short_dir / "user", model.url)
    install_pi(user.agent_dir, socket=short_dir / "s", server_argv=["/bin/false"])
    return user


def messages(request: Request) -> list[Json]:
    """The conversation a request carried."""
    return cast("list[Json]", request.body["messages"])


def test_one_run_reports_its_whole_life(short_dir: Path, home: PiHome) -> None:
    """Start, prompt, tool result, model calls, idle and end arrive, in order, with their facts."""
    with FakeServer(short_dir / "s") as server:
        run = home.run("-p", "build it")
        server.wait_for("session_shutdown")

    start, prompt, tool, first, second, idle, end = server.events()
    assert (run.code, run.out.strip(), run.err) == (0, "The build failed.", "")
    assert isinstance(start, SessionStarted)
    assert isinstance(prompt, PromptSubmitted)
    assert isinstance(tool, ToolFinished)
    assert isinstance(first, TurnEnded)
    assert isinstance(second, TurnEnded)
    assert isinstance(idle, TurnEnded)
    assert isinstance(end, SessionEnded)
    assert (start.cwd, start.subagent) == (str(home.project), False)
    assert prompt.prompt == "build it"
    assert (tool.tool, tool.is_error, tool.exit_code) == ("bash", True, 3)
    assert tool.input_excerpt == "echo building; exit 3"
    assert tool.output_excerpt.startswith("building")
    assert [turn.settled for turn in (first, second, idle)] == [False, False, True]
    assert (first.tokens or 0) > (second.tokens or 0) > 0
    assert end.reason == "quit"
    (transcript,) = home.transcripts
    assert {start.transcript, end.transcript} == {str(transcript)}
    assert len({event.session_id for event in server.events()}) == 1


def test_the_block_reaches_the_model_right_after_the_prompt(
    short_dir: Path, home: PiHome, model: MockModel
) -> None:
    """Every model call of the turn sees the block at the same place; the session file never."""
    with FakeServer(short_dir / "s", block=BLOCK):
        run = home.run("-p", "build it")

    assert run.code == 0
    for request in model.requests:
        (at,) = [i for i, m in enumerate(messages(request)) if BLOCK in str(m)]
        assert messages(request)[at]["role"] == "user"
        assert "build it" in str(messages(request)[at - 1])
    assert len(model.requests) == 2
    (transcript,) = home.transcripts
    assert BLOCK not in transcript.read_text()


def test_requests_only_grow_at_their_end(short_dir: Path, home: PiHome, model: MockModel) -> None:
    """Recalling again for the next prompt leaves the earlier part untouched: the cache holds."""
    with FakeServer(short_dir / "s", block=BLOCK), home.dialogue() as pi:
        pi.prompt("build it")
        pi.prompt("and now")
        pi.prompt("and now, again")

    histories = [messages(request) for request in model.requests]
    assert len(histories) == 4
    for earlier, later in itertools.pairwise(histories):
        assert later[: len(earlier)] == earlier
    assert [str(history).count(BLOCK) for history in histories] == [1, 1, 2, 3]


def test_a_summary_of_the_session_does_not_contain_what_was_recalled(
    short_dir: Path, home: PiHome, model: MockModel
) -> None:
    """Compaction sees the person's words and not ours, so nothing comes back as new evidence."""
    with FakeServer(short_dir / "s", block=BLOCK), home.dialogue() as pi:
        pi.prompt("build it" + " with care" * 60)
        pi.prompt("and now" + " with care" * 60)
        seen = len(model.all_requests)
        pi.send("compact")
        answer = pi.until(type="response", id="compact")

    assert answer["success"], answer
    summaries = model.all_requests[seen:]
    assert any(request.holds("build it") for request in summaries)
    assert not any(request.holds(BLOCK) for request in summaries)


def test_a_word_during_the_work_is_reported(short_dir: Path, home: PiHome) -> None:
    """A prompt that joins a running turn has no preflight, and reaches the server all the same."""
    with FakeServer(short_dir / "s") as server, home.dialogue() as pi:
        pi.send("prompt", message="wait for it")
        server.wait_for("before_agent_start")
        pi.until(type="tool_execution_start")
        pi.send("steer", message="no, use pnpm")
        pi.until(type="response", id="steer")
        (home.project / "go").touch()
        pi.until(type="agent_settled")
        server.wait_for("agent_settled")

    prompts = [event.prompt for event in server.events() if isinstance(event, PromptSubmitted)]
    assert prompts == ["wait for it", "no, use pnpm"]


def test_a_prompt_of_another_extension_is_no_persons(short_dir: Path, home: PiHome) -> None:
    """It is answered like any other, and nobody learns from it; the person's own stays theirs."""
    other = home.agent_dir / "extensions/robot.ts"
    other.write_text(
        """export default function (pi) {
          let said = false;
          pi.on("agent_settled", () => {
            if (!said) pi.sendUserMessage("and now");
            said = true;
          });
        }""",
        "utf-8",
    )
    with FakeServer(short_dir / "s", block=BLOCK) as server, home.dialogue() as pi:
        pi.send("prompt", message="build it")
        pi.until(type="agent_settled")
        pi.until(type="agent_settled")
        server.wait_for("agent_settled")

    prompts = [event for event in server.events() if isinstance(event, PromptSubmitted)]
    assert [(event.prompt, event.subagent) for event in prompts] == [
        ("build it", False),
        ("and now", True),
    ]


def test_an_agent_started_by_the_agent_is_a_subagent(short_dir: Path, home: PiHome) -> None:
    """A nested Pi knows by its environment that no person is talking to it."""
    with FakeServer(short_dir / "s") as server:
        run = home.run("-p", "delegate")
        server.wait_for("session_shutdown")

    assert run.code == 0
    prompts = [event for event in server.events() if isinstance(event, PromptSubmitted)]
    assert [(event.prompt, event.subagent) for event in prompts] == [
        ("delegate", False),
        ("child task", True),
    ]


def test_our_own_model_calls_are_not_observed(short_dir: Path, home: PiHome) -> None:
    """A Pi started for memoryd itself sends nothing: it must not learn from itself."""
    with FakeServer(short_dir / "s", block=BLOCK) as server:
        run = home.run("-p", "build it", env={"MEMORYD_INTERNAL": "1"})

    assert run.code == 0
    assert server.frames == []


def test_after_uninstalling_pi_is_as_before(short_dir: Path, home: PiHome) -> None:
    """Nothing of ours runs any more."""
    uninstall_pi(home.agent_dir)

    with FakeServer(short_dir / "s", block=BLOCK) as server:
        run = home.run("-p", "build it")

    assert run.code == 0
    assert server.frames == []


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run without memoryd, to compare with: the slower of two."""
    with MockModel(SCRIPT) as model:
        user = PiHome(tmp_path_factory.mktemp("plain"), model.url)
        return max((user.run("-p", "build it") for _ in range(2)), key=lambda run: run.took_ms)


@pytest.mark.parametrize("manner", [None, "silent", "garbage", "hang_up", "deaf"])
def test_a_bad_server_changes_nothing_but_the_time_agreed(
    short_dir: Path, home: PiHome, undisturbed: Run, manner: Manner | None
) -> None:
    """No server, a mute one, a mad one: same answer, same exit code, no complaint, no long wait."""
    limit_ms = undisturbed.took_ms + SLACK_MS

    def attempt() -> Run:
        if manner is None:
            return home.run("-p", "build it")
        with FakeServer(short_dir / "s", manner):
            return home.run("-p", "build it")

    run = within(limit_ms, attempt)

    assert (run.code, run.out, run.err) == (0, undisturbed.out, "")
    assert run.took_ms < limit_ms
