"""The first run as people see it, and the keeper that starts and stops its programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops import services
from ops.first_run import main, summary
from ops.services import (
    SERVER,
    WORKER,
    Keeper,
    Killed,
    Program,
    Running,
    program_pids,
    start,
    start_all,
    stop_pid,
    uninterrupted,
)
from storage.connection import private_directory
from storage.errors import Unavailable
from storage.paths import HomePaths


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The first run takes the process's signals; give them back."""
    kept = [(number, signal.getsignal(number)) for number in services.STOPS]
    yield
    for number, handler in kept:
        signal.signal(number, handler)


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new user's home directory, in an empty project."""
    folder, project = tmp_path / "user", tmp_path / "project"
    for made in (folder, project):
        made.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("PI_MEMORY_HOME", "PRJCT_HOME", "CLAUDE_CONFIG_DIR", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)
    return folder


@pytest.fixture
def paths(home: Path) -> HomePaths:
    """A home that exists."""
    made = HomePaths(home)
    private_directory(made.shared)
    return made


def test_people_see_every_step_and_what_to_do_next(
    user: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read, where memory goes, what was learned on which line, the block, and on."""
    monkeypatch.setenv("MEMORYD_SETUP_STARTED", "12.5")

    code = main([])
    first = capsys.readouterr().out
    again = main([])
    second = capsys.readouterr().out

    assert (code, again) == (0, 0)
    for said in (
        "No Pi or Claude Code session of",
        "none of your folders is bound",
        f"Memory lives in {user / '.prjct'}",
        "needs a language model, and none is configured",
        "use pnpm, never npm in this repository.",
        "pi-session",
        ".jsonl:15",
        '<private_memory trust="untrusted">',
        "</private_memory>",
        "ops init",
        "ops host install pi",
    ):
        assert said in first, said
    assert "Learned 9; 9 facts known" in first
    assert "Nothing new; 9 facts known" in second
    assert program_pids(WORKER, HomePaths(user / ".prjct")) == []
    assert program_pids(SERVER, HomePaths(user / ".prjct")) == []


def test_a_failure_is_one_sentence_for_people_and_a_whole_object_for_programs(
    user: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The object keeps its keys, with ok false and the reason."""
    (user / "file").write_text("in the way")
    home = str(user / "file/home")

    code = main(["--home", home])
    people = capsys.readouterr()
    also = main(["--home", home, "--json", "--question", "Why?"])
    programs = json.loads(capsys.readouterr().out)

    assert (code, also) == (3, 3)
    assert "cannot make this folder" in people.out
    assert set(programs) == {*summary(None, "", 0, 0), "error", "hint"}
    assert (programs["ok"], programs["question"], programs["block"]) == (False, "Why?", "")


def test_help_and_wrong_options(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All options are explained; a wrong one is named with exit code 2."""
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert main(["--nonsense"]) == 2
    wrong = capsys.readouterr().err

    for option in ("--home", "--project", "--transcript", "--question", "--keep", "--json"):
        assert option in said
    assert "--nonsense" in wrong
    assert list(user.iterdir()) == []


def test_a_program_that_cannot_start_says_its_last_words(paths: HomePaths) -> None:
    """The reason is in the error and all of it in a private log."""
    missing = Program("missing", "missing program", "no_such_module")

    with pytest.raises(Unavailable, match=r"missing program ended at once: .*no_such_module"):
        start(missing, paths, dict(os.environ))

    assert missing.log(paths).stat().st_mode & 0o777 == 0o600


def test_a_program_killed_while_starting_is_told_apart(
    paths: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's kill is no fault of the program: the keeper may simply start it again."""
    suicide = tmp_path / "suicide.sh"
    suicide.write_text("#!/bin/sh\nkill -9 $$\n")
    suicide.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(suicide))

    with pytest.raises(Killed):
        start(Program("killed", "killed program", "any"), paths, dict(os.environ))


def test_a_program_killed_while_starting_is_started_again(
    paths: HomePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice is no reason to give up; a program that is always killed is."""
    begun: list[Program] = []

    def killed(program: Program, *_: object) -> Running:
        begun.append(program)
        raise Killed("killed")

    def killed_twice(program: Program, *_: object) -> Running:
        if len(begun) < 2:
            return killed(program)
        with subprocess.Popen(["true"]) as process:
            return Running(program, paths, process)

    monkeypatch.setattr(services, "start", killed_twice)
    found = start_all(paths, dict(os.environ))
    monkeypatch.setattr(services, "start", killed)
    begun.clear()
    with pytest.raises(Killed):
        start_all(paths, dict(os.environ))

    assert [(program, new) for program, _, new in found] == [(WORKER, True), (SERVER, True)]
    assert begun == [WORKER] * services.MAX_STARTS


def test_a_keeper_replaces_what_ends_and_stops_only_what_it_started(paths: HomePaths) -> None:
    """Programs of others go on; its own end with it, and stopping twice is no error."""
    theirs = Keeper(paths, dict(os.environ))
    ours = Keeper(paths, dict(os.environ))
    try:
        theirs.ensure()
        (worker,), (server,) = program_pids(WORKER, paths), program_pids(SERVER, paths)
        ours.ensure()
        ours.stop()
        untouched = (program_pids(WORKER, paths), program_pids(SERVER, paths))

        stop_pid(WORKER, paths, worker)
        ours.ensure()
        replaced = program_pids(WORKER, paths)
        ours.stop()
        ours.stop()
        after = (program_pids(WORKER, paths), program_pids(SERVER, paths))
    finally:
        theirs.stop()

    assert untouched == ([worker], [server])
    assert len(replaced) == 1
    assert replaced != [worker]
    assert after == ([], [server])
    assert program_pids(SERVER, paths) == []


def test_a_signal_is_held_back_until_the_block_is_left() -> None:
    """Between starting a child and remembering it nothing may come: then it comes, once."""
    seen: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: seen.append("came"))

    with uninterrupted():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        during = list(seen)

    assert (during, seen) == ([], ["came"])


def test_a_keeper_gives_up_on_a_program_that_does_not_stay(paths: HomePaths) -> None:
    """A program that ends again and again is broken: say so instead of starting it for ever."""
    keeper = Keeper(paths, dict(os.environ))
    keeper.starts = services.MAX_STARTS

    with pytest.raises(Unavailable, match="the consumer does not stay"):
        keeper.ensure()


def test_stopping_a_process_that_is_gone_is_no_error(paths: HomePaths) -> None:
    """Process ids are reused and processes end by themselves: the answer is just False."""
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)

    assert stop_pid(WORKER, paths, gone) is False
