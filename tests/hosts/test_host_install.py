"""Installing writes one directory of our own per host, and uninstalling removes exactly that."""

import json
import stat
from pathlib import Path
from typing import Final

import pytest

from hooks.hosts import install
from hooks.hosts.install import CLIENT, claude_target, pi_target
from storage.errors import Invalid

SOCKET: Final = Path("/run/memoryd/recall.sock")
SERVER: Final = ["/opt/m/bin/python", "-I", "-m", "hooks.server", "--home", "/h with space"]
FALLBACK: Final = ["/opt/m/bin/python", "-I", "-m", "hooks", "claude", "UserPromptSubmit"]


def into_pi(folder: Path) -> Path:
    """Install into a Pi folder."""
    return install.install_pi(folder, socket=SOCKET, server_argv=SERVER)


def into_claude(folder: Path) -> Path:
    """Install into a Claude Code folder."""
    return install.install_claude(
        folder,
        socket=SOCKET,
        interpreter=Path("/opt/m/bin/python"),
        server_argv=SERVER,
        fallback_argv=FALLBACK,
    )


HOSTS: Final = {
    "pi": (into_pi, install.uninstall_pi, pi_target),
    "claude": (into_claude, install.uninstall_claude, claude_target),
}


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its bytes."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("host", HOSTS)
def test_a_users_files_are_the_same_before_and_after(tmp_path: Path, host: str) -> None:
    """Installing changes no file of the user; uninstalling leaves what was there, byte for byte."""
    add, remove, _ = HOSTS[host]
    (tmp_path / "settings.json").write_text('{ "a":1,\r\n"hooks":{}}')
    (tmp_path / "skills/mine").mkdir(parents=True)
    (tmp_path / "skills/mine/SKILL.md").write_text("mine")
    before = snapshot(tmp_path)

    target = add(tmp_path)
    during = snapshot(tmp_path)
    removed = remove(tmp_path)

    ours = {name for name in during if (tmp_path / name).parts[: len(target.parts)] == target.parts}
    assert {name: data for name, data in during.items() if name not in ours} == before
    assert removed
    assert snapshot(tmp_path) == before
    assert not target.exists()


@pytest.mark.parametrize("host", HOSTS)
def test_what_is_installed_is_private(tmp_path: Path, host: str) -> None:
    """Directories are 0700 and files 0600: the socket's path is nobody else's business."""
    target = HOSTS[host][0](tmp_path)

    for path in (target, *target.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)


@pytest.mark.parametrize("host", HOSTS)
def test_installing_again_refreshes_and_removes_leftovers(tmp_path: Path, host: str) -> None:
    """A second installation equals a fresh one, whatever an older version left behind."""
    add = HOSTS[host][0]
    target = add(tmp_path)
    fresh = snapshot(target)
    (target / "old.ts").write_text("from an older version")

    add(tmp_path)

    assert snapshot(target) == fresh


@pytest.mark.parametrize("host", HOSTS)
def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path, host: str) -> None:
    """The name is not proof: without our mark nothing is written and nothing removed."""
    add, remove, target_of = HOSTS[host]
    target = target_of(tmp_path)
    target.mkdir(parents=True)
    (target / "theirs.txt").write_text("theirs")

    for action in (add, remove):
        with pytest.raises(Invalid, match="did not write"):
            action(tmp_path)

    assert snapshot(target) == {"theirs.txt": b"theirs"}


@pytest.mark.parametrize("host", HOSTS)
def test_a_symbolic_link_is_not_followed(tmp_path: Path, host: str) -> None:
    """A link under our name would make us write into, or delete, somebody else's folder."""
    add, remove, target_of = HOSTS[host]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target_of(tmp_path).parent.mkdir(parents=True)
    target_of(tmp_path).symlink_to(elsewhere)

    for action in (add, remove):
        with pytest.raises(Invalid, match="not a directory"):
            action(tmp_path)

    assert list(elsewhere.iterdir()) == []


def test_uninstalling_what_is_not_there_says_so(tmp_path: Path) -> None:
    """Nothing to remove is not an error."""
    assert not install.uninstall_pi(tmp_path)
    assert not install.uninstall_claude(tmp_path)


def test_pi_is_told_where_the_server_is(tmp_path: Path) -> None:
    """The extension finds socket and server command beside itself."""
    target = into_pi(tmp_path)

    assert json.loads((target / "memoryd.json").read_text()) == {
        "socket": str(SOCKET),
        "server": SERVER,
    }
    assert {"index.ts", "link.ts"} <= {path.name for path in target.iterdir()}


def test_claude_runs_an_absolute_client_without_a_shell(tmp_path: Path) -> None:
    """Every hook is in exec form, isolated, with a small limit; only prompts have a fallback."""
    target = into_claude(tmp_path)

    hooks = json.loads((target / "hooks/hooks.json").read_text())["hooks"]
    for event, (group,) in hooks.items():
        (hook,) = group["hooks"]
        args = hook["args"]
        assert hook["command"] == "/opt/m/bin/python"
        assert args[:5] == ["-I", "-S", str(CLIENT), "claude", event]
        options = dict(zip(args[5::2], args[6::2], strict=True))
        assert options.pop("--socket") == str(SOCKET)
        assert json.loads(options.pop("--spawn")) == SERVER
        assert list(options) == (["--fallback"] if event == "UserPromptSubmit" else [])
        assert hook["timeout"] <= 2
    assert json.loads((target / ".claude-plugin/plugin.json").read_text())["name"] == "memoryd"
