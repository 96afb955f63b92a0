"""What somebody new at the terminal must be able to see, and what they may type."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ops import nearby
from ops.cli import main
from ops.exits import Exit
from ops.ids import chosen, shortened_to
from ops.services import require_ground
from storage.atomic import append_line
from storage.authority import open_authority
from storage.clock import DAY_MS, SystemClock
from storage.config import StorageSettings
from storage.errors import Refused
from storage.projects import lookup
from tests.ops.person import Typist

OLD = "Install the packages with npm in this repository."
NEW = "Use pnpm, never npm, in this repository."
TIDES = "The tide tables come from the harbor office every Monday."
GERMAN = "Bitte immer die Tests mit pnpm starten, niemals mit npm."


def _environment(home: Path, **more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), **more}


def _work(home: Path) -> None:
    """Everything that is due, by the real consumer."""
    worker = [sys.executable, "-I", "-m", "worker", "--once", "--home", str(home)]
    environment = _environment(home, MEMORYD_ENCODER="hash")
    done = subprocess.run(worker, env=environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a home and a project that learned three things, one of which was replaced."""
    root = tmp_path_factory.mktemp("taught")
    home, project = root / "home", root / "harbor"
    home.mkdir(mode=0o700)
    project.mkdir()
    where = ("--home", str(home), "--project", str(project))
    assert main(["init", *where]) == Exit.OK
    for statement in (OLD, NEW, TIDES, GERMAN):
        assert main(["remember", *where, "--", *statement.split()]) == Exit.OK
        _work(home)
    return root


@pytest.fixture
def person(
    taught: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Typist:
    """In a copy of their own: the folder is bound by its old path, so that is where they type."""
    home = tmp_path / "home"
    shutil.copytree(taught / "home", home, ignore=shutil.ignore_patterns("*.sock"))
    monkeypatch.setenv("MEMORYD_ENCODER", "hash")
    capsys.readouterr()
    return Typist(home, capsys, taught / "harbor")


def _line(out: str, name: str) -> str:
    return next(line for line in out.splitlines() if line.startswith(name))


def test_learned_shows_why_and_hides_what_was_replaced(person: Typist) -> None:
    """Id, age, why, quote and line of each; the replaced one only with --all, and marked."""
    _, out, _ = person.types("learned")
    _, everything, _ = person.types("learned", "--all")
    facts = {fact["statement"]: fact for fact in person.asks("learned", "--all")["learned"]}

    assert OLD not in out
    assert "1 fact was replaced since: ops learned --all" in out
    assert out.count("you told it with `ops remember`") == 2
    assert f"“{TIDES}”" in out
    assert f"{facts[TIDES]['short_id']}\n" in out
    assert "ago); " in out
    assert ".jsonl:" in out
    assert f"replaced by {facts[NEW]['short_id']}" in everything
    assert facts[OLD]["replaced_by"] == facts[NEW]["short_id"]


def test_one_fact_tells_everything_by_the_id_that_is_shown(person: Typist) -> None:
    """Quote, line, rule, time, what it replaced; unknown and shared beginnings are refused."""
    new = next(f for f in person.asks("learned")["learned"] if f["statement"] == NEW)

    code, out, _ = person.types("facts", new["short_id"])
    whole = person.asks("facts", new["fact_id"])["facts"]
    missing = person.types("facts", "zzzz")
    _, why, _ = person.types("learned", "--why")

    assert code == Exit.OK
    for said in (NEW, f"“{NEW}”", ".jsonl:2", "rule for declared statements", f"“{OLD}”"):
        assert said in out, said
    assert [fact["fact_id"] for fact in whole] == [new["fact_id"]]
    assert missing[0] == Exit.FAILED
    assert "There is no fact zzzz: see `ops facts --all`" in missing[2]
    assert out.strip() in why
    with pytest.raises(Refused, match="begins 2 ids: abc1, abc2"):
        chosen("abc", ["mem_abc1", "mem_abc2"], "fact", "ops facts")


def test_short_ids_tell_all_apart() -> None:
    """Two ids that share many characters are shown longer."""
    assert shortened_to(["mem_" + "0" * 32, "mem_" + "f" * 32]) == 6
    assert shortened_to(["mem_" + "a" * 10 + "0", "mem_" + "a" * 10 + "1"]) == 12
    assert shortened_to([]) == 6


def test_status_says_what_is_queued_what_it_costs_and_what_was_learned(person: Typist) -> None:
    """In a few lines; sizes and vectors only when asked for."""
    code, out, _ = person.types("status")
    _, verbose, _ = person.types("status", "--verbose")
    value = person.asks("status")

    assert code == Exit.OK
    assert len(out.splitlines()) <= 14
    assert "2 facts (1 replaced since)" in _line(out, "knows")
    assert _line(out, "because").split("  ")[-1].strip().startswith("you told it")
    assert "1 statement not in English waits for a language model (optional)" in out
    assert "1 waiting, 0 running" in _line(out, "queued")
    assert "none, no language model is configured" in _line(out, "cost")
    assert "does not run, nothing is learned: ops start" in _line(out, "consumer")
    assert "kB" not in out
    assert "texts" in verbose
    assert value["newest"]["statement"] == TIDES
    assert value["own_queue"]["available"] == value["queue"]["available"] == 1


def test_an_empty_memory_says_nothing_learned_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Instead of a list of zeros."""
    project = tmp_path / "new"
    project.mkdir()
    person = Typist(tmp_path / "home", capsys, project)
    person.types("init")

    _, out, _ = person.types("status")
    _, learned, _ = person.types("learned")

    assert "nothing learned yet" in _line(out, "knows")
    assert "0 facts" not in out
    assert learned.startswith("Nothing has been learned yet.")


def test_other_projects_are_counted_apart(person: Typist, tmp_path: Path) -> None:
    """`queued` is this project's; the line below it is everybody's."""
    other = tmp_path / "other"
    other.mkdir()
    main(["init", "--home", str(person.paths.home), "--project", str(other)])

    person.types("queue")
    value = person.asks("status")

    assert value["queue"]["available"] == value["own_queue"]["available"] + 1


def test_a_fact_from_a_clock_that_is_ahead_is_counted_like_any_other(
    person: Typist, taught: Path
) -> None:
    """status, facts and learned agree; its date says what is odd."""
    binding = lookup(person.paths, taught / "harbor")
    assert binding is not None
    clock = SystemClock()
    paths = person.paths.project(binding.project_id)
    authority = open_authority(paths, binding.project_id, clock=clock, settings=StorageSettings())
    with authority.read() as reads:
        tides = next(fact for fact in reads.facts() if fact.statement == TIDES)
    authority.close()
    ahead = clock.now_ms() + 3 * DAY_MS
    line = {
        "v": 1, "type": "said", "key": "k" * 32, "session": "s", "host": "pi", "at": ahead,
        "kind": "fact", "statement": "The ferry to the island leaves at noon on Sundays.",
        "sentence": "The ferry to the island leaves at noon on Sundays.",
    }  # fmt: skip
    append_line(paths.session_log / "2999-01-01.jsonl", json.dumps(line).encode())
    person.types("sync")
    _work(person.paths.home)

    current = person.asks("status")["memory"]["facts_current"]
    listed = person.asks("facts")["facts"]
    _, out, _ = person.types("learned")

    assert current == len(listed) == 3
    assert "ahead of this machine's clock" in out
    assert tides.fact_id in {fact["fact_id"] for fact in listed}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "It has 0 characters: at least 12."),
        ("too short", "It has 9 characters: at least 12."),
        ("the of and to it is in", "at least 3 words that carry meaning"),
        ("word " * 120, "at most 500"),
        ("the admin password is " + "hunter" + "2X9q7", "a password, a key or a token"),
    ],
)
def test_a_refusal_names_the_one_rule(person: Typist, text: str, said: str) -> None:
    """And never repeats what was typed."""
    code, out, err = person.types("remember", text)

    assert (code, out) == (Exit.FAILED, "")
    assert said in err
    assert "hunter" not in err


def test_what_is_known_is_not_noted_twice(person: Typist, taught: Path) -> None:
    """Neither what the memory holds nor what waits for the consumer; reading verbs count that."""
    known = person.types("remember", *TIDES.lower().split())
    first = person.types("remember", "The lighthouse keeper must sign every berth plan.")
    again = person.types("remember", "the lighthouse keeper must sign every berth plan")
    waits = [person.types(*words)[1] for words in (("learned",), ("facts",), ("status",))]
    asked = person.types("recall", "who must sign a berth plan?")[1]

    assert known[1].startswith("Known already, since ")
    assert "It waits for the consumer: ops start" in first[1]
    assert again[1] == "Known already: it waits for the consumer: ops start\n"
    assert ["1 statement waits for the consumer: ops start" in out for out in waits] == [True] * 3
    assert "1 statement waits for the consumer: ops start" in asked


def test_recall_without_a_server_answers_as_the_server_would(
    person: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The encoder is loaded in the command; where it cannot be, one line says by words only."""
    code, out, _ = person.types("recall", "where", "do", "the", "tide tables", "come", "from?")
    with_meaning = person.asks("recall", "where do the tide tables come from?")
    monkeypatch.setenv("MEMORYD_ENCODER", "none")
    _, words, _ = person.types("recall", "where do the tide tables come from?")
    monkeypatch.setattr(nearby, "MAX_CHUNKS", 0)
    _, large, _ = person.types("recall", "where do the tide tables come from?")

    assert code == Exit.OK
    assert TIDES in out
    assert "words only" not in out
    assert with_meaning["items"][0]["scores"]["dense"] is not None
    assert with_meaning["gaps"] == []
    assert "Searched by words only: the setting encoder.provider is none." in words
    assert "Searched by words only: the recall server is not ready" in large


def test_silence_is_explained(person: Typist) -> None:
    """--explain names what came nearest and by how much it missed; --block says why it is empty."""
    question = "which repository has the largest moons of all planets?"

    _, explained, _ = person.types("recall", question, "--explain")
    value = person.asks("recall", question, "--explain")
    code, block, err = person.types("recall", question, "--block")

    assert "Nothing fits" in explained
    assert "it missed the bar by 0." in explained
    assert value["nearest"]["missed_by"] > 0
    assert (code, block) == (Exit.OK, "")
    assert "an agent gets no block" in err


def test_sync_asks_now_and_says_how_to_watch(person: Typist) -> None:
    """Before other work, and without a consumer it says what to do."""
    code, out, _ = person.types("sync")
    jobs = person.asks("jobs", "--kind", "sync", "--state", "waiting")["jobs"]

    assert code == Exit.OK
    assert "ops start" in out
    assert [job["priority"] for job in jobs] == [40]


def test_help_and_version_work_as_people_try_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--version`, `help`, `help VERB`, a folder as argument, a missing word: one line each."""
    plain = Typist(tmp_path / "none", capsys)

    def first(*words: str) -> tuple[int, str, str]:
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    assert first("--version")[1] == first("version")[1]
    assert first("help")[1] == first("--help")[1]
    assert first("help", "queue", "watch")[1].startswith("Usage: ops queue watch")
    assert first("help", "nonsense")[0] == Exit.USAGE
    code, _, err = plain.types("init", str(tmp_path))
    assert code == Exit.USAGE
    assert f"To name a project's folder: ops init --project {tmp_path}" in err
    _, _, missing = first("host", "install")
    assert len(missing.splitlines()) == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('[model]\nprovider = "openai"\n', "model.name is missing"),
        ('[model]\nprovider = "openai"\nname = "m"\n', "model.base_url is missing"),
        (
            '[model]\nprovider = "openai"\nname = "m"\nbase_url = "http://a.example/v1"\n',
            "model.base_url must use https",
        ),
        (
            '[model]\nprovider = "openai"\nname = "m"\nbase_url = "https://a.example/v1"\n'
            'api_key_env = "NOT_THERE"\n',
            "NOT_THERE is not set",
        ),
        ('[model]\nname = "m"\n', 'model.provider is "none", but model.name is set'),
        ('[schedule]\nsync = "61 * * * *"\n', "schedule.sync"),
        ('[schedule]\ngc = "soon"\n', "expected 5 fields"),
    ],
)
def test_half_a_setting_is_named(person: Typist, config: str, said: str) -> None:
    """doctor and health fail and name the key; status shows it."""
    person.paths.config.write_text(config)

    shown = {verb: person.types(verb) for verb in ("status", "health")}
    code = main(["doctor", "--home", str(person.paths.home)])

    assert code == Exit.UNHEALTHY
    assert shown["health"][0] == Exit.UNHEALTHY
    assert [verb for verb, (_, out, _) in shown.items() if said not in out] == []
    assert not any("schedule.refused" in out + err for _, out, err in shown.values())


def test_a_local_model_needs_no_key(person: Typist) -> None:
    """Plain HTTP and no key are right for this machine."""
    person.paths.config.write_text(
        '[model]\nprovider = "openai"\nname = "m"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )

    value = person.asks("status")

    assert value["settings_problems"] == []
    assert value["cost"].startswith("used 0 of 200 calls, 0 of 500,000 tokens today; resets in")


def test_tables_have_no_padding_and_fit_80_columns(
    person: Typist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Piped: no blanks at the end of a line; narrow: sources stand below what they support."""
    monkeypatch.setenv("COLUMNS", "80")

    for words in (("learned",), ("facts",), ("status",), ("queue",), ("jobs",)):
        _, out, _ = person.types(*words)
        lines = out.splitlines()
        assert [line for line in lines if line != line.rstrip() or not line] == [], words
        assert max(map(len, lines)) <= 80


def test_removing_a_host_leaves_no_folder_that_was_made_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there before stays; an agent that is not on PATH is named when connecting."""
    user = tmp_path / "user"
    (user / ".claude").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("PATH", "/nowhere")
    for name in ("PI_CODING_AGENT_DIR", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    person = Typist(tmp_path / "home", capsys)

    warned = [person.types("host", "install", name)[2] for name in ("pi", "claude", "pi")]
    made = {path.name for path in user.iterdir()}
    for name in ("pi", "claude"):
        person.types("host", "uninstall", name)

    assert all("was not found on your PATH" in err for err in warned)
    assert made == {".pi", ".claude"}
    assert [str(path.relative_to(user)) for path in user.rglob("*")] == [".claude"]


def test_a_queue_of_an_older_memoryd_does_not_hide_the_memory(person: Typist) -> None:
    """Between an update and the next start, status shows what it can and says what to do."""
    with closing(apsw.Connection(str(person.paths.queue))) as db:
        db.pragma("user_version", 1)

    code, out, _ = person.types("status")
    queue = person.types("queue")
    require_ground(person.paths, {})

    assert code == Exit.OK
    assert "2 facts" in out
    assert "not up to date yet: the consumer sees to it (ops start)" in out
    assert (queue[0], "ops start" in queue[2]) == (Exit.NOT_READY, True)
