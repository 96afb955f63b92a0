"""What in a user's message nobody typed.

Hosts put context into the user's turn: reminders, command wrappers, hook output, and what memoryd
itself recalled. Anything that comes back that way would be learnt as if a person had said it, again
and again. Owns the shapes of such text; promises that of a message only typed words are left, and
that an unclosed wrapper hides everything after it rather than nothing.
"""

from __future__ import annotations

import re
from typing import Final

MEMORY_TAGS: Final = ("private_memory", "retained_memory", "project_memory", "memory", "memoryd")
"""Wrappers of recalled memory, ours first."""

_HOST_TAGS: Final = (
    "system-reminder|system_reminder|hook_context|task-notification|teammate-message"
    "|command-name|command-message|command-args|command-contents|local-command-stdout"
    "|local-command-stderr|local-command-caveat|bash-input|bash-stdout|bash-stderr"
    "|user-prompt-submit-hook|persisted-output|tool_use_error|ide_opened_file|ide_selection"
    "|ide_diagnostics|environment_context|environment_details|user_instructions|skill"
    "|attached_files|file_contents|new-diagnostics|mcp-resource|scheduled-task|channel|claudemd"
)
_TAG: Final = "|".join((*MEMORY_TAGS, _HOST_TAGS))
_BLOCK: Final = re.compile(
    rf"<(?P<tag>{_TAG})(?:\s[^>]*)?>.*?(?:</(?P=tag)\s*>|\Z)", re.DOTALL | re.IGNORECASE
)
# Any other lower-case tag with a hyphen or underscore is a machine's wrapper too, when it closes.
_CLOSING: Final = re.compile(r"</([a-z]+(?:[-_][a-z0-9]+)+)\s*>")
MAX_WRAPPERS: Final = 200
"""A message with more closing tags is a pasted document."""
_NOTICE: Final = re.compile(r"\[Request interrupted by user[^\]]*\]")
_WHOLE: Final = re.compile(
    r"\s*(?:Caveat: The messages below were generated"
    r"|This session is being continued from a previous conversation"
    r"|The conversation history before this point was compacted"
    r"|The following is a summary of a branch"
    r"|Base directory for this skill:"
    r"|\[(?:Image|SYSTEM|system)\b)"
)
_COMMAND: Final = re.compile(r"\s*<command-(?:name|message)>")


def spoken(text: str) -> str:
    """The words a person typed; "" when the whole message was the host's."""
    if _WHOLE.match(text) or _COMMAND.match(text):
        return ""
    if "<" in text:
        text = _BLOCK.sub("\n", text)
        if text.count("</") > MAX_WRAPPERS:
            return ""
        # Only tags that are closed somewhere: each unclosed one would cost a scan to the end.
        for tag in set(_CLOSING.findall(text)):
            text = re.sub(rf"<{tag}(?:\s[^>]*)?>.*?</{tag}\s*>", "\n", text, flags=re.DOTALL)
    return _NOTICE.sub("\n", text).strip()
