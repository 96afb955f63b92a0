"""What an agent host told us, in one vocabulary for every host.

Owns the hook events and the outcome a hook answers with. Promises that every text in an event is
bounded, valid UTF-8 and free of NUL, whatever the host sent: the constructors enforce it, so no
reader has to. Leaves the hosts' own JSON to ``hooks.hosts`` and any meaning to the readers.
"""

import hashlib
from dataclasses import dataclass
from typing import Final, TypeAlias

PROMPT_MAX_BYTES: Final = 32 * 1024
EXCERPT_MAX_BYTES: Final = 8 * 1024
BLOCK_MAX_BYTES: Final = 16 * 1024
PATH_MAX_BYTES: Final = 4096
NAME_MAX_BYTES: Final = 200

_CUT: Final = "\n[...]\n"
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def bounded(text: str, max_bytes: int) -> str:
    """`text` as storable UTF-8 of at most `max_bytes`, its middle left out when it was longer.

    The ends are kept because a command's first line says what ran and its last lines say why it
    failed. A lone surrogate (legal in a host's JSON, not in UTF-8) and NUL become U+FFFD.
    """
    clean = text.replace("\0", _REPLACEMENT)
    raw = clean.encode("utf-8", "surrogatepass")
    try:
        clean = raw.decode("utf-8")
    except UnicodeDecodeError:
        clean = "".join(_REPLACEMENT if "\ud800" <= c <= "\udfff" else c for c in clean)
        raw = clean.encode("utf-8")
    if len(raw) <= max_bytes:
        return clean
    room = max_bytes - len(_CUT)
    if room < 2:
        return raw[:max_bytes].decode("utf-8", "ignore")
    tail = room // 2
    head = raw[: room - tail].decode("utf-8", "ignore")
    return head + _CUT + raw[len(raw) - tail :].decode("utf-8", "ignore")


def bounded_name(text: str) -> str:
    """`text` when it is short, else a digest of it: two long names never become one by a cut."""
    clean = bounded(text, max(NAME_MAX_BYTES, 4 * len(text)))
    if len(clean.encode("utf-8")) <= NAME_MAX_BYTES:
        return clean
    return "sha256-" + hashlib.sha256(clean.encode("utf-8")).hexdigest()


def bounded_path(text: str | None) -> str | None:
    """`text`, or None when it is empty or no path of this system could be that long.

    A shortened path would name a different file, so an impossible one is dropped, never cut.
    """
    if not text or "\0" in text:
        return None
    clean = bounded(text, max(PATH_MAX_BYTES, 4 * len(text)))
    return clean if clean == text and len(clean.encode("utf-8")) <= PATH_MAX_BYTES else None


def _bind(event: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(event, name, value)


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """A conversation opened, was resumed, or was compacted (`reason` is the host's own word)."""

    host: str
    session_id: str
    cwd: str
    subagent: bool
    transcript: str | None
    reason: str = "startup"

    def __post_init__(self) -> None:
        _bind(
            self,
            session_id=bounded_name(self.session_id),
            cwd=bounded_path(self.cwd) or "",
            transcript=bounded_path(self.transcript),
            reason=bounded_name(self.reason),
        )


@dataclass(frozen=True, slots=True)
class PromptSubmitted:
    """A person's prompt, before the model saw it. The only event whose answer can be injected."""

    host: str
    session_id: str
    cwd: str
    prompt: str
    subagent: bool
    transcript: str | None

    def __post_init__(self) -> None:
        _bind(
            self,
            session_id=bounded_name(self.session_id),
            cwd=bounded_path(self.cwd) or "",
            prompt=bounded(self.prompt, PROMPT_MAX_BYTES),
            transcript=bounded_path(self.transcript),
        )


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool call came back. `exit_code` is None when the host does not say one."""

    host: str
    session_id: str
    cwd: str
    tool: str
    call_id: str
    input_excerpt: str
    output_excerpt: str
    is_error: bool
    exit_code: int | None
    subagent: bool

    def __post_init__(self) -> None:
        _bind(
            self,
            session_id=bounded_name(self.session_id),
            cwd=bounded_path(self.cwd) or "",
            tool=bounded_name(self.tool),
            call_id=bounded_name(self.call_id),
            input_excerpt=bounded(self.input_excerpt, EXCERPT_MAX_BYTES),
            output_excerpt=bounded(self.output_excerpt, EXCERPT_MAX_BYTES),
        )


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The model stopped. Count a turn only when `settled`: the agent waits for a person again.

    `settled` False is one model call of a run that goes on (only some hosts report it); it is the
    moment to write down what was staged, since a killed agent never settles. `tokens` is what the
    conversation grew by since the previous event of this kind, None when the host does not say.
    """

    host: str
    session_id: str
    cwd: str
    tokens: int | None
    subagent: bool
    transcript: str | None
    settled: bool = True

    def __post_init__(self) -> None:
        _bind(
            self,
            session_id=bounded_name(self.session_id),
            cwd=bounded_path(self.cwd) or "",
            tokens=None if self.tokens is None else max(0, self.tokens),
            transcript=bounded_path(self.transcript),
        )


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The conversation closed. May never arrive: a killed agent sends nothing."""

    host: str
    session_id: str
    cwd: str
    reason: str
    transcript: str | None
    subagent: bool = False

    def __post_init__(self) -> None:
        _bind(
            self,
            session_id=bounded_name(self.session_id),
            cwd=bounded_path(self.cwd) or "",
            reason=bounded_name(self.reason),
            transcript=bounded_path(self.transcript),
        )


HookEvent: TypeAlias = SessionStarted | PromptSubmitted | ToolFinished | TurnEnded | SessionEnded


@dataclass(frozen=True, slots=True)
class HookOutcome:
    """What the model shall read beside the prompt; an empty block injects nothing."""

    block: str = ""

    def __post_init__(self) -> None:
        _bind(self, block=bounded(self.block, BLOCK_MAX_BYTES))
