"""The command line as a whole: help, JSON and exit codes of every verb, errors as sentences."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import cast

import click
import pytest

from ops.cli import VERBS, cli, main
from ops.exits import EXIT_MEANINGS, Exit, failure_of
from storage import errors


def _leaves() -> list[tuple[str, ...]]:
    """Every verb that does something, a group's members included."""
    context = click.Context(cli)
    found: list[tuple[str, ...]] = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        if isinstance(command, click.Group):
            found += [(name, member) for member in command.list_commands(context)]
        else:
            found.append((name,))
    return found


LEAVES = _leaves()


def _run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_verb_has_help_and_speaks_json(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence about the verb, and --json and --home among its options."""
    code, out, _ = _run(capsys, *words, "--help")

    assert code == Exit.OK
    said = out.splitlines()
    assert said[0].startswith(f"Usage: ops {' '.join(words)}")
    assert said[2].strip().endswith(".") or said[3].strip() != ""
    assert "--json" in out
    assert "--home" in out


def test_help_lists_every_verb_and_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    """`ops --help` is the one place to look."""
    code, out, _ = _run(capsys, "--help")

    assert code == Exit.OK
    assert [name for name in VERBS if f"\n  {name} " not in out] == []
    assert [code for code, said in EXIT_MEANINGS.items() if f"{code.value} " not in out] == []
    assert "Exit codes" in out


def test_a_wrong_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error is answered with what was probably meant, and exit code 2."""
    code, out, err = _run(capsys, "quue")

    assert (code, out) == (Exit.USAGE, "")
    assert "Did you mean `ops queue`?" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("jobs", "--state", "sleeping"), "sleeping"),
        (("jobs", "--limit", "0"), "0 is not in the range"),
        (("completion", "tcsh"), "tcsh"),
        (("host", "install", "emacs"), "emacs"),
        (("status", "--project", "/nowhere/at/all"), "/nowhere/at/all is not a folder"),
        (("redact", "--nonsense"), "--nonsense"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_wrong_usage_is_named_with_exit_code_2(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was wrong stands in the sentence; nothing goes to standard output."""
    code, out, err = _run(capsys, *words)

    assert (code, out) == (Exit.USAGE, "")
    assert said in err


def test_an_error_is_one_json_object_when_json_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs read the sentence and the hint from the same stream as every answer."""
    code, out, err = _run(capsys, "queue", "--json", "--home", str(tmp_path / "none"))

    answer = json.loads(out)
    assert (code, err) == (Exit.NOT_READY, "")
    assert answer["ok"] is False
    assert "ops init" in answer["hint"]


def test_ctrl_c_is_a_sentence_or_an_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130 either way; programs get their line whatever ended the verb."""

    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)

    people = _run(capsys, "status")
    programs = _run(capsys, "status", "--json")

    assert people == (Exit.INTERRUPTED, "", "ops: Stopped.\n")
    assert (programs[0], programs[2]) == (Exit.INTERRUPTED, "")
    assert json.loads(programs[1]) == {"ok": False, "error": "Stopped.", "hint": ""}


@pytest.mark.parametrize("words", [("queue",), ("jobs",), ("budget",), ("schedule",), ("doctor",)])
def test_reading_verbs_create_nothing(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Looking at a home that is not there must not make one."""
    home = tmp_path / "home"

    code, _, _ = _run(capsys, *words, "--home", str(home))

    assert code in {Exit.OK, Exit.NOT_READY}
    assert list(tmp_path.iterdir()) == []


def test_options_before_the_verb_count_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ops --home H --json VERB` and `ops VERB --home H --json` are the same."""
    home = str(tmp_path / "none")

    before = _run(capsys, "--home", home, "--json", "queue")
    after = _run(capsys, "queue", "--home", home, "--json")

    assert before == after
    assert home in before[1]


def _error_classes() -> list[type[errors.MemorydError]]:
    found = [errors.MemorydError]
    for kind in found:
        found += kind.__subclasses__()
    return sorted(set(found), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", _error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_of_ours_has_a_code_and_a_sentence(kind: type[errors.MemorydError]) -> None:
    """No class of the tree falls through, and none claims success."""
    failure = failure_of(kind())

    assert failure.code in {Exit.FAILED, Exit.USAGE, Exit.NOT_READY, Exit.UNHEALTHY}
    assert failure.sentence != ""


def test_an_operating_system_error_names_the_file() -> None:
    """A full disk or a forbidden folder is foreseeable: the path and the reason, no traceback."""
    failure = failure_of(PermissionError(13, "Permission denied", "/some/where"))

    assert failure.code == Exit.NOT_READY
    assert failure.sentence == "/some/where: Permission denied"


def test_version_imports_nothing_heavy() -> None:
    """Start-up is what people feel: neither rich, nor the stores, nor the encoder's libraries."""
    code = (
        "import sys, json; from ops.cli import main; main(['version', '--json']);"
        "print(json.dumps(sorted(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    loaded = set(cast("list[str]", json.loads(done.stdout.splitlines()[-1])))
    assert "click" in loaded
    assert loaded & {"rich.console", "apsw", "numpy", "onnxruntime", "huey", "structlog"} == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_complete_our_own_name(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script calls `ops` back with the variable that `main` listens to."""
    code, out, _ = _run(capsys, "completion", shell)

    assert code == Exit.OK
    assert f"_OPS_COMPLETE={shell}_complete" in out


def test_completion_offers_the_verbs() -> None:
    """What the shell asks for is answered by the real program."""
    environment = {"_OPS_COMPLETE": "bash_complete", "COMP_WORDS": "ops ", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-I", "-m", "ops"],
        env={"PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    offered = {line.partition(",")[2] for line in done.stdout.splitlines()}
    assert offered >= set(VERBS)


def test_a_reader_that_stops_early_is_no_error() -> None:
    """`ops ... | head -1` closes the pipe: no message, no traceback."""
    shell = f"{sys.executable} -I -m ops doctor --json --home /nonexistent/home | head -c 1"

    done = subprocess.run(
        ["/bin/sh", "-c", shell], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.stdout, done.stderr) == ("{", "")


def test_redact_shows_what_would_be_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an argument or from standard input."""
    token = "ghp_" + "M5n4B3v2C1x0" * 3
    code, out, _ = _run(capsys, "redact", f"the key {token} is gone")
    _, plain, _ = _run(capsys, "redact", "--json", "nothing to hide")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(f"{token}\n".encode())))
    _, piped, _ = _run(capsys, "redact")

    assert code == Exit.OK
    assert out.startswith("the key ")
    assert out.endswith(" is gone\n")
    assert token not in out + piped
    assert json.loads(plain) == {"text": "nothing to hide", "changed": False}


def test_version_names_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for people, the same for programs."""
    _, text, _ = _run(capsys, "version")
    _, out, _ = _run(capsys, "version", "--json")

    value = json.loads(out)
    assert set(value) == {"memoryd", "apsw", "huey", "python"}
    assert text.startswith(f"memoryd {value['memoryd']} (Python {value['python']}")


def test_hosts_are_connected_shown_and_disconnected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """install, status and uninstall tell the same story, to people and to programs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PI_CODING_AGENT_DIR", raising=False)
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    home = ("--home", str(tmp_path / "memory"))

    for name in ("pi", "claude"):
        _, made, _ = _run(capsys, "host", "install", name, "--json", *home)
        _, shown, _ = _run(capsys, "host", "status", "--json", *home)
        _, table, _ = _run(capsys, "host", "status", *home)
        _, removed, _ = _run(capsys, "host", "uninstall", name, *home)
        _, twice, _ = _run(capsys, "host", "uninstall", name, *home)

        states = {state["host"]: state for state in json.loads(shown)["hosts"]}
        assert json.loads(made)["adapter"] == states[name]["adapter"]
        assert states[name]["connected"] is True
        assert [state["connected"] for state in states.values()].count(True) == 1
        assert table.count("not connected") == 1
        assert "is disconnected" in removed
        assert "was not connected" in twice


def test_a_folder_of_somebody_else_in_the_hosts_place_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What memoryd did not write is never replaced or removed."""
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path))
    theirs = tmp_path / "extensions/memoryd/index.ts"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("theirs")
    home = ("--home", str(tmp_path / "memory"))

    code, _, err = _run(capsys, "host", "install", "pi", *home)
    also, _, _ = _run(capsys, "host", "uninstall", "pi", *home)

    assert (code, also) == (Exit.FAILED, Exit.FAILED)
    assert "memoryd did not write" in err
    assert theirs.read_text() == "theirs"
