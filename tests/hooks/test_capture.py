"""From a host's events to the log and the queue, without harm when anything is missing."""

from __future__ import annotations

import json
import subprocess
import sys
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
from storage.errors import Refused
from storage.projects import bind
from storage.queue import open_queue
from storage.records import FactKind
from tests.learning import FAILURE, World

SAID = "No, use pnpm, never npm in this repository."


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A project with its checkout."""
    return World(tmp_path)


def _handle(world: World, *events: HookEvent) -> None:
    for event in events:
        Capture(world.paths, world.clock).handle(event)


def _prompt(world: World, text: str, *, cwd: str = "", subagent: bool = False) -> HookEvent:
    return PromptSubmitted("pi", "s", cwd or str(world.checkout), text, subagent, None)


def _tool(world: World, command: str, output: str, *, failed: bool = False) -> HookEvent:
    return ToolFinished(
        "pi", "s", str(world.checkout), "bash", "c1", command, output, failed, None, False
    )


def _turn(world: World, *, settled: bool = True) -> HookEvent:
    return TurnEnded("pi", "s", str(world.checkout), 900, False, None, settled)


def _end(world: World) -> HookEvent:
    return SessionEnded("pi", "s", str(world.checkout), "quit", None)


def _log(world: World) -> list[dict[str, object]]:
    folder = world.paths.project(world.project).session_log
    return [
        json.loads(line)
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_bytes().splitlines()
    ]


def _open_syncs(world: World) -> list[tuple[str, int]]:
    queue = open_queue(world.paths, clock=world.clock)
    try:
        return [(job.kind, job.priority) for job in queue.jobs()]
    finally:
        queue.close()


def test_a_correction_is_logged_when_its_turn_ends_and_asks_for_a_sync(world: World) -> None:
    """The prompt alone writes nothing; the turn's end writes once, and a sync is due at once."""
    _handle(world, _prompt(world, SAID))
    assert _log(world) == []

    _handle(world, _turn(world))

    (line,) = _log(world)
    assert line["statement"] == "use pnpm, never npm in this repository."
    assert line["sentence"] == SAID
    assert [kind for kind, _ in _open_syncs(world)] == ["sync"]


def test_the_same_event_twice_changes_nothing(world: World) -> None:
    """Hosts repeat hooks; a session writes a statement once, however often it was handed over."""
    for _ in range(3):
        _handle(world, _prompt(world, SAID), _prompt(world, SAID), _turn(world))

    assert len(_log(world)) == 1


def test_an_unsettled_turn_is_written_but_not_counted(world: World) -> None:
    """A killed agent never settles, so what is staged is saved at every model call."""
    _handle(world, _prompt(world, SAID), _turn(world, settled=False))

    assert len(_log(world)) == 1


def test_a_repair_across_turns_is_logged_with_its_failing_line(world: World) -> None:
    """What is open at the end of a turn is carried; passing later proves the remedy."""
    _handle(
        world,
        _tool(world, "pnpm test:integration", FAILURE, failed=True),
        _turn(world),
        _tool(world, "cat compose.yaml", "services:"),
        _tool(world, "pnpm db:up", "ready"),
        _turn(world),
        _tool(world, "pnpm test:integration", "6 passed"),
        _end(world),
    )

    (line,) = _log(world)
    assert line["failure"] == "Error: connect ECONNREFUSED 127.0.0.1:5544 (berth database)"
    assert line["remedies"] == ["pnpm db:up"]


def test_a_session_that_ends_leaves_no_staging_and_asks_for_a_sync(world: World) -> None:
    """The end of a session flushes and forgets; nothing more will come to wait for."""
    _handle(world, _prompt(world, SAID), _end(world))

    assert len(_log(world)) == 1
    assert list((world.paths.shared / "staging").glob("*.jsonl")) == []
    assert [kind for kind, _ in _open_syncs(world)] == ["sync"]


def test_a_folder_without_memory_and_a_sub_agent_are_left_alone(
    world: World, tmp_path: Path
) -> None:
    """Capture never makes a project, and never listens to a machine talking to a machine."""
    before = sorted(world.paths.home.rglob("*"))

    _handle(
        world,
        _prompt(world, SAID, cwd=str(tmp_path)),
        _prompt(world, SAID, cwd="relative"),
        _prompt(world, SAID, subagent=True),
        TurnEnded("pi", "s", str(world.checkout), 5, True, None),
    )

    assert sorted(world.paths.home.rglob("*")) == before


def test_a_credential_in_a_prompt_or_a_command_never_reaches_the_disk(world: World) -> None:
    """Not in staging, not in the log: redacted or left out before the first write."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    failing = FAILURE.replace("(berth database)", f"(password={secret})")

    _handle(
        world,
        _prompt(world, f"Always use {secret} as the release token."),
        _tool(world, f"deploy --token {secret}", failing, failed=True),
    )
    assert secret.encode() not in world.stored_bytes()
    _handle(
        world,
        _tool(world, "svc start", "ready"),
        _tool(world, f"deploy --token {secret}", "6 passed"),
        _turn(world),
    )

    assert _log(world) == []
    assert secret.encode() not in world.stored_bytes()


def test_what_a_killed_session_left_is_saved_by_the_next_one(world: World) -> None:
    """A session without an end is swept when another starts, hours later."""
    _handle(world, _prompt(world, SAID))
    (staged,) = (world.paths.shared / "staging").glob("*.jsonl")
    world.clock.step_wall(staged.stat().st_mtime_ns // 1_000_000 - world.clock.now_ms())

    world.clock.advance(7 * 3_600_000)
    _handle(world, SessionStarted("pi", "s2", str(world.checkout), False, None))

    assert len(_log(world)) == 1
    assert list((world.paths.shared / "staging").glob("*.jsonl")) == []
    assert [kind for kind, _ in _open_syncs(world)] == ["sync"]


def test_a_session_that_walks_into_another_project_teaches_each_its_own(
    world: World, tmp_path: Path
) -> None:
    """What is said in a folder belongs to that folder's project, whichever the session began in."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    other = bind(
        world.paths, elsewhere, clock=world.clock, settings=world.settings.storage
    ).project_id

    _handle(
        world,
        _prompt(world, SAID),
        _prompt(world, "Never mock the berths API in this repo.", cwd=str(elsewhere)),
        _turn(world),
    )

    here = [line["statement"] for line in _log(world)]
    folder = world.paths.project(other).session_log
    there = b"".join(path.read_bytes() for path in folder.glob("*.jsonl"))
    assert len(here) == 1
    assert "mock" not in str(here)
    assert b"Never mock the berths API" in there
    assert there.count(b"\n") == 1


def test_a_queue_that_cannot_be_used_costs_no_acknowledged_word(world: World) -> None:
    """A damaged queue file: what was said is in the log, and its sync on the spool."""
    world.paths.queue.parent.mkdir(mode=0o700, exist_ok=True)
    world.paths.queue.write_bytes(b"no database" * 1_000)

    _handle(world, _prompt(world, SAID), _turn(world))
    remember(
        world.paths, world.project, "The staging database lives on port 6543.", clock=world.clock
    )

    assert len(_log(world)) == 2
    assert len(list(world.paths.spool.glob("*.json"))) == 2


def test_a_remembered_statement_is_on_disk_and_its_sync_is_urgent(world: World) -> None:
    """`ops remember` acknowledges what is durable; what is unfit is refused with the bounds."""
    kind = remember(
        world.paths, world.project, "The staging database lives on port 6543.", clock=world.clock
    )

    assert kind is FactKind.FACT
    assert [line["statement"] for line in _log(world)] == [
        "The staging database lives on port 6543."
    ]
    assert ("sync", 40) in _open_syncs(world)
    with pytest.raises(Refused):
        remember(world.paths, world.project, "port", clock=world.clock)


def test_capture_imports_nothing_heavy() -> None:
    """A hook process must not pay for numpy, a model runtime, huey or an event loop."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import hooks.capture, hooks.record;"
        "print([n for n in ('numpy','onnxruntime','tokenizers','huey','asyncio','structlog',"
        "'tasks.llm','retrieval.endpoint') if n in sys.modules])"
    )
    root = str(Path(__file__).resolve().parent.parent.parent)

    done = subprocess.run(
        [sys.executable, "-I", "-c", script, root], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "[]"
