"""`ops why`: which prompt got what, why each line, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hooks.events import PromptSubmitted
from hooks.recall import prompted
from hooks.receipts import keep
from ops.exits import Exit
from retrieval import sqlite_search
from storage.authority import ProjectAuthority, open_authority
from storage.authority import payloads as say
from storage.clock import SystemClock
from storage.config import RecallSettings, StorageSettings
from storage.paths import HomePaths
from storage.projects import bindings
from storage.records import ProjectId
from tests.ops.person import Typist
from tests.retrieval.memories import FACTS, a_fact, quote
from tests.support import START_AT

PROMPT = "Which local database is used in this project?"


class Answering:
    """A project with facts, and an agent whose prompts are answered."""

    def __init__(self, base: Path, capsys: pytest.CaptureFixture[str]) -> None:
        folder = base / "project"
        folder.mkdir()
        self.typist = Typist(base / "home", capsys, folder)
        assert self.typist.types("init", "--here")[0] == Exit.OK
        self.paths = HomePaths(base / "home")
        self.project: ProjectId = bindings(self.paths)[0].project_id
        with closing(self._store()) as store:
            store.append(
                [say.fact_recorded(a_fact(text), [quote(text)]) for text in FACTS],
            )

    def prompt(self, text: str, *, session: str = "s-one", shadow: bool = False) -> None:
        """A prompt of a connected agent, answered as hooks answer one."""
        event = PromptSubmitted(
            host="pi", session_id=session, cwd="/w", prompt=text, subagent=False, transcript=None
        )
        settings = RecallSettings(shadow=shadow)
        with closing(self._store()) as store, store.read() as reads:
            found = sqlite_search.recall(
                reads, text, generation=store.generation(), now_at=START_AT
            )
        done = prompted(self.project, event, found, settings, at=START_AT, by_server=False)
        assert done.answered is not None
        assert keep(self.paths, done.answered)

    def _store(self) -> ProjectAuthority:
        return open_authority(
            self.paths.project(self.project),
            self.project,
            clock=SystemClock(),
            settings=StorageSettings(),
        )


@pytest.fixture
def agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Answering]:
    yield Answering(tmp_path, capsys)  # noqa: PT022 -- its files go with tmp_path


def test_before_the_first_prompt_there_is_nothing_to_explain(agent: Answering) -> None:
    """A sentence that says what to do, and an empty list for programs."""
    code, out, _ = agent.typist.types("why")

    assert (code, "No prompt was answered here yet" in out) == (Exit.OK, True)
    assert agent.typist.asks("why", "--last") == {"receipts": []}


def test_the_last_prompt_is_explained_line_by_line(agent: Answering) -> None:
    """The statement, its legs, its distance to the bar, and the line of the session behind it."""
    agent.prompt("ok")
    agent.prompt(PROMPT)

    code, out, _ = agent.typist.types("why", "--last")

    assert code == Exit.OK
    assert FACTS[0] in out
    assert "session.jsonl:3" in out
    assert "words 0." in out
    assert "left out" in out
    assert "not close enough" in out
    assert PROMPT not in out


def test_programs_get_all_of_it(agent: Answering) -> None:
    """Items and what was left out, each with scores and source lines."""
    agent.prompt(PROMPT)

    found = agent.typist.asks("why", "--last")

    (first, *_) = found["items"]
    assert first["text"] == FACTS[0]
    assert first["fact_id"] == a_fact(FACTS[0]).fact_id
    assert first["scores"]["margin"] > 0
    assert first["evidence"][0]["file"] == "session.jsonl"
    assert first["evidence"][0]["line"] == 3
    assert {one["cut"] for one in found["left_out"]} == {"gate"}
    assert (found["host"], found["session"], found["by_server"]) == ("pi", "s-one", False)


def test_prompts_are_listed_newest_first_and_by_session(agent: Answering) -> None:
    """Each with what it got; one is chosen by the beginning of its id."""
    agent.prompt(PROMPT)
    agent.prompt("ok", session="s-two")

    listed = agent.typist.asks("why")["receipts"]
    of_one = agent.typist.asks("why", "--session", "s-one")["receipts"]
    code, out, _ = agent.typist.types("why", listed[1]["receipt"][:6])

    assert [one["session"] for one in listed] == ["s-two", "s-one"]
    assert [one["session"] for one in of_one] == ["s-one"]
    assert (code, FACTS[0] in out) == (Exit.OK, True)
    assert "an acknowledgement" in agent.typist.types("why")[1]
    assert len(agent.typist.asks("why", "--limit", "1")["receipts"]) == 1


def test_shadow_is_said(agent: Answering) -> None:
    """What would have been injected is not taken for what was."""
    agent.prompt(PROMPT, shadow=True)

    assert "in shadow: nothing was injected" in agent.typist.types("why")[1]
    assert "would have been injected" in agent.typist.types("why", "--last")[1]
    found = agent.typist.asks("why", "--last")
    assert (found["shadow"], found["injected"], len(found["items"]) > 0) == (True, 0, True)


def test_what_was_forgotten_is_gone_from_the_explanation(agent: Answering) -> None:
    """The receipt keeps an id; no verb can show the words any more, and no file holds them."""
    agent.prompt(PROMPT)
    assert agent.typist.types("forget", a_fact(FACTS[0]).fact_id, "--yes")[0] == Exit.OK

    code, out, _ = agent.typist.types("why", "--last")

    assert code == Exit.OK
    assert FACTS[0] not in out
    assert "gone since" in out
    assert agent.typist.asks("why", "--last")["items"][0]["text"] is None
    assert agent.typist.types("verify")[0] == Exit.OK


def test_an_unknown_receipt_is_refused_with_the_command_that_lists_them(agent: Answering) -> None:
    """Nothing is guessed, and two questions at once are none."""
    agent.prompt(PROMPT)
    agent.prompt(PROMPT)

    code, _, err = agent.typist.types("why", "zzzz")
    assert (code, "ops why" in err) == (Exit.FAILED, True)
    assert agent.typist.types("why", "")[0] == Exit.FAILED
    assert agent.typist.types("why", "abc", "--last")[0] == Exit.USAGE


def test_recall_explains_what_it_cut_and_why(agent: Answering) -> None:
    """Each thing that was found and not shown has its scores, its distance to the bar, its cut."""
    code, out, _ = agent.typist.types("recall", "which database do tests use", "--explain")
    found = agent.typist.asks("recall", "which database do tests use", "--explain")

    assert code == Exit.OK
    assert "above the bar" in out
    assert "left out" in out
    assert "not close enough" in out
    assert {one["why"] for one in found["left"]} == {"gate"}
    assert all(one["scores"]["margin"] < 0 for one in found["left"])
    shown = {item["document_key"] for item in found["items"]}
    assert shown.isdisjoint(one["document_key"] for one in found["left"])
