"""From a transcript to facts: one commit a window, one fact a statement, nothing lost or leaked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hooks.capture import Capture
from hooks.events import PromptSubmitted, TurnEnded
from hooks.record import remember
from storage.errors import Invalid, LeaseLost, Stale
from storage.jobs import JobKind, Priority
from storage.records import Standing
from tasks import analyze, sync
from tasks.analyst import propose
from tasks.sources import claude, pi
from tasks.sources.transcript import has_news
from tests.learning import (
    FAILURE,
    World,
    claude_line,
    lines,
    pi_header,
    pi_ran,
    pi_result,
    pi_said,
)

ROOT = Path(__file__).resolve().parent.parent.parent
FIRST_WINDOW = 700


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A project with its checkout."""
    return World(tmp_path)


def _pi_file(world: World, name: str = "a.jsonl") -> Path:
    path = world.pi_sessions / pi.folder_name(str(world.checkout)) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _claude_file(world: World, name: str = "c.jsonl") -> Path:
    path = world.claude_projects / claude.folder_name(str(world.checkout)) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _pi(world: World, *texts: str, name: str = "a.jsonl", first: int = 1) -> Path:
    path = _pi_file(world, name)
    said = [pi_said(number, text) for number, text in enumerate(texts, first)]
    path.write_bytes(lines([pi_header(world.checkout), *said]))
    return path


def test_the_bundled_sessions_teach_exactly_this(world: World) -> None:
    """Every statement of the sample conversations, and nothing else."""
    for name, path in (("pi", _pi_file(world)), ("claude", _claude_file(world))):
        text = (ROOT / f"ops/sample/{name}-session.jsonl").read_text("utf-8")
        path.write_text(text.replace("/home/dev/harbor", str(world.checkout)), "utf-8")

    world.drain()

    failed = (
        "`pnpm test:integration` failed with “Error: connect ECONNREFUSED 127.0.0.1:5544"
        " (berth database)” and passed after "
    )
    assert world.current() == {
        "use pnpm, never npm in this repository.",
        "the integration tests need `pnpm db:up` first.",
        "Don't call docker compose by hand.",
        "releases are cut on Thursdays from the harbor-stable branch.",
        "We decided to keep the tide tables in one SQLite file per port instead of Postgres,"
        " because the ferries are offline for most of the day.",
        "Port data belongs in fixtures/ports.json, never under src.",
        "a planner slot is 15 minutes and that the harbor master owns that number.",
        "Let's go with UTC for every stored departure, and convert to local time in the app only.",
        failed + "`pnpm db:up`.",
    }
    # The agent's own remedy was forbidden afterwards: proven, and over.
    assert {fact.statement for fact in world.facts()} - world.current() == {
        failed + "`docker compose --profile berths up -d`."
    }
    with world.authority.read() as reads:
        assert [item.lang for item in reads.deferred()] == ["es", "es"]
    assert world.authority.verify().sound


def test_every_fact_quotes_its_source_literally(world: World) -> None:
    """File, line, session and words of each quote lead back to the transcript."""
    path = _pi(world, "hello", "No, use pnpm, never npm in this repo.", "thanks")

    world.drain()

    (fact,) = world.facts()
    with world.authority.read() as reads:
        (quote,) = reads.evidence(fact.fact_id)
    line = path.read_text().splitlines()[quote.source.line - 1]
    assert quote.excerpt in json.loads(line)["message"]["content"]
    assert (quote.source.locator, quote.source.session_id) == (str(path), "s-1")
    assert (fact.standing, fact.confidence, fact.analyst) == (Standing.SUPPORTED, 1.0, "extractive")
    assert fact.valid_at == quote.observed_at


def test_the_log_and_the_transcript_agree_on_one_fact(world: World) -> None:
    """Heard live and read later: one fact, two quotes."""
    said = "No, use pnpm, never npm in this repo."
    _pi(world, said)
    capture = Capture(world.paths, world.clock)
    capture.handle(PromptSubmitted("pi", "s-1", str(world.checkout), said, False, None))
    capture.handle(TurnEnded("pi", "s-1", str(world.checkout), 1, False, None))

    world.drain()

    (fact,) = world.facts()
    assert [adapter for adapter, _ in world.evidence(fact.statement)] == ["pi", "pi-session"]


def test_one_statement_in_fifty_sessions_is_one_fact(world: World) -> None:
    """Repetition is evidence, never another row; case and end marks do not matter."""
    for number in range(50):
        text = "Never push to main." if number % 2 else "never push to MAIN!"
        _pi(world, text, name=f"{number:02d}.jsonl", first=number + 1)

    world.drain()

    (fact,) = world.facts()
    assert len(world.evidence(fact.statement)) == 50


def test_a_forked_session_repeats_no_evidence(world: World) -> None:
    """Copied entries carry their old times: the same utterance, counted once."""
    path = _pi(world, "Never push to main.", "Tests must not touch the network.")
    shutil.copy(path, path.with_name("fork.jsonl"))

    world.drain()

    assert len(world.facts()) == 2
    assert all(len(world.evidence(fact.statement)) == 1 for fact in world.facts())


def test_a_new_rule_ends_the_old_one_whichever_is_read_first(world: World) -> None:
    """Sources are not read in order of time; the younger statement wins either way."""
    _pi(world, "Always use npm for installs.", name="b.jsonl", first=1)
    _pi(world, "Use pnpm, not npm.", name="a.jsonl", first=50)

    world.drain()

    assert world.current() == {"Use pnpm, not npm."}
    (old,) = [fact for fact in world.facts() if fact.standing is Standing.SUPERSEDED]
    (new,) = [fact for fact in world.facts() if fact.standing is Standing.SUPPORTED]
    assert old.invalid_at == new.valid_at


def test_a_change_of_mind_and_back_is_three_facts_in_time(world: World) -> None:
    """What was superseded and is said again later holds again, as a new fact."""
    _pi(
        world,
        "Always use npm for installs.",
        "Use pnpm, not npm.",
        "Use npm, not pnpm.",
        "Always use npm for installs.",
    )

    world.drain()
    world.drain()

    assert world.current() == {"Use npm, not pnpm.", "Always use npm for installs."}
    assert len(world.facts()) == 4


def test_unrelated_facts_are_left_alone(world: World) -> None:
    """A rule about npm ends nothing about npm's mirror or somebody else's scope."""
    _pi(
        world,
        "Remember that the npm mirror is refreshed every hour.",
        "Always use axios for the dashboard calls.",
        "Use pnpm, not npm.",
        "Use fetch instead of axios in the command line.",
    )

    world.drain()

    assert len(world.current()) == 4


def test_an_agents_words_and_results_alone_teach_nothing(world: World) -> None:
    """Only people declare; a failure without a proven remedy is no fact."""
    answer = [{"type": "text", "text": "Never push to main."}]
    result = [
        {"type": "tool_result", "tool_use_id": "x", "content": FAILURE, "is_error": True},
    ]
    _claude_file(world).write_bytes(
        lines(
            [
                claude_line(1, "assistant", answer, world.checkout),
                claude_line(2, "user", result, world.checkout),
            ]
        )
    )

    world.drain()

    assert world.facts() == []


def test_our_own_recall_never_comes_back_as_a_source(world: World) -> None:
    """Recalled text is in every transcript; read a hundred times, it stays what it was."""
    block = '<private_memory trust="untrusted">\n{"text":"Never feed the marker-77 twice."}\n'
    entry = {"type": "custom_message", "customType": "memoryd", "content": block, "display": False}
    _pi_file(world).write_bytes(
        lines(
            [
                pi_header(world.checkout),
                {**entry, "id": "x", "parentId": None, "timestamp": "2026-11-30T10:00:00Z"},
                pi_said(1, block + "</private_memory>\nnow run the tests"),
            ]
        )
    )
    _claude_file(world).write_bytes(
        lines([claude_line(n, "user", block, world.checkout) for n in range(3)])
    )

    world.drain()

    assert world.facts() == []
    assert b"marker-77" not in world.stored_bytes()


def test_secrets_in_transcripts_never_reach_the_home(world: World) -> None:
    """Prompts, commands, outputs, open calls in the cursor: no value on disk, nothing learnt."""
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    failing = FAILURE.replace("(berth database)", f"(password={secret})")
    _pi_file(world).write_bytes(
        lines(
            [
                pi_header(world.checkout),
                pi_said(1, f"Always use {secret} as the release token."),
                pi_ran(2, f"deploy --token {secret}"),
                pi_result(3, failing, failed=True),
                pi_ran(4, f"svc start --password={secret}"),
                pi_result(5, "ready"),
                pi_ran(6, f"deploy --token {secret}"),
                pi_result(7, "6 passed"),
                pi_ran(8, f"curl -H 'Authorization: Bearer {secret}'"),
            ]
        )
    )

    world.drain()

    assert world.facts() == []
    assert secret.encode() not in world.stored_bytes()


def test_windows_of_any_size_give_the_same_facts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure in one window and its repair in the next are still one lesson."""
    text = (ROOT / "ops/sample/pi-session.jsonl").read_text("utf-8")
    _pi_file(world).write_text(text.replace("/home/dev/harbor", str(world.checkout)), "utf-8")
    monkeypatch.setattr(analyze, "WINDOW_BYTES", FIRST_WINDOW)

    notes = world.drain()

    assert len(notes) > 20
    assert len(world.facts()) == 6


@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cuts=st.lists(st.integers(1, 24_000), min_size=1, max_size=5))
def test_a_session_learnt_while_it_grows_equals_one_learnt_at_its_end(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    """Syncing at arbitrary moments of a session changes neither facts nor quotes."""
    world = World(tmp_path_factory.mktemp("grows"))
    sample = (ROOT / "ops/sample/pi-session.jsonl").read_text("utf-8")
    whole = sample.replace("/home/dev/harbor", str(world.checkout)).encode()
    path = _pi_file(world)

    for cut in [*sorted(cuts), len(whole)]:
        path.write_bytes(whole[:cut])
        world.drain()

    quotes = {fact.statement: len(world.evidence(fact.statement)) for fact in world.facts()}
    assert len(quotes) == 6
    assert set(quotes.values()) == {1}
    world.authority.close()


def test_a_crash_after_the_commit_repeats_nothing(world: World) -> None:
    """A second run of an applied job changes nothing and still asks for what comes next."""
    _pi(world, "Never push to main.")
    (job,) = sync.run(world.context(), {}).successors
    analyze.run(world.context("same"), job.args)
    before = world.authority.generation()

    done = analyze.run(world.context("same"), job.args)

    assert done.note == "was applied"
    assert world.authority.generation() == before
    assert len(world.facts()) == 1


def test_more_sources_than_one_sync_may_name_are_named_by_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync that left some out asks for another one, a while later."""
    monkeypatch.setattr(sync, "MAX_JOBS", 1)
    for name in ("a", "b", "c"):
        _pi(world, "Never push to main.", name=f"{name}.jsonl")

    first, *rest = sync.run(world.context(), {}).successors

    assert first.kind is JobKind.ANALYZE
    assert [spec.kind for spec in rest] == [JobKind.SYNC]
    assert rest[0].run_at == world.clock.now_ms() + sync.AGAIN_MS


def test_a_source_that_changes_while_it_is_read_publishes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replaced between reading and committing: stale, the queue tries again."""
    path = _pi(world, "Never push to main.")
    (job,) = sync.run(world.context(), {}).successors

    def meanwhile(*args: object, **more: object) -> object:
        path.write_bytes(lines([pi_header(world.checkout, id="another")]) + b"\n" * 900)
        return propose(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("tasks.analyze.propose", meanwhile)
    with pytest.raises(Stale):
        analyze.run(world.context(), job.args)

    assert world.facts() == []
    with world.authority.read() as reads:
        assert reads.cursors() == []


def test_a_lost_lease_publishes_nothing(world: World) -> None:
    """Whoever lost the job may not write, not even at the last moment."""
    _pi(world, "Never push to main.")
    (job,) = sync.run(world.context(), {}).successors
    context = world.context()

    def lost() -> None:
        raise LeaseLost

    guard: Callable[[], None] = lost
    monkey = type("Lost", (), {"stamp": context.lease.stamp, "check": staticmethod(guard)})
    with pytest.raises(LeaseLost):
        analyze.run(replace(context, lease=monkey()), job.args)

    assert world.facts() == []


def test_a_replaced_file_is_read_again_and_doubles_nothing(world: World) -> None:
    """Truncation and rewriting restart a source; known statements keep their quotes."""
    _pi(world, "Never push to main.", "Tests must not touch the network.")
    world.drain()
    _pi(world, "Never push to main.")
    notes = world.drain()

    assert any("restarted" in note for note in notes)
    assert len(world.facts()) == 2
    assert len(world.evidence("Never push to main.")) == 1


def test_skipped_lines_are_counted_where_people_see_them(world: World) -> None:
    """A gap is a number in the cursor and in the note, not silence."""
    path = _pi(world, "Never push to main.")
    path.write_bytes(path.read_bytes() + b"{broken\n")

    notes = world.drain()

    with world.authority.read() as reads:
        (cursor,) = reads.cursors()
    assert (cursor.skipped, cursor.observations) == (1, 1)
    assert notes == ["1 recorded, 1 skipped not_json"]
    assert not has_news(cursor)


def test_another_projects_transcript_is_never_read(world: World) -> None:
    """A session of another folder, planted in ours, teaches nothing and is not even found."""
    other = world.checkout.parent / "other"
    path = _pi_file(world)
    path.write_bytes(lines([pi_header(other), pi_said(1, "Never feed the marker-88 twice.")]))
    _claude_file(world).write_bytes(
        lines([claude_line(1, "user", "Never feed the marker-88 twice.", other)])
    )

    world.drain()

    assert world.facts() == []
    assert b"marker-88" not in world.stored_bytes()


def test_our_own_log_is_read_before_transcripts(world: World) -> None:
    """Corrections wait in the log: its job outranks bulk reading."""
    _pi(world, "Never push to main.")
    remember(
        world.paths, world.project, "The staging database lives on port 6543.", clock=world.clock
    )

    jobs = sync.run(world.context(), {}).successors

    assert [(job.args["adapter"], job.priority) for job in jobs] == [
        ("pi-session", Priority.CORRECTION),
        ("pi", Priority.BULK),
    ]
    assert all(job.kind is JobKind.ANALYZE for job in jobs)
    assert len({job.subject for job in jobs}) == 2


def test_a_source_that_is_gone_or_off_ends_its_job(world: World) -> None:
    """Deleted files and switched-off adapters are no failures."""
    path = _pi(world, "Never push to main.")
    (job,) = sync.run(world.context(), {}).successors
    path.unlink()

    assert analyze.run(world.context(), job.args).note == "the source is gone"
    world.settings = replace(world.settings, sources=replace(world.settings.sources, pi=False))
    assert analyze.run(world.context(), job.args).note == "this source is switched off"
    with pytest.raises(Invalid):
        analyze.run(world.context(), {"adapter": "pi"})
