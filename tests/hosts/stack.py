"""A whole memoryd for the journeys: the real recall server and the real consumer, in one home.

Owns starting and stopping both, connecting an agent to them, and knowing when nothing is left to
do. Leaves the agents to ``agents`` and what was learned to the tests.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from hooks.recall_client import call
from ops.hosts import HostName, connect
from ops.services import SERVER, WORKER, server_answers, start
from storage.clock import SystemClock
from storage.config import StorageSettings
from storage.jobs import JobState
from storage.paths import HomePaths
from storage.projects import bind
from storage.queue import open_queue
from storage.records import JsonValue
from tests.hosts.agents import Home, host_environment
from tests.support import wait_until

LEARNED_WITHIN_S = 30.0


def give_memory(home: Path, user: Home, host: HostName) -> HomePaths:
    """Connect `user`'s agent to the memory in `home` and bind the project; starts nothing."""
    paths = HomePaths(home)
    connect(host, paths, user.environment())
    bind(paths, user.project, clock=SystemClock(), settings=StorageSettings())
    return paths


@contextmanager
def memoryd_stack(home: Path, user: Home, host: HostName) -> Iterator[HomePaths]:
    """A running server and consumer of `home`, `user`'s agent connected and project bound.

    Both programs have ended when the block is left.
    """
    paths = give_memory(home, user, host)
    environment = {
        **host_environment(),
        "HOME": str(user.home),
        "TMPDIR": str(user.temp),
        "PI_MEMORY_HOME": str(home),
    }
    with ExitStack() as stack:
        for program in (SERVER, WORKER):
            running = start(program, paths, environment)
            stack.callback(running.stop)
        yield paths


def await_server_and_stop_it(paths: HomePaths) -> None:
    """Return once a server somebody else started has answered and ended."""
    wait_until(lambda: server_answers(paths), what="nobody started the recall server")
    answer = call(paths, "ping", {}, timeout_ms=5_000)
    assert isinstance(answer, dict)
    pid = answer["pid"]
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not server_answers(paths), what="the recall server did not end")


def wait_until_recalled(paths: HomePaths, folder: Path, question: str) -> None:
    """Return when the server would recall something for `question`; AssertionError if never.

    The first questions of a server are answered without its encoder, which loads behind them.
    """

    def recalled() -> bool:
        asked: dict[str, JsonValue] = {"cwd": str(folder), "query": question}
        answer = call(paths, "recall", asked, timeout_ms=2_000)
        return isinstance(answer, dict) and bool(answer["block"])

    wait_until(recalled, within_s=LEARNED_WITHIN_S, what="the lesson was never recalled")


def wait_until_learned(paths: HomePaths) -> None:
    """Return when the consumer has done some work and none is due; AssertionError if it never is.

    A job enqueues what follows from it in the transaction that completes it, so an empty queue
    after a completed job means that the whole chain is done.
    """
    with closing(open_queue(paths, clock=SystemClock())) as queue:
        wait_until(
            lambda: queue.counts().get(JobState.COMPLETED, 0) > 0 and queue.drained(),
            within_s=LEARNED_WITHIN_S,
            what="the consumer never finished what the session asked for",
        )
