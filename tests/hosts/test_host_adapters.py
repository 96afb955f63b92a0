"""The adapters turn each host's JSON into events, and never fail on what they do not know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hooks.events import (
    HookOutcome,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    TurnEnded,
)
from hooks.hosts import claude, pi

CLAUDE = {"session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/p"}
PI = {"sessionId": "s1", "transcript": "/t.jsonl", "cwd": "/p", "subagent": False}

CLAUDE_EVENTS = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "SessionEnd",
    "PreCompact",
)
PI_EVENTS = (
    "session_start",
    "before_agent_start",
    "input",
    "tool_result",
    "turn_end",
    "agent_settled",
    "session_shutdown",
    "context",
)
KEYS = (
    *("session_id", "sessionId", "cwd", "prompt", "source", "tool_name", "toolName", "tool_input"),
    *("input", "tool_response", "output", "error", "isError", "exitCode", "tokens", "agent_id"),
    *("transcript_path", "reason", "stop_hook_active"),
)
ODD: tuple[object, ...] = (
    *(None, True, 7, -1.5, float("nan"), float("inf"), 10**400, "", "x", "\ud800", "a\0b", []),
    *({}, [{"text": 1}], [["deep"]], {"command": 3}, {"stdout": None, "content": [None]}),
    {"file": {"content": ["x"]}},
)
FIELDS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD), max_size=8)


@given(st.sampled_from(CLAUDE_EVENTS), FIELDS)
def test_claude_adapter_accepts_any_json(event: str, payload: dict[str, object]) -> None:
    """Whatever types the fields have, the answer is an event or None, never an exception."""
    parsed = claude.parse(event, {**CLAUDE, **payload})

    assert parsed is None or parsed.host == "claude"


@given(st.sampled_from(PI_EVENTS), FIELDS)
def test_pi_adapter_accepts_any_json(event: str, payload: dict[str, object]) -> None:
    """Whatever types the fields have, the answer is an event or None, never an exception."""
    parsed = pi.parse(event, {**PI, **payload})

    assert parsed is None or parsed.host == "pi"


def test_claude_lifecycle_maps_to_events() -> None:
    """Start, prompt, stop and end of a session keep session, folder and transcript."""
    start = claude.parse("SessionStart", {**CLAUDE, "source": "compact"})
    prompt = claude.parse("UserPromptSubmit", {**CLAUDE, "prompt": "hi"})
    stop = claude.parse("Stop", {**CLAUDE, "stop_hook_active": False})
    again = claude.parse("Stop", {**CLAUDE, "stop_hook_active": True})
    end = claude.parse("SessionEnd", {**CLAUDE, "reason": "other"})

    assert start == SessionStarted("claude", "s1", "/p", False, "/t.jsonl", "compact")
    assert prompt == PromptSubmitted("claude", "s1", "/p", "hi", False, "/t.jsonl")
    assert stop == TurnEnded("claude", "s1", "/p", None, False, "/t.jsonl", settled=True)
    assert again == TurnEnded("claude", "s1", "/p", None, False, "/t.jsonl", settled=False)
    assert end == SessionEnded("claude", "s1", "/p", "other", "/t.jsonl")


@pytest.mark.parametrize("key", ["agent_id", "memoryd_parent"])
def test_claude_children_are_subagents(key: str) -> None:
    """A child of Claude Code, and a Claude Code started by another agent, are both sub-agents."""
    event = claude.parse("UserPromptSubmit", {**CLAUDE, "prompt": "hi", key: "x"})

    assert isinstance(event, PromptSubmitted)
    assert event.subagent


@pytest.mark.parametrize(
    ("event", "fields", "code", "output"),
    [
        ("PostToolUse", {"tool_response": {"stdout": "ok", "stderr": "warn"}}, 0, "ok\nwarn"),
        ("PostToolUse", {"tool_response": {"stdout": "x", "interrupted": True}}, None, "x"),
        (
            "PostToolUse",
            {"tool_response": {"stdout": "x", "returnCodeInterpretation": "none found"}},
            None,
            "x",
        ),
        ("PostToolUse", {"tool_response": {"stdout": "", "backgroundTaskId": "1"}}, None, ""),
        ("PostToolUseFailure", {"error": "Exit code 3\nboom"}, 3, "Exit code 3\nboom"),
        ("PostToolUseFailure", {"error": "timed out"}, None, "timed out"),
    ],
)
def test_claude_tool_results_keep_the_exit_code(
    event: str, fields: dict[str, object], code: int | None, output: str
) -> None:
    """0 is claimed only for a command known to have ended well; a failure says its code."""
    tool = {"tool_name": "Bash", "tool_input": {"command": "make"}, "tool_use_id": "t1"}

    parsed = claude.parse(event, {**CLAUDE, **tool, **fields})

    assert isinstance(parsed, ToolFinished)
    assert (parsed.exit_code, parsed.output_excerpt) == (code, output)
    assert (parsed.tool, parsed.call_id, parsed.input_excerpt) == ("Bash", "t1", "make")
    assert parsed.is_error == (event == "PostToolUseFailure")


def test_claude_answer_is_below_the_size_it_would_hide() -> None:
    """Claude Code files away a context above 10,000 characters, so a longer block is cut."""
    event = PromptSubmitted("claude", "s", "/p", "hi", False, None)
    block = "\n".join(f"line {number} of what was recalled" for number in range(450))

    answer = claude.render(event, HookOutcome(block))

    assert answer is not None
    inner = answer["hookSpecificOutput"]
    assert isinstance(inner, dict)
    context = inner["additionalContext"]
    assert len(block) > 10_000 > len(context) > 9_000
    assert block.startswith(context + "\n")


def test_nothing_is_answered_without_a_block_or_to_other_events() -> None:
    """An empty outcome injects nothing, and only a prompt is ever answered."""
    prompt = PromptSubmitted("pi", "s", "/p", "hi", False, None)
    stop = TurnEnded("pi", "s", "/p", None, False, None)

    for adapter in (pi, claude):
        assert adapter.render(prompt, HookOutcome("")) is None
        assert adapter.render(stop, HookOutcome("text")) is None
    assert pi.render(prompt, HookOutcome("text")) == {"block": "text"}


def test_pi_lifecycle_maps_to_events() -> None:
    """A turn is settled only when Pi is idle; model calls inside a run are not turns."""
    step = pi.parse("turn_end", {**PI, "tokens": 12})
    idle = pi.parse("agent_settled", PI)
    end = pi.parse("session_shutdown", {**PI, "reason": "quit"})

    assert step == TurnEnded("pi", "s1", "/p", 12, False, "/t.jsonl", settled=False)
    assert idle == TurnEnded("pi", "s1", "/p", None, False, "/t.jsonl", settled=True)
    assert end == SessionEnded("pi", "s1", "/p", "quit", "/t.jsonl")


def test_pi_prompts_of_programs_are_not_a_persons() -> None:
    """A prompt sent by another extension is marked like a sub-agent's."""
    typed = pi.parse("input", {**PI, "prompt": "hi", "source": "interactive"})
    sent = pi.parse("before_agent_start", {**PI, "prompt": "hi", "source": "extension"})

    assert isinstance(typed, PromptSubmitted)
    assert isinstance(sent, PromptSubmitted)
    assert (typed.subagent, sent.subagent) == (False, True)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"exitCode": 2, "output": "x"}, 2),
        ({"output": "boom\n\n\nCommand exited with code 7"}, 7),
        ({"output": "Command exited with code 7\nand more"}, None),
        ({"exitCode": True, "output": "x"}, None),
    ],
)
def test_pi_tool_results_keep_the_exit_code(fields: dict[str, object], code: int | None) -> None:
    """The structured code wins; else the line Pi appends, and only at the very end."""
    event = pi.parse("tool_result", {**PI, "toolName": "bash", "isError": True, **fields})

    assert isinstance(event, ToolFinished)
    assert event.exit_code == code


def test_events_without_a_session_are_ignored() -> None:
    """Nothing can be attributed without a session, so nothing is kept."""
    assert claude.parse("Stop", {"cwd": "/p"}) is None
    assert pi.parse("agent_settled", {"cwd": "/p"}) is None
