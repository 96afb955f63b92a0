"""Which repository a folder is of: told from outside, without its credentials, without failing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.repository import (
    Repository,
    common_directory,
    identify,
    normalised_remote,
    top_of,
)
from tests.checkouts import clone, git, repository, worktree

TOP = Path("/srv/checkout")
PASSWORD = "Xk9" + "vQ2mTz7Lr4Wn"


@pytest.mark.parametrize(
    ("address", "named"),
    [
        ("https://example.org/team/harbor.git", "example.org/team/harbor"),
        ("https://Example.ORG:443/team/harbor/", "example.org/team/harbor"),
        ("https://example.org:8443/team/harbor", "example.org:8443/team/harbor"),
        ("git@example.org:team/harbor.git", "example.org/team/harbor"),
        ("ssh://git@example.org:22/team/harbor.git", "example.org/team/harbor"),
        ("git://example.org/team/harbor", "example.org/team/harbor"),
        ("https://example.org/team/harbor?x=1#top", "example.org/team/harbor"),
        ("https://[2001:db8::1]/team/harbor.git", "[2001:db8::1]/team/harbor"),
        ("../harbor.git", "file:/srv/harbor"),
        ("file:///srv/git/harbor.git", "file:/srv/git/harbor"),
        ("https://example.org", ""),
        ("https://example.org/" + "a" * 600, ""),
        ("https://exa mple.org/team", ""),
        ("", ""),
        ("\x1b[2Jhttps://example.org/x", ""),
    ],
)
def test_one_repository_has_one_address(address: str, named: str) -> None:
    """Scheme, case of the host, usual port, suffix and query make no difference."""
    assert normalised_remote(address, TOP) == named


@pytest.mark.parametrize(
    "address",
    [
        f"https://someone:{PASSWORD}@example.org/team/harbor.git",
        f"https://{PASSWORD}@example.org/team/harbor.git",
        f"https://someone:{PASSWORD[:5]}/{PASSWORD[5:]}@example.org/team/harbor.git",
        f"https://example.org/team/harbor.git?access_token={PASSWORD}",
        f"someone:{PASSWORD}@example.org:team/harbor",
        f"ssh://someone:{PASSWORD}@example.org/team/harbor",
        "https://example.org/" + "ghp_" + "R4nd0mQz8LmWv2TtXc7Yb1Ns5Kd9Pf3Gh6Jj" + "/harbor.git",
    ],
)
def test_an_address_keeps_no_credential(address: str) -> None:
    """User, password and token are gone, wherever they stand."""
    named = normalised_remote(address, TOP)

    assert named in {"", "example.org/team/harbor"}


@given(st.text(max_size=80))
def test_no_address_makes_it_fail(address: str) -> None:
    """Whatever stands in a config file, the answer is a short text."""
    assert len(normalised_remote(address, TOP)) <= 512


def test_a_repository_is_known_by_its_first_commit_and_remote(tmp_path: Path) -> None:
    """A clone has the same first commit; a folder in it is a part of it."""
    source = repository(tmp_path / "source")
    git(source, "remote", "add", "origin", f"https://me:{PASSWORD}@example.org/team/harbor.git")
    (source / "packages" / "web").mkdir(parents=True)
    first = git(source, "rev-list", "--max-parents=0", "HEAD")

    found = identify(source, {})
    part = identify(source / "packages" / "web", {})
    copy = identify(clone(source, tmp_path / "copy"), {})

    assert found == Repository(roots=(first,), remote="example.org/team/harbor")
    assert part == Repository(
        roots=(first,), remote="example.org/team/harbor", subfolder="packages/web"
    )
    assert copy is not None
    assert copy.roots == (first,)
    assert copy.remote == f"file:{source}"


def test_a_worktree_shares_history_and_a_submodule_and_a_clone_do_not(tmp_path: Path) -> None:
    """The common directory tells them apart; no program is asked."""
    source = repository(tmp_path / "source")
    tree = worktree(source, tmp_path / "tree")
    copy = clone(source, tmp_path / "copy")
    git(source, "submodule", "--quiet", "add", str(repository(tmp_path / "lib", says="lib")), "lib")

    assert common_directory(tree) == common_directory(source)
    assert len({common_directory(place) for place in (source, copy, source / "lib")}) == 3
    assert top_of(source / "lib" / "deep") == source / "lib"


def test_without_git_the_files_still_tell(tmp_path: Path) -> None:
    """No program on the path: the remote is known, the first commit is not."""
    source = repository(tmp_path / "source")
    git(source, "remote", "add", "origin", "git@example.org:team/harbor.git")

    assert identify(source, {"PATH": str(tmp_path)}) == Repository(remote="example.org/team/harbor")
    assert identify(source, {"PATH": "relative:."}) == Repository(remote="example.org/team/harbor")


def test_a_program_of_the_repository_is_never_run(tmp_path: Path) -> None:
    """Settings of a foreign checkout that name programs have no effect."""
    source = repository(tmp_path / "source")
    ran = tmp_path / "ran"
    script = source / "evil"
    script.write_text(f"#!/bin/sh\ntouch {ran}\n")
    script.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "alias.rev-list"):
        git(source, "config", key, str(script))

    found = identify(source, {})

    assert found is not None
    assert len(found.roots) == 1
    assert not ran.exists()


def test_the_environment_of_a_calling_git_hook_has_no_say(tmp_path: Path) -> None:
    """GIT_DIR of another repository does not change the answer."""
    source = repository(tmp_path / "source")
    other = repository(tmp_path / "other", says="other")

    assert identify(source, {"GIT_DIR": str(other / ".git")}) == identify(source, {})


@pytest.mark.parametrize("content", [b"", b"gitdir:", b"gitdir: \0", b"\xff\xfe", b"x" * 9_000])
def test_a_broken_checkout_is_no_checkout(tmp_path: Path, content: bytes) -> None:
    """A `.git` file that names nothing is not followed."""
    (tmp_path / ".git").write_bytes(content)

    assert top_of(tmp_path) is None
    assert identify(tmp_path, {}) is None


def test_a_new_repository_and_a_shallow_clone_have_no_first_commit(tmp_path: Path) -> None:
    """What is not known is left out: then only the remote can tell."""
    empty = tmp_path / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    source = repository(tmp_path / "source")
    (source / "more").write_text("x")
    git(source, "add", "more")
    git(source, "commit", "-q", "-m", "more")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{source}", "shallow")

    assert identify(empty, {}) == Repository()
    assert identify(tmp_path / "shallow", {}) == Repository(remote=f"file:{source}")


def test_resemblance_is_history_before_remote() -> None:
    """One remote with another history is another repository; no knowledge is no resemblance."""
    one = Repository(roots=("a" * 40,), remote="example.org/x")

    assert one.resembles(Repository(roots=("0" * 40, "a" * 40)))
    assert not one.resembles(Repository(roots=("b" * 40,), remote="example.org/x"))
    assert one.resembles(Repository(remote="example.org/x"))
    assert not Repository().resembles(Repository())
