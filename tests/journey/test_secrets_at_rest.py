"""No credential is at rest anywhere below a home, whichever way it was told to memoryd.

The whole loop runs: hooks, consumer, recall, `ops remember`, documents, failing jobs. Then every
byte of every file is searched, databases unpacked, in plain, escaped, encoded and percent form.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hooks.capture import Capture
from hooks.events import (
    HookEvent,
    PromptSubmitted,
    SessionEnded,
    SessionStarted,
    ToolFinished,
    TurnEnded,
)
from hooks.record import remember
from ops.cli import main
from storage.admission import admit_document
from storage.authority import open_authority
from storage.authority.payloads import document_upserted
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.errors import Refused
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.projects import Binding, bind
from storage.queue import open_queue
from storage.records import JsonValue, Trust
from tasks.sources.claude import folder_name as claude_folder
from tasks.sources.pi import folder_name as pi_folder
from tests.credentials import Seed, found_in, seeds
from tests.journey.person import Person
from tests.learning import claude_line, lines, pi_header

pytestmark = pytest.mark.slow
CLOCK = SystemClock()
SEEDS = seeds()
TOKENS = [seed for seed in SEEDS if seed.secret == seed.phrase and "/" not in seed.secret]
"""Those that can stand in an id or a file's name."""


def _said(seed: Seed) -> str:
    return (
        f"No, always start the worker with this: {seed.phrase}\n\n"
        f"Remember that {seed.phrase} is what the staging cluster wants.\n"
        "Never deploy on Fridays from this repository."
    )


def _failed(seed: Seed) -> str:
    return (
        f"FAIL  test/berths.test.ts\nTest Files  6 failed (6)\n"
        f"Error: connect ECONNREFUSED 127.0.0.1:5544 with {seed.phrase}\n"
        f"config was {json.dumps({'k': seed.phrase})}\n"
    )


def _turn(number: int, seed: Seed, cwd: str, session: str, call: str) -> Iterator[HookEvent]:
    """A prompt, a failure, its remedy, the success, the end of the turn."""
    yield PromptSubmitted("claude", session, cwd, _said(seed), False, f"/t/{seed.name}.jsonl")
    runs = (
        (f"npm run test:{number} -- {seed.phrase}", _failed(seed), 1),
        (f"docker compose up -d {seed.phrase}", f"started {seed.phrase}", 0),
        (f"npm run test:{number} -- {seed.phrase}", f"6 passed, {seed.phrase}", 0),
    )
    for step, (command, output, code) in enumerate(runs):
        yield ToolFinished(
            "claude",
            session,
            cwd,
            "Bash",
            f"{call} {step}",
            command,
            output,
            code != 0,
            code,
            False,
        )
    yield TurnEnded("claude", session, cwd, 100, False, None)


def _hooked(paths: HomePaths, project: Path) -> None:
    capture = Capture(paths, CLOCK)
    events: list[HookEvent] = [SessionStarted("claude", "s-0", str(project), False, None)]
    for number, seed in enumerate(SEEDS):
        events += _turn(number, seed, str(project), f"s-{number}", f"call-{number}-")
    for number, seed in enumerate(TOKENS):
        # As the id of a session and of a call, and as a folder's name.
        inside = str(project / seed.secret)
        events += _turn(1000 + number, seed, inside, seed.secret, seed.secret)
        events.append(
            ToolFinished("claude", seed.secret, inside, seed.secret, "c", "x", "y", True, 1, False)
        )
        if number % 2:
            events.append(SessionEnded("claude", seed.secret, inside, seed.secret, None))
    # A lesson that lost a credential is not learnt, so this one is what shows that lessons are.
    events += _turn(2000, replace(SEEDS[0], phrase="the berths"), str(project), "s-p", "call-p-")
    for event in events:
        capture.handle(event)


def _transcripts(person: Person) -> None:
    """Pi's and Claude Code's own files: outside the home, and full of secrets."""
    where = person.project.resolve()
    pi = person.user / ".pi/agent/sessions"
    claude = person.user / ".claude/projects"
    _write(pi / pi_folder(str(where)) / "all.jsonl", _pi(where, "s-1", SEEDS))
    _write(claude / claude_folder(str(where)) / "all.jsonl", _claude(where, "c-1", SEEDS))
    for seed in TOKENS[:6]:
        inside = where / seed.secret
        for path in (
            pi / pi_folder(str(where)) / f"{seed.secret}.jsonl",
            pi / pi_folder(str(inside)) / f"at-{seed.name}.jsonl",
            pi / pi_folder(str(where)) / f"id-{seed.name}.jsonl",
        ):
            cwd = inside if path.name.startswith("at-") else where
            _write(path, _pi(cwd, seed.secret, [seed], ids=seed.secret))
        for path in (
            claude / claude_folder(str(where)) / f"{seed.secret}.jsonl",
            claude / claude_folder(str(where)) / f"id-{seed.name}.jsonl",
        ):
            _write(path, _claude(where, seed.secret, [seed], ids=seed.secret))


def _write(path: Path, objects: Iterable[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(list(objects)))


def _pi(
    cwd: Path, session: str, told: list[Seed], *, ids: str = ""
) -> Iterator[Mapping[str, object]]:
    yield pi_header(cwd, id=session)
    parent = None
    for number, message in enumerate(_messages(told, ids or "call")):
        ident = f"{ids or 'e'}{number}"
        yield {
            "type": "message",
            "id": ident,
            "parentId": parent,
            "timestamp": "2026-11-30T10:00:00.000Z",
            "message": message,
        }
        parent = ident
    # A call without a result stays open in the reader's own state.
    call = {"type": "toolCall", "id": f"{ids}open", "name": ids or "bash"}
    arguments = {"command": f"make deploy {told[-1].phrase}", told[-1].phrase: 1}
    yield {
        "type": "message",
        "id": ids or "last",
        "parentId": parent,
        "message": {"role": "assistant", "content": [{**call, "arguments": arguments}]},
    }


def _messages(told: list[Seed], call: str) -> Iterator[Mapping[str, object]]:
    for number, seed in enumerate(told):
        yield {"role": "user", "content": _said(seed)}
        runs = (
            (f"pnpm run check:{number} {seed.phrase}", _failed(seed), True),
            (f"docker compose restart {seed.phrase}", seed.phrase, False),
            (f"pnpm run check:{number} {seed.phrase}", "6 passed", False),
        )
        for step, (command, output, failed) in enumerate(runs):
            ident = f"{call}-{number}-{step}"
            yield {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": seed.phrase},
                    {
                        "type": "toolCall",
                        "id": ident,
                        "name": "bash",
                        "arguments": {"command": command},
                    },
                ],
            }
            yield {
                "role": "toolResult",
                "toolCallId": ident,
                "toolName": "bash",
                "content": [{"type": "text", "text": output}],
                "isError": failed,
            }


def _claude(
    cwd: Path, session: str, told: list[Seed], *, ids: str = ""
) -> Iterator[Mapping[str, object]]:
    for count, message in enumerate(_messages(told, ids or "toolu"), 1):
        role, content = message["role"], message["content"]
        if role == "toolResult":
            content = [
                {
                    "type": "tool_result",
                    "tool_use_id": message["toolCallId"],
                    "content": content,
                    "is_error": message["isError"],
                }
            ]
        elif isinstance(content, list):
            content = [
                {**block, "type": "tool_use", "input": block["arguments"], "name": "Bash"}
                if block["type"] == "toolCall"
                else block
                for block in content
            ]
        speaker = "assistant" if role == "assistant" else "user"
        yield claude_line(count, speaker, content, cwd, sessionId=session, title=told[0].phrase)


def _remembered(paths: HomePaths, binding: Binding) -> int:
    """Every secret handed over as a statement; returns how many were refused."""
    refused = 0
    for seed in SEEDS:
        try:
            remember(paths, binding.project_id, f"The deploy uses {seed.phrase}", clock=CLOCK)
        except Refused:
            refused += 1
    with suppress(Refused):
        remember(
            paths,
            binding.project_id,
            "The harbor cranes need a permit number on every booking.",
            clock=CLOCK,
            session_id=TOKENS[0].secret,
        )
    return refused


def _documents(paths: HomePaths, binding: Binding) -> None:
    """Every secret in every field of a document that a source may fill."""
    authority = open_authority(
        paths.project(binding.project_id),
        binding.project_id,
        clock=CLOCK,
        settings=StorageSettings(),
    )
    with closing(authority):
        drafts = []
        for number, seed in enumerate(SEEDS):
            metadata: dict[str, JsonValue] = {
                seed.phrase[:200]: "key",
                "nested": [{"deep": {seed.phrase: seed.phrase}}],
                "error": f"failed at {seed.phrase}",
            }
            drafts.append(
                admit_document(
                    namespace="notes",
                    external_id=f"note-{number}",
                    source=f"wiki {seed.phrase}",
                    kind="note",
                    text=f"How we deploy.\n\n{seed.phrase}\n\nThen wait.",
                    observed_at=CLOCK.now_ms(),
                    trust=Trust.IMPORTED,
                    title=f"About {seed.phrase}",
                    uri=f"https://wiki.example/?q={seed.phrase}",
                    version=seed.phrase,
                    adapter="wiki",
                    revision=seed.phrase,
                    metadata=metadata,
                )
            )
        authority.append([document_upserted(document) for document in drafts])


def _failing_jobs(paths: HomePaths, binding: Binding) -> None:
    """Work whose refusal quotes what it was given."""
    queue = open_queue(paths, clock=CLOCK)
    with closing(queue):
        queue.enqueue(
            [
                JobSpec(
                    kind=JobKind.ANALYZE,
                    project=binding.project_id,
                    args={"adapter": "pi"},
                    subject=f"bad-{number}",
                )
                for number in range(3)
            ]
        )


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """Somebody who tells every secret everywhere."""
    made = Person(tmp_path_factory.mktemp("secrets"))
    environment = dict(os.environ)
    binding = bind(made.paths, made.project, clock=CLOCK, settings=StorageSettings())
    _transcripts(made)
    _hooked(made.paths, made.project.resolve())
    assert _remembered(made.paths, binding) >= len(SEEDS) - 3
    _documents(made.paths, binding)
    _failing_jobs(made.paths, binding)
    assert dict(os.environ) == environment
    return made


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """Every seed is found in every spelling: a search that finds nothing proves nothing."""
    for number, seed in enumerate(SEEDS):
        escaped = json.dumps({"x": json.dumps(seed.secret)})
        (tmp_path / f"{number}").write_text(f"{seed.secret}\n{escaped}")

    found = {name for _, name in found_in(tmp_path, SEEDS)}

    assert found == {seed.name for seed in SEEDS}


def test_nothing_is_at_rest_before_the_consumer_runs(person: Person) -> None:
    """Staging, the hooks' own log, the queue, the spool."""
    assert (person.paths.shared / "staging").is_dir()
    assert any(person.paths.home.rglob("pi-session/*.jsonl"))
    assert found_in(person.paths.home, SEEDS) == []


def test_nothing_is_at_rest_after_the_whole_loop(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    """The memory, its history, the queue with its failures, the logs; and recall shows none."""
    done = person.run("worker", "--once")
    assert done.code == 0, done.err
    where = ["--home", str(person.paths.home), "--project", str(person.project)]

    shown = []
    for words in (
        ["recall", "how do we deploy to staging?", "--json", *where],
        ["recall", f"what about {SEEDS[0].secret}?", "--explain", *where],
        ["facts", "--all", "--json", *where],
        ["learned", "--json", "--limit", "5000", *where],
        ["status", "--json", *where],
        ["jobs", "--json", *where[:2]],
        ["queue", "--json", *where[:2]],
        ["doctor", "--json", *where[:2]],
        ["export", *where],
        ["history", "--json", "--limit", "5000", *where],
        ["evidence", "--json", *where],
        ["documents", "--json", "--all", *where],
        ["backup", "--json", *where],
    ):
        main(words)
        shown.append(capsys.readouterr().out)

    assert "ECONNREFUSED" in "".join(shown), "failures were learned, or this proves nothing"
    assert "permit number" in "".join(shown)
    assert "How we deploy" in "".join(shown)
    assert found_in(person.paths.home, SEEDS) == []
    told = "".join(shown).replace(SEEDS[0].secret, "").encode()
    assert [seed.name for seed in SEEDS if any(part in told for part in seed.parts)] == []
