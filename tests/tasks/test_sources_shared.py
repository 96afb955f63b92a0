"""Sessions of every folder that shares a memory are read, and of no other."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from storage.places import fold
from storage.projects import link
from tasks.sources import Checkouts
from tasks.sources.claude import ClaudeSource
from tasks.sources.claude import folder_name as claude_folder
from tasks.sources.pi import PiSource
from tasks.sources.pi import folder_name as pi_folder
from tests.checkouts import clone, git, worktree
from tests.learning import World, claude_line, lines, pi_header, pi_said

LIMIT = 1 << 20
CAFE = "/Users/ana/Caf\N{LATIN SMALL LETTER E WITH ACUTE}/Harbor"


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    git(made.checkout, "init", "-q", "-b", "main")
    (made.checkout / "README").write_text("harbor")
    git(made.checkout, "add", "README")
    git(made.checkout, "commit", "-q", "-m", "harbor")
    return made


def pi_session(world: World, cwd: Path, statement: str) -> None:
    folder = world.pi_sessions / pi_folder(str(cwd))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s.jsonl").write_bytes(lines([pi_header(cwd), pi_said(1, statement)]))


def claude_session(world: World, cwd: Path, statement: str) -> None:
    folder = world.claude_projects / claude_folder(str(cwd))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "c.jsonl").write_bytes(lines([claude_line(1, "user", statement, cwd)]))


def test_a_linked_worktrees_sessions_are_learned_from(world: World, tmp_path: Path) -> None:
    """Both hosts' transcripts of both folders; a clone that nobody linked stays unread."""
    tree = worktree(world.checkout, tmp_path / "tree")
    stranger = clone(world.checkout, tmp_path / "stranger")
    pi_session(world, world.checkout, "No, always use pnpm in this repository, never npm.")
    pi_session(world, tree, "No, never push to the main branch without a review.")
    claude_session(world, tree, "No, always run the linter before you commit anything.")
    claude_session(world, stranger, "No, always deploy to the stranger cluster on Fridays.")

    world.drain()
    before = world.current()
    link(
        world.paths,
        tree,
        world.project,
        clock=world.clock,
        settings=world.settings.storage,
    )
    world.drain()

    assert len(before) == 1
    text = " ".join(world.current())
    assert all(word in text for word in ("pnpm", "review", "linter"))
    assert "stranger" not in text


def test_a_removed_worktree_keeps_what_was_said_in_it(world: World, tmp_path: Path) -> None:
    """The folder goes; its unread sessions are still the project's."""
    tree = worktree(world.checkout, tmp_path / "tree")
    link(
        world.paths,
        tree,
        world.project,
        clock=world.clock,
        settings=world.settings.storage,
    )
    pi_session(world, tree, "No, never push to the main branch without a review.")
    git(world.checkout, "worktree", "remove", str(tree))

    world.drain()

    assert "review" in " ".join(world.current())


@pytest.mark.parametrize(
    "spelled", [CAFE.lower(), unicodedata.normalize("NFD", CAFE), CAFE.upper(), CAFE]
)
def test_another_spelling_of_the_folder_is_the_folder(tmp_path: Path, spelled: str) -> None:
    """On a disk that says so, in the folder's name and in what the session names."""
    checkouts = Checkouts(roots=(CAFE,), same=lambda one, other: fold(one) == fold(other))
    apart = Checkouts(roots=(CAFE,), same=lambda *_: False)
    pi, claude = tmp_path / "pi", tmp_path / "claude"
    for folder, data in (
        (pi / pi_folder(spelled), lines([pi_header(spelled)])),
        (claude / claude_folder(spelled), lines([claude_line(1, "user", "hello", spelled)])),
    ):
        folder.mkdir(parents=True)
        (folder / "s.jsonl").write_bytes(data)

    found = [
        PiSource(pi, checkouts, max_line_bytes=LIMIT).discover(),
        ClaudeSource(claude, checkouts, max_line_bytes=LIMIT).discover(),
    ]
    strict = [
        PiSource(pi, apart, max_line_bytes=LIMIT).discover(),
        ClaudeSource(claude, apart, max_line_bytes=LIMIT).discover(),
    ]

    assert [len(each) for each in found] == [1, 1]
    assert [len(each) for each in strict] == ([1, 1] if spelled == CAFE else [0, 0])
