"""Daily use of `ops` on a memory that a real consumer made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ops.cli import main
from ops.exits import Exit
from storage.clock import SystemClock
from storage.connection import open_database, transaction
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.projects import bindings
from storage.queue import open_queue
from tests.journey.person import SAID_AT, Person
from tests.support import wait_until

pytestmark = pytest.mark.slow

TALK = (
    ("user", "Please set the project up."),
    ("assistant", "Done with npm."),
    ("user", "No, always use pnpm in this repository, never npm."),
    ("user", "Remember that the staging database is reset every Monday at noon."),
)


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    """Somebody whose one session was learned from."""
    made = Person(tmp_path_factory.mktemp("daily"))
    made.write_session(TALK)
    done = made.quickstart("--project", made.project)
    assert done.code == 0, done.err
    return made


def _files(person: Person) -> dict[str, tuple[int, int]]:
    """Every file of the home but SQLite's own side files: size and time of change."""
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in person.paths.home.rglob("*")
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


class Verbs:
    """Runs verbs in this process, on the person's project."""

    def __init__(self, person: Person, capsys: pytest.CaptureFixture[str]) -> None:
        self._person, self._capsys = person, capsys

    def text(self, *words: str) -> str:
        """What people see; the verb must succeed."""
        code = main(["--home", str(self._person.paths.home), *words])
        captured = self._capsys.readouterr()
        assert code == Exit.OK, captured.err
        return captured.out

    def about(self, verb: str, *words: str) -> str:
        """What people see of a verb about the project."""
        return self.text(verb, "--project", str(self._person.project), *words)

    def json(self, verb: str, *words: str) -> dict[str, Any]:  # Any: a JSON object
        """What programs see of a verb about the project."""
        answer = json.loads(self.about(verb, "--json", *words))
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def verbs(person: Person, capsys: pytest.CaptureFixture[str]) -> Verbs:
    """The person's verbs."""
    return Verbs(person, capsys)


def test_status_shows_the_whole_of_a_project(person: Person, verbs: Verbs) -> None:
    """Project, container, facts, sources, queue, budget and what runs: in one look."""
    value = verbs.json("status")
    text = verbs.about("status")

    assert value["project"]["folder"] == str(person.project.resolve())
    assert (value["memory"]["container"], value["memory"]["facts_current"]) == ("compact", 2)
    assert value["memory"]["vectors"] == value["memory"]["chunks"] > 0
    assert value["queue"]["completed"] >= 2
    assert value["last_sync_at"] is not None
    assert (value["consumers"], value["server"]) == (0, False)
    for said in ("2 facts, from 1 session", "no language model", "does not run: ops start"):
        assert said in text


def test_learned_names_the_words_and_the_line(person: Person, verbs: Verbs) -> None:
    """Newest first, with quote, file and line; --limit bounds the list."""
    learned = verbs.json("learned")["learned"]
    text = verbs.about("learned", "--limit", "1")

    assert [fact["evidence"][0]["line"] for fact in learned] in ([4, 5], [5, 4])
    assert {fact["kind"] for fact in learned} == {"correction", "fact"}
    assert text.count(".jsonl:") == 1


def test_facts_answer_for_a_date(verbs: Verbs) -> None:
    """--as-of gives what held then: nothing before it was said, both facts on that very day."""
    before = verbs.json("facts", "--as-of", "2025-05-31")["facts"]
    that_day = verbs.json("facts", "--as-of", "2025-06-01")["facts"]
    now = verbs.json("facts")["facts"]
    text = verbs.about("facts", "--as-of", "2025-05-31")

    assert (before, len(that_day), len(now)) == ([], 2, 2)
    assert text == "No fact holds on 2025-05-31.\n"


def test_a_date_that_is_none_is_a_usage_error(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence shows how a date looks."""
    words = ["facts", "--home", str(person.paths.home), "--project", str(person.project)]

    code = main([*words, "--as-of", "yesterday"])

    assert code == Exit.USAGE
    assert "is not a date such as 2026-05-31" in capsys.readouterr().err


def test_recall_answers_explains_and_gives_the_block(verbs: Verbs) -> None:
    """The same answer in four forms; without a server the command searches by itself."""
    question = "May I use npm in this repository?"

    value = verbs.json("recall", question)
    text = verbs.about("recall", question)
    explained = verbs.about("recall", question, "--explain")
    block = verbs.about("recall", question, "--block")

    assert value["status"] in {"ok", "partial"}
    assert value["block"] + "\n" == block
    assert value["block_bytes"] == len(value["block"].encode())
    assert "always use pnpm" in text
    assert "in all, by this command" in explained
    assert "coverage" in explained


def test_recall_of_something_unknown_says_so(verbs: Verbs) -> None:
    """Nothing is better than something unrelated."""
    value = verbs.json("recall", "Which opera did Verdi write in 1853?")
    text = verbs.about("recall", "Which opera did Verdi write in 1853?")

    assert (value["items"], value["block"]) == ([], "")
    assert text.startswith("Nothing fits (")


def test_queue_jobs_budget_and_schedule_tell_what_happened(verbs: Verbs) -> None:
    """The background, after it ran: counts, jobs by state, an untouched budget, the next runs."""
    queue = json.loads(verbs.text("queue", "--json"))
    jobs = json.loads(verbs.text("jobs", "--json", "--state", "completed"))["jobs"]
    budget = json.loads(verbs.text("budget", "--json"))
    schedule = json.loads(verbs.text("schedule", "--json"))["schedule"]

    assert queue["counts"]["completed"] == len(jobs) >= 3
    assert {job["kind"] for job in jobs} >= {"sync", "analyze", "embed"}
    assert {job["state"] for job in jobs} == {"completed"}
    assert budget["calls"] == {"limit": 200, "used": 0, "held": 0, "left": 200}
    assert {entry["name"] for entry in schedule} == {
        "sync",
        "consolidate",
        "gc",
        "checkpoint",
        "backup",
        "verify",
        "rollup",
        "maintenance",
    }
    assert all(entry["next_run_at"] for entry in schedule)
    for verb in ("queue", "jobs", "budget", "schedule"):
        assert verbs.text(verb).strip() != ""


def test_reading_verbs_work_while_another_process_holds_the_write_locks(
    person: Person, verbs: Verbs
) -> None:
    """Looking takes no write lock, and leaves every file as it was."""
    project = bindings(person.paths)[0].project_id
    databases = (person.paths.queue, person.paths.project(project).database)
    before = _files(person)

    with (
        closing(open_database(databases[0])) as one,
        closing(open_database(databases[1])) as two,
        transaction(one),
        transaction(two),
    ):
        for verb in ("status", "learned", "facts"):
            verbs.json(verb)
        verbs.json("recall", "pnpm or npm?")
        for verb in ("queue", "jobs", "budget", "schedule"):
            verbs.text(verb, "--json")
        after = _files(person)

    assert after == before


def test_a_folder_without_memory_is_said_with_what_to_do(
    person: Person, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 3, the folder, the home, and the verb that helps."""
    code = main(["status", "--home", str(person.paths.home), "--project", str(tmp_path)])

    err = capsys.readouterr().err
    assert code == Exit.NOT_READY
    assert f"{tmp_path} has no memory in {person.paths.home} yet." in err
    assert "ops init" in err


@pytest.fixture
def consumer(person: Person) -> Iterator[None]:
    """The background programs run, as after `ops start`."""
    started = person.ops("start", "--json")
    assert started.code == 0, started.err
    yield
    stopped = person.ops("stop")
    assert stopped.code == 0, stopped.err


@pytest.mark.usefixtures("consumer")
def test_a_remembered_statement_becomes_a_fact(person: Person, verbs: Verbs) -> None:
    """`ops remember` is durable at once, and the running consumer takes it in."""
    said = verbs.json("remember", "The release train leaves on the second Thursday of a month.")

    def known() -> bool:
        return any("release train" in fact["statement"] for fact in verbs.json("facts")["facts"])

    wait_until(known, what="the consumer took the statement in")
    assert said["ok"] is True
    assert said["consumer"] is True
    assert "release train" in verbs.json("recall", "When does the release train leave?")["block"]


def test_a_statement_that_cannot_be_kept_is_refused(
    person: Person, capsys: pytest.CaptureFixture[str]
) -> None:
    """Too short, or with a credential in it: exit code 1 and the reason."""
    words = ["remember", "--home", str(person.paths.home), "--project", str(person.project)]
    token = "ghp_" + "Z9y8X7w6V5u4" * 3

    short = main([*words, "ok"])
    secret = main([*words, f"The deployment token of this project is {token} for now."])

    assert (short, secret) == (Exit.FAILED, Exit.FAILED)
    assert token not in capsys.readouterr().err


def test_init_binds_once_and_asks_for_a_first_look(tmp_path: Path) -> None:
    """A second init changes nothing; the repository around the folder is the project."""
    person = Person(tmp_path)
    inner = person.project / "src"
    inner.mkdir()
    (person.project / ".git").mkdir()
    (person.project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (person.project / ".git" / name).mkdir()

    first = json.loads(person.ops("init", "--json", "--project", inner).out)
    second = json.loads(person.ops("init", "--json").out)
    here = json.loads(person.ops("init", "--json", "--here", "--project", inner).out)

    assert (first["folder"], first["created"]) == (str(person.project.resolve()), True)
    assert (second["project"], second["created"]) == (first["project"], False)
    assert (here["folder"], here["created"]) == (str(inner.resolve()), True)
    jobs = json.loads(person.ops("jobs", "--json").out)["jobs"]
    assert {(job["kind"], job["project"]) for job in jobs} == {
        ("sync", first["project"]),
        ("sync", here["project"]),
    }


def test_start_needs_a_memory_and_a_dead_job_is_listed(tmp_path: Path) -> None:
    """Nothing to work for is said; what failed for good is found by its state."""
    person = Person(tmp_path)
    refused = person.ops("start")
    person.ops("init")
    paths = HomePaths(person.paths.home)
    project = bindings(paths)[0].project_id
    with closing(open_queue(paths, clock=SystemClock())) as queue:
        queue.enqueue([JobSpec(kind=JobKind.GC, project=project)])
        while (job := queue.claim("test")) is not None:
            queue.bury(job, f"buried at {SAID_AT}")

    dead = person.ops("jobs", "--state", "dead")

    assert (refused.code, "ops init" in refused.err) == (3, True)
    assert dead.out.count(f"buried at {SAID_AT}") == 2


@pytest.mark.parametrize("damage", ["overwritten", "missing"])
def test_a_damaged_memory_is_an_error_of_its_own_and_is_left_as_it_is(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4 from every verb that needs it; nothing is repaired or made anew in passing."""
    person = Person(tmp_path)
    person.ops("init")
    database = person.paths.project(bindings(person.paths)[0].project_id).database
    if damage == "missing":
        database.unlink()
    else:
        database.write_bytes(b"overwritten" * 1000)
    where = ("--home", str(person.paths.home), "--project", str(person.project))

    codes = [main([*words, *where]) for words in (["status"], ["facts"], ["recall", "a question"])]

    err = capsys.readouterr().err
    assert codes == [Exit.UNHEALTHY] * 3
    assert err.count("Nothing was changed") == 3
    if damage == "missing":
        assert not database.exists()
    else:
        assert database.read_bytes() == b"overwritten" * 1000
