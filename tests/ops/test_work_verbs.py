"""The verbs of the queue: what they show, what they change, and that looking never does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from ops.background import projects_of
from ops.cli import main
from ops.exits import Exit
from ops.invocation import Invocation
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.errors import Refused
from storage.jobs import JobKind, JobSpec, JobState
from storage.leases import ClaimedJob
from storage.paths import HomePaths
from storage.projects import bind
from storage.queue import JobQueue, open_queue
from tests.ops.person import Typist
from tests.support import wait_until

READING = (
    ("queue",),
    ("queue", "watch", "--once"),
    ("jobs",),
    ("jobs", "1"),
    ("leases",),
    ("dead",),
    ("budget",),
    ("schedule",),
    ("health",),
)


@pytest.fixture
def person(home: Path, capsys: pytest.CaptureFixture[str]) -> Typist:
    return Typist(home, capsys)


@pytest.fixture
def queue(home: Path, tmp_path: Path) -> Iterator[JobQueue]:
    """A home with one project named `harbor`."""
    paths, clock, folder = HomePaths(home), SystemClock(), tmp_path / "harbor"
    folder.mkdir()
    bind(paths, folder, clock=clock, settings=StorageSettings())
    with closing(open_queue(paths, clock=clock)) as opened:
        yield opened


def _harbor(queue: JobQueue) -> str:
    names = projects_of(_invocation(queue))
    return names.chosen("harbor")


def _invocation(queue: JobQueue) -> Invocation:
    return Invocation(
        paths=queue.paths,
        environment={},
        clock=queue.clock,
        folder=queue.paths.home,
        as_json=False,
    )


def _put(queue: JobQueue, kind: JobKind = JobKind.SYNC, subject: str = "") -> str:
    project = bind(
        queue.paths,
        queue.paths.home.parent / "harbor",
        clock=queue.clock,
        settings=StorageSettings(),
    ).project_id
    return queue.enqueue([JobSpec(kind=kind, project=project, subject=subject)])[0]


def _claimed(queue: JobQueue, owner: str = "4711-abc") -> ClaimedJob:
    found = queue.claim(owner)
    assert found is not None
    return found


def _dead(queue: JobQueue, reason: str = "Corrupt: the store fails its checks") -> str:
    job_id = _put(queue, JobKind.GC)
    queue.bury(_claimed(queue), reason)
    return job_id


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_i16_looking_works_while_somebody_writes(
    words: tuple[str, ...], person: Typist, queue: JobQueue
) -> None:
    """I16: a foreign write transaction holds up nobody who only reads; the rows stay the same."""
    _put(queue)
    writer = apsw.Connection(str(queue.paths.queue))
    before = [tuple(row) for row in writer.execute("SELECT * FROM jobs")]
    writer.execute("BEGIN IMMEDIATE")
    try:
        code, out, err = person.types(*words)
    finally:
        writer.execute("ROLLBACK")

    after = [tuple(row) for row in writer.execute("SELECT * FROM jobs")]
    writer.close()
    assert (code in {Exit.OK, Exit.UNHEALTHY}, err) == (True, "")
    assert out != ""
    assert after == before


def test_i16_what_a_row_carries_is_only_measured(
    person: Typist, queue: JobQueue, tmp_path: Path
) -> None:
    """I16: a pickle that would make a file when loaded is shown as a number of bytes."""
    mark = tmp_path / "executed"
    bomb = b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    job_id = _dead(queue)
    with closing(apsw.Connection(str(queue.paths.queue))) as db:
        db.execute("UPDATE jobs SET message = ?", (bomb,))

    shown = [person.types(*words) for words in (("jobs",), ("dead",), ("jobs", job_id), ("queue",))]
    sizes = [person.asks("dead")["dead"], person.asks("jobs")["jobs"]]

    assert [code for code, _, _ in shown] == [Exit.OK] * 4
    assert f"{len(bomb)} bytes" in shown[2][1]
    assert [rows[0]["message_bytes"] for rows in sizes] == [len(bomb)] * 2
    assert "posix" not in "".join(out for _, out, _ in shown)
    assert not mark.exists()


def test_jobs_are_named_by_folder_and_say_why_they_wait(person: Typist, queue: JobQueue) -> None:
    """Short ids, folders instead of ids, words instead of exception names, 80 columns."""
    _put(queue, JobKind.TRANSLATE)
    queue.snooze(_claimed(queue), queue.clock.now_ms() + 60_000, "model", "MissingModel: none")
    other = queue.enqueue([JobSpec(kind=JobKind.CHECKPOINT, project=_none())])[0]

    code, out, _ = person.types("jobs")
    _, only, _ = person.types("jobs", "--project", "harbor")

    assert code == Exit.OK
    assert "waits for a language model" in out
    assert "MissingModel" not in out
    assert "p_" not in out
    assert other not in out
    assert {"harbor", "whole home"} <= {
        word.strip() for word in out.replace("  ", "\n").split("\n")
    }
    assert "checkpoint" not in only
    assert max(map(len, out.splitlines())) <= 80
    assert [line for line in out.splitlines() if line != line.rstrip() or not line] == []


def _none() -> Any:
    return ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("jobs", "--kind", "snc"), Exit.USAGE, "there are sync, analyze"),
        (("jobs", "--project", "nobody"), Exit.FAILED, "There is no project nobody"),
        (("jobs", "99"), Exit.FAILED, "There is no job 99"),
        (("pause",), Exit.USAGE, "one of --kind KIND, --project P, --all"),
        (("pause", "--all", "--kind", "sync"), Exit.USAGE, "one of --kind KIND"),
        (("retry",), Exit.USAGE, "ops dead"),
        (("cancel",), Exit.USAGE, "ops jobs"),
        (("cancel", "7-0000000000ff"), Exit.FAILED, "There is no job"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_wishes_are_named(
    person: Typist, queue: JobQueue, words: tuple[str, ...], code: Exit, said: str
) -> None:
    """One sentence that says what there is instead; nothing changes."""
    job_id = _put(queue)

    found, out, err = person.types(*words)

    assert (found, out) == (code, "")
    assert said in err
    kept = queue.job(job_id)
    assert kept is not None
    assert kept.state is JobState.AVAILABLE


def test_leases_say_who_and_how_long(person: Typist, queue: JobQueue) -> None:
    """Owner, kind, project, age, until, attempt; a lapsed one says so."""
    job_id = _put(queue)
    _claimed(queue)

    _, out, _ = person.types("leases")
    (lease,) = person.asks("leases")["leases"]
    with closing(apsw.Connection(str(queue.paths.queue))) as db:
        db.execute("UPDATE jobs SET lease_until = lease_until - 120000")
    _, lapsed, _ = person.types("leases")
    (stuck,) = person.asks("leases")["leases"]

    assert "harbor" in out
    assert "4711" in out
    assert (lease["job_id"], lease["attempt"], lease["stuck"]) == (job_id, 1, False)
    assert 50_000 < lease["left_ms"] <= 60_000
    assert "lapsed" in lapsed
    assert stuck["stuck"] is True


def test_dead_jobs_are_listed_and_revived(person: Typist, queue: JobQueue) -> None:
    """With their reason; by short id, by kind, and all; what did not end badly is refused."""
    first = _dead(queue)
    (shown,) = person.asks("dead")["dead"]
    _, out, _ = person.types("dead")
    short = first.partition("-")[0]

    by_id = person.types("retry", short)
    again = person.types("retry", short)
    queue.bury(_claimed(queue), "again")
    by_kind = person.asks("retry", "--kind", "gc")
    queue.bury(_claimed(queue), "once more")
    everything = person.asks("retry", "--all")
    none = person.types("retry", "--all")

    assert (shown["job_id"], shown["error"]) == (first, "Corrupt: the store fails its checks")
    assert "the store fails its checks" in out
    assert "Corrupt:" not in out
    assert (by_id[0], by_id[1]) == (Exit.OK, "1 job will run again.\n")
    assert again[0] == Exit.FAILED
    assert "did not end badly" in again[2]
    assert len(by_kind["retried"]) == len(everything["retried"]) == 1
    assert none[1] == "No job is dead.\n"


def test_jobs_are_cancelled_waiting_and_running(person: Typist, queue: JobQueue) -> None:
    """A running one loses its lease; one that ended is refused."""
    waiting, running = _put(queue, JobKind.EMBED), _put(queue, JobKind.SYNC)
    claimed = _claimed(queue)
    chosen = {waiting, running} - {claimed.job_id}

    code, out, _ = person.types("cancel", claimed.job_id.partition("-")[0], *chosen)
    late = person.types("cancel", waiting)
    _put(queue, JobKind.EMBED, "other")
    by_kind = person.asks("cancel", "--kind", "embed")

    assert (code, out) == (Exit.OK, "2 jobs cancelled.\n")
    assert not queue.holds(claimed)
    assert late[0] == Exit.FAILED
    assert "has ended already" in late[2]
    assert by_kind["cancelled"] == 1


@pytest.mark.parametrize("scope", [("--kind", "sync"), ("--project", "harbor"), ("--all",)])
def test_paused_work_is_not_claimed_until_resumed(
    person: Typist, queue: JobQueue, scope: tuple[str, ...]
) -> None:
    """`ops queue` names the pause; resuming something else says that it was not paused."""
    _put(queue)

    code, _, _ = person.types("pause", *scope)
    during = queue.claim("somebody")
    _, shown, _ = person.types("queue")
    _, other, _ = person.types("resume", "--kind", "gc")
    _, back, _ = person.types("resume", *scope)

    assert code == Exit.OK
    assert during is None
    assert "paused" in shown
    assert "was not paused" in other
    assert "Goes on" in back
    assert queue.claim("somebody") is not None


def test_drain_waits_for_what_is_due_only(person: Typist, queue: JobQueue) -> None:
    """What waits for a model is counted, not waited for; without a consumer it says so at once."""
    _put(queue, JobKind.TRANSLATE)
    queue.snooze(_claimed(queue), queue.clock.now_ms() + 60_000, "model")
    drained = person.asks("drain")
    _put(queue, JobKind.SYNC)

    code, _, err = person.types("drain")
    of_other = person.types("drain", "--project", "nobody")

    assert (drained["ok"], drained["held"], drained["lost"]) == (True, 1, [])
    assert code == Exit.NOT_READY
    assert "1 job to do, and no consumer runs: ops start" in err
    assert of_other[0] == Exit.FAILED


def test_watch_tells_every_change_and_ends_with_ctrl_c(queue: JobQueue) -> None:
    """One object a line; Ctrl-C is the agreed end: exit code 0, no traceback."""
    program = [sys.executable, "-I", "-m", "ops", "queue", "watch", "--json", "--home"]
    watch = subprocess.Popen(
        [*program, str(queue.paths.home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    try:
        assert watch.stdout is not None
        first = json.loads(watch.stdout.readline())
        _put(queue)
        second = json.loads(watch.stdout.readline())
        watch.send_signal(signal.SIGINT)
        _, err = watch.communicate(timeout=20)
    finally:
        watch.kill()

    assert [item["counts"]["available"] for item in (first, second)] == [0, 1]
    assert (watch.returncode, err) == (Exit.OK, "")


def test_watch_on_a_terminal_redraws_and_ends_cleanly(queue: JobQueue, tmp_path: Path) -> None:
    """The live picture shows a change without being asked, and gives the terminal back."""
    program = [sys.executable, "-I", "-m", "ops", "queue", "watch", "--home"]
    leader, follower = os.openpty()
    watch = subprocess.Popen(
        [*program, str(queue.paths.home)],
        stdout=follower,
        stderr=follower,
        env={"PATH": os.environ["PATH"], "TERM": "xterm", "COLUMNS": "80"},
    )
    os.close(follower)
    os.set_blocking(leader, False)
    seen = bytearray()

    def shows(text: bytes) -> bool:
        with suppress(BlockingIOError, OSError):
            seen.extend(os.read(leader, 65_536))
        return text in seen

    try:
        wait_until(lambda: shows(b"nothing is due"))
        _put(queue)
        wait_until(lambda: shows(b"for 0 s"))
        watch.send_signal(signal.SIGINT)
        code = watch.wait(20)
        shows(b"")
    finally:
        watch.kill()
        os.close(leader)

    assert code == Exit.OK
    assert b"Traceback" not in seen
    assert seen.rstrip().endswith(b"\x1b[?25h"), "the cursor is back"


def test_a_project_is_found_by_path_name_or_id(queue: JobQueue, tmp_path: Path) -> None:
    """Two folders of one name need more than the name."""
    project = _harbor(queue)
    names = projects_of(_invocation(queue))
    inner = tmp_path / "harbor" / "src"
    inner.mkdir()

    assert [names.chosen(text) for text in (project, project[:8], str(inner), "harbor")] == [
        project
    ] * 4
    twin = tmp_path / "two" / "harbor"
    twin.mkdir(parents=True)
    bind(queue.paths, twin, clock=queue.clock, settings=StorageSettings())
    with pytest.raises(Refused, match="several"):
        projects_of(_invocation(queue)).chosen("harbor")
    assert projects_of(_invocation(queue)).chosen("two/harbor") != project


def test_schedule_shows_last_next_and_missed(person: Typist, queue: JobQueue) -> None:
    """A schedule that is due says so; never run is `never`."""
    now = queue.clock.now_ms()
    with closing(apsw.Connection(str(queue.paths.queue))) as db:
        db.execute(
            "INSERT INTO schedules VALUES ('sync', '*/5 * * * *', 'UTC', ?, NULL, 3)",
            (now - 600_000,),
        )

    _, out, _ = person.types("schedule")
    (entry,) = person.asks("schedule")["schedule"]

    assert "never" in out
    assert "due for 10 min" in out
    assert entry["missed"] == 3
    assert main(["schedule", "--home", str(queue.paths.home / "none")]) == Exit.NOT_READY
