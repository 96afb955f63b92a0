"""The promise itself, with the real Pi: what one session taught, the next one knows."""

from pathlib import Path
from typing import Final

import pytest

from tests.hosts.agents import PiHome
from tests.hosts.mock_model import Exchange, MockModel, Reply, ToolCall
from tests.hosts.stack import (
    await_server_and_stop_it,
    give_memory,
    memoryd_stack,
    wait_until_learned,
    wait_until_recalled,
)

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("installed_agents")]

TASK: Final = "Add the parser library."
CORRECTION: Final = "No, use pnpm, never npm in this repository."
QUESTION: Final = "Install the date library with npm."
INSTALL: Final = ToolCall("bash", {"command": "echo npm install parser"})
SCRIPT: Final = [
    Exchange(TASK, (Reply(tools=(INSTALL,)), Reply("Installed with npm."))),
    Exchange(CORRECTION, (Reply("Understood."),)),
    Exchange(QUESTION, (Reply("On it."),)),
]


def test_a_correction_reaches_the_model_in_the_next_session(short_dir: Path) -> None:
    """Taught in session one, learned by the consumer, before the model in session two;
    nothing of it is written into that second session.
    """
    with MockModel(SCRIPT) as model:
        user = PiHome(short_dir / "user", model.url)
        with memoryd_stack(short_dir / "m", user, "pi") as paths:
            before = user.run("-p", QUESTION)
            untaught = model.requests
            task = user.run("-p", TASK)
            corrected = user.run("-c", "-p", CORRECTION)
            wait_until_learned(paths)
            wait_until_recalled(paths, user.project, QUESTION)
            # A machine too busy to answer in time injects nothing, by design: ask again then.
            for _ in range(3):
                seen = len(model.requests)
                after = user.run("-p", QUESTION)
                session_two = model.requests[seen:]
                if all(request.holds("pnpm") for request in session_two):
                    break

    assert [run.code for run in (before, task, corrected, after)] == [0] * 4
    assert not any(request.holds("pnpm") for request in untaught)
    assert session_two
    assert all(request.holds("pnpm") for request in session_two)
    assert "pnpm" not in user.transcripts[-1].read_text()


def test_the_agent_starts_the_server_it_misses(short_dir: Path) -> None:
    """Nobody has to start the recall server: the first hook does, and the agent does not notice."""
    with MockModel(SCRIPT) as model:
        user = PiHome(short_dir / "user", model.url)
        paths = give_memory(short_dir / "m", user, "pi")
        run = user.run("-p", QUESTION)
        await_server_and_stop_it(paths)

    assert (run.code, run.out.strip()) == (0, "On it.")
