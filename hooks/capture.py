"""What the hooks keep of a session: declared statements and proven repairs, turn by turn.

Owns the path from an event to memoryd's own log: recognise, redact, stage; at the end of a turn one
durable append, then a word to the queue. No network, no model, no huey; a folder without memory is
left alone, sub-agents are not listened to. Handing the same event twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from hooks.events import (
    HookEvent,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    TurnEnded,
)
from storage import session_log
from storage.activity import Activity
from storage.clock import Clock
from storage.errors import Busy, Unavailable
from storage.jobs import JobKind, JobSpec, Priority
from storage.names import opaque
from storage.outcomes import EDIT_TOOLS, SHELL_TOOLS, Attempt, Outcomes, attempt_of
from storage.paths import HomePaths
from storage.projects import lookup
from storage.records import FactKind, JsonValue, ProjectId
from storage.session_log import Entry, Proved, Said
from storage.spool import Entry as Accepted
from storage.staging import MAX_SAID, Line, Staged, Staging, left_behind, of_session
from tasks import triggers

LEFT_BEHIND_MS: Final = 6 * 3_600_000


class Capture:
    """Listens to one home's sessions.

    What is kept is no setting: the rules are the same for every project. That memoryd's own agent
    runs are not listened to is decided where events enter.
    """

    def __init__(self, paths: HomePaths, clock: Clock) -> None:
        self._paths = paths
        self._clock = clock

    def handle(self, event: HookEvent) -> None:
        """Take one event.

        Raises:
            MemorydError: the event was not kept; a host never hears of it.
        """
        if event.subagent:
            return
        event = _without_credentials(event)
        found = lookup(self._paths, Path(event.cwd)) if event.cwd else None
        if found is None:
            return
        project = found.project_id
        match event:
            case SessionStarted():
                self._sweep()
            case PromptSubmitted():
                self._prompt(project, event)
            case ToolFinished():
                self._tool(project, event)
            case TurnEnded():
                self._turn(project, event)
            case SessionEnded():
                self._end(project, event)

    def _prompt(self, project: ProjectId, event: PromptSubmitted) -> None:
        """Queue what the prompt declares; whatever a later rule would refuse is not even staged."""
        # Here, not above: compiling the wording of a dozen languages is for prompts only.
        from storage.declarations import declarations

        now = self._clock.now_ms()
        lines: list[Line] = [
            {
                "t": "said",
                "kind": said.kind.value,
                "statement": said.statement,
                "sentence": said.sentence,
                "at": now,
            }
            for said in declarations(event.prompt)
        ]
        if lines:
            self._staging(project, event).stage(lines[:MAX_SAID])

    def _tool(self, project: ProjectId, event: ToolFinished) -> None:
        tool = event.tool.lower()
        if tool not in SHELL_TOOLS and tool not in EDIT_TOOLS:
            return
        attempt = attempt_of(
            tool=event.tool,
            command=event.input_excerpt if tool in SHELL_TOOLS else "",
            output=event.output_excerpt,
            failed=event.is_error or event.exit_code not in (None, 0),
            call_id=event.call_id,
            line=0,
            at=self._clock.now_ms(),
        )
        self._staging(project, event).stage([_tool_line(attempt)])

    def _turn(self, project: ProjectId, event: TurnEnded) -> None:
        counted = Activity(turns=1 if event.settled else 0, tokens=event.tokens or 0)
        self._write_down(event, project, counted)

    def _end(self, project: ProjectId, event: SessionEnded) -> None:
        self._write_down(event, project, Activity(), ended=True)

    def _write_down(
        self,
        event: TurnEnded | SessionEnded,
        project: ProjectId,
        counted: Activity,
        *,
        ended: bool = False,
    ) -> None:
        """Flush what the session staged, wherever it was; the event counts where it happened."""
        told = False
        for staging in of_session(self._paths, event.host, event.session_id):
            here = staging.project == project
            told = told or here
            self._flush(staging, counted if here else Activity(), last=ended, ended=ended and here)
        if not told:
            self._tell(project, counted, urgent=False, ended=ended)

    def _sweep(self) -> None:
        """Save what sessions left that were killed between two turns."""
        now = self._clock.now_ms()
        for staging in left_behind(self._paths, now=now, older_than_ms=LEFT_BEHIND_MS):
            with suppress(Busy, Unavailable):
                self._flush(staging, Activity(), last=True)

    def _flush(
        self, staging: Staging, counted: Activity, *, last: bool, ended: bool = False
    ) -> None:
        """Write down what is staged, durably; then say so to the queue."""
        said = proved = 0

        def take(staged: Staged) -> tuple[JsonValue, Sequence[str]]:
            nonlocal said, proved
            outcomes = Outcomes.resume(staged.carried)
            entries = [
                entry for entry in _entries(staged, outcomes) if entry.key not in staged.logged
            ]
            project = self._paths.project(staged.project)
            session_log.append(project, entries, self._clock.now_ms())
            said = sum(isinstance(entry, Said) for entry in entries)
            proved = len(entries) - said
            return outcomes.carry(), [entry.key for entry in entries]

        staging.flush(take, last=last)
        counted = replace(counted, inserts=said + proved)
        self._tell(staging.project, counted, urgent=said > 0, ended=ended)

    def _tell(
        self, project: ProjectId, counted: Activity, *, urgent: bool, ended: bool = False
    ) -> None:
        """Count, and ask for a sync: at once after a statement, soon after a session's end."""
        if not (urgent or ended or counted.turns or counted.tokens or counted.inserts):
            return
        specs: tuple[JobSpec, ...] = ()
        if urgent or ended:
            priority = Priority.INTERACTIVE if urgent else Priority.BULK
            specs = (JobSpec(kind=JobKind.SYNC, project=project, priority=priority),)
        entry = Accepted(project=project, counted=counted, specs=specs)
        triggers.accepted(self._paths, self._clock, entry)

    def _staging(self, project: ProjectId, event: PromptSubmitted | ToolFinished) -> Staging:
        return Staging(self._paths, event.host, event.session_id, project)


def _without_credentials(event: HookEvent) -> HookEvent:
    """The event under ids that may be kept: hosts choose them, and nothing stops a token in one."""
    session = opaque(event.session_id)
    if isinstance(event, ToolFinished):
        return replace(
            event, session_id=session, call_id=opaque(event.call_id), tool=opaque(event.tool)
        )
    return event if session == event.session_id else replace(event, session_id=session)


def _tool_line(attempt: Attempt) -> Line:
    return {
        "t": "tool",
        "tool": attempt.tool,
        "command": attempt.command,
        "failed": attempt.failed,
        "diagnosis": attempt.diagnosis,
        "passed": attempt.passed,
        "call": attempt.call_id,
        "at": attempt.at,
    }


def _entries(staged: Staged, outcomes: Outcomes) -> list[Entry]:
    entries: list[Entry] = []
    for line in staged.said:
        match line:
            case {
                "kind": str(kind),
                "statement": str(statement),
                "sentence": str(sentence),
                "at": int(at),
            }:
                entries.append(
                    Said(
                        kind=FactKind(kind),
                        statement=statement,
                        sentence=sentence,
                        session_id=staged.session_id,
                        host=staged.host,
                        at=at,
                    )
                )
    for line in staged.tools:
        attempt = _attempt(line)
        fixed = None if attempt is None else outcomes.observe(attempt)
        if fixed is not None:
            entries.append(Proved(fixed=fixed, session_id=staged.session_id, host=staged.host))
    return entries


def _attempt(line: Line) -> Attempt | None:
    match line:
        case {
            "tool": str(tool),
            "command": str(command),
            "failed": bool(failed),
            "passed": bool(passed),
            "call": str(call),
            "at": int(at),
        }:
            found = line.get("diagnosis")
            return Attempt(
                tool=tool,
                command=command,
                failed=failed,
                diagnosis=found if isinstance(found, str) else None,
                passed=passed,
                call_id=call,
                line=0,
                at=at,
            )
        case _:
            return None
