"""Two projects never see each other: no reading verb of one shows a byte of another.

Three projects live in one home, one of them in the indexed form. Every example plants words that
stand nowhere else in each of them, then asks each about the others in every way there is: verbs of
`ops` (by folder, and by foreign ids), the recall server, the hooks, and the fallback without it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hooks.recall import Ask
from hooks.recall_client import recall_from_sqlite
from hooks.server import Server
from ops.cli import cli, main
from retrieval.render import render
from storage import session_log
from storage.admission import admit_document, admit_fact, admit_tool_result
from storage.authority import ProjectAuthority, open_authority
from storage.authority.payloads import document_upserted, fact_recorded
from storage.authority.port import Container
from storage.clock import SystemClock
from storage.config import Settings, StorageSettings
from storage.errors import SourceUnavailable, Unavailable, WrongOwner
from storage.jobs import JobKind, JobSpec
from storage.paths import HomePaths
from storage.projects import Binding, bind
from storage.queue import open_queue
from storage.records import (
    Entity,
    FactId,
    FactKind,
    ProjectId,
    SourceCursor,
    SourceRef,
    Trust,
    fact_id,
)
from storage.session_log import Said
from tasks.sources.catalogue import adapters
from tests.hooks.serverside import Listener, Running, short_home
from tests.support import wait_until

pytestmark = pytest.mark.slow
CLOCK = SystemClock()
QUIET = {"MEMORYD_ENCODER": "none"}
SYLLABLES = ("ka", "zo", "mi", "ru", "ve", "lu", "shi", "ba", "to", "ne", "qua", "pli", "gro", "fe")

WRITING = {
    ("init",), ("start",), ("stop",), ("remember",), ("project", "link"), ("project", "move"),
    ("project", "unlink"), ("host", "install"), ("host", "uninstall"), ("completion",),
    ("forget",), ("repair",), ("replay",), ("promote",), ("rebuild",), ("backup",), ("restore",),
    ("import",), ("redact",), ("quickstart",), ("sync",), ("feedback",), ("retry",), ("cancel",),
    ("drain",), ("pause",), ("resume",),
}  # fmt: skip
"""Verbs that change something or know no project; whole groups by their first word."""
BESIDE = {"bench", "chaos", "eval", "demo", "watch", "serve", "view", "web"}
"""Verbs about no project's memory, or that stay until they are stopped."""


OPENING = ("--all", "--explain", "--block")
"""Options that show more."""


def words(seed: str) -> st.SearchStrategy[str]:
    """A word that stands nowhere else: syllables around the project's own."""
    part = st.lists(st.sampled_from(SYLLABLES), min_size=3, max_size=5).map("".join)
    return part.map(lambda text: f"{seed}{text}{seed}")


@dataclass
class Side:
    """One project and the words that only it knows."""

    name: str
    binding: Binding
    authority: ProjectAuthority
    canaries: list[str] = field(default_factory=list)
    fact_ids: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        return str(self.binding.location)

    def plant(self, paths: HomePaths, word: str) -> None:
        """The word as a fact, its quote, an entity, a tag, a document, an observation."""
        now = CLOCK.now_ms()
        source = SourceRef(adapter="pi", locator=f"/sessions/{word}.jsonl", line=3, session_id=word)
        quote = admit_tool_result(
            f"deploy said {word} at last", source=source, tool_call_id=word, observed_at=now
        )
        statement = f"Deploys go to the {word} cluster after the database migration."
        fact = admit_fact(
            fact_id=fact_id(self.binding.project_id, FactKind.DECISION, statement),
            kind=FactKind.DECISION,
            statement=statement,
            evidence=[quote],
            valid_at=now - 10_000,
            recorded_at=now,
            subject=word,
            entities=[Entity(name=word, type="cluster")],
            tags={word: word},
        )
        document = admit_document(
            namespace="notes",
            external_id=word,
            source=word,
            kind="note",
            text=f"Notes about {word}.\n\nThe database migration runs before {word} deploys.",
            observed_at=now,
            trust=Trust.USER,
            title=f"About {word}",
            uri=f"https://wiki.example/{word}",
            metadata={word: word},
        )
        self.authority.append([fact_recorded(fact, [quote]), document_upserted(document)])
        said = Said(
            kind=FactKind.DECISION,
            statement=f"Always deploy to {word} first.",
            sentence=f"Always deploy to {word} first.",
            session_id=word,
            host="pi",
            at=now,
        )
        session_log.append(paths.project(self.binding.project_id), [said], now)
        self.canaries.append(word)
        self.fact_ids.append(fact.fact_id)


@dataclass
class Harbor:
    """One home, three projects, a running recall server."""

    paths: HomePaths
    sides: list[Side]
    server: Running

    def ops(self, *argv: str) -> tuple[int, str]:
        out = io.StringIO()
        # A verb that takes a file's name must not leave one here.
        with chdir(self.paths.home.parent), redirect_stdout(out), redirect_stderr(out):
            code = main(argv)
        return code, out.getvalue()


def _side(paths: HomePaths, folder: Path, name: str, container: Container) -> Side:
    folder.mkdir(parents=True)
    binding = bind(paths, folder, clock=CLOCK, settings=StorageSettings())
    authority = open_authority(
        paths.project(binding.project_id),
        binding.project_id,
        clock=CLOCK,
        settings=StorageSettings(),
    )
    if container == "indexed":
        authority.promote()
    return Side(name, binding, authority)


@pytest.fixture(scope="module")
def harbor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbor]:
    """Two folders of one name and one inside the other: as near to each other as can be."""
    base = tmp_path_factory.mktemp("isolation")
    with short_home() as folder:
        home = folder / "h"
        home.mkdir(mode=0o700)
        paths = HomePaths(home)
        sides = [
            _side(paths, base / "one" / "harbor", "xa", "compact"),
            _side(paths, base / "two" / "harbor", "yo", "indexed"),
            _side(paths, base / "one" / "harbor" / "inner", "wu", "compact"),
        ]
        queue = open_queue(paths, clock=CLOCK)
        with closing(queue):
            queue.enqueue(
                [JobSpec(kind=JobKind.SYNC, project=side.binding.project_id) for side in sides]
            )
        listener = Listener()
        server = Server(paths, clock=CLOCK, environment=QUIET, new_capture=lambda: listener)
        running = Running(paths, server, listener)
        running.thread.start()
        try:
            wait_until(running.ready, what="a ready server")
            yield Harbor(paths, sides, running)
        finally:
            server.stop()
            running.thread.join(20)
            for side in sides:
                side.authority.close()


def _reading_verbs() -> list[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(cli)
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            for member in command.list_commands(context):
                inner = command.get_command(context, member)
                assert inner is not None
                found.append(((name, member), inner))
        else:
            found.append(((name,), command))
    return [
        (verb, command)
        for verb, command in found
        if not {verb, verb[:1]} & WRITING and not BESIDE.intersection(verb)
    ]


def _ways(asker: Side, other: Side) -> list[tuple[str, ...]]:
    """Every reading verb, plain and with whatever might lead to the other project."""
    word, foreign = other.canaries[-1], other.fact_ids[-1]
    named = (f"what about the {word} cluster and its database migration?", foreign, foreign[:12])
    found = []
    for verb, command in _reading_verbs():
        options = {option for parameter in command.params for option in parameter.opts}
        takes = any(isinstance(parameter, click.Argument) for parameter in command.params)
        plain: list[tuple[str, ...]] = [(), *((flag,) for flag in OPENING if flag in options)]
        given_words = [*plain, *((*flags, value) for flags in plain for value in named if takes)]
        given_words += [(asker.fact_ids[-1],)] if takes else []
        for extra in given_words:
            found += [(*verb, *extra), (*verb, *extra, "--json")]
    return found


def _without(text: str, *asked: str) -> str:
    """What was answered, less the question that the answer repeats."""
    for question in asked:
        text = text.replace(json.dumps(question)[1:-1], "").replace(question, "")
    return text


def _seen(text: str, side: Side) -> list[str]:
    escaped = text.encode("utf-8", "backslashreplace").decode("utf-8").lower()
    return [word for word in side.canaries if word in escaped]


@settings(
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(planted=st.tuples(words("xa"), words("yo"), words("wu")))
def test_no_verb_shows_another_projects_words(
    harbor: Harbor, planted: tuple[str, str, str]
) -> None:
    """Each project asks about the next one: by name, by id, in every verb, in both forms."""
    for side, word in zip(harbor.sides, planted, strict=True):
        side.plant(harbor.paths, word)
    shown_own = 0
    for number, asker in enumerate(harbor.sides):
        others = [side for side in harbor.sides if side is not asker]
        other = others[number % 2]
        for argv in _ways(asker, other):
            where = ["--home", str(harbor.paths.home)]
            code, out = harbor.ops(*argv, *where, "--project", asker.folder)
            if code == 2:
                code, out = harbor.ops(*argv, *where)
            answer = _without(out, *argv[1:])
            assert [_seen(answer, side) for side in others] == [[], []], argv
            shown_own += bool(_seen(answer, asker)) and code == 0

    assert shown_own >= 12, "the verbs show a project its own words, or this proves nothing"


@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(planted=st.tuples(words("xa"), words("yo"), words("wu")))
def test_no_recall_shows_another_projects_words(
    harbor: Harbor, planted: tuple[str, str, str]
) -> None:
    """The server's ops, the hooks' answer and the fallback, asked from every folder."""
    for side, word in zip(harbor.sides, planted, strict=True):
        side.plant(harbor.paths, word)
    for asker in harbor.sides:
        others = [side for side in harbor.sides if side is not asker]
        for about in harbor.sides:
            question = f"Where do deploys go: the {about.canaries[-1]} cluster?"
            answers = list(_recalled(harbor, asker.folder, question))
            for answer in answers:
                told = _without(answer, question)
                assert [_seen(told, side) for side in others] == [[], []]
            if about is asker:
                assert len([answer for answer in answers if _seen(answer, asker)]) >= 4
    everything = json.dumps([harbor.server.ask({"op": op}) for op in ("stats", "ping", "nonsense")])
    assert [_seen(everything, side) for side in harbor.sides] == [[], [], []]


def _recalled(harbor: Harbor, cwd: str, question: str) -> Iterator[str]:
    yield json.dumps(harbor.server.ask({"op": "recall", "cwd": cwd, "query": question}))
    wide: dict[str, object] = {"limit": 50, "max_bytes": 32_768, "expansions": [question]}
    asked: dict[str, object] = {"op": "recall", "cwd": cwd, "query": question}
    yield json.dumps(harbor.server.ask(asked | wide))
    payload = {
        "claude": {"session_id": "s", "cwd": cwd, "prompt": question},
        "pi": {"session": "s", "cwd": cwd, "prompt": question},
    }
    for host, event in (("claude", "UserPromptSubmit"), ("pi", "input")):
        told: dict[str, object] = {"host": host, "event": event, "payload": payload[host]}
        yield json.dumps(harbor.server.ask({"op": "hook"} | told))
    found = recall_from_sqlite(
        harbor.paths,
        Ask(cwd=cwd, query=question, limit=50, max_bytes=32_768),
        clock=CLOCK,
        environment=QUIET,
        deadline_ms=5_000,
    )
    yield json.dumps(found.to_json())
    yield render(found, max_bytes=32_768)


def test_a_folder_of_no_project_is_told_nothing(harbor: Harbor, tmp_path: Path) -> None:
    """Unbound, above a project, of the same name, empty, relative, or not a folder at all."""
    for side in harbor.sides:
        side.plant(harbor.paths, f"{side.name}kazomiru{side.name}")
    namesake = tmp_path / "harbor"
    namesake.mkdir()
    above = str(Path(harbor.sides[0].folder).parent)
    for cwd in (str(namesake), above, "/", "", "harbor", "\0", "/nowhere" * 600):
        for side in harbor.sides:
            question = f"deploys to the {side.canaries[-1]} cluster"
            for answer in _recalled(harbor, cwd, question):
                assert _seen(_without(answer, question), side) == []


def test_logs_hold_nobodys_words(harbor: Harbor) -> None:
    """Nor does anything else that projects share: the queue, the registry, the sockets' folder."""
    for side in harbor.sides:
        side.plant(harbor.paths, f"{side.name}luneto{side.name}")
    for path in sorted(harbor.paths.shared.rglob("*")):
        if path.is_file():
            text = path.read_bytes().decode("latin-1")
            assert [_seen(text, side) for side in harbor.sides] == [[], [], []], path.name


def test_a_store_opens_for_its_owner_only(harbor: Harbor) -> None:
    """Another project's id, or another project's file, is refused before anything is read."""
    one, two, _ = harbor.sides
    for paths, project in (
        (harbor.paths.project(one.binding.project_id), two.binding.project_id),
        (harbor.paths.project(two.binding.project_id), one.binding.project_id),
        (harbor.paths.project(one.binding.project_id), ProjectId("p_team")),
    ):
        with pytest.raises(WrongOwner):
            open_authority(paths, project, clock=CLOCK, settings=StorageSettings())


@pytest.mark.parametrize("level", ["database", "memory", "root"])
def test_a_link_into_another_project_is_refused(harbor: Harbor, tmp_path: Path, level: str) -> None:
    """Also when its owner is claimed: a project's files stand where they belong, or nowhere."""
    victim = harbor.sides[0].binding.project_id
    theirs = harbor.paths.project(victim)
    other = HomePaths(tmp_path / "home").project(victim)
    leads: Path = getattr(other, level)
    leads.parent.mkdir(parents=True)
    leads.symlink_to(getattr(theirs, level))

    with pytest.raises((Unavailable, WrongOwner)):
        open_authority(other, victim, clock=CLOCK, settings=StorageSettings())


def test_a_job_cannot_read_another_projects_log(harbor: Harbor) -> None:
    """Its lines say nothing of whose they are, so only the project's own folder is read."""
    one, two, _ = harbor.sides
    two.plant(harbor.paths, "yobanefeyo")
    (theirs,) = harbor.paths.project(two.binding.project_id).session_log.glob("*.jsonl")
    sources = adapters(harbor.paths, one.binding.project_id, {}, Settings().sources)
    cursor = SourceCursor(adapter="pi-session", locator=str(theirs), offset=0, line=0)

    with pytest.raises(SourceUnavailable):
        sources["pi-session"].read(cursor, limit=1 << 20)


def test_sixteen_projects_written_at_once_stay_apart(tmp_path: Path) -> None:
    """A thread for each, all in one process and one home: nobody's rows are anybody else's."""
    paths = HomePaths(tmp_path / "home")
    marks = [f"{SYLLABLES[number % 14]}zzq{number:02d}qzz" for number in range(16)]
    folders = [tmp_path / str(number) / "harbor" for number in range(16)]
    together = Barrier(16)

    def work(number: int) -> set[str]:
        side = _side(paths, folders[number], marks[number], "indexed" if number % 3 else "compact")
        together.wait(30)
        with closing(side.authority):
            for turn in range(6):
                side.plant(paths, f"{marks[number]}{turn}")
            with side.authority.read() as reads:
                text = json.dumps(
                    [
                        [fact.statement for fact in reads.facts()],
                        [item.excerpt for f in side.fact_ids for item in reads.evidence(FactId(f))],
                    ]
                )
        return {mark for mark in marks if mark in text}

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(work, range(16)))

    assert found == [{mark} for mark in marks]
