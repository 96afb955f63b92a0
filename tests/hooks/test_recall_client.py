"""Asking from outside: the server, else SQLite, else nothing, always in time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest

from hooks.hosts.install import CLIENT
from hooks.recall_client import NO_SERVER, call, recall_via_server_or_sqlite
from ops.hosts import fallback_argv
from retrieval.results import Recall
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.errors import MemorydError
from storage.paths import HomePaths
from storage.projects import bind, lookup
from storage.receipt_log import newest_first
from tests.hooks.serverside import a_server, find_test_project, short_home
from tests.retrieval.memories import FACTS, PROJECT, a_fact, a_store, remember
from tests.support import wait_until


@pytest.fixture
def home() -> Iterator[Path]:
    """A private home with a short path and the ten facts, and no server."""
    with short_home() as folder:
        store = a_store(folder, SystemClock())
        remember(store, [a_fact(text) for text in FACTS])
        store.close()
        HomePaths(folder).shared.mkdir(mode=0o700)
        yield folder


def ask(home: Path, query: str = "which local database", *, deadline_ms: int = 250) -> Recall:
    """The best answer in time."""
    return recall_via_server_or_sqlite(
        HomePaths(home),
        "/work",
        query,
        clock=SystemClock(),
        environment={"MEMORYD_ENCODER": "none"},
        find_project=find_test_project,
        deadline_ms=deadline_ms,
    )


def test_a_running_server_answers() -> None:
    """With a server the answer is its answer, without a gap."""
    with short_home() as folder, a_server(folder):
        found = ask(folder, deadline_ms=10_000)

    assert found.items[0].text == FACTS[0]
    assert NO_SERVER not in found.gaps
    assert [leg.name for leg in found.legs] == ["exact", "lexical", "dense"]


def test_without_a_server_sqlite_answers_and_says_so(home: Path) -> None:
    """The same first item, and a gap that names the missing server."""
    found = ask(home)

    assert found.items[0].text == FACTS[0]
    assert found.gaps[0] == NO_SERVER


def test_a_dead_socket_is_no_server(home: Path) -> None:
    """What a killed server left behind costs nothing."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as dead:
        dead.bind(os.fspath(HomePaths(home).socket))

    assert ask(home).items[0].text == FACTS[0]


@pytest.mark.parametrize("manner", [b"", b"garbage\n", b'{"v":1,"id":"no","ok":true}\n', b"x" * 99])
def test_a_server_that_misbehaves_is_no_server(home: Path, manner: bytes) -> None:
    """Silent, babbling or hung: SQLite answers within the deadline."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(HomePaths(home).socket))
    listener.listen(4)
    released = threading.Event()

    def misbehave() -> None:
        link, _ = listener.accept()
        with link:
            link.recv(65_536)
            link.sendall(manner)
            released.wait(20)

    thread = threading.Thread(target=misbehave)
    thread.start()
    try:
        began = monotonic()
        found = ask(home, deadline_ms=2_000)
        assert monotonic() - began < 4
        assert found.items[0].text == FACTS[0]
    finally:
        released.set()
        thread.join(20)
        listener.close()


def test_a_folder_without_memory_abstains(home: Path) -> None:
    """No project, no question to any store."""
    found = recall_via_server_or_sqlite(
        HomePaths(home),
        "/elsewhere",
        "which local database",
        clock=SystemClock(),
        environment={},
        find_project=find_test_project,
    )

    assert found.status == "abstained"
    assert found.reason == "no memory belongs to this folder"


@pytest.mark.parametrize("damage", ["missing", "garbage", "empty"])
def test_a_broken_store_is_nothing_and_no_error(home: Path, damage: str) -> None:
    """Whatever happened to the file, the caller gets an abstention."""
    database = HomePaths(home).project(PROJECT).database
    for suffix in ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
    if damage == "missing":
        database.unlink()
    else:
        database.write_bytes(b"junk" * 5_000 if damage == "garbage" else b"")
        database.chmod(0o600)

    assert ask(home).status == "abstained"


def test_a_search_is_cut_off_at_its_deadline(home: Path) -> None:
    """A store too slow to search in time gives nothing, in time."""
    store = a_store(home, SystemClock())
    for part in range(8):
        remember(store, [a_fact(f"database fact number {part * 300 + at}") for at in range(300)])
    store.close()

    found = ask(home, deadline_ms=1)

    assert found.status == "abstained"
    assert found.reason == "not enough time"


def hook(
    home: Path, event: str, payload: object, *, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """`python -I -m hooks claude EVENT` with a payload on its standard input."""
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return subprocess.run(
        [sys.executable, "-I", "-m", "hooks", "claude", event, "--home", os.fspath(home)],
        input=raw,
        capture_output=True,
        check=False,
        timeout=30,
        env={"HOME": os.fspath(home), "MEMORYD_ENCODER": "none", **(environment or {})},
    )


@pytest.fixture
def bound_home() -> Iterator[Path]:
    """A home with a bound checkout; the server that a hook starts is ended at the end."""
    with short_home() as folder:
        (folder / "checkout").mkdir()
        paths, clock = HomePaths(folder), SystemClock()
        bound = bind(paths, folder / "checkout", clock=clock, settings=StorageSettings())
        store = a_store(folder, clock, project=bound.project_id)
        remember(store, [a_fact(text) for text in FACTS])
        store.close()
        yield folder
        paths.config.write_text("[recall]\nidle_exit_s = 1\n", encoding="utf-8")
        if running(folder):
            paths.socket.unlink()
            wait_until(lambda: not running(folder), what="the end of the started server")


def running(home: Path) -> bool:
    """Whether a server holds the home's lock."""
    from hooks.server import take_lock

    lock = take_lock(HomePaths(home).server_lock)
    if lock is None:
        return True
    os.close(lock)
    return False


def prompt_of(home: Path, text: str) -> dict[str, str]:
    """A prompt in the bound checkout."""
    return {"session_id": "s1", "cwd": os.fspath(home / "checkout"), "prompt": text}


def test_a_prompt_hook_answers_without_a_server_and_starts_one(bound_home: Path) -> None:
    """The block is printed from SQLite; the next prompt finds a server."""
    done = hook(bound_home, "UserPromptSubmit", prompt_of(bound_home, "which local database?"))

    assert done.returncode == 0
    assert done.stderr == b""
    shown = json.loads(done.stdout)
    assert FACTS[0] in shown["hookSpecificOutput"]["additionalContext"]
    wait_until(lambda: answers(bound_home), what="the started server")


def answers(home: Path) -> bool:
    """Whether a server answers."""
    try:
        return isinstance(call(HomePaths(home), "ping", {}, timeout_ms=1_000), dict)
    except MemorydError:
        return False


@pytest.mark.parametrize("paths", [True, False])
def test_the_agents_command_answers_without_a_server(bound_home: Path, paths: bool) -> None:
    """In its own process where the installation says where our modules are, else in another."""
    argv = fallback_argv(HomePaths(bound_home))
    argv = argv if paths else argv[: argv.index("--path")]
    client = [sys.executable, "-I", "-S", str(CLIENT), "claude", "UserPromptSubmit"]
    given = ["--socket", os.fspath(HomePaths(bound_home).socket), "--fallback", json.dumps(argv)]

    def block() -> str:
        done = subprocess.run(
            [*client, *given],
            input=json.dumps(prompt_of(bound_home, "which local database?")).encode(),
            capture_output=True,
            check=True,
            timeout=30,
            env={"HOME": os.fspath(bound_home), "MEMORYD_ENCODER": "none"},
        )
        assert done.stderr == b""
        return done.stdout.decode()

    # A busy machine may miss the deadline once; the server that it starts ends the attempts.
    said = next((text for text in (block() for _ in range(5)) if text), "")

    assert FACTS[0] in json.loads(said)["hookSpecificOutput"]["additionalContext"]
    wait_until(lambda: answers(bound_home), what="the started server")


def test_a_prompt_without_an_answer_prints_nothing(bound_home: Path) -> None:
    """Silence is an empty output and exit code 0."""
    done = hook(bound_home, "UserPromptSubmit", prompt_of(bound_home, "ok, continue"))

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    wait_until(lambda: answers(bound_home), what="the started server")


@pytest.mark.parametrize(
    "payload",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"prompt":', json.dumps({"session_id": 3}).encode()],
)
def test_a_hook_always_exits_0_and_prints_nothing_else(home: Path, payload: bytes) -> None:
    """Whatever the host sends, the prompt goes through."""
    done = hook(home, "UserPromptSubmit", payload)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_hook_of_our_own_work_does_nothing(bound_home: Path) -> None:
    """Marked as memoryd's own: no answer, no server."""
    done = hook(
        bound_home,
        "UserPromptSubmit",
        prompt_of(bound_home, "which local database?"),
        environment={"MEMORYD_INTERNAL": "1"},
    )

    assert (done.returncode, done.stdout) == (0, b"")
    assert not running(bound_home)


@pytest.mark.parametrize("off", ["", "0"])
def test_a_mark_that_says_nothing_marks_nothing(bound_home: Path, off: str) -> None:
    """MEMORYD_INTERNAL set to nothing or 0 is the same as not set."""
    prompt = prompt_of(bound_home, "which local database?")
    done = hook(bound_home, "UserPromptSubmit", prompt, environment={"MEMORYD_INTERNAL": off})

    assert done.stdout != b""
    wait_until(lambda: answers(bound_home), what="the started server")


def test_a_prompt_is_kept_although_the_host_kills_its_hook(bound_home: Path) -> None:
    """Whoever writes the prompt down waits for the answer, but lives on without it."""
    prompt = prompt_of(bound_home, "Which local database? Never use MySQL in the harbor.")
    argv = [sys.executable, "-I", "-m", "hooks", "claude", "UserPromptSubmit", "--home"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*argv, os.fspath(bound_home)], stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(prompt).encode())
        process.stdin.close()
        answer = process.stdout.readline()
        process.kill()

    staging = HomePaths(bound_home).shared / "staging"
    assert answer != b""
    wait_until(lambda: any(staging.glob("*.jsonl")), what="the staged prompt")
    wait_until(lambda: answers(bound_home), what="the started server")
    bound = lookup(HomePaths(bound_home), bound_home / "checkout")
    assert bound is not None
    project = HomePaths(bound_home).project(bound.project_id)
    wait_until(lambda: any(newest_first(project)), what="the receipt")
    (receipt,) = newest_first(project)
    assert (receipt["server"], receipt["status"]) == (False, "ok")


def test_the_project_decides_how_much_a_hook_without_a_server_shows(bound_home: Path) -> None:
    """The block keeps to the project's own bound, as the server's does."""
    paths = HomePaths(bound_home)
    bound = lookup(paths, bound_home / "checkout")
    assert bound is not None
    paths.project(bound.project_id).config.write_text("[recall]\nmax_bytes = 1\n", "utf-8")

    done = hook(bound_home, "UserPromptSubmit", prompt_of(bound_home, "which local database?"))

    assert (done.returncode, done.stdout) == (0, b"")
    wait_until(lambda: answers(bound_home), what="the started server")


def test_a_hook_without_a_server_imports_only_what_it_needs() -> None:
    """An import costs milliseconds, and a host waits 250 for everything."""
    code = (
        "import sys, hooks.__main__, hooks.hosting, hooks.recall_client, storage.projects;"
        "print(*sys.modules)"
    )

    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=True)
    loaded = set(done.stdout.decode().split())

    assert "retrieval.sqlite_search" in loaded
    assert loaded.isdisjoint({"asyncio", "difflib", "numpy", "socket", "structlog", "subprocess"})
    assert loaded.isdisjoint({"huey", "onnxruntime", "tempfile", "tokenizers", "tomllib"})


def test_a_home_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    """A hook creates no memory by itself."""
    done = hook(tmp_path / "gone", "UserPromptSubmit", prompt_of(tmp_path, "which database"))

    assert (done.returncode, done.stdout) == (0, b"")
    assert not (tmp_path / "gone").exists()
