"""The shape of the tree: its top level, its layers, the size of its files, what imports what."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("storage", "retrieval", "tasks", "hooks", "ops")
TOP_LEVEL = {
    ".ci", ".gitignore", "CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "hooks", "ops",
    "pyproject.toml", "requirements-dev.lock", "requirements.lock", "retrieval", "storage", "tasks",
    "tests", "worker.py",
}  # fmt: skip
MAX_LINES = 500
MIN_DOCSTRING = 20


def _sources() -> list[Path]:
    found = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return [*found, ROOT / "worker.py"]


def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: the tree of a release archive is not judged")
    return [name for name in listed.stdout.split("\0") if name]


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_top_level_holds_what_was_agreed_and_nothing_else() -> None:
    """A new top-level name is a decision, not an accident."""
    found = {name.split("/")[0] for name in _tracked()}

    assert found == TOP_LEVEL


def test_no_package_imports_a_layer_above_it() -> None:
    """ops -> hooks -> tasks -> retrieval -> storage: imports inside functions count too."""
    upward = []
    for path in _sources():
        own = path.relative_to(ROOT).parts[0]
        if own == "worker.py":
            continue
        above = PACKAGES[PACKAGES.index(own) + 1 :]
        upward += [
            f"{_name(path)}: {name}" for name in _imports(path) if name.split(".")[0] in above
        ]

    assert upward == []


def test_the_worker_knows_tasks_and_storage_only() -> None:
    """worker.py stands beside the packages: import-linter cannot root it, so this rule does."""
    ours = {name.split(".")[0] for name in _imports(ROOT / "worker.py")} & {*PACKAGES, "tests"}

    assert ours <= {"tasks", "storage"}


def test_hooks_know_nothing_of_tasks_but_the_triggers() -> None:
    """A prompt must never pay for huey or a model: `tasks.triggers` is the one door."""
    behind = {
        f"{_name(path)}: {name}"
        for path in sorted((ROOT / "hooks").rglob("*.py"))
        for name in _imports(path)
        if name.startswith("tasks") and name != "tasks"
        if not name.startswith("tasks.triggers")
    }

    assert behind == set()


def test_only_one_module_imports_each_untyped_library() -> None:
    """huey, onnxruntime and croniter each hide behind one module, so each can be replaced."""
    homes: dict[str, set[str]] = {"huey": set(), "onnxruntime": set(), "croniter": set()}
    for path in _sources():
        for name in _imports(path):
            if (library := name.split(".")[0]) in homes:
                homes[library].add(_name(path))

    assert {library: len(found) <= 1 for library, found in homes.items()} == dict.fromkeys(
        homes, True
    ), homes


def test_no_module_opens_a_database_but_through_apsw() -> None:
    """Two SQLite builds on one file drop each other's locks; sqlite-vec is loaded by path."""
    banned = {
        f"{_name(path)}: {name}"
        for path in _sources()
        for name in _imports(path)
        if name.split(".")[0] in {"sqlite3", "sqlite_vec", "pickle"}
    }

    assert banned == set()


def test_every_module_says_what_it_is_and_stays_readable() -> None:
    """A docstring at the top, and at most MAX_LINES lines below it."""
    wrong = []
    for path in _sources():
        text = path.read_text("utf-8")
        if len(ast.get_docstring(ast.parse(text)) or "") < MIN_DOCSTRING:
            wrong.append(f"{_name(path)}: no docstring")
        if (lines := len(text.splitlines())) > MAX_LINES:
            wrong.append(f"{_name(path)}: {lines} lines")

    assert wrong == []


def test_tests_are_no_packages_and_their_names_are_unique() -> None:
    """importlib mode: an __init__.py or a second file of one name would hide tests."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    names = [path.name for path in files if path.name.startswith("test_")]

    assert [_name(path) for path in files if path.name == "__init__.py"] == []
    assert sorted(names) == sorted(set(names))


def test_the_locks_name_no_host_and_no_machine() -> None:
    """A lock is names, versions, markers and hashes: no address, no path, no option."""
    for name in ("requirements.lock", "requirements-dev.lock"):
        lines = (ROOT / name).read_text("utf-8").splitlines()
        kept = [line for line in lines if not line.strip().startswith("--hash=sha256:")]

        assert [line for line in kept if "/" in line or "://" in line or "@" in line] == []
        assert [line for line in kept if not line[:1].isalnum()] == []
        assert len(lines) > len(kept) > 0


def test_the_development_lock_holds_the_same_versions() -> None:
    """What is tested is what is installed: the small lock is a part of the large one."""
    pins = {
        name: {
            line.rstrip("\\ ")
            for line in (ROOT / name).read_text("utf-8").splitlines()
            if "==" in line and not line.startswith(" ")
        }
        for name in ("requirements.lock", "requirements-dev.lock")
    }

    assert pins["requirements.lock"] < pins["requirements-dev.lock"]


def test_every_declared_package_is_in_the_lock() -> None:
    """pyproject.toml and the lock describe the same program."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lock = (ROOT / "requirements.lock").read_text("utf-8")

    for wanted in project["dependencies"]:
        name = wanted.split(">")[0].split("=")[0].split("<")[0].strip()
        assert f"\n{name}==" in "\n" + lock, name
