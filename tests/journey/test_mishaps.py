"""What goes wrong around the first run and the background programs, and what people are told."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from ops.quickstart import NOTHING
from ops.services import SERVER, WORKER, consumer_pids, program_pids
from storage.projects import bindings
from tests.journey.person import Person, finished
from tests.support import wait_until

pytestmark = pytest.mark.slow

TALK = (
    ("user", "No, always use pnpm in this repository, never npm."),
    ("assistant", "Understood."),
)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    """Somebody who has never used memoryd."""
    return Person(tmp_path)


def test_a_session_of_another_project_is_refused_with_both_names(person: Person) -> None:
    """What one project taught does not flow into another, and the folder stays unbound."""
    session = person.write_session(TALK)
    other = person.base / "other"
    other.mkdir()
    person.ops("init", "--project", person.project)

    done = person.quickstart("--project", other, "--transcript", session)

    assert done.code == 1
    assert str(person.project) in done.summary["error"]
    assert str(other) in done.summary["error"]
    assert [item.location for item in bindings(person.paths)] == [person.project.resolve()]


def test_a_named_session_of_a_free_folder_is_told_and_shown_as_named(person: Person) -> None:
    """Where it comes from stands on standard error; its facts name the file that was given."""
    session = person.write_session(TALK)
    other = person.base / "other"
    other.mkdir()
    words = ("--project", other, "--transcript", session)

    done = person.run("ops.quickstart", *words)
    learned = json.loads(person.ops("learned", "--project", other, "--json").out)["learned"]

    assert done.code == 0, done.err
    assert f"was recorded in {person.project}" in done.err
    assert f"{other} has a memory from now on" in done.out
    assert f"{session.name}:2" in done.out
    assert "given/" not in done.out
    assert [fact["evidence"][0]["file"] for fact in learned] == [str(session)]


def test_such_lines_in_a_session_of_ones_own_do_no_harm(person: Person) -> None:
    """It is read where it lies, by the consumer: what stands around them is learned."""
    session = person.write_session(TALK)
    first, *rest = session.read_bytes().splitlines(keepends=True)
    nested = b'{"type": "message", "x": ' + b"[" * 900 + b"]" * 900 + b"}\n"
    odd = [b'{"type": "message", "x": NaN}\n', b'{"x": -1e999}\n', nested]
    session.write_bytes(b"".join([first, *odd, *rest]))

    done = person.quickstart("--project", person.project)

    assert (done.code, done.summary["learned"]) == (0, 1), done.err


def test_lines_that_no_json_can_hold_are_skipped_and_told(person: Person) -> None:
    """NaN and numbers beyond any bound: counted, and what stands around them is learned."""
    session = person.write_session(TALK)
    lines = session.read_bytes().splitlines(keepends=True)
    odd = [b'{"x": NaN}\n', b'{"x": 1e999}\n', b'{"x": Infinity}\n']
    session.write_bytes(b"".join([lines[0], *odd, *lines[1:]]))
    other = person.base / "other"
    other.mkdir()

    done = person.quickstart("--project", other, "--transcript", session)
    status = person.ops("status", "--project", other)

    assert (done.code, done.summary["learned"]) == (0, 1), done.err
    assert "3 lines were skipped" in done.err
    assert "3 lines were skipped" in status.out


def test_a_failure_before_anything_was_read_leaves_no_binding(person: Person) -> None:
    """Nobody agreed to a memory that could not begin."""
    person.paths.shared.mkdir(parents=True, mode=0o700)
    person.paths.home.chmod(0o700)
    person.paths.socket.mkdir()
    person.write_session(TALK)

    done = person.quickstart("--project", person.project)

    assert (done.code, done.summary["ok"]) == (3, False)
    assert bindings(person.paths) == ()
    assert person.running() == []


def test_a_memory_that_is_lost_is_not_made_anew(person: Person) -> None:
    """Its binding stands, its file is gone: said, with what can be done, and left alone."""
    person.write_session(TALK)
    first = person.quickstart("--project", person.project)
    (binding,) = bindings(person.paths)
    database = person.paths.project(binding.project_id).database
    database.unlink()

    again = person.quickstart("--project", person.project)

    assert first.code == 0, first.err
    assert again.code == 4
    assert "is missing" in again.summary["error"]
    assert "ops restore" in again.summary["error"]
    assert not database.exists()


def test_starting_is_all_or_nothing(person: Person) -> None:
    """A folder where the socket belongs: the consumer is stopped again, nothing is left lying."""
    person.ops("init")
    person.paths.socket.mkdir()

    done = person.ops("start")

    assert done.code == 3
    assert str(person.paths.socket) in done.err
    assert person.running() == []
    assert [path.name for path in person.paths.shared.iterdir() if path.name.endswith("~")] == []


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [("config.toml", b"[recall]\nmax_itens = 3\n", 2), ("curation.sqlite", b"damaged" * 999, 4)],
    ids=["settings", "queue"],
)
def test_what_is_wrong_before_the_start_has_its_own_code(
    person: Person, name: str, content: bytes, code: int
) -> None:
    """A wrong setting is 2, a damaged queue 4, for starting and for the first run alike."""
    person.ops("init")
    file = person.paths.shared / name
    for beside in person.paths.shared.glob(f"{name}-*"):
        beside.unlink()
    file.write_bytes(content)
    file.chmod(0o600)

    started = person.ops("start")
    quick = person.quickstart()

    assert (started.code, quick.code) == (code, code), started.err + quick.err
    assert "Traceback" not in started.err + quick.err
    assert person.running() == []


def test_programs_of_a_killed_run_are_used_and_named(person: Person) -> None:
    """The next run did not start them and does not stop them; it says so, and how to."""
    with person.start("ops.quickstart", "--json") as process:
        wait_until(lambda: len(person.running()) == 2, what="both programs run")
        process.kill()
        process.communicate(timeout=60)
    left = person.running()

    again = person.quickstart()
    still = person.running()
    stopped = person.ops("stop")

    assert again.code == 0, again.err
    assert all(f"(process {pid})" in again.err for pid in left)
    assert "left running" in again.err
    assert still == left
    assert stopped.code == 0
    assert person.running() == []


def test_stop_returns_when_the_processes_are_gone(person: Person) -> None:
    """Not only their locks: whoever deletes the home next meets nobody."""
    person.ops("init")
    person.ops("start")
    pids = person.running()

    stopped = person.ops("stop")

    assert (stopped.code, len(pids)) == (0, 2)
    assert [pid for pid in pids if _runs(pid)] == []


def _runs(pid: int) -> bool:
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in {"Z", "X"}
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path("/proc").is_dir()


def test_an_interrupted_run_prints_the_whole_object(person: Person) -> None:
    """Programs that wait for the last line get one, whatever ended the run."""
    with person.start("ops.quickstart", "--json") as process:
        wait_until(lambda: consumer_pids(person.paths) != [], what="the consumer runs")
        process.send_signal(signal.SIGINT)
        done = finished(process)

    assert done.code == 130
    assert set(done.summary) == {*NOTHING, "error", "hint"}
    assert program_pids(WORKER, person.paths) + program_pids(SERVER, person.paths) == []
