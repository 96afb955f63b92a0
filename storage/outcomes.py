"""What a session proves by itself: a command failed, something was done, the same command passed.

Owns the failure gate and the pairing, shared by the hooks (live) and the transcript readers
(later), so both come to the same words. Precision over recall: code under repair fails and passes
all day and teaches nothing, so a failure whose remedy was an edit, a failure without a diagnosis,
a success hidden behind a pipe, a line that talks to the agent, and whatever lost a credential on
the way are all let go. Whatever it keeps or says is redacted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from storage.records import JsonValue
from storage.redaction import is_learnable, redact

MAX_PENDING: Final = 8
MAX_REMEDIES: Final = 2
COMMAND_CHARS: Final = 300
LINE_CHARS: Final = 300

SHELL_TOOLS: Final = frozenset(
    {"bash", "shell", "exec_command", "run_shell_command", "local_shell", "terminal"}
)
EDIT_TOOLS: Final = frozenset(
    {"edit", "write", "multiedit", "notebookedit", "apply_patch", "replace", "write_file"}
    | {"str_replace", "patch"}
)

# An environment that is not as the command needs it: worth knowing next time.
_DIAGNOSIS: Final = re.compile(
    r"ECONNREFUSED|ECONNRESET|EADDRINUSE|ETIMEDOUT|ENOTFOUND|EACCES|ENOSPC|ERESOLVE"
    r"|connection (?:refused|reset|timed out)|address already in use|port .{0,20}in use"
    r"|(?:could not|cannot|can't|unable to|failed to) (?:connect|reach|resolve host|authenticate)"
    r"|(?:is|are|was) not (?:running|reachable|available|set|installed|initiali[sz]ed|logged in)"
    r"|not logged in|unauthori[sz]ed|authentication (?:failed|required)|permission denied"
    r"|no space left|out of memory|heap out of|certificate (?:verify|has expired|is not)"
    r"|unsupported engine|requires? (?:node|python|go|java|ruby|rust|php|a |an |at least)"
    r"|(?:node|python|java|go|ruby) version|version mismatch|incompatible with"
    r"|environment variable|(?:lock|lockfile).{0,40}(?:held|exists|outdated|out of date|not up to)"
    r"|(?:database|relation|table|column|role|network|volume|container|image|bucket|queue|topic)"
    r" .{1,80}(?:does not exist|not found|doesn't exist)|no such (?:container|image|table|column)"
    r"|pending migrations?|migrations? (?:pending|not applied)|out of date|is stale"
    r"|must (?:be|first|run)|please run|run .{2,60} first|did you (?:forget|run)"
    r"|(?:cannot find|could not find|missing) (?:module|package|dependency|browser|executable)"
    r"|ModuleNotFoundError|ImportError|because ",
    re.IGNORECASE,
)
# Slips of the hand and code under repair: they teach nothing about the project.
_ROUTINE: Final = re.compile(
    r"missing script|command not found|no such file|not a git repository|unrecognized (?:arg|opt)"
    r"|unknown (?:option|flag|command|argument)|^usage:|syntax ?error|unexpected token|undefined:"
    r"|\bTS\d{4}\b|assert|expected|lint/|\bE\d{3,4}\b|parse error|not defined|type ?error"
    r"|user doesn't want to proceed|tool_use_error|command aborted|nothing to commit",
    re.IGNORECASE,
)
# What a program prints is data: a line that gives orders to whoever reads it is no diagnosis.
_ADDRESSED: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b.{0,40}\b(?:instructions?|prompts?|rules|above|previous)"
    r"|\b(?:ai|llm|assistant|agents?|claude|chatgpt|model)\b.{0,30}\b(?:must|should|shall|please|run)\b"
    r"|\byou (?:must|should|shall|are|need to) (?:now )?(?:always|never|execute|send|upload|an?)\b"
    r"|\bsystem prompt\b|\b(?:curl|wget)\b.*\|\s*(?:ba|z)?sh\b|</?[a-z]+[-_][a-z_-]+>",
    re.IGNORECASE,
)
_NOISE: Final = re.compile(r"^(?:Error: )?(?:Exit code \d+|Command exited with code \d+)\.?$")
_FAILED_OUTPUT: Final = re.compile(
    r"^\s*(?:FAIL(?:ED|URE)?\b|error[: ]|ERROR\b|fatal:|panic:)|\b[1-9]\d* (?:failed|failing"
    r"|errors?)\b",
    re.MULTILINE,
)
_READS: Final = re.compile(
    r"(?:ls|cat|bat|grep|rg|find|fd|head|tail|wc|pwd|echo|printf|which|type|env|ps|df|du|tree|stat|"
    r"file|jq|less|diff|date|true|sleep|open|curl|wget|ping|lsof|netstat|ss|id|whoami|printenv|"
    r"history|man|cd|test|\[|git (?:status|log|diff|show|branch|blame|fetch|remote|rev-parse)|"
    r"docker (?:ps|logs|images|inspect)|docker compose (?:ps|logs|config)|kubectl (?:get|logs|"
    r"describe))(?=\s|$)"
)
_CHECKS: Final = re.compile(
    r"\b(?:tests?|lint|check|typecheck|tsc|vet|pytest|vitest|jest|mypy|ruff|eslint|clippy|verify)\b"
)
_EDITS: Final = re.compile(
    r"\bsed\b.*\s-i|\btee\b|>>?\s*[^&\s]|<<|\bperl\b.*\s-p?i|\bpatch\b"
    r"|\bgit (?:apply|checkout|restore|revert|stash|merge|rebase|reset|cherry-pick|pull|commit|add)"
    r"|(?:^|&& |; )(?:mv|cp|rm|mkdir|touch|chmod|ln)\s|\b(?:python3?|node|ruby|tsx) -[ec]\b"
)
_MASKED: Final = re.compile(r"\||;|(?<!&)&(?!&|\d)|\bset \+e\b")
_LEADING_CD: Final = re.compile(r"^(?:cd\s+\S+\s*(?:&&|;)\s*)+")
_REDIRECTED: Final = re.compile(r"\s*2>&1\s*")
_WORD: Final = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One finished tool call, reduced to what the pairing needs; free of credentials."""

    tool: str
    command: str
    """The shell command, or the path for an editing tool."""
    failed: bool
    diagnosis: str | None
    """The line of a failing output that says why, when it passes the gate."""
    passed: bool
    """It succeeded and its output does not look like a failure."""
    call_id: str
    line: int
    at: int


def attempt_of(
    *, tool: str, command: str, output: str, failed: bool, call_id: str, line: int, at: int
) -> Attempt:
    """A finished call as the hooks and the transcripts report it, redacted here."""
    shell = tool.lower() in SHELL_TOOLS
    return Attempt(
        tool=tool[:80],
        command=bounded_command(command),
        failed=failed,
        diagnosis=diagnosis(redact(output)) if failed and shell else None,
        passed=not failed and not (shell and _FAILED_OUTPUT.search(output)),
        call_id=call_id,
        line=line,
        at=at,
    )


def bounded_command(command: str) -> str:
    """A command without credentials, at most `COMMAND_CHARS` long."""
    return redact(command[: 4 * COMMAND_CHARS])[:COMMAND_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A failure that the session itself repaired, by commands alone."""

    command: str
    failure: str
    """The diagnosing line of the failing output, literally."""
    remedies: tuple[str, ...]
    call_id: str
    line: int
    at: int

    @property
    def statement(self) -> str:
        """The lesson in one sentence; the same for every reader of the same session."""
        done = " and ".join(f"`{remedy}`" for remedy in self.remedies)
        return f"`{self.command}` failed with “{self.failure}” and passed after {done}."


@dataclass(slots=True)
class _Pending:
    command: str
    failure: str
    call_id: str
    line: int
    at: int
    remedies: list[str]
    edited: bool = False


class Outcomes:
    """Failures of one session that wait for their repair; bounded, and it can be carried over."""

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}

    def observe(self, attempt: Attempt) -> Fixed | None:
        """Take one finished call; the repair it completes, if it does."""
        tool = attempt.tool.lower()
        if tool in EDIT_TOOLS:
            if not attempt.failed:
                self._touch()
            return None
        if tool not in SHELL_TOOLS:
            return None
        command = plain_command(attempt.command)
        if not command or _READS.match(command):
            return None
        if attempt.failed:
            self._fail(command, attempt)
            return None
        return self._pass(command, attempt)

    def abandon(self) -> None:
        """Forget what is open: the conversation went back to before it."""
        self._pending.clear()

    def _fail(self, command: str, attempt: Attempt) -> None:
        self._pending.pop(command, None)
        failure = attempt.diagnosis
        if failure is None or _MASKED.search(command) or _EDITS.search(command):
            return
        self._pending[command] = _Pending(
            command, failure, attempt.call_id, attempt.line, attempt.at, []
        )
        while len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]

    def _pass(self, command: str, attempt: Attempt) -> Fixed | None:
        proven = attempt.passed and not _MASKED.search(command)
        waiting = self._pending.pop(command, None) if proven else None
        if _EDITS.search(command):
            self._touch()
        elif not _CHECKS.search(command):
            for other in self._pending.values():
                if command not in other.remedies:
                    other.remedies = [*other.remedies, command][: MAX_REMEDIES + 1]
        if waiting is None or waiting.edited or not 1 <= len(waiting.remedies) <= MAX_REMEDIES:
            return None
        fixed = Fixed(
            command=waiting.command,
            failure=waiting.failure,
            remedies=tuple(waiting.remedies),
            call_id=waiting.call_id,
            line=waiting.line,
            at=waiting.at,
        )
        # Nobody can repeat a command with a hole in it.
        return fixed if is_learnable(fixed.statement) else None

    def _touch(self) -> None:
        for waiting in self._pending.values():
            waiting.edited = True

    def carry(self) -> list[JsonValue]:
        """What reading on needs, as plain JSON."""
        return [
            [p.command, p.failure, p.call_id, p.line, p.at, list(p.remedies), p.edited]
            for p in self._pending.values()
        ]

    @classmethod
    def resume(cls, carried: JsonValue) -> Outcomes:
        """The state that `carry` gave; anything malformed in it is left out."""
        outcomes = cls()
        for row in _rows(carried):
            match row:
                case [
                    str(command),
                    str(failure),
                    str(call),
                    int(line),
                    int(at),
                    list(done),
                    bool(edited),
                ]:
                    remedies = [item for item in done if isinstance(item, str)]
                    outcomes._pending[command] = _Pending(
                        command, failure, call, line, at, remedies, edited
                    )
        return outcomes


def plain_command(command: str) -> str:
    """The command without its folder change and stderr redirection: what makes two the same."""
    flat = " ".join(command.split())
    return _REDIRECTED.sub(" ", _LEADING_CD.sub("", flat)).strip()[:COMMAND_CHARS]


def diagnosis(output: str) -> str | None:
    """The line that says why, if this failure teaches something; else None.

    The gate: at least 40 characters and six words of output, a diagnosing line of at most 300
    characters, and not a routine slip unless that same line diagnoses the environment.
    """
    if len(output.strip()) < 40 or len(set(_WORD.findall(output))) < 6:
        return None
    for raw in output.splitlines():
        line = raw.strip()
        if not 20 <= len(line) <= LINE_CHARS or _NOISE.match(line):
            continue
        if _DIAGNOSIS.search(line) and not (_ROUTINE.search(line) or _ADDRESSED.search(line)):
            return line
    return None


def _rows(carried: JsonValue) -> Iterator[Sequence[JsonValue]]:
    if isinstance(carried, Sequence) and not isinstance(carried, str | Mapping):
        for row in carried:
            if isinstance(row, list):
                yield row
