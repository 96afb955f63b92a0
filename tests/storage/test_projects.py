"""The registry: who is bound, found from anywhere below, and never guessed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from storage.config import StorageSettings
from storage.errors import Corrupt, Refused, Unavailable, WrongOwner
from storage.paths import HomePaths
from storage.projects import Binding, bind, bindings, lookup, project_id_of, publish
from storage.records import ProjectId, canonical_json
from tests.conftest import ROOT
from tests.storage.memory_samples import StepClock, opened, paths_in

BIND = """
import sys
from pathlib import Path
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.paths import HomePaths
from storage.projects import bind
for checkout in sys.argv[2:]:
    print(bind(HomePaths(Path(sys.argv[1])), Path(checkout), clock=SystemClock(),
               settings=StorageSettings()).project_id)
"""


@pytest.fixture
def paths(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path / "home")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "src" / "deep").mkdir(parents=True)
    return folder


def bound(paths: HomePaths, checkout: Path) -> Binding:
    return bind(paths, checkout, clock=StepClock(), settings=StorageSettings())


def test_binding_makes_the_memory_and_names_it(paths: HomePaths, checkout: Path) -> None:
    """The id is derived from the canonical path; the database exists before the registry."""
    binding = bound(paths, checkout)

    place = checkout.resolve()
    digest = hashlib.sha256(str(place).encode()).hexdigest()
    assert binding.project_id == f"p_{digest[:12]}" == project_id_of(place)
    assert binding.location == place
    assert bindings(paths) == (binding,)
    assert paths.project(binding.project_id).database.exists()
    assert bound(paths, checkout) == binding
    assert paths.registry.stat().st_mode & 0o777 == 0o600
    assert paths.shared.stat().st_mode & 0o777 == 0o700


def test_looking_creates_nothing(paths: HomePaths, checkout: Path) -> None:
    """Reading verbs leave no home behind."""
    assert lookup(paths, checkout) is None
    assert bindings(paths) == ()
    assert not paths.home.exists()


def test_a_folder_below_belongs_to_the_nearest_binding(paths: HomePaths, checkout: Path) -> None:
    """A nested checkout wins over the one around it; a sibling with the same prefix does not."""
    outer = bound(paths, checkout)
    inner = bound(paths, checkout / "src")

    assert lookup(paths, checkout) == outer
    assert lookup(paths, checkout / "elsewhere" / "not-yet-there") == outer
    assert lookup(paths, checkout / "src" / "deep") == inner
    assert lookup(paths, checkout.with_name("checkout-2")) is None
    assert lookup(paths, checkout.parent) is None


def test_links_are_resolved(paths: HomePaths, checkout: Path, tmp_path: Path) -> None:
    """A link to the checkout is the checkout; same names elsewhere are not."""
    link = tmp_path / "link"
    link.symlink_to(checkout)
    other = tmp_path / "other" / "checkout"
    other.mkdir(parents=True)

    binding = bound(paths, link)

    assert binding.location == checkout.resolve()
    assert lookup(paths, link / "src") == binding
    assert bound(paths, other).project_id != binding.project_id


def test_what_is_no_folder_is_not_bound(paths: HomePaths, tmp_path: Path) -> None:
    """A missing path is refused, and no home appears."""
    with pytest.raises(Refused):
        bound(paths, tmp_path / "absent")

    assert not paths.home.exists()


def test_a_failed_preparation_leaves_no_binding(paths: HomePaths, checkout: Path) -> None:
    """A foreign database in the project's place rolls the claim back; later it can succeed."""
    project = project_id_of(checkout.resolve())
    opened(paths.home).close()
    foreign = paths_in(paths.home).root
    foreign.rename(paths.project(project).root)

    with pytest.raises(WrongOwner):
        bound(paths, checkout)

    assert bindings(paths) == ()
    paths.project(project).root.rename(foreign)
    assert bound(paths, checkout).project_id == project


def test_two_folders_never_share_an_id(
    paths: HomePaths, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two paths with one digest: the second is refused, and nothing is written."""
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr("storage.projects._path_digest", lambda _: "ab" * 32)
    taken = bound(paths, checkout)
    before = paths.registry.read_bytes()

    with pytest.raises(Refused, match=taken.project_id):
        bound(paths, other)

    assert paths.registry.read_bytes() == before


def write(paths: HomePaths, envelope: dict[str, object], *, rehash: bool = True) -> None:
    if rehash:
        body = canonical_json(envelope["payload"])  # type: ignore[arg-type]
        envelope["contentHash"] = hashlib.sha256(body).hexdigest()
    paths.registry.write_bytes(json.dumps(envelope).encode())


@pytest.mark.parametrize(
    ("change", "rehash"),
    [
        ({"payload": {"bindings": []}}, False),
        ({"schemaVersion": 2}, True),
        ({"revision": 0}, True),
        ({"payload": {"bindings": [{"location": "relative"}]}}, True),
        ({"payload": {"bindings": "x"}}, True),
        ({"payload": {}}, True),
    ],
)
def test_a_registry_that_fails_its_checks_is_refused(
    paths: HomePaths, checkout: Path, change: dict[str, object], rehash: bool
) -> None:
    """Nothing is inferred from it, and nothing is written over it."""
    bound(paths, checkout)
    write(paths, {**json.loads(paths.registry.read_bytes()), **change}, rehash=rehash)
    before = paths.registry.read_bytes()

    for use in (bindings, lambda home: lookup(home, checkout), lambda home: bound(home, checkout)):
        with pytest.raises(Corrupt):
            use(paths)

    assert paths.registry.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b" " * 1_048_577])
def test_bytes_that_are_no_registry_are_refused(paths: HomePaths, content: bytes) -> None:
    """Truncated, oversized or other files are corrupt, not empty."""
    paths.shared.mkdir(parents=True, mode=0o700)
    paths.registry.write_bytes(content)

    with pytest.raises(Corrupt):
        bindings(paths)


def test_a_location_bound_twice_is_refused(paths: HomePaths, checkout: Path) -> None:
    """One folder, one project."""
    bound(paths, checkout)
    envelope = json.loads(paths.registry.read_bytes())
    envelope["payload"]["bindings"] *= 2
    write(paths, envelope)

    with pytest.raises(Corrupt):
        bindings(paths)


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_links_in_place_of_the_registry_are_refused(
    paths: HomePaths, checkout: Path, tmp_path: Path, linked: str
) -> None:
    """Neither the file nor its folder may be a link."""
    bound(paths, checkout)
    original = paths.registry if linked == "file" else paths.shared
    moved = tmp_path / "moved"
    original.rename(moved)
    original.symlink_to(moved)

    with pytest.raises(Unavailable):
        bindings(paths)
    with pytest.raises(Unavailable):
        bound(paths, checkout)


def test_a_name_that_is_no_utf8_can_be_bound(paths: HomePaths, tmp_path: Path) -> None:
    """Any path of the system has a memory."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()

    binding = bound(paths, folder)

    assert lookup(paths, folder) == binding


def test_eight_processes_at_once_make_one_binding(paths: HomePaths, checkout: Path) -> None:
    """Racing initialisers agree, and binding others beside it loses nothing."""
    others = [checkout / f"n{number}" for number in range(4)]
    for folder in others:
        folder.mkdir()

    def run(number: int) -> str:
        argv = [sys.executable, "-c", BIND, str(paths.home), str(checkout)]
        argv.append(str(others[number % 4]))
        done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=True)
        return done.stdout.split()[0]

    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(run, range(8)))

    assert ids == {project_id_of(checkout.resolve())}
    assert len(bindings(paths)) == 5


def test_a_killed_initialiser_holds_nothing(paths: HomePaths, checkout: Path) -> None:
    """The lock dies with its holder, and its half-made claim is not there."""
    code = BIND.replace(
        "for checkout",
        "import os, signal, storage.registry\n"
        "storage.registry.replace_file = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "for checkout",
    )
    argv = [sys.executable, "-c", code, str(paths.home), str(checkout)]

    done = subprocess.run(argv, capture_output=True, cwd=ROOT, check=False)

    assert done.returncode == -9
    assert bindings(paths) == ()
    assert bound(paths, checkout) == lookup(paths, checkout)


def test_preparation_happens_before_the_registry_knows(paths: HomePaths, checkout: Path) -> None:
    """While it runs, nobody sees the binding."""
    seen: list[tuple[Binding, ...]] = []

    def prepare(_: ProjectId) -> None:
        seen.append(bindings(paths))

    publish(paths, checkout.resolve(), clock=StepClock(), prepare=prepare)

    assert seen == [()]
