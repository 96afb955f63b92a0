"""A person with an empty home directory who runs memoryd's commands as processes.

Owns the environment (nothing inherited but the interpreter), writing agent sessions as an agent
would, and looking at what a run left behind. Leaves what must hold to the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.services import SERVER, WORKER, program_pids
from storage.authority import ProjectAuthority, open_authority
from storage.clock import SystemClock, iso
from storage.config import StorageSettings
from storage.paths import HomePaths
from storage.projects import bindings
from tasks.sources.pi import folder_name

RUN_TIMEOUT_S = 180
SAID_AT = 1_748_779_200_000
"""2025-06-01T12:00:00Z: long ago for any machine that runs this."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:  # Any: a JSON object, whose keys the tests check
        """The object on the last line of standard output."""
        found = json.loads(self.out.splitlines()[-1])
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True, slots=True)
class Person:
    """One user of one machine."""

    base: Path

    def __post_init__(self) -> None:
        for folder in (self.user, self.project):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def user(self) -> Path:
        """HOME."""
        return self.base / "user"

    @property
    def project(self) -> Path:
        """The folder of the person's project."""
        return self.base / "harbor"

    @property
    def paths(self) -> HomePaths:
        """Where memory lives by default."""
        return HomePaths(self.user / ".prjct")

    def environment(self) -> dict[str, str]:
        """Nothing of the machine's user; proxies lead nowhere."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.user),
            "LANG": "C.UTF-8",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
        }

    def start(self, module: str, *words: str | Path) -> subprocess.Popen[str]:
        """Begin `python -I -m module words` in the project's folder."""
        return subprocess.Popen(
            [sys.executable, "-I", "-m", module, *map(str, words)],
            cwd=self.project,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, module: str, *words: str | Path) -> Finished:
        """The whole of it."""
        with self.start(module, *words) as process:
            return finished(process)

    def quickstart(self, *words: str | Path) -> Finished:
        """The first run, its answer as JSON."""
        return self.run("ops.quickstart", "--json", *words)

    def ops(self, *words: str | Path) -> Finished:
        """One verb."""
        return self.run("ops", *words)

    def write_session(self, messages: Sequence[tuple[str, str]], *, name: str = "s1") -> Path:
        """A Pi session of the project: (role, text) in order, in Pi's own place."""
        folder = self.user / ".pi/agent/sessions" / folder_name(str(self.project.resolve()))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.jsonl"
        lines = session_lines(self.project.resolve(), messages, name)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def running(self) -> list[int]:
        """Processes of this person's memory."""
        return [pid for program in (WORKER, SERVER) for pid in program_pids(program, self.paths)]

    def memory(self) -> list[tuple[str, str, str, int]]:
        """What is known in every project: statement, standing, quote, line; in one order."""
        known = []
        for authority in self._authorities():
            with closing(authority), authority.read() as reads:
                known += [
                    (fact.statement, fact.standing.value, item.excerpt, item.source.line)
                    for fact in reads.facts()
                    for item in reads.evidence(fact.fact_id)
                ]
        return sorted(known)

    def proof(self) -> list[str]:
        """What the authorities' own proof finds wrong."""
        wrong = []
        for authority in self._authorities():
            with closing(authority):
                wrong += [problem.detail for problem in authority.verify().problems]
        return wrong

    def _authorities(self) -> Iterator[ProjectAuthority]:
        for binding in bindings(self.paths):
            yield open_authority(
                self.paths.project(binding.project_id),
                binding.project_id,
                clock=SystemClock(),
                settings=StorageSettings(),
            )


def finished(process: subprocess.Popen[str]) -> Finished:
    """The end of a started command."""
    out, err = process.communicate(timeout=RUN_TIMEOUT_S)
    return Finished(process.returncode, out, err)


def session_lines(
    cwd: Path, messages: Sequence[tuple[str, str]], name: str
) -> list[Mapping[str, object]]:
    """The lines of a Pi session file."""
    at = iso(SAID_AT)
    lines: list[Mapping[str, object]] = [
        {"type": "session", "version": 3, "id": name, "timestamp": at, "cwd": os.fspath(cwd)}
    ]
    parent: str | None = None
    for number, (role, text) in enumerate(messages):
        ident = f"{number:08x}"
        content = [{"type": "text", "text": text}]
        message = {"role": role, "content": content, "timestamp": SAID_AT + number * 1000}
        lines.append(
            {
                "type": "message",
                "id": ident,
                "parentId": parent,
                "timestamp": at,
                "message": message,
            }
        )
        parent = ident
    return lines
