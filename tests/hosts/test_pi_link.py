"""The Pi extension's connection, run by Node itself, against servers that misbehave."""

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from hooks.events import PromptSubmitted
from tests.hosts.agents import NODE, ROOT
from tests.hosts.fake_server import FakeServer, Manner

pytestmark = [pytest.mark.hosts, pytest.mark.usefixtures("installed_agents")]

LINK = ROOT / "hooks/hosts/pi_extension/link.ts"
DEADLINE_MS = 230
PAYLOAD = '{ sessionId: "s1", cwd: "/p", prompt: "hi" }'


def script(socket: Path, body: str, server: str = "[]") -> dict[str, object]:
    """What `body` puts into `out`, run with a `link` and an `ask()` that times itself."""
    code = f"""
    import {{ Link }} from {json.dumps(str(LINK))};
    const link = new Link({{ socket: {json.dumps(str(socket))}, server: {server} }});
    const out = {{}};
    const ask = async () => {{
      const began = performance.now();
      const answer = await link.ask("before_agent_start", {PAYLOAD}, {DEADLINE_MS});
      return {{ answer: answer ?? null, ms: performance.now() - began }};
    }};
    {body}
    link.close();
    console.log(JSON.stringify(out));
    """
    done = subprocess.run(
        [str(NODE), "--no-warnings", "--input-type=module", "-e", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return cast("dict[str, object]", json.loads(done.stdout))


def test_an_answer_arrives_in_milliseconds(short_dir: Path) -> None:
    """A healthy server answers far below the deadline, over one connection."""
    with FakeServer(short_dir / "s", block="use pnpm") as server:
        out = script(
            short_dir / "s", "await ask(); const a = await ask(); out.b = a.answer; out.ms = a.ms;"
        )

    assert out["b"] == {"block": "use pnpm"}
    assert cast("float", out["ms"]) < DEADLINE_MS / 2
    assert [type(event) for event in server.events()] == [PromptSubmitted] * 2


@pytest.mark.parametrize("manner", ["silent", "garbage", "giant", "hang_up", "deaf"])
def test_a_bad_server_costs_at_most_the_deadline(short_dir: Path, manner: Manner) -> None:
    """Whatever the server does, the question settles in time, with nothing."""
    # The best of three: a busy machine delays one, a wait that is built in shows in all.
    waits: list[float] = []
    for _ in range(3):
        with FakeServer(short_dir / "s", manner):
            out = script(short_dir / "s", "const a = await ask(); out.a = a.answer; out.ms = a.ms;")
        assert out["a"] is None
        waits.append(cast("float", out["ms"]))

    assert min(waits) < DEADLINE_MS + 20


def test_a_server_that_hangs_is_not_asked_for_ever(short_dir: Path) -> None:
    """After two unanswered prompts the next ones do not wait at all."""
    with FakeServer(short_dir / "s", "silent") as server:
        out = script(short_dir / "s", "await ask(); await ask(); out.ms = (await ask()).ms;")
        server.wait_for("before_agent_start")

    assert cast("float", out["ms"]) < 50
    assert len(server.frames) == 3


def test_without_a_server_a_prompt_does_not_wait_and_is_delivered_later(short_dir: Path) -> None:
    """An absent server costs nothing now; the frame arrives once somebody listens."""
    asked, done = short_dir / "asked", short_dir / "done"
    body = f"""
    const fs = await import("node:fs");
    out.ms = (await ask()).ms;
    fs.writeFileSync({json.dumps(str(asked))}, "");
    while (!fs.existsSync({json.dumps(str(done))})) {{
      await new Promise((resolve) => setTimeout(resolve, 10));
    }}
    """
    out: dict[str, object] = {}
    agent = threading.Thread(target=lambda: out.update(script(short_dir / "s", body)))

    agent.start()
    wait_for_file(asked)
    with FakeServer(short_dir / "s") as server:
        frame = server.wait_for("before_agent_start", 8)
    done.touch()
    agent.join(20)

    assert cast("float", out["ms"]) < 100
    assert frame["event"] == "before_agent_start"


def test_a_restarted_server_is_found_again(short_dir: Path) -> None:
    """A connection that broke is made anew by the next prompt, without a failed one between."""
    asked, again = short_dir / "asked", short_dir / "again"
    body = f"""
    const fs = await import("node:fs");
    await ask();
    fs.writeFileSync({json.dumps(str(asked))}, "");
    while (!fs.existsSync({json.dumps(str(again))})) {{
      await new Promise((resolve) => setTimeout(resolve, 10));
    }}
    out.b = (await ask()).answer;
    """
    out: dict[str, object] = {}
    agent = threading.Thread(target=lambda: out.update(script(short_dir / "s", body)))

    with FakeServer(short_dir / "s", block="before"):
        agent.start()
        wait_for_file(asked)
    with FakeServer(short_dir / "s", block="after"):
        again.touch()
        agent.join(20)

    assert out["b"] == {"block": "after"}


def test_an_absent_server_is_started_once_by_all(short_dir: Path) -> None:
    """Two links in two processes start one server: the lock file is shared."""
    record = short_dir / "started"
    server = json.dumps(["/bin/sh", "-c", f"echo x >> {record}"])

    script(short_dir / "s", "await ask();", server)
    wait_for_file(record)
    script(short_dir / "s", "await ask(); await link.flush(200);", server)

    assert record.read_text() == "x\n"


def wait_for_file(path: Path, seconds: float = 10) -> None:
    """Return when `path` exists; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} never appeared"
        os.sched_yield()
