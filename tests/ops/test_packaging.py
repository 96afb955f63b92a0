"""The wheel is whole, its launcher finds its interpreter, no folder can stand in for our code."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("storage", "retrieval", "tasks", "hooks", "ops")
MODULES = ("storage", "retrieval", "tasks", "hooks", "ops", "worker", "click", "apsw", "json")


def _run(argv: Sequence[str | Path], cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), **extra}
    return subprocess.run(
        [str(word) for word in argv],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    build = ("-I", "-m", "hatchling", "build", "-t", "wheel", "-d")
    done = _run([sys.executable, *build, folder], ROOT)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment that holds the wheel and sees our dependencies."""
    if importlib.util.find_spec("ensurepip") is None:
        pytest.skip("this Python cannot put pip into a new environment (no ensurepip)")
    root = tmp_path_factory.mktemp("fresh")
    venv.create(root, with_pip=True)
    python = root / "bin/python"
    install = ("-I", "-m", "pip", "install", "-q", "--no-index", "--no-deps")
    done = _run([python, *install, wheel], root)
    assert done.returncode == 0, done.stderr
    (site,) = root.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return root / "bin"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A repository with packages and modules named like ours, each leaving a mark when it runs."""
    folder = tmp_path / "repository"
    folder.mkdir()
    mark = f"import pathlib\npathlib.Path({str(folder / 'executed')!r}).touch()\n"
    for name in MODULES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(mark)
        (folder / name / "__main__.py").write_text(mark)
    for name in ("server", "client"):
        (folder / "hooks" / f"{name}.py").write_text(mark)
    return folder


def test_the_wheel_holds_every_file_of_every_package(wheel: Path) -> None:
    """Migrations, the agents' plugins, prompts and the sample travel with the code."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PACKAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if tracked.returncode != 0:
        pytest.skip("not a git checkout: there is no list of files to compare with")
    expected = {name for name in tracked.stdout.split("\0") if name and (ROOT / name).is_file()}

    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())

    assert expected - held == set()
    assert {Path(name).suffix for name in expected} >= {".py", ".sql", ".ts", ".json", ".jsonl"}
    assert "worker.py" in held
    assert [name for name in held if name.split("/")[0] == "tests"] == []


def test_the_installed_launcher_runs_and_links_to_it_do_too(
    installed: Path, tmp_path: Path
) -> None:
    """`ops` execs the interpreter beside it, however it was reached."""
    link = tmp_path / "elsewhere"
    link.symlink_to(installed / "ops")
    second = tmp_path / "further"
    second.symlink_to("elsewhere")

    for launcher in (installed / "ops", link, second):
        done = _run([launcher, "version", "--json"], tmp_path)

        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["memoryd"] == "0.1.0"


def test_the_installed_code_is_the_wheels_and_not_the_checkouts(
    installed: Path, tmp_path: Path
) -> None:
    """Guards the tests here: a fresh environment must not fall through to the source tree."""
    code = "import ops, storage, worker; print(ops.__file__, storage.__file__, worker.__file__)"

    done = _run([installed / "python", "-I", "-c", code], tmp_path)

    assert done.returncode == 0, done.stderr
    assert [Path(name).is_relative_to(installed.parent) for name in done.stdout.split()] == [
        True
    ] * 3


@pytest.mark.parametrize(
    "words", [("ops", "version"), ("worker", "--help"), ("hooks.server", "--help")], ids=" ".join
)
def test_nothing_in_the_current_folder_runs_in_our_place(
    words: tuple[str, ...], hostile: Path
) -> None:
    """-I: neither the folder nor PYTHONPATH is searched, for every program that we start."""
    done = _run([sys.executable, "-I", "-m", *words], hostile, PYTHONPATH=str(hostile))

    assert done.returncode == 0, done.stderr
    assert done.stdout != ""
    assert not (hostile / "executed").exists()


def test_the_launcher_does_not_run_the_current_folders_code(installed: Path, hostile: Path) -> None:
    """The command people type in a stranger's repository is as isolated as the programs."""
    isolated = _run([installed / "ops", "version"], hostile, PYTHONPATH=str(hostile))
    untouched = not (hostile / "executed").exists()
    _run([sys.executable, "-m", "ops", "version"], hostile)

    assert isolated.stdout.startswith("memoryd ")
    assert untouched
    assert (hostile / "executed").exists(), "the trap itself works: without -I it ran"


def test_the_launcher_says_what_to_do_where_nothing_is_installed(tmp_path: Path) -> None:
    """A checkout nobody set up: one sentence with the command."""
    folder = tmp_path / "ops/bin"
    folder.mkdir(parents=True)
    launcher = folder / "ops"
    launcher.write_bytes((ROOT / "ops/bin/ops").read_bytes())
    launcher.chmod(0o755)

    done = _run([launcher, "version"], tmp_path)

    assert done.returncode == 127
    assert "run ./ops/bin/quickstart once" in done.stderr


def test_every_script_is_executable_and_parses(tmp_path: Path) -> None:
    """Scripts are POSIX sh: whatever /bin/sh is here reads them without complaint."""
    for script in sorted((ROOT / "ops/bin").iterdir()):
        assert os.access(script, os.X_OK) == (script.suffix != ".sh"), script.name
        done = _run(["/bin/sh", "-n", script], tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), script.name
