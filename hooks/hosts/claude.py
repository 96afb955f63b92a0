"""Claude Code: its hook JSON in, its hook JSON out.

The client passes Claude Code's own payload through, shortened, so the keys read here are Claude
Code's, plus ``memoryd_parent`` when the client's environment says that an agent started this one.
Pure functions; an event of another name is ignored.
"""

import re
from typing import Final

from hooks.events import (
    HookEvent,
    HookOutcome,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    TurnEnded,
)
from hooks.hosts.fields import (
    Payload,
    flag,
    inner,
    joined_texts,
    optional_text,
    text,
    tool_input,
)

HOST: Final = "claude"

# Claude Code moves a context above 10,000 characters into a file and shows the model 2 KB of it.
CONTEXT_MAX_CHARS: Final = 9_500

_EXITED: Final = re.compile(r"\AExit code (\d{1,3})\b")


def parse(event: str, payload: Payload) -> HookEvent | None:
    """The event Claude Code reported, None when it means nothing to a memory."""
    session, cwd = text(payload, "session_id"), text(payload, "cwd")
    transcript = optional_text(payload, "transcript_path")
    subagent = bool(text(payload, "agent_id") or text(payload, "memoryd_parent"))
    if not session:
        return None
    match event:
        case "SessionStart":
            reason = text(payload, "source")
            return SessionStarted(HOST, session, cwd, subagent, transcript, reason)
        case "UserPromptSubmit":
            prompt = text(payload, "prompt")
            if not prompt.strip():
                return None
            return PromptSubmitted(HOST, session, cwd, prompt, subagent, transcript)
        case "PostToolUse" | "PostToolUseFailure":
            return _tool(session, cwd, subagent, payload, failed=event == "PostToolUseFailure")
        case "Stop":
            # A stop hook of somebody else made the model go on: the same turn ends once more.
            again = flag(payload, "stop_hook_active")
            return TurnEnded(HOST, session, cwd, None, subagent, transcript, settled=not again)
        case "SessionEnd":
            reason = text(payload, "reason")
            return SessionEnded(HOST, session, cwd, reason, transcript, subagent)
        case _:
            return None


def _tool(
    session: str, cwd: str, subagent: bool, payload: Payload, *, failed: bool
) -> ToolFinished:
    tool = text(payload, "tool_name")
    output = text(payload, "error") if failed else _output(payload)
    return ToolFinished(
        host=HOST,
        session_id=session,
        cwd=cwd,
        tool=tool,
        call_id=text(payload, "tool_use_id"),
        input_excerpt=tool_input(payload, "tool_input"),
        output_excerpt=output,
        is_error=failed,
        exit_code=_exit_code(tool, payload, output, failed=failed),
        subagent=subagent,
    )


def _output(payload: Payload) -> str:
    response = inner(payload, "tool_response")
    if not response:
        return joined_texts(payload.get("tool_response"))
    parts = [text(response, "stdout"), text(response, "stderr")]
    parts.append(joined_texts(response.get("content")))
    parts.append(text(inner(response, "file"), "content"))
    return "\n".join(part for part in parts if part)


def _exit_code(tool: str, payload: Payload, output: str, *, failed: bool) -> int | None:
    if tool != "Bash":
        return None
    if failed:
        said = _EXITED.match(output)
        return int(said[1]) if said else None
    response = inner(payload, "tool_response")
    # A command cut short, sent to the background, or whose code Claude Code explained away (grep
    # without a match) did not necessarily end with 0.
    unsure = {"backgroundTaskId", "returnCodeInterpretation"} & response.keys()
    return None if unsure or not response or flag(response, "interrupted") else 0


def render(event: HookEvent, outcome: HookOutcome) -> dict[str, object] | None:
    """Claude Code's answer to the hook; None prints nothing."""
    if not isinstance(event, PromptSubmitted) or not outcome.block:
        return None
    return {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": _within(outcome.block, CONTEXT_MAX_CHARS),
        }
    }


def _within(block: str, max_chars: int) -> str:
    if len(block) <= max_chars:
        return block
    cut = block.rfind("\n", 0, max_chars)
    return block[: cut if cut > 0 else max_chars]
