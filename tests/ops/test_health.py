"""`ops doctor`: each fault gets its own verdict and a hint, and looking changes nothing."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from ops.cli import main
from ops.exits import Exit
from ops.health import (
    Check,
    check_home,
    check_hosts,
    check_machine,
    check_projects,
    check_services,
)
from ops.hosts import HOSTS, HostName, agent_folder, connect, disconnect, host_states
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.paths import HomePaths
from storage.projects import bind
from storage.queue import open_queue


def _by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.fixture
def user(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with an empty home directory."""
    folder = tmp_path / "user"
    folder.mkdir()
    return {"HOME": str(folder), "PATH": "/usr/bin:/bin"}


@pytest.fixture
def paths(home: Path) -> HomePaths:
    """A home with a queue."""
    made = HomePaths(home)
    open_queue(made, clock=SystemClock()).close()
    return made


def test_this_machine_is_fit(home: Path) -> None:
    """Where the tests run, interpreter, SQLite, sqlite-vec and the encoder's files are right."""
    checks = _by_name(list(check_machine(HomePaths(home))))

    assert {name: check.found for name, check in checks.items() if check.verdict == "fail"} == {}
    assert sys.executable in checks["Python"].found
    assert "hashes as expected" in checks["encoder"].found


def test_a_sound_home_passes(paths: HomePaths, user: dict[str, str]) -> None:
    """A fresh home: private, readable settings, a sound queue, no complaints from hooks."""
    checks = list(check_home(paths, user))

    assert [(check.name, check.verdict) for check in checks] == [
        ("home root", "ok"),
        ("home", "ok"),
        ("settings", "ok"),
        ("queue", "ok"),
        ("hooks", "ok"),
    ]


def test_a_home_that_others_can_read_fails(paths: HomePaths, user: dict[str, str]) -> None:
    """Memory is private: the command that repairs it is the hint."""
    paths.shared.chmod(0o755)

    check = _by_name(list(check_home(paths, user)))["home"]

    assert check.verdict == "fail"
    assert check.hint == f"Others can read it: chmod 700 {paths.shared}"


def test_a_wrong_setting_fails_and_is_named(paths: HomePaths, user: dict[str, str]) -> None:
    """The nearest known key stands in the sentence."""
    paths.config.write_text("[recall]\nmax_itens = 3\n")

    check = _by_name(list(check_home(paths, user)))["settings"]

    assert check.verdict == "fail"
    assert "did you mean max_items?" in check.found


def test_a_damaged_queue_fails_and_is_left_alone(paths: HomePaths, user: dict[str, str]) -> None:
    """Overwritten bytes are found, and not one of them is changed."""
    damaged = b"not a database at all" * 400
    paths.queue.write_bytes(damaged)

    check = _by_name(list(check_home(paths, user)))["queue"]

    assert check.verdict == "fail"
    assert paths.queue.read_bytes() == damaged


def test_a_memory_that_is_gone_fails_and_is_not_made_anew(
    paths: HomePaths, user: dict[str, str], tmp_path: Path
) -> None:
    """A sound one is counted; a missing file is reported for the folder it belonged to."""
    clock = SystemClock()
    binding = bind(paths, tmp_path, clock=clock, settings=StorageSettings())
    sound = list(check_projects(paths, user, clock))
    database = paths.project(binding.project_id).database
    database.unlink()

    gone = list(check_projects(paths, user, clock))

    assert [(check.verdict, check.found) for check in sound] == [
        ("ok", f"{tmp_path}: compact, 0 facts, 0 events")
    ]
    assert [check.verdict for check in gone] == ["fail"]
    assert str(tmp_path) in gone[0].found
    assert not database.exists()


def test_a_damaged_registry_fails(paths: HomePaths, user: dict[str, str]) -> None:
    """Nothing is inferred from it: the check fails instead of showing no projects."""
    paths.registry.write_text("{}")

    checks = list(check_projects(paths, user, SystemClock()))

    assert [(check.name, check.verdict) for check in checks] == [("projects", "fail")]


def test_failures_of_hooks_are_counted(paths: HomePaths, user: dict[str, str]) -> None:
    """Hooks fail open and silent for the agent; here is where people hear of it."""
    Path(f"{paths.socket}.errors").write_text(
        "1700000000000 hook.failed A\n1800000000000 hook.failed B\n"
    )

    check = _by_name(list(check_home(paths, user)))["hooks"]

    assert check.verdict == "warn"
    assert check.found.startswith("2 failures noted; the last: ")
    assert check.found.endswith(", hook.failed B")
    assert "1800000000000" not in check.found


def test_background_programs_that_do_not_run_are_no_fault(paths: HomePaths) -> None:
    """Nobody learns then, which is worth a warning; the server is started when needed."""
    checks = list(check_services(paths))

    assert [check.verdict for check in checks] == ["warn", "ok"]
    assert "ops start" in checks[0].hint


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_is_connected_and_disconnected_without_a_trace(
    host: HostName, paths: HomePaths, user: dict[str, str]
) -> None:
    """One folder appears in the agent's own and disappears again; its neighbours are untouched."""
    folder = agent_folder(host, user)
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text("{}")

    target = connect(host, paths, user)
    during = {state.name: state.connected for state in host_states(user)}
    verdicts = {check.verdict for check in check_hosts(user)}
    removed = disconnect(host, user)

    assert target.is_relative_to(folder)
    assert during[host]
    assert verdicts == {"ok"}
    assert removed
    assert not target.exists()
    assert (folder / "settings.json").read_text() == "{}"
    assert not disconnect(host, user)


@pytest.mark.parametrize("host", HOSTS)
def test_an_adapter_whose_interpreter_is_gone_fails(
    host: HostName, paths: HomePaths, user: dict[str, str]
) -> None:
    """memoryd was moved or removed: the hooks cannot start anything, and the hint repairs it."""
    target = connect(host, paths, user)
    for file in target.rglob("*.json"):
        text = file.read_text().replace(sys.executable, "/gone/bin/python3")
        file.write_text(text)

    found = {check.verdict: check for check in check_hosts(user)}

    assert "/gone/bin/python3, which is gone" in found["fail"].found
    assert found["fail"].hint == f"memoryd moved: ops host install {host}"


def test_doctor_exits_with_4_when_something_fails(
    paths: HomePaths, capsys: pytest.CaptureFixture[str]
) -> None:
    """Monitors read the exit code, people the table, programs the JSON."""
    paths.shared.chmod(0o755)

    code = main(["doctor", "--json", "--home", str(paths.home)])
    answer = json.loads(capsys.readouterr().out)
    again = main(["doctor", "--home", str(paths.home)])
    table = capsys.readouterr().out

    assert (code, again) == (Exit.UNHEALTHY, Exit.UNHEALTHY)
    assert answer["ok"] is False
    assert [check["name"] for check in answer["checks"] if check["verdict"] == "fail"] == ["home"]
    assert "1 check failed." in table


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o777], ids=oct)
def test_a_home_root_that_others_can_enter_fails(
    mode: int, paths: HomePaths, user: dict[str, str]
) -> None:
    """Which projects have a memory is nobody else's business; the hint repairs it."""
    paths.home.chmod(mode)

    check = _by_name(list(check_home(paths, user)))["home root"]

    assert check.verdict == "fail"
    assert check.hint.endswith(f"chmod 700 {paths.home}")


def test_a_home_that_cannot_be_written_fails(
    paths: HomePaths, user: dict[str, str], tmp_path: Path
) -> None:
    """With or without a memory in it: by its mode, or because a file stands in the way."""
    paths.shared.chmod(0o500)
    locked = _by_name(list(check_home(paths, user)))["home"]
    paths.shared.chmod(0o700)
    (tmp_path / "file").write_text("in the way")
    blocked = _by_name(list(check_home(HomePaths(tmp_path / "file" / "home"), user)))["home"]

    assert (locked.verdict, blocked.verdict) == ("fail", "fail")
    assert "is not writable" in locked.found
    assert str(tmp_path / "file") in blocked.found


def test_a_folder_where_the_socket_belongs_fails(paths: HomePaths) -> None:
    """The server can never listen there, so that it does not run is a fault."""
    paths.socket.mkdir()

    check = _by_name(list(check_services(paths)))["recall server"]

    assert check.verdict == "fail"
    assert str(paths.socket) in check.hint


@pytest.mark.parametrize(
    ("free", "verdict"), [(10**10, "ok"), (10**8, "warn"), (10**7, "fail")], ids=str
)
def test_a_small_disk_warns_and_a_full_one_fails(
    free: int, verdict: str, paths: HomePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below 20 MB nothing can be relied upon."""
    usage = shutil.disk_usage(paths.home)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)

    assert _by_name(list(check_machine(paths)))["disk"].verdict == verdict


def test_a_damaged_queue_names_its_repair(paths: HomePaths, user: dict[str, str]) -> None:
    """The verb, and what may be deleted instead."""
    paths.queue.write_bytes(b"no database" * 1000)

    check = _by_name(list(check_home(paths, user)))["queue"]

    assert check.verdict == "fail"
    assert "ops repair queue" in check.hint
    assert str(paths.queue) in check.hint
