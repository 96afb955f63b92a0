"""Every answered prompt leaves a receipt, after the answer; in shadow mode, only that."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hooks.events import PromptSubmitted
from hooks.receipts import Answered, keep
from retrieval.receipts import Receipt, digest_of_prompt, from_json
from retrieval.results import Recall
from storage import receipt_log
from storage.paths import HomePaths
from storage.records import fact_document_key
from tests.hooks.serverside import Running, a_server, read_line, short_home
from tests.retrieval.memories import FACTS, PROJECT, a_fact
from tests.support import START_AT, wait_until

PROMPT = "which local database is used"


def receipts(home: Path) -> list[Receipt]:
    """What is kept for the test's project, newest first."""
    return [from_json(one) for one in receipt_log.newest_first(HomePaths(home).project(PROJECT))]


def says(server: Running, prompt: str, *, session: str = "s1") -> str:
    """What a Claude Code prompt is answered with."""
    payload = {"session_id": session, "cwd": "/work", "prompt": prompt, "transcript_path": "/t"}
    frame = {"op": "hook", "host": "claude", "event": "UserPromptSubmit", "reply": "raw"}
    with server.connect() as link:
        link.sendall(json.dumps({"v": 1, "id": "1", **frame, "payload": payload}).encode() + b"\n")
        return read_line(link).decode()


def kept(server: Running, count: int = 1) -> list[Receipt]:
    """The receipts, once there are so many."""
    wait_until(lambda: len(receipts(server.paths.home)) >= count, what="the receipts")
    return receipts(server.paths.home)


def test_an_injected_block_leaves_a_receipt() -> None:
    """Which items, by id, with their scores and their distance to the bar, for which prompt."""
    with short_home() as home, a_server(home) as server:
        answer = says(server, PROMPT)
        (receipt,) = kept(server)

    assert FACTS[0] in json.loads(answer)["hookSpecificOutput"]["additionalContext"]
    assert (receipt.host, receipt.session_id, receipt.shadow) == ("claude", "s1", False)
    assert receipt.prompt_digest == digest_of_prompt(PROMPT)
    assert receipt.prompt_chars == len(PROMPT)
    assert receipt.shown[0].document_key == fact_document_key(a_fact(FACTS[0]).fact_id)
    assert receipt.shown[0].scores.margin > 0
    assert receipt.shown[0].scores.coverage > 0
    assert all(one.scores.margin < 0 for one in receipt.left if one.cut == "gate")
    assert receipt.block_bytes > 300
    assert receipt.block_bytes / 5 < receipt.block_tokens < receipt.block_bytes / 3
    assert receipt.generation > 0
    assert [leg.name for leg in receipt.legs] == ["exact", "lexical", "dense"]


def test_a_silent_prompt_leaves_its_reason() -> None:
    """Why nothing was injected is as good a question."""
    with short_home() as home, a_server(home) as server:
        assert says(server, "ok, continue") == "\n"
        assert says(server, "who won the chess tournament in Reykjavik") == "\n"
        second, first = kept(server, 2)

    assert (first.status, first.reason, first.found) == ("abstained", "an acknowledgement", ())
    assert second.reason in {"nothing matches", "nothing is close enough"}


def test_no_file_holds_a_word_of_prompt_or_memory() -> None:
    """Receipts hold ids and numbers: forgetting a fact has nothing to look for in them."""
    with short_home() as home, a_server(home) as server:
        says(server, PROMPT)
        kept(server)
        files = list(HomePaths(home).project(PROJECT).receipts.iterdir())
        raw = b"".join(file.read_bytes() for file in files).decode()

    assert files
    for word in (*PROMPT.split()[1:4], *FACTS[0].split()[:4]):
        assert f"{word} " not in raw
    assert "durable" not in raw


def test_in_shadow_nothing_is_injected_and_the_receipt_says_what_would_have_been() -> None:
    """The host gets an empty line; the receipt holds the same items as without shadow."""
    with short_home() as home, a_server(home) as server:
        config = HomePaths(home).project(PROJECT).config
        assert FACTS[0] in says(server, PROMPT)
        config.write_text("[recall]\nshadow = true\n", "utf-8")
        assert says(server, PROMPT) == "\n"
        shadow, real = kept(server, 2)

    assert (real.shadow, shadow.shadow) == (False, True)
    assert shadow.shown == real.shown
    assert shadow.block_bytes == real.block_bytes > 0


def test_shadow_for_every_project_yields_to_one_projects_own_word() -> None:
    """The home's file holds for all, a project's own wins."""
    with short_home() as home, a_server(home) as server:
        HomePaths(home).config.write_text("[recall]\nshadow = true\n", "utf-8")
        assert says(server, PROMPT) == "\n"
        HomePaths(home).project(PROJECT).config.write_text("[recall]\nshadow = false\n", "utf-8")
        assert FACTS[0] in says(server, PROMPT)


def test_no_receipts_are_written_where_nobody_wants_them() -> None:
    """`recall.receipt_days = 0`: the block comes all the same."""
    with short_home() as home, a_server(home) as server:
        HomePaths(home).project(PROJECT).config.write_text("[recall]\nreceipt_days = 0\n", "utf-8")
        assert FACTS[0] in says(server, PROMPT)
        wait_until(lambda: len(server.listener.events) == 1, what="the captured prompt")

        assert not HomePaths(home).project(PROJECT).receipts.exists()


def test_the_answer_does_not_wait_for_the_receipt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs while a receipt is written holds up no prompt."""
    hangs, released = threading.Event(), threading.Event()
    append = receipt_log.append

    def hang(*given: object, **named: object) -> bool:
        hangs.set()
        released.wait(20)
        real: Callable[..., bool] = append
        return real(*given, **named)

    monkeypatch.setattr(receipt_log, "append", hang)
    with short_home() as home, a_server(home) as server:
        try:
            assert FACTS[0] in says(server, PROMPT)
            assert hangs.wait(20)
            for _ in range(5):
                assert FACTS[0] in says(server, PROMPT)
            assert receipts(home) == []
        finally:
            released.set()
        assert len(kept(server, 6)) == 6


def test_a_receipt_that_cannot_be_written_costs_nothing_else() -> None:
    """A file stands where the folder should be: prompts are answered, events captured, counted."""
    with short_home() as home, a_server(home) as server:
        HomePaths(home).project(PROJECT).receipts.write_text("in the way", "utf-8")
        assert FACTS[0] in says(server, PROMPT)
        wait_until(lambda: len(server.listener.events) == 1, what="the captured prompt")
        wait_until(lambda: "receipts_lost" in json.dumps(server.ask({"op": "stats"})), what="count")

        assert FACTS[0] in says(server, PROMPT)


def test_a_session_named_like_a_credential_is_kept_as_a_digest(home: Path) -> None:
    """Hosts choose session ids: what could be a token does not get to the disk."""
    token = "ghp_" + "x7Kq2Lm9Rt4Vb8Zn3" + "Wc6Yd1Fg5Hj0Pa2Se4U"
    event = PromptSubmitted(
        host="claude", session_id=token, cwd="/w", prompt="x", subagent=False, transcript=None
    )
    answered = Answered(
        project=PROJECT,
        event=event,
        recall=Recall(status="abstained"),
        at=START_AT,
        block="",
        shadow=False,
        keep_days=14,
    )

    assert keep(HomePaths(home), answered)

    assert receipts(home)[0].session_id.startswith("id-")


def test_the_recall_op_renders_as_many_bytes_as_were_asked_for() -> None:
    """What a project's settings or the question itself allow, not the default."""
    with short_home() as home, a_server(home) as server:

        def block(**fields: object) -> str:
            frame = {"op": "recall", "cwd": "/work", "query": PROMPT, **fields}
            result = server.ask(frame)["result"]
            assert isinstance(result, dict)
            return str(result["block"])

        whole = len(block().encode())
        assert 0 < len(block(max_bytes=whole - 20).encode()) <= whole - 20
        HomePaths(home).project(PROJECT).config.write_text("[recall]\nmax_bytes = 512\n", "utf-8")

        assert len(block().encode()) <= 512
        assert len(block(max_bytes=9_000_000).encode()) <= 32_768
