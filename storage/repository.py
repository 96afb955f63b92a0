"""Which git repository a folder belongs to, as far as it can be told from outside.

Owns reading `.git` (a folder, or the file of a worktree or submodule), the remote's address without
credentials, and the root commits, for which `git` is asked in a closed environment and for a
bounded time. Promises never to fail: what cannot be read is left out. Leaves to `storage.projects`
what sameness is good for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MAX_ROOTS: Final = 8
MAX_REMOTE_CHARS: Final = 512
GIT_TIMEOUT_S: Final = 5.0
_MAX_POINTER_BYTES: Final = 8_192
_MAX_CONFIG_BYTES: Final = 262_144
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SECTION: Final = re.compile(r"\s*\[\s*([^\s\"\]]+)(?:\s+\"((?:[^\"\\]|\\.)*)\")?\s*\]")
_URL: Final = re.compile(r"\s*url\s*=\s*(.*)", re.IGNORECASE)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_SCP: Final = re.compile(r"(?:[^@/:\s]+@)?([^@/:\s]+):(?!//)([^@\s][^@]*)", re.DOTALL)
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(?::(\d{1,5}))?")
_USUAL_PORTS: Final = frozenset({"22", "80", "443", "9418"})
_SAFE_OPTIONS: Final = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never",
)  # fmt: skip
"""A repository's own settings can name programs to run; none of them is wanted here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """What two checkouts of one repository have in common."""

    roots: tuple[str, ...] = ()
    """Commits without a parent, sorted; empty when git could not tell (or the clone is shallow)."""
    remote: str = ""
    """`host/path` of where it is fetched from, without credentials; "" when it has no remote."""
    subfolder: str = ""
    """The bound folder within the checkout; "" for its top."""

    def resembles(self, other: Repository) -> bool:
        """Whether both have one history; where that is not known, one remote."""
        if self.roots and other.roots:
            return not set(self.roots).isdisjoint(other.roots)
        return bool(self.remote) and self.remote == other.remote


def identify(place: Path, environment: Mapping[str, str]) -> Repository | None:
    """The repository around a canonical folder; None when there is none."""
    top = top_of(place)
    if top is None:
        return None
    shared = common_directory(top)
    return Repository(
        roots=_roots(top, shared, environment),
        remote=_remote(shared, top),
        subfolder="" if place == top else place.relative_to(top).as_posix(),
    )


def top_of(place: Path) -> Path | None:
    """The nearest folder at or around `place` that is a checkout."""
    return next((folder for folder in (place, *place.parents) if is_checkout(folder)), None)


def is_checkout(folder: Path) -> bool:
    """Whether a folder is the top of a checkout, of whatever sort."""
    entry = folder / ".git"
    return (entry / "HEAD").is_file() or bool(_pointer(entry, "gitdir:"))


def common_directory(top: Path) -> Path:
    """Where a checkout's history lives: shared by a repository and its worktrees, by nobody else.

    A submodule and a second clone have a history of their own.
    """
    own = top / ".git"
    target = _pointer(own, "gitdir:")
    if target:
        own = top / target
        shared = _pointer(own / "commondir", "")
        if shared:
            own = own / shared
    return Path(os.path.realpath(own))


def normalised_remote(address: str, top: Path) -> str:
    """`host/path` of a remote's address: no scheme, user, password, query, usual port or `.git`.

    "" for an address that is malformed, too long, or still looks like a credential.
    """
    text = address.strip()
    if not text or not text.isprintable():
        return ""
    if (found := _SCHEME.fullmatch(text)) is not None:
        scheme, rest = found[1].lower(), found[2]
        named = _local(rest, top) if scheme == "file" else _hosted(rest)
    elif not text.startswith(("/", ".")) and (found := _SCP.fullmatch(text)) is not None:
        named = _joined(found[1], found[2])
    elif "@" in text:
        named = ""
    else:
        named = _local(text, top)
    # Here, not above: a lookup on the prompt's path asks for none of the rules.
    from storage.redaction import is_clean

    return named if len(named) <= MAX_REMOTE_CHARS and is_clean(named) else ""


def _hosted(rest: str) -> str:
    authority, _, path = rest.partition("/")
    found = _HOST.fullmatch(authority.rpartition("@")[2])
    if found is None:
        return ""
    host, port = found[1], found[2]
    return _joined(host if port is None or port in _USUAL_PORTS else f"{host}:{port}", path)


def _joined(host: str, path: str) -> str:
    bare = re.split(r"[?#]", path, maxsplit=1)[0].strip("/").removesuffix(".git").rstrip("/")
    return f"{host.lower()}/{bare}" if bare else ""


def _local(path: str, top: Path) -> str:
    return "file:" + os.path.normpath(top / path).removesuffix(".git").rstrip("/")


def _remote(shared: Path, top: Path) -> str:
    """The normalised address of `origin`, else of the remote whose name comes first."""
    found: dict[str, str] = {}
    section: tuple[str, str] = ("", "")
    for line in _text(shared / "config", _MAX_CONFIG_BYTES).splitlines():
        header = _SECTION.match(line)
        if header is not None:
            section = (header[1].lower(), header[2] or "")
        setting = _URL.fullmatch(line, header.end() if header is not None else 0)
        if setting is not None and section[0] == "remote":
            value = re.split(r"\s[#;]", setting[1], maxsplit=1)[0].strip().strip('"')
            found.setdefault(section[1], value)
    named = found.get("origin") or (found[min(found)] if found else "")
    return normalised_remote(named, top)


def _roots(top: Path, shared: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    import shutil
    import subprocess

    if (shared / "shallow").exists():
        return ()  # the oldest commit of a shallow clone is not the first one
    wanted = environment.get("PATH") or os.defpath
    path = os.pathsep.join(part for part in wanted.split(os.pathsep) if part.startswith("/"))
    program = shutil.which("git", path=path)
    if program is None:
        return ()
    try:
        asked = subprocess.run(
            [program, *_SAFE_OPTIONS, "-C", str(top), "rev-list", "--max-parents=0", "HEAD"],
            env=_closed(path, environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    lines = asked.stdout.decode("ascii", "replace").split() if asked.returncode == 0 else []
    return tuple(sorted(line for line in lines if _COMMIT.fullmatch(line))[:MAX_ROOTS])


def _closed(path: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Nothing of GIT_DIR and its kin (a git hook may be calling), no prompt, no network."""
    return {
        "PATH": path,
        "HOME": environment.get("HOME") or "/",
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


def _pointer(file: Path, lead: str) -> str:
    """The one path that a small file of git's names after `lead`; "" when it is no such file."""
    text = _text(file, _MAX_POINTER_BYTES)
    return text.removeprefix(lead).strip() if text.startswith(lead) and "\0" not in text else ""


def _text(file: Path, max_bytes: int) -> str:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as opened:
            raw = opened.read(max_bytes + 1)
    except (OSError, ValueError):
        return ""
    return raw.decode("utf-8", "surrogateescape") if len(raw) <= max_bytes else ""
