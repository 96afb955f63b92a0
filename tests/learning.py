"""What the tests of sources and learning share: a project in a home, transcripts, a context."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from storage.authority import ProjectAuthority, open_authority
from storage.config import EncoderSettings, ModelSettings, Settings, SourceSettings
from storage.errors import MissingModel
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.projects import bind
from storage.records import Fact, JobStamp, JsonValue, ProjectId, SourceCursor
from tasks import analyze, sync, translate
from tasks.context import Context, Finished
from tasks.llm import Completion, LanguageModel
from tasks.sources import Record, SourceAdapter
from tests.support import ManualClock

BODIES: Mapping[JobKind, Callable[[Context, Mapping[str, JsonValue]], Finished]] = {
    JobKind.SYNC: sync.run,
    JobKind.ANALYZE: analyze.run,
    JobKind.TRANSLATE: translate.run,
}


@dataclass
class HeldLease:
    """A lease that nobody takes away."""

    stamp: JobStamp

    def check(self) -> None:
        """Still ours."""


@dataclass
class ScriptedModel:
    """A model that answers from a list and notes what it was asked."""

    answers: list[str]
    asked: list[tuple[str, str]] = field(default_factory=list)
    name: str = "scripted-1"

    def complete(self, system: str, user: str, *, max_output_tokens: int) -> Completion:
        self.asked.append((system, user))
        return Completion(text=self.answers.pop(0), usage=None)


class World:
    """A home with one project, its checkout, and the folders of both hosts."""

    def __init__(self, root: Path) -> None:
        self.paths = HomePaths(root / "home")
        self.paths.home.mkdir(mode=0o700, exist_ok=True)
        self.checkout = root / "harbor"
        self.checkout.mkdir()
        self.pi_sessions = root / "pi-sessions"
        self.claude_projects = root / "claude-projects"
        self.clock = ManualClock()
        self.settings = Settings(
            sources=SourceSettings(
                pi_sessions=str(self.pi_sessions), claude_projects=str(self.claude_projects)
            ),
            encoder=EncoderSettings(provider="none"),
        )
        bound = bind(self.paths, self.checkout, clock=self.clock, settings=self.settings.storage)
        self.project: ProjectId = bound.project_id
        self.authority: ProjectAuthority = open_authority(
            self.paths.project(self.project),
            self.project,
            clock=self.clock,
            settings=self.settings.storage,
        )
        self.language_model: LanguageModel | None = None
        self._jobs = 0

    def with_model(self, *answers: str) -> ScriptedModel:
        """From now on a model is configured, and answers these."""
        model = ScriptedModel(list(answers))
        self.language_model = model
        self.settings = replace(self.settings, model=ModelSettings(provider="openai", name="m"))
        return model

    def context(self, job_id: str = "") -> Context:
        """The context of a new job."""
        self._jobs += 1
        return Context(
            paths=self.paths,
            environment={"HOME": str(self.paths.home)},
            settings=self.settings,
            clock=self.clock,
            project=self.project,
            lease=HeldLease(JobStamp(job_id=job_id or f"job-{self._jobs}", token=1)),
            open_authority=lambda: self.authority,
            model=self._model,
            encoder=lambda: None,
        )

    def _model(self) -> LanguageModel:
        if self.language_model is None:
            raise MissingModel
        return self.language_model

    def drain(self, *kinds: JobKind) -> list[str]:
        """Sync, then run every job of these kinds until none is left; their notes."""
        wanted = kinds or (JobKind.ANALYZE,)
        waiting: list[JobSpec] = list(sync.run(self.context(), {}).successors)
        notes: list[str] = []
        while waiting:
            job = waiting.pop(0)
            if job.kind in wanted:
                done = BODIES[job.kind](self.context(), job.args)
                notes.append(done.note)
                waiting.extend(done.successors)
        return notes

    def facts(self) -> list[Fact]:
        """Every fact, whatever its standing."""
        with self.authority.read() as reads:
            return reads.facts()

    def current(self) -> set[str]:
        """Statements that hold now."""
        now = self.clock.now_ms() + 10**12
        return {fact.statement for fact in self.facts() if fact.holds_at(now)}

    def evidence(self, statement: str) -> list[tuple[str, str]]:
        """(adapter, quote) behind a statement, by adapter."""
        with self.authority.read() as reads:
            return sorted(
                (quote.source.adapter, quote.excerpt)
                for fact in reads.facts()
                if fact.statement == statement
                for quote in reads.evidence(fact.fact_id)
            )

    def stored_bytes(self) -> bytes:
        """Everything on disk under the home, in one piece."""
        return b"".join(
            path.read_bytes() for path in sorted(self.paths.home.rglob("*")) if path.is_file()
        )


def read_all(adapter: SourceAdapter, locator: str, *, limit: int = 1 << 20) -> list[Record]:
    """Every record of a source, window by window."""
    cursor = SourceCursor(adapter=adapter.name, locator=locator, offset=0, line=0)
    found: list[Record] = []
    while True:
        window = adapter.read(cursor, limit=limit)
        found.extend(window.records)
        cursor = window.cursor_after
        if not window.more:
            return found


def lines(objects: Sequence[Mapping[str, object]]) -> bytes:
    """A JSON Lines file."""
    return b"".join(json.dumps(item).encode() + b"\n" for item in objects)


def pi_header(cwd: object, **more: object) -> dict[str, object]:
    """The first line of a Pi session."""
    return {
        "type": "session",
        "version": 3,
        "id": "s-1",
        "timestamp": "2026-11-30T10:00:00.000Z",
        "cwd": str(cwd),
        **more,
    }


def pi_said(number: int, text: str, *, after: int | None = None) -> dict[str, object]:
    """A person's message as Pi writes it; entries are numbered and follow each other."""
    return _pi_entry(number, after, {"role": "user", "content": text})


def pi_ran(number: int, command: str) -> dict[str, object]:
    """The agent's call of a command; its result is the entry of the next number."""
    call = {
        "type": "toolCall",
        "id": f"call-{number + 1}",
        "name": "bash",
        "arguments": {"command": command},
    }
    return _pi_entry(number, None, {"role": "assistant", "content": [call]})


def pi_result(number: int, output: str, *, failed: bool = False) -> dict[str, object]:
    """The result of the call before."""
    return _pi_entry(
        number,
        None,
        {
            "role": "toolResult",
            "toolCallId": f"call-{number}",
            "toolName": "bash",
            "content": [{"type": "text", "text": output}],
            "isError": failed,
        },
    )


def _pi_entry(number: int, after: int | None, message: dict[str, object]) -> dict[str, object]:
    parent = number - 1 if after is None else after
    return {
        "type": "message",
        "id": f"{number:08x}",
        "parentId": f"{parent:08x}" if parent else None,
        "timestamp": "2026-11-30T10:00:00.000Z",
        "message": {**message, "timestamp": 1_796_000_000_000 + number * 1_000},
    }


def claude_line(
    number: int, role: str, content: object, cwd: object, **more: object
) -> dict[str, object]:
    """A line of a Claude Code transcript."""
    return {
        "type": role,
        "isSidechain": False,
        "uuid": f"u-{number}",
        "timestamp": f"2026-11-30T10:{number % 60:02d}:00.000Z",
        "cwd": str(cwd),
        "sessionId": "c-1",
        "message": {"role": role, "content": content},
        **more,
    }


FAILURE = (
    "FAIL  test/integration/berths.test.ts\nTest Files  6 failed (6)\n"
    "Error: connect ECONNREFUSED 127.0.0.1:5544 (berth database)\n\nCommand exited with code 1"
)
