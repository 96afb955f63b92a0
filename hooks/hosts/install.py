"""Putting memoryd into an agent's own folder, and taking it out again.

Owns one directory per host, named ``memoryd``, and nothing else: no file of the user is opened, so
removing is deleting that directory, and the folders above it that were made for it and hold nothing
else by then. Promises private modes (0700, 0600), that a file is replaced
whole or not at all, and that a directory somebody else made under that name is left alone.
Finding the agents' folders and the interpreter is ``ops host``'s business.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

from storage.atomic import replace_file
from storage.errors import Invalid

NAME: Final = "memoryd"
CLIENT: Final = Path(__file__).resolve().parent.parent / "client.py"

_SOURCES: Final = Path(__file__).resolve().parent
_PI_MARK: Final = "memoryd.json"
_MADE: Final = "made.json"
"""How many of the folders above did not exist before: those go again with the last file in them."""
_CLAUDE_MARK: Final = ".claude-plugin/plugin.json"


def pi_target(agent_dir: Path) -> Path:
    """Where Pi looks for the extension of a user whose Pi folder is `agent_dir`."""
    return agent_dir / "extensions" / NAME


def claude_target(config_dir: Path) -> Path:
    """Where Claude Code finds a user's plugin without being told: a folder among the skills.

    A plugin there is loaded in every mode, headless too, and needs no line in settings.json; the
    other ways (a marketplace, a hooks block) write into files that belong to the user.
    """
    return config_dir / "skills" / NAME


def install_pi(agent_dir: Path, *, socket: Path, server_argv: Sequence[str]) -> Path:
    """Write or refresh the extension; returns its directory.

    Raises:
        Invalid: something else lives under that name.
        Unavailable: the folder cannot be written.
    """
    files = pi_extension_files()
    files[_PI_MARK] = _dump({"socket": str(socket), "server": list(server_argv)})
    target = pi_target(agent_dir)
    _write_tree(target, files, mark=_PI_MARK)
    return target


def pi_extension_files() -> dict[str, str]:
    """Name and text of each file of the Pi extension."""
    sources = sorted((_SOURCES / "pi_extension").glob("*.ts"))
    return {source.name: source.read_text("utf-8") for source in sources}


def install_claude(
    config_dir: Path,
    *,
    socket: Path,
    interpreter: Path,
    server_argv: Sequence[str],
    fallback_argv: Sequence[str],
    client: Path = CLIENT,
) -> Path:
    """Write or refresh the plugin; returns its directory, which Claude Code loads by itself.

    Raises:
        Invalid: something else lives under that name.
        Unavailable: the folder cannot be written.
    """
    source = _SOURCES / "claude_plugin"
    template = json.loads((source / "hooks/hooks.json").read_text("utf-8"))
    values = {
        "@interpreter@": str(interpreter),
        "@client@": str(client),
        "@socket@": str(socket),
        "@server@": json.dumps(list(server_argv)),
        "@fallback@": json.dumps(list(fallback_argv)),
    }
    files = {
        _CLAUDE_MARK: (source / _CLAUDE_MARK).read_text("utf-8"),
        "hooks/hooks.json": _dump(_filled(template, values)),
    }
    target = claude_target(config_dir)
    _write_tree(target, files, mark=_CLAUDE_MARK)
    return target


def uninstall_pi(agent_dir: Path) -> bool:
    """Remove the extension; False when there was none."""
    return _remove_tree(pi_target(agent_dir), mark=_PI_MARK)


def uninstall_claude(config_dir: Path) -> bool:
    """Remove the plugin; False when there was none."""
    return _remove_tree(claude_target(config_dir), mark=_CLAUDE_MARK)


def _dump(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _filled(value: object, values: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return values.get(value, value)
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    if isinstance(value, dict):
        return {
            key: _filled(item, values) for key, item in cast("dict[str, object]", value).items()
        }
    return value


def _check_ours(target: Path, mark: str) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise Invalid(f"{target} is not a directory that memoryd made")
    if target.is_dir() and any(target.iterdir()) and not (target / mark).is_file():
        raise Invalid(f"{target} holds files that memoryd did not write")


def _write_tree(target: Path, files: Mapping[str, str], *, mark: str) -> None:
    _check_ours(target, mark)
    made = max(_made(target), sum(not folder.exists() for folder in target.parents))
    files = {**files, _MADE: _dump({"folders": made})}
    # The folders above belong to the agent: made when missing, with whatever mode it would use.
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(mode=0o700, exist_ok=True)
    target.chmod(0o700)
    # The mark goes first, so that an interrupted installation is still recognised as ours.
    for name in sorted(files, key=lambda name: (name != mark, name)):
        path = target / name
        for folder in reversed(path.relative_to(target).parents[:-1]):
            (target / folder).mkdir(mode=0o700, exist_ok=True)
        replace_file(path, files[name].encode("utf-8"))
    wanted = {target / name for name in files}
    for stale in [path for path in target.rglob("*") if path.is_file() and path not in wanted]:
        stale.unlink()


def _remove_tree(target: Path, *, mark: str) -> bool:
    if not target.exists() and not target.is_symlink():
        return False
    _check_ours(target, mark)
    made = _made(target)
    shutil.rmtree(target)
    for folder in target.parents[:made]:
        try:
            folder.rmdir()
        except OSError:
            break  # somebody else uses it by now
    return True


def _made(target: Path) -> int:
    """How many folders above the target were made for it."""
    try:
        document = json.loads((target / _MADE).read_text("utf-8"))
    except (OSError, ValueError):
        return 0
    found = document.get("folders") if isinstance(document, dict) else None
    return found if isinstance(found, int) and 0 <= found < len(target.parents) else 0
