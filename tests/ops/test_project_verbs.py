"""`ops init` and `ops project`: nothing is bound, merged or lost without being asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from ops import first_run
from ops.cli import main
from ops.exits import Exit
from ops.invocation import Invocation
from ops.report import Report
from storage.clock import SystemClock
from storage.errors import Refused
from storage.paths import HomePaths
from storage.projects import bindings, lookup
from storage.records import JsonValue
from tests.checkouts import clone, git, repository, worktree


class Person:
    """Somebody at a terminal with one home."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.paths = HomePaths(home)
        self._capsys = capsys

    def types(self, *words: str, at: Path | None = None) -> tuple[int, str]:
        where = ["--project", str(at)] if at else []
        code = main([*words, "--home", str(self.paths.home), *where])
        captured = self._capsys.readouterr()
        return code, captured.out + captured.err

    def asks(self, *words: str, at: Path | None = None) -> dict[str, JsonValue]:
        code, out = self.types(*words, "--json", at=at)
        found = cast("dict[str, JsonValue]", json.loads(out))
        assert (code == Exit.OK) == (found.get("ok") is not False)
        return found


@pytest.fixture
def person(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Person:
    return Person(tmp_path / "home", capsys)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = repository(tmp_path / "one" / "harbor")
    (folder / "src").mkdir()
    return folder


def test_init_binds_the_repository_around_the_folder(person: Person, source: Path) -> None:
    """From any folder in it; `--here` means that very folder."""
    first = person.asks("init", at=source / "src")
    again = person.asks("init", at=source)
    here = person.asks("init", "--here", at=source / "src")

    assert (first["folder"], first["created"]) == (str(source), True)
    assert (again["project"], again["created"]) == (first["project"], False)
    assert (here["folder"], here["created"]) == (str(source / "src"), True)


def test_init_in_a_second_clone_says_what_to_type_and_binds_nothing(
    person: Person, source: Path, tmp_path: Path
) -> None:
    """The sentence names the other folder and both commands; `--new` is one of them."""
    own = person.asks("init", at=source)["project"]
    copy = clone(source, tmp_path / "two" / "harbor")
    before = person.paths.registry.read_bytes()

    code, said = person.types("init", at=copy)

    assert code == Exit.FAILED
    assert str(source) in said
    assert f"ops project link {own}" in said
    assert "ops init --new" in said
    assert person.paths.registry.read_bytes() == before
    assert lookup(person.paths, copy) is None

    separate = person.asks("init", "--new", at=copy)
    assert separate["project"] != own
    assert person.asks("init", at=copy)["created"] is False


def test_a_worktree_is_linked(person: Person, source: Path, tmp_path: Path) -> None:
    """One command, from any folder in it; both folders then show the same memory."""
    own = str(person.asks("init", at=source)["project"])
    tree = worktree(source, tmp_path / "tree")
    (tree / "docs").mkdir()

    answer = person.asks("project", "link", own, at=tree / "docs")

    assert answer["folders"] == [str(source), str(tree)]
    shown = person.asks("project", "show", at=tree)
    assert shown["project"] == own
    assert shown == person.asks("project", "show", own)
    assert person.asks("status", at=tree)["memory"] == person.asks("status", at=source)["memory"]
    code, said = person.types("project", "show", at=tree)
    assert code == Exit.OK
    assert str(tree) in said
    assert str(source) in said


def test_a_moved_checkout_is_moved(person: Person, source: Path, tmp_path: Path) -> None:
    """`init` at the new place names the command; after it the folder has its memory."""
    own = str(person.asks("init", at=source)["project"])
    there = tmp_path / "there"
    source.rename(there)

    code, said = person.types("init", at=there)
    assert code == Exit.FAILED
    assert f"ops project move {own}" in said
    assert "ops project link" not in said
    code, said = person.types("project", "list")
    assert "not there any more" in said

    assert person.asks("project", "move", own, at=there)["folder"] == str(there)
    (only,) = bindings(person.paths)
    assert (only.location, only.project_id) == (there, own)
    assert person.asks("init", at=there)["created"] is False


def test_a_released_folder_is_taken_up_again(person: Person, source: Path) -> None:
    """Unlinking says where the memory stays; `init` says that it was still there."""
    own = str(person.asks("init", at=source)["project"])

    code, said = person.types("project", "unlink", at=source / "src")

    assert code == Exit.OK
    assert f"ops project link {own} --force" in said
    assert person.types("status", at=source)[0] == Exit.NOT_READY
    code, said = person.types("init", at=source)
    assert code == Exit.OK
    assert "has its memory again" in said
    assert own in said


def test_a_folder_that_is_gone_can_be_released_by_name(
    person: Person, source: Path, tmp_path: Path
) -> None:
    """Its path is enough."""
    own = str(person.asks("init", at=source)["project"])
    tree = worktree(source, tmp_path / "tree")
    person.asks("project", "link", own, at=tree)
    git(source, "worktree", "remove", str(tree))

    answer = person.asks("project", "unlink", str(tree))

    assert answer["folders"] == [str(source)]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("project", "show", "p_nobody"), Exit.FAILED, "ops project list"),
        (("project", "link", "p_nobody"), Exit.FAILED, "there is no memory p_nobody"),
        (("project", "move", "p_nobody"), Exit.FAILED, "there is no memory p_nobody"),
        (("project", "show"), Exit.NOT_READY, "ops init"),
        (("project", "unlink"), Exit.NOT_READY, "ops init"),
        (("project", "list"), Exit.OK, "ops init"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_not_there_is_named(
    person: Person, tmp_path: Path, words: tuple[str, ...], code: Exit, said: str
) -> None:
    """With the code of its kind and the next command to type; reading makes nothing."""
    folder = tmp_path / "plain"
    folder.mkdir()
    where = None if words[-1] == "list" or (words[1:2] == ("show",) and len(words) > 2) else folder

    found, answer = person.types(*words, at=where)

    assert found == code
    assert said in answer
    if "link" not in words and "move" not in words:
        assert not person.paths.home.exists()


def test_a_corrupt_registry_stops_every_verb(person: Person, source: Path) -> None:
    """One clear sentence, exit code 4, and the file as it was."""
    person.asks("init", at=source)
    person.paths.registry.write_bytes(b"{}")

    for words in (("init",), ("project", "show"), ("project", "unlink"), ("status",)):
        code, said = person.types(*words, at=source)
        assert (code, "registry" in said) == (Exit.UNHEALTHY, True), words
    assert person.types("project", "list")[0] == Exit.UNHEALTHY
    assert person.paths.registry.read_bytes() == b"{}"


def test_a_home_or_the_root_is_no_project(
    person: Person, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One careless `ops init` must not take in every folder below it."""
    user = tmp_path / "user"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    person.asks("init", at=_made(user / "work"))

    for place in (Path("/"), user, person.paths.home):
        code, said = person.types("init", "--here", at=place)
        assert (code, "is no project" in said) == (Exit.FAILED, True)

    assert [item.location for item in bindings(person.paths)] == [user / "work"]


def test_the_first_run_binds_no_clone_by_itself(
    person: Person, source: Path, tmp_path: Path
) -> None:
    """As with `ops init`: nothing is bound, and the commands to choose from are named."""
    own = person.asks("init", at=source)["project"]
    copy = clone(source, tmp_path / "two" / "harbor")
    invocation = Invocation(
        paths=person.paths,
        environment={"HOME": str(tmp_path)},
        clock=SystemClock(),
        folder=copy,
        as_json=False,
    )

    plan = first_run.Plan(folder=copy, origin="found", files=(), count=1)

    with pytest.raises(Refused, match=f"ops project link {own}"):
        first_run._bind(plan, invocation, Report(as_json=True))

    assert [item.location for item in bindings(person.paths)] == [source]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
