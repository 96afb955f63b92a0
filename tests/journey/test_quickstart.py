"""The first run as processes: from sessions to the block of the next prompt, whatever happens."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ops.services import consumer_pids
from storage.jobs import JobState
from storage.projects import bindings
from storage.queue_file import open_queue_reader
from storage.queue_views import counts
from tests.journey.person import Finished, Person, finished
from tests.support import wait_until

pytestmark = pytest.mark.slow

KEYS = {
    "ok",
    "transcripts",
    "observations",
    "learned",
    "embedded",
    "question",
    "recalled",
    "block",
    "block_bytes",
    "seconds_setup",
    "seconds_run",
}
COUNTS = ("transcripts", "observations", "learned", "embedded", "recalled", "block")
TALK = (
    ("user", "Add the date library to the planner."),
    ("assistant", "Installed it with npm."),
    ("user", "No, always use pnpm in this repository, never npm."),
    ("assistant", "Understood."),
    ("user", "Remember that the staging database is reset every Monday at noon."),
    ("assistant", "Noted."),
)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Somebody who has never used memoryd."""
    return Person(tmp_path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Person]:
    """A first run on the sample that nothing disturbed."""
    made = Person(tmp_path_factory.mktemp("undisturbed"))
    return made.quickstart(), made


def _counts(done: Finished) -> dict[str, object]:
    return {key: done.summary[key] for key in COUNTS}


def test_without_sessions_the_sample_is_learned_and_recalled(
    undisturbed: tuple[Finished, Person],
) -> None:
    """Every part took part: read, learned, embedded, recalled; then everything was stopped."""
    done, person = undisturbed

    summary = done.summary
    assert (done.code, set(summary)) == (0, KEYS), done.err
    assert summary["ok"] is True
    assert summary["transcripts"] == 2
    assert min(summary["observations"], summary["learned"], summary["embedded"]) >= 5
    assert summary["recalled"] >= 1
    assert "pnpm db:up" in summary["block"]
    assert summary["block_bytes"] == len(summary["block"].encode()) <= 2_200
    assert summary["seconds_run"] < 30
    assert person.running() == []
    assert person.proof() == []


def test_the_sample_binds_none_of_the_persons_folders(
    undisturbed: tuple[Finished, Person],
) -> None:
    """Trying memoryd is no consent: only a folder of memoryd's own has a memory."""
    _, person = undisturbed

    assert [item.location.name for item in bindings(person.paths)] == ["sample"]
    assert list(person.project.iterdir()) == []


def test_a_second_run_is_fast_and_changes_nothing(undisturbed: tuple[Finished, Person]) -> None:
    """Reading again what was read costs little and adds nothing."""
    first, person = undisturbed
    before = person.memory()

    second = person.quickstart()

    assert _counts(second) == _counts(first)
    assert person.memory() == before
    assert second.summary["seconds_run"] < 10
    assert "Nothing new" in second.err


def test_another_question_gets_another_answer(undisturbed: tuple[Finished, Person]) -> None:
    """--question asks the same memory something else; what nothing answers gets an empty block."""
    _, person = undisturbed

    ports = person.quickstart("--question", "Where does port data belong?").summary
    nothing = person.quickstart("--question", "Which opera did Verdi write in 1853?").summary

    assert "fixtures/ports.json" in ports["block"]
    assert (nothing["recalled"], nothing["block"], nothing["block_bytes"]) == (0, "", 0)


def test_own_sessions_are_read_and_never_changed(person: Person) -> None:
    """The person's Pi session of the project is found; each fact names its file and line."""
    session = person.write_session(TALK)
    before = session.read_bytes()

    done = person.quickstart("--project", person.project)
    learned = json.loads(person.ops("learned", "--json").out)["learned"]

    assert (done.code, done.summary["transcripts"]) == (0, 1), done.err
    places = {
        (fact["evidence"][0]["file"], fact["evidence"][0]["line"]): fact["statement"]
        for fact in learned
    }
    assert set(places) == {(str(session), 4), (str(session), 6)}
    assert "pnpm" in places[str(session), 4]
    assert session.read_bytes() == before
    assert [item.location for item in bindings(person.paths)] == [person.project.resolve()]


def test_somebody_elses_session_is_not_read_unless_it_is_named(person: Person) -> None:
    """A session of another folder stays unread; named, its facts go to the chosen project."""
    stranger = Person(person.base / "stranger")
    session = stranger.write_session([*TALK, ("user", f"Remember that {_secret()} is my key.")])
    there = person.user / ".pi/agent/sessions" / session.parent.name / session.name
    there.parent.mkdir(parents=True)
    shutil.copy(session, there)

    unnamed = person.quickstart("--project", person.project)
    named = person.quickstart("--project", person.project, "--transcript", session)

    assert unnamed.summary["transcripts"] == 2, "the sample was read instead"
    assert named.summary["transcripts"] == 1
    known = [fact["statement"] for fact in json.loads(person.ops("facts", "--json").out)["facts"]]
    assert len(known) == 2, "a statement that holds a credential is not learned"
    assert any("pnpm" in statement for statement in known)
    copied = b"".join(path.read_bytes() for path in person.user.rglob("given/*"))
    assert copied != b""
    assert _secret().encode() not in copied


def _secret() -> str:
    # Assembled: a literal would stop a push at the hosting service's scanner.
    return "ghp_" + "A1b2C3d4E5f6" * 3


@pytest.mark.parametrize("torn", [False, True], ids=["given", "found"])
def test_a_damaged_session_teaches_what_can_be_read(person: Person, torn: bool) -> None:
    """CRLF, NULs, 40 MB in a line, a line of no JSON, a torn last line: the rest is learned."""
    session = person.write_session(TALK)
    lines = session.read_bytes().split(b"\n")[:-1]
    giant = json.dumps({"type": "message", "text": "x" * 40_000_000}).encode()
    broken = [*lines[:2], b"\0\0\0", giant, b"{not json", *lines[2:], b'{"type": "mess']
    session.write_bytes(b"\r\n".join(broken))
    words = () if torn else ("--transcript", session)

    done = person.quickstart("--project", person.project, *words)

    assert done.code == 0, done.err
    assert done.summary["learned"] == 2
    assert {line for _, _, _, line in person.memory()} == {7, 9}


def test_a_file_that_is_no_session_is_refused_before_anything_is_made(person: Person) -> None:
    """One sentence with the name of the file; no home, no memory, nothing started."""
    file = person.base / "notes.txt"
    file.write_text("just notes\n")

    done = person.quickstart("--transcript", file)
    missing = person.quickstart("--transcript", person.base / "absent.jsonl")

    assert (done.code, missing.code) == (1, 1)
    assert done.summary["ok"] is False
    assert "notes.txt is not a session of Pi or Claude Code" in done.summary["error"]
    assert "absent.jsonl" in missing.summary["error"]
    assert not person.paths.home.exists()


def test_a_home_that_cannot_be_made_is_said(person: Person) -> None:
    """A file where the home should go stands for every unwritable place."""
    (person.base / "file").write_text("in the way")

    done = person.quickstart("--home", person.base / "file" / "home")
    people = person.run("ops.quickstart", "--home", person.base / "file" / "home")

    assert (done.code, people.code) == (3, 3)
    assert "cannot make this folder" in done.summary["error"]
    assert "Traceback" not in done.err + people.out + people.err


def test_wrong_options_are_named(person: Person) -> None:
    """Exit code 2 and the way to the help."""
    done = person.run("ops.quickstart", "--projct", "x")

    assert done.code == 2
    assert "--help" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"])
def test_an_interrupted_run_leaves_nothing_running(person: Person, number: signal.Signals) -> None:
    """However impatient the person is: the consumer and the server end with the run."""
    with person.start("ops.quickstart", "--json") as process:
        wait_until(lambda: consumer_pids(person.paths) != [], what="the consumer runs")
        process.send_signal(number)
        process.send_signal(number)
        done = finished(process)

    assert done.code == 130
    assert "nothing was left running" in done.err
    assert "Traceback" not in done.err
    assert person.running() == []


@pytest.mark.parametrize("moment", ["starting", "working"])
def test_a_killed_consumer_is_replaced_and_the_memory_is_the_same(
    person: Person, undisturbed: tuple[Finished, Person], moment: str
) -> None:
    """kill -9 in the middle of the run: leases bring the work back, nothing twice, nothing lost."""
    with person.start("ops.quickstart", "--json") as process:
        wait_until(lambda: consumer_pids(person.paths) != [], what="the consumer runs")
        consumer = consumer_pids(person.paths)[0]
        if moment == "working":
            wait_until(lambda: _has_begun(person), what="the consumer took a job")
        os.kill(consumer, signal.SIGKILL)
        done = finished(process)

    assert (done.code, done.summary["ok"]) == (0, True), done.err
    assert person.memory() == undisturbed[1].memory()
    assert person.proof() == []
    assert person.running() == []


def _has_begun(person: Person) -> bool:
    with closing(open_queue_reader(person.paths)) as db:
        found = counts(db)
    return found[JobState.LEASED] + found[JobState.COMPLETED] > 0


def test_a_run_killed_whole_and_started_again_ends_in_the_same_memory(
    person: Person, undisturbed: tuple[Finished, Person]
) -> None:
    """kill -9 of the run and of its consumer, then the same command again."""
    with person.start("ops.quickstart", "--json") as process:
        wait_until(lambda: consumer_pids(person.paths) != [], what="the consumer runs")
        process.kill()
        for pid in person.running():
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=60)

    again = person.quickstart()

    assert (again.code, _counts(again)) == (0, _counts(undisturbed[0])), again.err
    assert person.memory() == undisturbed[1].memory()
    assert person.proof() == []


def test_two_runs_at_once_share_one_memory(
    person: Person, undisturbed: tuple[Finished, Person]
) -> None:
    """The second uses what the first started, and starts its own when the first is done with it."""
    with (
        person.start("ops.quickstart", "--json") as one,
        person.start("ops.quickstart", "--json") as two,
    ):
        results = [finished(one), finished(two)]

    assert [result.code for result in results] == [0, 0], [result.err for result in results]
    assert person.memory() == undisturbed[1].memory()
    assert person.running() == []


def test_keep_leaves_both_running_until_they_are_stopped(person: Person) -> None:
    """--keep is for going on; `ops stop` ends it, and stopping twice is no error."""
    done = person.quickstart("--keep")
    kept = person.running()
    again = person.ops("start", "--json")
    stopped = json.loads(person.ops("stop", "--json").out)["stopped"]
    twice = person.ops("stop")

    assert done.code == 0, done.err
    assert len(kept) == 2
    assert [json.loads(again.out)[name]["started"] for name in ("worker", "server")] == [False] * 2
    assert [item["pid"] for item in stopped] == kept
    assert (person.running(), twice.out) == ([], "Nothing was running.\n")


def test_it_works_without_any_network(person: Person) -> None:
    """Once installed, nothing is fetched: the same run inside an empty network."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], check=False).returncode != 0:
        pytest.skip("this machine gives no network namespace to its users")
    argv = [unshare, "-rn", sys.executable, "-I", "-m", "ops.quickstart", "--json"]

    done = subprocess.run(
        argv,
        cwd=person.project,
        env=person.environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    summary = Finished(done.returncode, done.stdout, done.stderr).summary
    assert (done.returncode, summary["ok"]) == (0, True), done.stderr
    assert summary["recalled"] >= 1
