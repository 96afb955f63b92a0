"""Pi: what the bundled extension sends, and what it takes back.

The extension flattens Pi's events into small objects, so the keys read here are those that
``pi_extension/index.ts`` writes. Pure functions; an event of another name is ignored.
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
from hooks.hosts.fields import Payload, flag, joined_texts, number, optional_text, text, tool_input

HOST: Final = "pi"

# Pi appends this line to the output of a failed command; its structured form is not always there.
_EXITED: Final = re.compile(r"Command exited with code (\d{1,3})\s*\Z")


def parse(event: str, payload: Payload) -> HookEvent | None:
    """The event Pi reported, None when it means nothing to a memory."""
    session, cwd = text(payload, "sessionId"), text(payload, "cwd")
    transcript, subagent = optional_text(payload, "transcript"), flag(payload, "subagent")
    if not session:
        return None
    match event:
        case "session_start":
            reason = text(payload, "reason")
            return SessionStarted(HOST, session, cwd, subagent, transcript, reason)
        case "before_agent_start" | "input":
            prompt = text(payload, "prompt")
            # A prompt another extension sent is a program's, whoever the session belongs to.
            machine = subagent or text(payload, "source") == "extension"
            if not prompt.strip():
                return None
            return PromptSubmitted(HOST, session, cwd, prompt, machine, transcript)
        case "tool_result":
            return _tool(session, cwd, subagent, payload)
        case "turn_end":
            tokens = number(payload, "tokens")
            return TurnEnded(HOST, session, cwd, tokens, subagent, transcript, settled=False)
        case "agent_settled":
            tokens = number(payload, "tokens")
            return TurnEnded(HOST, session, cwd, tokens, subagent, transcript, settled=True)
        case "session_shutdown":
            reason = text(payload, "reason")
            return SessionEnded(HOST, session, cwd, reason, transcript, subagent)
        case _:
            return None


def _tool(session: str, cwd: str, subagent: bool, payload: Payload) -> ToolFinished:
    output = joined_texts(payload.get("output"))
    code = number(payload, "exitCode")
    if code is None and (said := _EXITED.search(output[-200:])):
        code = int(said[1])
    return ToolFinished(
        host=HOST,
        session_id=session,
        cwd=cwd,
        tool=text(payload, "toolName"),
        call_id=text(payload, "toolCallId"),
        input_excerpt=tool_input(payload, "input"),
        output_excerpt=output,
        is_error=flag(payload, "isError"),
        exit_code=code,
        subagent=subagent,
    )


def render(event: HookEvent, outcome: HookOutcome) -> dict[str, object] | None:
    """The ``result`` object the extension injects from; None injects nothing."""
    if isinstance(event, PromptSubmitted) and outcome.block:
        return {"block": outcome.block}
    return None
