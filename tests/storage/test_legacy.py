"""An earlier program's project id is adopted only when the home's own index confirms it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from storage.config import StorageSettings
from storage.paths import HomePaths
from storage.projects import bind, project_id_of
from tests.storage.memory_samples import StepClock

OLD = "p_0ld5chooln4me"


@pytest.fixture
def paths(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path / "home")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / ".prjct").mkdir(parents=True)
    (folder / ".prjct" / "prjct.config.json").write_text(json.dumps({"projectId": OLD}))
    return folder


def index(paths: HomePaths, *bindings: dict[str, str], digest: str = "") -> Path:
    """The index as JavaScript writes it: keys as they came, letters as they are."""
    payload = {"version": 1, "bindings": list(bindings)}
    body = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
    file = paths.home / "identity" / "index.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    found = {
        "schemaVersion": 1,
        "revision": 3,
        "contentHash": digest or hashlib.sha256(body).hexdigest(),
        "payload": payload,
    }
    file.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return file


def adopted(paths: HomePaths, checkout: Path) -> tuple[str, str]:
    binding = bind(paths, checkout, clock=StepClock(), settings=StorageSettings())
    return binding.project_id, binding.source


def test_a_confirmed_id_is_adopted(paths: HomePaths, checkout: Path) -> None:
    """Same folder, same id, checksum right: the memory is found under its old name."""
    name = "caf\N{LATIN SMALL LETTER E WITH ACUTE}"
    elsewhere = {"projectId": "p_other", "location": f"/somewhere/{name}"}
    index(paths, elsewhere, {"projectId": OLD, "location": str(checkout)})

    assert adopted(paths, checkout) == (OLD, "legacy")
    assert adopted(paths, checkout) == (OLD, "legacy")


@pytest.mark.parametrize(
    "case", ["no index", "elsewhere", "other id", "two ids", "checksum", "link", "not json", "huge"]
)
def test_an_id_that_nothing_confirms_is_not_used(
    paths: HomePaths, checkout: Path, tmp_path: Path, case: str
) -> None:
    """The file in the checkout alone is anybody's: the folder gets an id of its own."""
    right = {"projectId": OLD, "location": str(checkout)}
    match case:
        case "elsewhere":
            index(paths, {**right, "location": str(checkout / "sub")})
        case "other id":
            index(paths, {**right, "projectId": "p_other"})
        case "two ids":
            index(paths, right, {**right, "projectId": "p_other"})
        case "checksum":
            index(paths, right, digest="0" * 64)
        case "link":
            file = index(paths, right)
            file.rename(tmp_path / "moved")
            file.symlink_to(tmp_path / "moved")
        case "not json":
            index(paths, right).write_bytes(b"\xff{" * 10)
        case "huge":
            file = index(paths, right)
            file.write_text(file.read_text("utf-8") + " " * 1_048_576, encoding="utf-8")

    assert adopted(paths, checkout) == (project_id_of(checkout.resolve()), "memory")


@pytest.mark.parametrize("claimed", ["../escape", "p_", "x_123", "p_" + "a" * 65, 7, None])
def test_what_is_no_id_is_not_adopted(paths: HomePaths, checkout: Path, claimed: object) -> None:
    """Even a confirmed one."""
    (checkout / ".prjct" / "prjct.config.json").write_text(json.dumps({"projectId": claimed}))
    index(paths, {"projectId": claimed, "location": str(checkout)})  # type: ignore[dict-item]

    assert adopted(paths, checkout) == (project_id_of(checkout.resolve()), "memory")
