"""`ops bench hook`: what every client that we ship costs a prompt, whatever the daemon is doing.

Clients: the command that Claude Code runs (as `ops host install` writes it down), the Pi
extension's connection run by Node, and the recall client in this process. Each is timed against a
server that is idle, saturated by others' questions, dead, alive over a locked store, and hung. A
host's floor is what the host itself costs: an interpreter that does nothing for a command, a bare
exchange over the socket for the others; it is measured between the samples, so that a busy machine
slows both. Times are wall milliseconds; `answered` is the share of prompts that got a memory.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol, cast

from hooks.hosts.install import install_claude, pi_extension_files
from hooks.recall_client import recall_via_server_or_sqlite, server_argv
from ops.bench.hook_world import NEEDLE, PROMPT, STATES, State, World
from ops.bench.timing import quantile
from ops.hosts import fallback_argv
from storage.clock import Clock
from storage.records import JsonValue

Figures = dict[str, JsonValue]
HUNG_SAMPLES: Final = 12
"""Each waits for its whole deadline: more would only make the run longer."""
SETTLE_S: Final = 0.3
REFUSED: Final = "not measured"


class Client(Protocol):
    """One of our clients and its host's floor."""

    def floor(self) -> float:
        """Milliseconds that the host costs without us."""
        ...

    def prompt(self, number: int) -> tuple[float, bool]:
        """Milliseconds of one prompt, and whether it got the memory."""
        ...


class Command:
    """The command that Claude Code runs at a prompt."""

    def __init__(self, world: World, folder: Path) -> None:
        plugin = install_claude(
            folder,
            socket=world.paths.socket,
            interpreter=Path(sys.executable),
            server_argv=server_argv(world.paths),
            fallback_argv=fallback_argv(world.paths),
        )
        hooks = json.loads((plugin / "hooks/hooks.json").read_text("utf-8"))["hooks"]
        ours = hooks["UserPromptSubmit"][0]["hooks"][0]
        self._argv = [ours["command"], *ours["args"]]
        self._environment = {"HOME": str(world.paths.home), "PATH": os.environ.get("PATH", "")}
        self._cwd = str(world.checkout)

    def floor(self) -> float:
        return self._run([self._argv[0], "-I", "-c", "pass"], b"")[0]

    def prompt(self, number: int) -> tuple[float, bool]:
        asked = {"session_id": "bench", "cwd": self._cwd, "prompt": asked_as(number)}
        took, said = self._run(self._argv, json.dumps(asked).encode())
        return took, NEEDLE.encode() in said

    def _run(self, argv: list[str], payload: bytes) -> tuple[float, bytes]:
        began = time.perf_counter()
        done = subprocess.run(
            argv,
            input=payload,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
            env=self._environment,
        )
        return (time.perf_counter() - began) * 1_000, done.stdout


class InProcess:
    """The recall client that a program of ours calls."""

    def __init__(self, world: World, clock: Clock, echo: Path) -> None:
        self._world, self._clock, self._echo = world, clock, echo

    def floor(self) -> float:
        began = time.perf_counter()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
            link.connect(str(self._echo))
            link.sendall(b"ping\n")
            link.recv(16)
        return (time.perf_counter() - began) * 1_000

    def prompt(self, number: int) -> tuple[float, bool]:
        began = time.perf_counter()
        found = recall_via_server_or_sqlite(
            self._world.paths,
            str(self._world.checkout),
            asked_as(number),
            clock=self._clock,
            environment={},
        )
        took = (time.perf_counter() - began) * 1_000
        return took, any(item.text == NEEDLE for item in found.items)


class Extension:
    """The Pi extension's connection, in one Node process; a new connection for each prompt."""

    def __init__(self, world: World, echo: Path, node: Path, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        for name, text in pi_extension_files().items():
            (folder / name).write_text(text, "utf-8")
        asked = {"sessionId": "bench", "cwd": str(world.checkout)}
        script = _PI.replace("LINK", json.dumps(str(folder / "link.ts")))
        script = script.replace("SOCKET", json.dumps(str(world.paths.socket)))
        script = script.replace("ECHO", json.dumps(str(echo)))
        script = script.replace("PAYLOAD", json.dumps(asked))
        self._process = subprocess.Popen(
            [str(node), "--no-warnings", "--input-type=module", "-e", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"HOME": str(world.paths.home), "PATH": os.environ.get("PATH", "")},
        )
        self.works = self._said("floor") is not None

    def floor(self) -> float:
        said = self._said("floor")
        return cast("float", said["ms"]) if said else 0.0

    def prompt(self, number: int) -> tuple[float, bool]:
        said = self._said(asked_as(number)) or {}
        return cast("float", said.get("ms", 0.0)), NEEDLE in str(said.get("block"))

    def close(self) -> None:
        """End Node."""
        self._process.kill()
        self._process.communicate()

    def _said(self, word: str) -> dict[str, Any] | None:  # Any: what the script prints
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        return cast("dict[str, Any]", json.loads(line)) if line else None


_PI: Final = """
import { Link } from LINK;
import { connect } from "node:net";
import { createInterface } from "node:readline";
const bare = () => new Promise((resolve) => {
  const socket = connect(ECHO, () => socket.write("ping\\n"));
  socket.on("data", () => { socket.destroy(); resolve(); });
});
for await (const word of createInterface({ input: process.stdin })) {
  const began = performance.now();
  let answer;
  if (word === "floor") await bare();
  else {
    const link = new Link({ socket: SOCKET, server: [] });
    answer = await link.ask("before_agent_start", { ...PAYLOAD, prompt: word }, 230);
    link.close();
  }
  console.log(JSON.stringify({ ms: performance.now() - began, block: answer?.block ?? "" }));
}
"""


class Bench:
    """One run in one folder (with a short path: sockets lie in it)."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        samples: int = 60,
        documents: int = 300,
        node: str = "node",
    ) -> None:
        self._folder, self._clock = folder, clock
        self._samples, self._documents, self._node = samples, documents, node

    def run(self, tell: Callable[[str], None] = lambda _: None) -> Figures:
        """Every figure."""
        tell("how long a memory takes to make")
        world = World(self._folder, self._clock, documents=self._documents)
        with _echo(self._folder / "e") as echo:
            clients: dict[str, Client] = {
                "claude": Command(world, self._folder / "claude"),
                "in_process": InProcess(world, self._clock, echo),
            }
            found: Figures = {}
            program = shutil.which(self._node)
            if program is None:
                found["pi"] = f"{REFUSED}: there is no {self._node}"
                return found | self._measured(world, clients, tell)
            with closing(Extension(world, echo, Path(program), self._folder / "pi")) as pi:
                if pi.works:
                    clients["pi"] = pi
                else:
                    found["pi"] = f"{REFUSED}: this Node does not run TypeScript (22.18 does)"
                return found | self._measured(world, clients, tell)

    def _measured(
        self, world: World, clients: Mapping[str, Client], tell: Callable[[str], None]
    ) -> Figures:
        states: dict[str, Figures] = {name: {} for name in clients}
        for state in STATES:
            tell(f"a daemon that is {state}")
            with world.in_state(state):
                for name, client in clients.items():
                    states[name][state] = self._times(client, state)
        figures: Figures = {"samples": self._samples, "encoder": world.encoder}
        figures |= _summary(states)
        return figures | dict(states)

    def _times(self, client: Client, state: State) -> Figures:
        samples = min(self._samples, HUNG_SAMPLES) if state == "hung" else self._samples
        floors, times, answered = list[float](), list[float](), 0
        client.prompt(0)
        for number in range(samples):
            if state == "dead":
                # Without a server a hook leaves a process behind that writes the prompt down.
                time.sleep(SETTLE_S)
            floors.append(client.floor())
            took, known = client.prompt(number)
            times.append(took)
            answered += known
        over = {share: quantile(times, share) - quantile(floors, share) for share in (0.5, 0.95)}
        return {
            "p50_ms": round(quantile(times, 0.5), 2),
            "p95_ms": round(quantile(times, 0.95), 2),
            "p99_ms": round(quantile(times, 0.99), 2),
            "max_ms": round(max(times), 2),
            "floor_p50_ms": round(quantile(floors, 0.5), 2),
            "floor_p95_ms": round(quantile(floors, 0.95), 2),
            "over_floor_p50_ms": round(over[0.5], 2),
            "over_floor_p95_ms": round(over[0.95], 2),
            "answered": round(answered / samples, 3),
        }


def asked_as(number: int) -> str:
    """Ever another prompt: what was asked before may be answered from memory."""
    return f"{PROMPT} Ticket {number}."


def _summary(states: Mapping[str, Mapping[str, JsonValue]]) -> Figures:
    """The reach of the prompt path in a few numbers: the worst client in each."""

    def worst(state: str, figure: str) -> float:
        measured = (cast("Mapping[str, float]", of[state]) for of in states.values())
        return max(one[figure] for one in measured)

    return {
        "idle_over_floor_p50_ms": worst("idle", "over_floor_p50_ms"),
        "idle_p95_ms": worst("idle", "p95_ms"),
        "saturated_over_floor_p50_ms": worst("saturated", "over_floor_p50_ms"),
        "saturated_p95_ms": worst("saturated", "p95_ms"),
        "dead_over_floor_p50_ms": worst("dead", "over_floor_p50_ms"),
        "max_ms": max(worst(state, "max_ms") for state in STATES),
    }


@contextmanager
def _echo(path: Path) -> Iterator[Path]:
    """A socket that answers every connection with a line: the floor of a client on a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(8)

        def serve() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link, suppress(OSError):
                    link.sendall(link.recv(16) or b"\n")

        threading.Thread(target=serve, name="echo", daemon=True).start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
