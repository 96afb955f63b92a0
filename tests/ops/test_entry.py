"""How commands begin and end: standard streams, Ctrl-C at once, homes that are none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ops import entry
from ops.exits import Exit
from ops.quickstart import NOTHING

MODULES = ("ops", "ops.quickstart")
EARLY = """
import os, signal, sys
sys.argv = ["command", *{words!r}]
from ops import entry
def load():
    os.kill(os.getpid(), signal.{name})
    raise AssertionError("not stopped")
sys.exit(entry.run("command", load, {{"ok": False, "learned": 0}}, sys.argv[1:]))
"""


def _run(
    script: str, *words: str, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A line of shell, in which "$@" is the command."""
    return subprocess.run(
        ["/bin/sh", "-c", script, "sh", sys.executable, "-I", "-m", *words],
        cwd=cwd,
        env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), "LANG": "C.UTF-8", **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_codes_are_those_of_the_table() -> None:
    """They are written down twice because the table takes too long to import."""
    assert (entry.FAILED, entry.NOT_READY, entry.INTERRUPTED) == (
        Exit.FAILED,
        Exit.NOT_READY,
        Exit.INTERRUPTED,
    )


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("words", [[], ["--json"]], ids=["people", "json"])
def test_a_signal_while_modules_load_is_no_traceback(
    name: str, words: Sequence[str], tmp_path: Path
) -> None:
    """The import is broken off, whatever runs in it: one sentence, or one whole object."""
    program = EARLY.format(words=words, name=name)

    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    if words:
        assert json.loads(done.stdout) == {
            "ok": False,
            "learned": 0,
            "error": "Stopped before it began.",
            "hint": "",
        }
    else:
        assert done.stderr == "command: Stopped before it began.\n"


def test_a_signal_that_the_caller_switched_off_stays_off() -> None:
    """Under nohup a closed terminal is no reason to end."""
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = entry.run("command", lambda: lambda _: 7, {}, [])
        during = signal.getsignal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, kept)

    assert (code, during) == (7, signal.SIG_IGN)


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('"$@" --help >&-', "standard output is closed"),
        ('"$@" --help >/dev/full', "standard output cannot be written"),
    ],
    ids=["closed", "full"],
)
def test_an_output_that_takes_nothing_is_one_sentence(
    module: str, script: str, said: str, tmp_path: Path
) -> None:
    """No traceback and no success."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")

    done = _run(script, module, cwd=tmp_path)

    assert done.returncode == Exit.NOT_READY
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_closed_input_and_errors_do_not_give_their_numbers_to_a_file(tmp_path: Path) -> None:
    """A database opened as descriptor 2 would be written over by the first complaint."""
    done = _run('"$@" <&- 2>&-', "ops", "version", cwd=tmp_path)

    assert done.returncode == Exit.OK
    assert done.stdout.startswith("memoryd ")


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["--home", ""], {}),
        (["--home", "~no-such-user/x"], {}),
        (["--home", os.fsdecode(b"x\xff")], {}),
        ([], {"HOME": "."}),
        ([], {"HOME": "relative/home"}),
        (["--project", ""], {}),
        (["--project", "~no-such-user/x"], {}),
    ],
    ids=["empty", "user", "bytes", "dot", "relative", "no project", "project of nobody"],
)
@pytest.mark.parametrize("module", ["ops status", "ops.quickstart"])
def test_a_place_that_is_none_is_a_sentence(
    module: str, words: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    """Exit code 2, nothing is made; with --json the whole object."""
    people = _run('"$@"', *module.split(), *words, cwd=tmp_path, environment=environment)
    program = _run('"$@" --json', *module.split(), *words, cwd=tmp_path, environment=environment)

    answer = json.loads(program.stdout.splitlines()[-1])
    assert (people.returncode, program.returncode) == (Exit.USAGE, Exit.USAGE)
    assert "Traceback" not in people.stderr + program.stderr
    assert answer["ok"] is False
    assert answer["error"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [["--nonsense"], ["--home", ""], ["--project", "/nowhere"], ["--transcript"], ["extra"]],
    ids=" ".join,
)
def test_every_wrong_use_of_the_first_run_prints_every_key(
    words: list[str], tmp_path: Path
) -> None:
    """Programs need not know how far it came: the keys are always there."""
    done = _run('"$@"', "ops.quickstart", "--json", *words, cwd=tmp_path)

    answer = json.loads(done.stdout.splitlines()[-1])
    assert set(answer) == {*NOTHING, "error", "hint"}
    assert answer["ok"] is False
