"""Setting a checkout up: once, alone, whole or not at all, and in plain words when it cannot be.

The checkout here is a toy with the real set-up code, an empty lock and a build backend of its own,
so nothing is downloaded. `./ops/bin/test` itself is the proof with the real packages.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support import wait_until

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "toy"
version = "1"
"""
BACKEND = """
import os, pathlib, zipfile

def build_editable(folder, settings=None, metadata=None):
    gate = os.environ.get("TOY_GATE")
    if gate:  # tells the test that the installation is under way, then waits to be let on
        pathlib.Path(gate + ".reached").touch()
        open(gate).close()
    name = "toy-1-py3-none-any.whl"
    about = "toy-1.dist-info/"
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w") as wheel:
        wheel.writestr("toy.py", "said = 'hello'")
        wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\\nName: toy\\nVersion: 1\\n")
        wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\\nGenerator: toy\\n"
            "Root-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(about + "RECORD", "toy.py,,\\n")
    return name
"""
TRY = """#!/bin/sh
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P)
. "$root/ops/bin/setup.sh"
set_up "${1:-runtime}"
exec "$root/.venv/bin/python" -I -c 'import toy; print(toy.said)'
"""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A toy repository with the real set-up code."""

    root: Path
    temp: Path

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """A user's environment with pip as the installer and nothing to reach."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.temp),
            "TMPDIR": str(self.temp),
            "MEMORYD_INSTALLER": "pip",
            "MEMORYD_PYTHON": sys.executable,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            **extra,
        }

    def start(self, *words: str, **extra: str) -> subprocess.Popen[str]:
        """Begin a set-up as a process group of its own, as a terminal does."""
        return subprocess.Popen(
            ["/bin/sh", str(self.root / "ops/bin/try"), *words],
            env=self.environment(extra),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """A whole set-up."""
        with self.start(*words, **extra) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    def logs(self) -> list[Path]:
        """Installation logs that were left behind."""
        return list(self.temp.glob("memoryd-setup.*"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout in a folder with a space in its name."""
    root, temp = tmp_path / "my checkout", tmp_path / "temp"
    temp.mkdir()
    shutil.copytree(ROOT / "ops/bin", root / "ops/bin")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    (root / "ops/bin/try").write_text(TRY)
    for name in ("requirements.lock", "requirements-dev.lock"):
        (root / name).write_text("# nothing is needed\n")
    return Checkout(root, temp)


@pytest.mark.slow
def test_a_second_set_up_does_nothing_and_a_changed_lock_does_it_again(checkout: Checkout) -> None:
    """The stamp names the locks: the same ones cost no time, other ones an installation."""
    first = checkout.run()
    made = checkout.venv.stat().st_ctime_ns
    second = checkout.run()
    unchanged = checkout.venv.stat().st_ctime_ns
    (checkout.root / "requirements.lock").write_text("# something else is needed\n")
    third = checkout.run()

    assert (first.returncode, first.stdout) == (0, "hello\n"), first.stderr
    assert "Installing" in first.stderr
    assert (second.returncode, second.stdout, second.stderr) == (0, "hello\n", "")
    assert made == unchanged
    assert third.returncode == 0
    assert "Installing" in third.stderr
    assert checkout.logs() == []


@pytest.mark.slow
def test_a_moved_checkout_gets_a_new_environment(checkout: Checkout) -> None:
    """Scripts in an environment name their interpreter by its path: moved, they would be broken."""
    assert checkout.run().returncode == 0
    moved = Checkout(checkout.root.rename(checkout.root.with_name("moved here")), checkout.temp)

    done = moved.run()

    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert "This checkout was moved" in done.stderr
    first_line = (moved.venv / "bin/pip").read_text().splitlines()
    assert str(moved.root) in "".join(first_line[:3])


@pytest.mark.slow
def test_the_test_environment_serves_quickstart_too_but_not_the_other_way_round(
    checkout: Checkout,
) -> None:
    """Development packages are the runtime's and more: only the smaller set must be completed."""
    assert checkout.run("dev").returncode == 0
    after_dev = checkout.run("runtime")
    shutil.rmtree(checkout.venv)
    assert checkout.run("runtime").returncode == 0
    after_runtime = checkout.run("dev")

    assert after_dev.stderr == ""
    assert "Installing" in after_runtime.stderr


@pytest.mark.slow
def test_two_set_ups_at_once_make_one_environment(checkout: Checkout) -> None:
    """The second waits for the first, says so, and then finds everything ready."""
    gate = checkout.temp / "gate"
    os.mkfifo(gate)
    with checkout.start(TOY_GATE=str(gate)) as first:
        wait_until(Path(f"{gate}.reached").exists, within_s=60, what="the first is installing")
        with checkout.start() as second:
            assert second.stderr is not None
            said = second.stderr.readline()
            gate.open("w").close()
            out, err = second.communicate(timeout=60)
        first_out, _ = first.communicate(timeout=60)

    assert "Another set-up of this checkout is running" in said
    assert (first.returncode, first_out) == (0, "hello\n")
    assert (second.returncode, out, err) == (0, "hello\n", "")


@pytest.mark.slow
def test_a_killed_set_up_is_done_again_and_an_interrupted_one_leaves_nothing(
    checkout: Checkout,
) -> None:
    """kill -9 leaves a marked environment that the next run replaces; Ctrl-C removes it itself."""
    gate = checkout.temp / "gate"
    os.mkfifo(gate)
    reached = Path(f"{gate}.reached")
    with checkout.start(TOY_GATE=str(gate)) as killed:
        wait_until(reached.exists, within_s=60, what="the set-up is installing")
        os.killpg(killed.pid, signal.SIGKILL)
    assert checkout.venv.is_dir()
    reached.unlink()

    with checkout.start(TOY_GATE=str(gate)) as interrupted:
        wait_until(reached.exists, within_s=60, what="the set-up is installing again")
        os.killpg(interrupted.pid, signal.SIGINT)
        _, said = interrupted.communicate(timeout=60)
    left = checkout.venv.exists()
    last = checkout.run()

    assert "left unfinished: making it again" in said
    assert interrupted.returncode == 130
    assert not left
    assert (last.returncode, last.stdout) == (0, "hello\n"), last.stderr


def test_no_python_is_said_with_what_to_install(checkout: Checkout) -> None:
    """An old or absent interpreter: one sentence, then the commands that help."""
    old = checkout.temp / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)

    done = checkout.run(MEMORYD_PYTHON=str(old))

    assert done.returncode == 1
    assert f"no Python 3.11, 3.12, 3.13 or 3.14 was found at {old}" in done.stderr
    assert "apt install python3" in done.stderr
    assert not checkout.venv.exists()


def test_a_python_without_venv_is_said_with_what_to_install(checkout: Checkout) -> None:
    """Debian splits venv off: name the package for the version at hand."""
    poor = checkout.temp / "python3"
    poor.write_text(
        f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; esac\nexec "{sys.executable}" "$@"\n'
    )
    poor.chmod(0o755)
    done = checkout.run(MEMORYD_PYTHON=str(poor))

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert done.returncode == 1
    assert f"Python {version} is here, but its venv module is not" in done.stderr
    assert f"apt install python{version}-venv" in done.stderr


def test_a_place_that_cannot_be_written_is_said(checkout: Checkout) -> None:
    """A file where the environment must go stands for every reason not to be able to make it."""
    checkout.venv.write_text("not a folder")

    done = checkout.run()

    assert done.returncode == 1
    assert "cannot make the folder .venv" in done.stderr
    assert checkout.venv.read_text() == "not a folder"
    assert checkout.logs() == []


@pytest.mark.slow
def test_no_network_is_said_and_nothing_half_made_stays(checkout: Checkout) -> None:
    """A package that cannot be fetched: the cause in words, the installer's own words in a file.

    What an earlier set-up, killed days ago, left there goes.
    """
    old = checkout.temp / "memoryd-setup.killed"
    old.write_text("Collecting click\n")
    os.utime(old, (0, 0))
    for name in ("requirements.lock", "requirements-dev.lock"):
        (checkout.root / name).write_text(f"click==8.1.8 --hash=sha256:{'0' * 64}\n")

    done = checkout.run(
        PIP_NO_INDEX="0", PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0"
    )

    assert done.returncode == 1
    assert "the package registry cannot be reached" in done.stderr
    assert "Connect to the network" in done.stderr
    assert "Traceback" not in done.stderr
    assert not checkout.venv.exists()
    assert len(checkout.logs()) == 1
    assert not old.exists()
