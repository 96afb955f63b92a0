"""`ops model`: which encoder, whether it is sound, and what this memory has of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ops.cli import main
from ops.exits import Exit
from retrieval import embedding
from storage.paths import HomePaths


class Desk:
    """A home with one empty project."""

    def __init__(self, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.folder = HomePaths(base / "home"), base / "project"
        self.folder.mkdir()
        self._capsys = capsys
        assert self.types("init", "--here")[0] == Exit.OK

    def types(self, *words: str) -> tuple[int, str]:
        """Exit code and everything that was said."""
        code = main([*words, "--home", str(self.home.home), "--project", str(self.folder)])
        captured = self._capsys.readouterr()
        return code, captured.out + captured.err

    def asks(self, *words: str, code: Exit = Exit.OK) -> dict[str, Any]:  # Any: JSON
        """The JSON answer."""
        found, out = self.types("model", *words, "--json")
        assert found == code, out
        answer = json.loads(out)
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    yield Desk(tmp_path, capsys)  # noqa: PT022 -- the desk's files go with tmp_path


def test_the_encoder_in_use_is_named_without_loading_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is hashed, nothing is loaded, until somebody asks for proof."""

    def loads(_: object) -> None:
        raise AssertionError("it was loaded")

    monkeypatch.setattr(embedding.OnnxEncoder, "warm", loads)
    monkeypatch.setattr(embedding.PackagedFile, "read", loads)

    answer = desk.asks()

    assert (answer["ok"], answer["provider"], answer["dims"]) == (True, "embedded", 384)
    assert [file["sound"] for file in answer["files"][:2]] == [None, None]
    assert (answer["collections"], answer["waiting"]) == ([], 0)


def test_proof_hashes_the_files_and_asks_the_model(desk: Desk) -> None:
    """Both files are the known ones, and it answers."""
    answer = desk.asks("--verify")

    assert answer["problem"] is None
    assert [file["sound"] for file in answer["files"][:2]] == [True, True]


def test_a_file_that_is_not_the_known_one_is_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 3, and what goes on meanwhile."""
    wrong = replace(embedding.MODEL, sha256="0" * 64)
    monkeypatch.setattr(embedding, "MODEL", wrong)

    code, said = desk.types("model", "--verify")
    answer = desk.asks("--verify", code=Exit.NOT_READY)

    assert code == Exit.NOT_READY
    assert "SHA-256 differs" in said
    assert "goes on by words" in said
    assert answer["files"][0]["sound"] is False


def test_an_encoder_that_is_off_is_no_fault(desk: Desk) -> None:
    """It was somebody's choice."""
    desk.home.config.parent.mkdir(parents=True, exist_ok=True)
    desk.home.config.write_text('[encoder]\nprovider = "none"\n')

    answer = desk.asks()

    assert (answer["ok"], answer["model"], answer["files"]) == (True, None, [])


def test_an_endpoint_without_a_model_is_told_what_is_missing(desk: Desk) -> None:
    """Before anything is sent."""
    desk.home.config.parent.mkdir(parents=True, exist_ok=True)
    desk.home.config.write_text('[encoder]\nprovider = "ollama"\n')

    answer = desk.asks(code=Exit.NOT_READY)

    assert "encoder.model" in answer["problem"]
