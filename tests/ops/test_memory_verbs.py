"""The verbs that look after a memory: what they say, their JSON, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ops.cli import main
from ops.exits import Exit
from storage.authority import open_authority
from storage.authority import payloads as say
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.connection import open_database, transaction
from storage.paths import HomePaths
from storage.projects import bindings
from storage.records import FactKind
from tests.storage.memory_samples import a_document, a_fact, a_quote

STATEMENT = "Deploy from the release branch only."
LATER = "Rehearse every migration on a copy."


class Desk:
    """A home with one project that knows two facts and a document."""

    def __init__(self, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.folder = HomePaths(base / "home"), base / "project"
        self.folder.mkdir()
        self._capsys = capsys
        assert self.types("init", "--here")[0] == Exit.OK
        self.project = bindings(self.home)[0].project_id
        self.paths = self.home.project(self.project)
        old = a_fact(STATEMENT)
        new = a_fact(LATER, kind=FactKind.PROCEDURE, valid_at=1_750_000_000_000)
        self.fact = old.fact_id
        with closing(
            open_authority(
                self.paths, self.project, clock=SystemClock(), settings=StorageSettings()
            )
        ) as store:
            store.append([say.fact_recorded(old, [a_quote("only from the release branch")])])
            store.append([say.fact_recorded(new, [a_quote("rehearse it", line=4)])])
            store.append([say.document_upserted(a_document())])

    def types(self, *words: str) -> tuple[int, str]:
        code = main([*words, "--home", str(self.home.home), "--project", str(self.folder)])
        captured = self._capsys.readouterr()
        return code, captured.out + captured.err

    def asks(self, *words: str, code: Exit = Exit.OK) -> dict[str, Any]:  # Any: JSON
        found, out = self.types(*words, "--json")
        assert found == code, out
        answer = json.loads(out)
        assert isinstance(answer, dict)
        return answer

    def break_row(self) -> None:
        with closing(open_database(self.paths.database)) as db, transaction(db):
            db.execute("UPDATE compact_authority SET state = randomblob(900)")


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    yield Desk(tmp_path, capsys)  # noqa: PT022 -- the desk's files go with tmp_path


def test_verify_says_sound_or_one_line_a_problem(desk: Desk) -> None:
    """Exit 0 and sizes; exit 4 and the cause, also with --all."""
    code, said = desk.types("verify")
    assert (code, said.count("\n")) == (Exit.OK, 1)
    assert "sound (3 events, 2 facts" in said
    assert desk.asks("verify", "--all")["projects"][0]["problems"] == []

    desk.break_row()

    for words in (("verify",), ("verify", "--all")):
        code, said = desk.types(*words)
        assert (code, said.count("\n")) == (Exit.UNHEALTHY, 1)
        assert "checksum" in said
    answer = desk.asks("verify", code=Exit.UNHEALTHY)
    assert answer["ok"] is False
    assert answer["projects"][0]["problems"][0]["check"] == "file"


def test_verify_of_an_empty_home_is_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is there to be wrong; but a folder without a memory is named."""
    home = ["--home", str(tmp_path / "h")]

    assert main(["verify", "--all", *home]) == Exit.OK
    assert main(["verify", *home, "--project", str(tmp_path)]) == Exit.NOT_READY
    assert not (tmp_path / "h").exists()
    capsys.readouterr()


def test_a_damaged_memory_is_served_nowhere_and_comes_back_from_its_backup(desk: Desk) -> None:
    """Every reading verb refuses; repair names the backup it took."""
    made = desk.asks("backup")
    desk.break_row()

    for verb in ("facts", "evidence", "documents", "history", "learned", "export"):
        assert desk.types(verb)[0] == Exit.UNHEALTHY, verb
    answer = desk.asks("repair")

    assert answer["restored_from"] == Path(made["file"]).name
    assert answer["cuts"][0]["kept_in"].startswith("quarantine/")
    assert desk.types("verify")[0] == Exit.OK
    assert len(desk.asks("facts", "--all")["facts"]) == 2
    assert desk.asks("repair")["changed"] is False


def test_a_repair_that_can_keep_nothing_says_so(desk: Desk) -> None:
    """Exit 4 and a sentence; the damaged file is as it was."""
    desk.break_row()
    before = desk.paths.database.read_bytes()

    code, said = desk.types("repair")

    assert code == Exit.UNHEALTHY
    assert "no sound backup" in said
    assert desk.paths.database.read_bytes() == before


def test_replay_rebuild_and_promote_say_what_they_did(desk: Desk) -> None:
    """Each is safe to run at any time."""
    assert desk.asks("replay")["events"] == 0
    assert desk.asks("rebuild")["events"] == 3
    assert desk.asks("promote") == {"ok": True, "container": "indexed", "changed": True}
    assert desk.asks("promote")["changed"] is False
    assert desk.asks("rebuild")["events"] == 3
    assert desk.types("verify")[0] == Exit.OK


def test_forget_shows_first_and_then_leaves_no_trace(desk: Desk) -> None:
    """--dry-run changes nothing; afterwards no read verb shows it."""
    shown = desk.asks("forget", desk.fact[:12], "--dry-run")
    assert shown["facts"] == [desk.fact]
    assert STATEMENT in desk.types("forget", desk.fact, "--dry-run")[1]
    assert len(desk.asks("facts", "--all")["facts"]) == 2

    done = desk.asks("forget", desk.fact[:12], "--yes")

    assert done["facts"] == [desk.fact]
    assert done["left"] == []
    for verb in ("facts", "evidence", "history", "export"):
        code, said = desk.types(verb)
        assert code == Exit.OK
        assert "release branch" not in said
    assert desk.types("forget")[1].strip() == "Nothing is waiting to be forgotten."
    assert desk.types("forget", "mem_nothing", "--yes")[0] == Exit.FAILED
    assert desk.types("verify")[0] == Exit.OK


def test_a_forgetting_that_cannot_reach_a_backup_names_it(desk: Desk) -> None:
    """Exit 4 until the damaged backup is gone; verify says that it is not finished."""
    made = Path(desk.asks("backup")["file"])
    made.write_bytes(b"damaged")

    answer = desk.asks("forget", desk.fact, "--yes", code=Exit.UNHEALTHY)
    assert made.name in answer["left"][0]
    assert "`ops forget` finishes" in desk.types("verify")[1]
    made.unlink()

    assert desk.types("forget")[0] == Exit.OK
    assert desk.types("verify")[0] == Exit.OK


def test_restore_needs_force_and_keeps_what_was_there(desk: Desk, tmp_path: Path) -> None:
    """The other file is a backup like any; what was forgotten since does not come back with it."""
    target = tmp_path / "mine.sqlite"
    desk.asks("backup", "--to", str(target))
    desk.asks("forget", desk.fact, "--yes")

    code, said = desk.types("restore", str(target))
    assert code == Exit.FAILED
    assert "--force" in said
    answer = desk.asks("restore", str(target), "--force")

    assert Path(answer["kept"]).is_file()
    assert answer["forgotten"] >= 1
    found = [fact["fact_id"] for fact in desk.asks("facts", "--all")["facts"]]
    assert len(found) == 1
    assert desk.fact not in found
    assert desk.types("backup", "--to", str(target))[0] == Exit.FAILED
    assert desk.types("restore", str(tmp_path / "none"))[0] == Exit.USAGE


def test_export_and_import_are_each_others_inverse(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Into another project: the same facts; a file that is none is refused."""
    out = tmp_path / "memory.jsonl"
    assert desk.asks("export", "--out", str(out))["lines"] == 7
    assert out.stat().st_mode & 0o077 == 0
    assert desk.types("export", "--out", str(out))[0] == Exit.FAILED
    (tmp_path / "second").mkdir()
    second = Desk(tmp_path / "second", capsys)
    second.asks("forget", second.fact, "--yes")

    answer = second.asks("import", str(out))

    assert (answer["facts"], answer["known"], answer["forgotten"]) == (0, 2, 1)
    (tmp_path / "x").write_text("{}")
    assert second.types("import", str(tmp_path / "x"))[0] == Exit.FAILED


def test_feedback_counts_and_asks_for_a_review(desk: Desk) -> None:
    """By the start of an id; an unknown signal is a usage error."""
    assert desk.asks("feedback", desk.fact[:12], "helpful")["helpful"] == 1

    assert desk.asks("feedback", desk.fact, "wrong")["standing"] == "needs_review"
    assert desk.types("feedback", desk.fact, "lovely")[0] == Exit.USAGE
    assert desk.types("feedback", "mem_", "used")[0] == Exit.FAILED
    assert desk.types("feedback", "nothing", "used")[0] == Exit.FAILED


@pytest.mark.parametrize("verb", ["facts", "learned", "evidence", "documents", "history"])
@pytest.mark.parametrize(
    "when", ["2026-02-30", "yesterday", "2026-13-01", "99999999999999999", "-5", "10000-01-01"]
)
def test_an_impossible_date_is_a_usage_error(desk: Desk, verb: str, when: str) -> None:
    """On every read verb, with exit code 2."""
    assert desk.types(verb, f"--as-of={when}")[0] == Exit.USAGE


def test_as_of_is_understood_everywhere(desk: Desk) -> None:
    """ISO dates, instants, epoch seconds and milliseconds; the past knows less."""
    keys = {
        "facts": "facts",
        "learned": "learned",
        "evidence": "evidence",
        "documents": "documents",
        "history": "history",
    }
    for verb, key in keys.items():
        assert desk.asks(verb, "--as-of", "2001-05-31")[key] == []
        assert len(desk.asks(verb, "--as-of", "2100-01-01T12:00:00Z")[key]) >= 1
    valid = [
        len(desk.asks("facts", "--as-of", when)["facts"])
        for when in ("1710000000", "1710000000000", "2024-03-09", "1760000000", "1760000000000")
    ]
    assert valid == [1, 1, 1, 2, 2]


def test_records_are_listed_for_people_and_programs(desk: Desk) -> None:
    """Quotes with their lines, documents with their keys, events newest first."""
    quotes = desk.asks("evidence", desk.fact[:12])["evidence"]
    assert [quote["quote"] for quote in quotes] == ["only from the release branch"]
    assert "a.jsonl:1" in desk.types("evidence")[1]
    assert desk.types("evidence", "mem_nothing")[0] == Exit.FAILED
    assert [d["name"] for d in desk.asks("documents")["documents"]] == ["deploy.md"]
    assert len(desk.asks("documents", "--all")["documents"]) == 3
    newest = desk.asks("history", "--limit", "2")["history"]
    assert [event["what"] for event in newest] == ["document.upserted", "fact.recorded"]
    assert "fact.recorded" in desk.types("history")[1]
