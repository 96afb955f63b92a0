"""Sharing, moving and releasing memories: on request only, and nothing is merged or lost."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from storage.authority import open_authority
from storage.config import StorageSettings
from storage.connection import open_database, transaction
from storage.errors import NotInitialized, Refused, Unavailable, WrongOwner
from storage.paths import HomePaths
from storage.places import fold
from storage.projects import (
    Binding,
    bind,
    bindings,
    link,
    lookup,
    move,
    project_id_of,
    related,
    unlink,
)
from storage.records import ProjectId
from tasks.sources.catalogue import checkouts_of
from tests.checkouts import clone, git, repository, worktree
from tests.conftest import ROOT
from tests.storage.memory_samples import StepClock
from tests.support import wait_until

SETTINGS = StorageSettings()


@pytest.fixture
def paths(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path / "home")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return repository(tmp_path / "one" / "harbor")


def bound(paths: HomePaths, folder: Path) -> Binding:
    return bind(paths, folder, clock=StepClock(), settings=SETTINGS)


def linked(paths: HomePaths, folder: Path, project: ProjectId, *, force: bool = False) -> Binding:
    return link(paths, folder, project, clock=StepClock(), settings=SETTINGS, force=force)


def moved(
    paths: HomePaths,
    folder: Path,
    project: ProjectId,
    *,
    source: Path | None = None,
    force: bool = False,
) -> Binding:
    return move(
        paths,
        folder,
        project,
        clock=StepClock(),
        settings=SETTINGS,
        source=source,
        force=force,
    )


def test_a_binding_records_the_repository(paths: HomePaths, source: Path) -> None:
    """First commit and remote are kept and survive reading; a later bind updates them."""
    first = bound(paths, source)
    git(source, "remote", "add", "origin", "git@example.org:team/harbor.git")

    again = bound(paths, source)

    assert first.repository is not None
    assert first.repository.remote == ""
    assert again.repository is not None
    assert (again.repository.roots, again.repository.remote) == (
        first.repository.roots,
        "example.org/team/harbor",
    )
    assert bindings(paths) == (again,)
    assert (again.project_id, again.created_at) == (first.project_id, first.created_at)


def test_a_registry_without_repositories_is_read(paths: HomePaths, source: Path) -> None:
    """What an earlier version wrote has neither; its keys are not required."""
    bound(paths, source)
    envelope = json.loads(paths.registry.read_bytes())
    del envelope["payload"]["bindings"][0]["repository"]
    body = json.dumps(envelope["payload"], separators=(",", ":"), ensure_ascii=False)
    envelope["contentHash"] = hashlib.sha256(body.encode()).hexdigest()
    paths.registry.write_text(json.dumps(envelope))

    (found,) = bindings(paths)

    assert found.repository is None
    assert bound(paths, source).repository is not None


def test_clones_and_worktrees_are_related_and_not_bound(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """They are named to whoever asks; looking changes nothing and shares nothing."""
    own = bound(paths, source)
    copy = clone(source, tmp_path / "two" / "harbor")
    tree = worktree(source, tmp_path / "tree")
    other = repository(tmp_path / "three" / "harbor", says="other")
    plain = tmp_path / "four" / "harbor"
    plain.mkdir(parents=True)

    assert related(paths, copy) == (own,)
    assert related(paths, tree) == (own,)
    assert related(paths, other) == ()
    assert related(paths, plain) == ()
    assert [lookup(paths, place) for place in (copy, tree, other, plain)] == [None] * 4
    assert bindings(paths) == (own,)


def test_parts_of_one_repository_are_not_related(paths: HomePaths, source: Path) -> None:
    """Two packages of a monorepo that were bound by themselves stay apart."""
    for name in ("web", "api"):
        (source / name).mkdir()
    web, api = bound(paths, source / "web"), bound(paths, source / "api")

    assert web.project_id != api.project_id
    assert related(paths, source / "api") == ()


def test_without_git_worktrees_are_still_recognised(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """No program, no remote: the shared history directory is enough."""
    nowhere = {"PATH": str(tmp_path)}
    own = bind(paths, source, clock=StepClock(), settings=SETTINGS, environment=nowhere)
    tree = worktree(source, tmp_path / "tree")

    assert own.repository is not None
    assert own.repository.roots == ()
    assert related(paths, tree, environment=nowhere) == (own,)


def test_one_folder_under_two_paths_is_related(paths: HomePaths, tmp_path: Path) -> None:
    """A bind mount (here: a file system that says so) is recognised, and shared on request only."""
    real, mounted = tmp_path / "real", tmp_path / "mounted"
    for folder in (real, mounted):
        folder.mkdir()

    def one_disk(one: str, other: str) -> bool:
        return {one, other} == {str(real), str(mounted)}

    own = bound(paths, real)

    assert related(paths, mounted, same=one_disk) == (own,)
    assert lookup(paths, mounted, same=one_disk) is None
    assert link(
        paths, mounted, own.project_id, clock=StepClock(), settings=SETTINGS, same=one_disk
    ).project_id == own.project_id  # fmt: skip


def test_another_spelling_is_one_binding(paths: HomePaths, tmp_path: Path) -> None:
    """On a disk that ignores case, binding the other spelling returns the binding there is."""
    one, other = tmp_path / "Harbor", tmp_path / "harbor"
    for folder in (one, other):
        folder.mkdir(exist_ok=True)

    def one_disk(left: str, right: str) -> bool:
        return fold(left) == fold(right)

    own = bind(paths, one, clock=StepClock(), settings=SETTINGS, same=one_disk)
    again = bind(paths, other, clock=StepClock(), settings=SETTINGS, same=one_disk)

    assert again == own
    assert bindings(paths) == (own,)


def test_a_linked_folder_shares_the_memory_and_its_sessions(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """Both folders find one project; transcripts of both count, of an unlinked clone do not."""
    own = bound(paths, source)
    tree = worktree(source, tmp_path / "tree")
    stranger = clone(source, tmp_path / "copy")

    found = linked(paths, tree, own.project_id)

    assert found.project_id == own.project_id
    assert found.checkout_id != own.checkout_id
    assert lookup(paths, tree / "src") == found
    checkouts = checkouts_of(paths, own.project_id)
    assert checkouts.contains(str(tree / "src"))
    assert checkouts.contains(str(source))
    assert not checkouts.contains(str(stranger))
    assert linked(paths, tree, own.project_id) == found


def test_a_removed_worktree_leaves_the_memory(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """Its sessions still count, and the repository keeps what was learned in it."""
    own = bound(paths, source)
    tree = worktree(source, tmp_path / "tree")
    linked(paths, tree, own.project_id)

    git(source, "worktree", "remove", str(tree))

    assert checkouts_of(paths, own.project_id).contains(str(tree))
    assert lookup(paths, source) == own
    assert unlink(paths, tree).project_id == own.project_id
    assert bindings(paths) == (own,)


def test_what_is_not_the_same_repository_is_linked_by_force_only(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """Other history, no history, an unknown memory, a folder with a memory of its own."""
    own = bound(paths, source)
    other = repository(tmp_path / "other", says="other")
    plain = tmp_path / "plain"
    plain.mkdir()
    before = paths.registry.read_bytes()

    for folder in (other, plain):
        with pytest.raises(Refused, match="--force"):
            linked(paths, folder, own.project_id)
    with pytest.raises(Refused, match="there is no memory"):
        linked(paths, other, ProjectId("p_unknown"), force=True)
    with pytest.raises(Refused, match="there is no memory"):
        linked(paths, other, ProjectId("../" + own.project_id), force=True)
    assert paths.registry.read_bytes() == before

    assert linked(paths, plain, own.project_id, force=True).project_id == own.project_id
    separate = bound(paths, other)
    with pytest.raises(Refused, match="memory of its own"):
        linked(paths, other, own.project_id, force=True)
    assert lookup(paths, other) == separate


def test_a_missing_or_foreign_database_is_never_linked(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """It is not made anew, and the registry stays as it was."""
    own = bound(paths, source)
    tree = worktree(source, tmp_path / "tree")
    database = paths.project(own.project_id).database
    database.rename(tmp_path / "hidden")

    with pytest.raises(NotInitialized):
        linked(paths, tree, own.project_id)
    assert not database.exists()
    other = bound(paths, repository(tmp_path / "other", says="other"))
    paths.project(other.project_id).database.rename(database)
    with pytest.raises(WrongOwner):
        linked(paths, tree, own.project_id)

    assert lookup(paths, tree) is None
    assert {item.location for item in bindings(paths)} == {source, tmp_path / "other"}


def test_a_moved_checkout_keeps_its_memory(paths: HomePaths, source: Path, tmp_path: Path) -> None:
    """The binding follows; sessions of the old place count until something stands there again."""
    own = bound(paths, source)
    there = tmp_path / "elsewhere" / "harbor"
    there.parent.mkdir()
    source.rename(there)
    assert related(paths, there) == (own,)

    found = moved(paths, there, own.project_id)

    assert (found.project_id, found.location) == (own.project_id, there)
    assert found.former == (source,)
    assert bindings(paths) == (found,)
    assert checkouts_of(paths, own.project_id).contains(str(source / "src"))
    source.mkdir()
    assert not checkouts_of(paths, own.project_id).contains(str(source / "src"))


def test_a_new_checkout_at_the_old_place_gets_a_memory_of_its_own(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """The id that its path stands for went away with the other checkout."""
    own = bound(paths, source)
    there = tmp_path / "there"
    source.rename(there)
    moved(paths, there, own.project_id)
    repository(source, says="something else")

    fresh = bound(paths, source)

    assert fresh.project_id not in {own.project_id, project_id_of(source)}
    assert paths.project(fresh.project_id).database.exists()
    assert bound(paths, source) == fresh
    found = lookup(paths, there)
    assert found is not None
    assert found.project_id == own.project_id


def test_only_what_is_gone_is_moved(paths: HomePaths, source: Path, tmp_path: Path) -> None:
    """A checkout that still stands, another repository, two candidates: refused with what to do."""
    own = bound(paths, source)
    copy = clone(source, tmp_path / "copy")
    with pytest.raises(Refused, match="still there"):
        moved(paths, copy, own.project_id)
    tree = worktree(source, tmp_path / "tree")
    linked(paths, tree, own.project_id)
    git(source, "worktree", "remove", str(tree))
    source.rename(tmp_path / "away")
    other = repository(tmp_path / "other", says="other")

    with pytest.raises(Refused, match="more than one"):
        moved(paths, copy, own.project_id)
    with pytest.raises(Refused, match="--force"):
        moved(paths, other, own.project_id, source=source)
    with pytest.raises(Refused, match="no folder of"):
        moved(paths, copy, own.project_id, source=tmp_path / "never")

    found = moved(paths, copy, own.project_id, source=source)
    assert {item.location for item in bindings(paths)} == {copy, tree}
    assert found.former == (source,)


def test_a_released_folder_leaves_its_memory_where_it_is(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """Only the binding goes; by name (and force) or by `init` it is taken up again."""
    own = bound(paths, source)

    assert unlink(paths, source) == own

    assert lookup(paths, source) is None
    assert paths.project(own.project_id).database.exists()
    with pytest.raises(NotInitialized):
        unlink(paths, source)
    with pytest.raises(Refused, match="--force"):
        linked(paths, clone(source, tmp_path / "copy"), own.project_id)
    copy = linked(paths, tmp_path / "copy", own.project_id, force=True)
    assert unlink(paths, tmp_path / "copy") == copy
    assert bound(paths, source).project_id == own.project_id


def test_releasing_in_a_home_without_memories_makes_none(paths: HomePaths, tmp_path: Path) -> None:
    """It is refused, and no folder appears."""
    with pytest.raises(NotInitialized):
        unlink(paths, tmp_path)

    assert not paths.home.exists()


@pytest.mark.parametrize("force_link", [False, True])
@pytest.mark.parametrize("level", ["database", "memory", "root"])
def test_a_database_that_is_a_link_into_another_project_is_refused(
    paths: HomePaths, source: Path, tmp_path: Path, level: str, force_link: bool
) -> None:
    """Neither the file, nor its folder, nor the project's folder may lead elsewhere."""
    victim = bound(paths, source)
    target = repository(tmp_path / "two", says="two")
    own, theirs = paths.project(project_id_of(target)), paths.project(victim.project_id)
    leads: Path = getattr(own, level)
    leads.parent.mkdir(parents=True, exist_ok=True)
    leads.symlink_to(getattr(theirs, level))
    use = partial(linked, paths, target, project_id_of(target), force=True)

    with pytest.raises((Unavailable, WrongOwner)):
        use() if force_link else bound(paths, target)

    assert lookup(paths, target) is None
    assert bindings(paths) == (victim,)


BUSY = """
import sys, time
from pathlib import Path
from storage import registry
from storage.paths import HomePaths
def decide(known):
    print("held", flush=True)
    time.sleep(600)
registry.change(HomePaths(Path(sys.argv[1])), decide)
"""


def test_a_killed_holder_of_the_lock_frees_it(paths: HomePaths, source: Path) -> None:
    """SIGKILL while the lock is held: the next one gets it at once, with the registry unharmed."""
    bound(paths, source)
    before = paths.registry.read_bytes()
    argv = [sys.executable, "-c", BUSY, str(paths.home)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    wait_until(lambda: holder.returncode == -signal.SIGKILL, what="the holder is dead")

    assert paths.registry.read_bytes() == before
    assert unlink(paths, source).location == source


def test_a_failed_claim_cannot_take_back_a_later_success(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """Its rollback is that it never wrote: what others did meanwhile and afterwards stays."""
    other = bound(paths, repository(tmp_path / "other", says="other"))
    foreign = paths.project(other.project_id)
    project = project_id_of(source)
    foreign.root.rename(paths.project(project).root)

    with pytest.raises(WrongOwner):
        bound(paths, source)
    paths.project(project).root.rename(foreign.root)
    own = bound(paths, source)

    assert bindings(paths) == tuple(sorted((own, other), key=lambda item: str(item.location)))


def test_eight_links_and_eight_binds_at_once_lose_nothing(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """Whoever comes when: every worktree shares the memory, every other folder has its own."""
    own = bound(paths, source)
    trees = [worktree(source, tmp_path / f"t{number}") for number in range(8)]
    plain = [tmp_path / f"p{number}" / "harbor" for number in range(8)]
    for folder in plain:
        folder.mkdir(parents=True)

    with ThreadPoolExecutor(16) as pool:
        shared = list(pool.map(lambda tree: linked(paths, tree, own.project_id), trees))
        separate = list(pool.map(lambda folder: bound(paths, folder), plain))

    assert {item.project_id for item in shared} == {own.project_id}
    assert len({item.project_id for item in separate}) == 8
    assert len(bindings(paths)) == 17


def test_the_database_of_a_linked_folder_opens_beside_a_writer(
    paths: HomePaths, source: Path, tmp_path: Path
) -> None:
    """Linking reads: somebody else's open transaction does not stop it."""
    own = bound(paths, source)
    database = paths.project(own.project_id).database
    tree = worktree(source, tmp_path / "tree")
    writer = open_database(database)
    try:
        with transaction(writer):
            assert linked(paths, tree, own.project_id).project_id == own.project_id
            opened = open_authority(
                paths.project(own.project_id),
                own.project_id,
                clock=StepClock(),
                settings=SETTINGS,
            )
            opened.close()
    finally:
        writer.close(True)
