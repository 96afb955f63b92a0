"""What the recall server's ops do: ping, stats, recall, hook. Knows no sockets.

Questions run on a few threads, each with its own open stores; hook events go on to capture, one
after the other in the order they came, on a thread of their own, after the answer. Whatever fails
gives an empty answer and a line in the log: a hook's host must never notice.
"""

from __future__ import annotations

import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from queue import Full, PriorityQueue
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol, cast

from hooks.events import HookEvent, HookOutcome, PromptSubmitted, SessionStarted
from hooks.frames import Request, answer_line, failure_line, parse_request, raw_line
from hooks.hosting import Host, host_named
from hooks.recall import Ask, FindProject, Prompted, Recaller, bound_project
from hooks.receipts import Answered, keep
from hooks.snapshots import Snapshots
from hooks.warming import Warming
from retrieval.render import render
from storage.errors import Invalid, MemorydError

if TYPE_CHECKING:
    from hooks.eventlog import EventLog
    from hooks.serving import Reply
    from storage.clock import Clock
    from storage.paths import HomePaths
    from storage.records import JsonValue

MAX_QUEUED: Final = 1_024
MAX_CAPTURED: Final = 4_096
"""Hook events waiting to be written down; beyond it the oldest is lost, and counted."""
GIVEN_UP_MS: Final = 2_000
"""A question that waited so long has nobody waiting for it."""


class CaptureLike(Protocol):
    """`hooks.capture.Capture`, as this desk uses it."""

    def handle(self, event: HookEvent) -> None:
        """Write down what an event taught."""
        ...


@dataclass(slots=True)
class _Heard:
    """A hook's event; `answered` is set once its host need not wait for anything of ours."""

    host: Host
    event: HookEvent | None
    answered: threading.Event
    receipt: Answered | None = None
    """What to write down of the answer; there before `answered` is set."""


@dataclass(frozen=True, slots=True)
class _Job:
    request: Request
    reply: Reply
    queued: float
    heard: _Heard | None = None


class Desk:
    """Takes requests, answers them from worker threads, hands events to capture."""

    def __init__(
        self,
        paths: HomePaths,
        *,
        clock: Clock,
        environment: Mapping[str, str],
        log: EventLog,
        new_capture: Callable[[], CaptureLike],
        find_project: FindProject = bound_project,
        still_ours: Callable[[], bool] = lambda: True,
        idle_exit_s: int = 0,
        threads: int = 2,
    ) -> None:
        self._paths, self._log, self._still_ours = paths, log, still_ours
        self._new_capture = new_capture
        self._idle_exit_s = idle_exit_s
        self._counts: Counter[str] = Counter()
        self._counts_lock = threading.Lock()
        self._started = self._asked = monotonic()
        self._warming = Warming()
        self._new_recaller: Callable[[], Recaller] = lambda: Recaller(
            paths,
            clock=clock,
            environment=environment,
            snapshots=self._snapshots,
            warming=self._warming,
            find_project=find_project,
        )
        self._ready = threading.Event()
        self._snapshots = Snapshots(lambda: self._new_recaller().holdings, ready=self._ready)
        self._jobs: PriorityQueue[tuple[int, int, _Job | None]] = PriorityQueue(MAX_QUEUED)
        self._numbers = count()
        self._captured: deque[_Heard] = deque(maxlen=MAX_CAPTURED)
        self._capture_ready = threading.Condition()
        self._closing = False
        self._workers = [
            threading.Thread(target=self._work, name=f"recall-{number}", daemon=True)
            for number in range(threads)
        ]
        self._capturer = threading.Thread(target=self._capture, name="capture", daemon=True)
        importer = threading.Thread(target=self._import, name="import", daemon=True)
        for thread in (*self._workers, self._capturer, importer):
            thread.start()

    def receive(self, line: bytes, reply: Reply) -> None:
        """Answer at once what is trivial; queue the rest."""
        self._asked = monotonic()
        try:
            request = parse_request(line)
        except Invalid as problem:
            self._count("malformed")
            reply.send(failure_line("", str(problem)))
            return
        self._count(request.op if request.op in _OPS else "unknown")
        if request.op == "ping":
            reply.send(answer_line(request.id, {"pid": os.getpid()}))
        elif request.op == "stats":
            reply.send(answer_line(request.id, self.stats()))
        elif request.op in _OPS:
            self._take(request, reply)
        else:
            reply.send(failure_line(request.id, "unknown op"))

    def _take(self, request: Request, reply: Reply) -> None:
        """Queue a question or an event; events join the line for capture in the order they came."""
        heard: _Heard | None = None
        if request.op == "hook":
            try:
                heard = _heard(request)
            except Invalid as problem:
                self._failed(request, problem)
                reply.send(_nothing(request, str(problem)))
                return
            except Exception as problem:
                # As in `_handle`, and here the loop itself would end (an absurdly deep payload).
                self._failed(request, problem)
                reply.send(_nothing(request, "internal error"))
                return
            self._keep(heard)
        try:
            job = _Job(request, reply, monotonic(), heard)
            self._jobs.put_nowait((_turn(heard), next(self._numbers), job))
        except Full:
            self._count("refused")
            reply.send(_nothing(request, "too much at once"))
            if heard is not None:
                heard.answered.set()

    def tick(self) -> bool:
        """Housekeeping; False when the server should leave."""
        self._warming.tick()
        if not self._still_ours():
            return False
        idle_s = monotonic() - self._asked
        return not (self._idle_exit_s and idle_s >= self._idle_exit_s)

    def stats(self) -> dict[str, JsonValue]:
        """Counts and sizes; never anybody's words."""
        with self._counts_lock:
            counts = dict(self._counts)
        return {
            "pid": os.getpid(),
            "uptime_ms": round((monotonic() - self._started) * 1000),
            "rss_bytes": resident_bytes(),
            "ready": self._ready.is_set(),
            "queued": self._jobs.qsize(),
            "capturing": len(self._captured),
            "encoder": self._warming.state(),
            "encoder_problem": self._warming.problem,
            "encoder_pid": self._warming.pid(),
            "counts": counts,
            "projects": self._snapshots.sizes(),
        }

    def close(self, *, within_s: float = 5.0) -> None:
        """Finish what was taken, capture first of all; then end the threads."""
        deadline = monotonic() + within_s
        self._closing = True
        for _ in self._workers:
            try:
                end = (_LAST, next(self._numbers), None)
                self._jobs.put(end, timeout=max(0.0, deadline - monotonic()))
            except Full:
                break
        for thread in self._workers:
            thread.join(max(0.0, deadline - monotonic()))
        with self._capture_ready:
            self._capture_ready.notify_all()
        self._capturer.join(max(0.0, deadline - monotonic()))

    def _import(self) -> None:
        """Import numpy (80 ms and more) beside the first questions, which SQLite answers."""
        with suppress(ImportError):
            import retrieval.index
            import retrieval.search  # noqa: F401

            self._ready.set()

    def _work(self) -> None:
        recaller = self._new_recaller()
        try:
            while (job := self._jobs.get()[2]) is not None:
                self._handle(recaller, job)
        finally:
            recaller.close()

    def _handle(self, recaller: Recaller, job: _Job) -> None:
        request = job.request
        late = (monotonic() - job.queued) * 1000 > GIVEN_UP_MS
        try:
            if job.heard is None:
                job.reply.send(answer_line(request.id, _recall(recaller, request)))
            else:
                self._hook(recaller, request, job.reply, job.heard, late=late)
        except MemorydError as problem:
            self._failed(request, problem)
            job.reply.send(_nothing(request, str(problem)))
        except Exception as problem:
            # The last guard of a thread that serves every project: a fault in one store or one
            # payload must not silence the others.
            self._failed(request, problem)
            job.reply.send(_nothing(request, "internal error"))
        finally:
            if job.heard is not None:
                job.heard.answered.set()

    def _hook(
        self, recaller: Recaller, request: Request, reply: Reply, heard: _Heard, *, late: bool
    ) -> None:
        found, event = Prompted(HookOutcome()), heard.event
        began = monotonic()
        if isinstance(event, PromptSubmitted) and not late:
            found = recaller.prompt(event)
            self._count("injected" if found.outcome.block else "silent")
        reply.send(_hook_answer(request, heard.host, event, found.outcome))
        if found.answered is not None:
            heard.receipt = replace(found.answered, ms=(monotonic() - began) * 1000)
        if isinstance(event, SessionStarted) and not event.subagent:
            # Nobody waits for this: a person needs longer to type than a model needs to load.
            recaller.prepare(event.cwd)

    def _keep(self, heard: _Heard) -> None:
        if heard.event is None:
            return
        with self._capture_ready:
            if len(self._captured) == MAX_CAPTURED:
                self._count("capture_lost")
            self._captured.append(heard)
            self._capture_ready.notify()

    def _capture(self) -> None:
        capture: CaptureLike | None = None
        while (heard := self._next_heard()) is not None:
            try:
                if capture is None:
                    capture = self._new_capture()
                if heard.event is not None:
                    capture.handle(heard.event)
                self._count("captured")
            except Exception as problem:
                # As in `_handle`: one event that cannot be kept must not cost the next ones.
                self._count("capture_failed")
                self._log.write("capture.failed", problem=type(problem).__name__)
            self._write_receipt(heard.receipt)

    def _write_receipt(self, answered: Answered | None) -> None:
        if answered is None:
            return
        try:
            kept = keep(self._paths, answered)
        except Exception as problem:
            # As above: a disk that fails in a new way must not end the thread.
            kept = False
            self._log.write("receipt.failed", problem=type(problem).__name__)
        self._count("receipts" if kept else "receipts_lost")

    def _next_heard(self) -> _Heard | None:
        """The oldest event; None when the desk is closed and everything was written down."""
        with self._capture_ready:
            while not self._captured and not self._closing:
                self._capture_ready.wait()
            if not self._captured:
                return None
            heard = self._captured.popleft()
        # Writing down takes the processor from whoever is answering; a hung answer may not keep
        # everybody's words in memory.
        heard.answered.wait(GIVEN_UP_MS / 1000)
        return heard

    def _failed(self, request: Request, problem: Exception) -> None:
        self._count("failed")
        self._log.write("request.failed", op=request.op, problem=type(problem).__name__)

    def _count(self, name: str) -> None:
        with self._counts_lock:
            self._counts[name] += 1


_LAST: Final = 2


def _turn(heard: _Heard | None) -> int:
    """A prompt goes before everything else: a person waits for it, and its host not for long."""
    return 0 if heard is not None and isinstance(heard.event, PromptSubmitted) else 1


_OPS: Final = frozenset({"ping", "stats", "recall", "hook"})


def _heard(request: Request) -> _Heard:
    """The event that a hook reports; parsing is pure and bounded by the frame.

    Raises:
        Invalid: no known host, or no payload.
    """
    host = host_named(request.text("host"))
    payload = request.fields.get("payload")
    if host is None or not isinstance(payload, Mapping):
        raise Invalid("a hook without a known host and a payload")
    return _Heard(host, host.parse(request.text("event"), payload), threading.Event())


def _recall(recaller: Recaller, request: Request) -> JsonValue:
    ask = Ask(
        cwd=request.text("cwd"),
        query=request.text("query"),
        limit=_optional(request, "limit"),
        max_bytes=_optional(request, "max_bytes"),
        as_of=_optional(request, "as_of"),
        expansions=_texts(request.fields.get("expansions")),
    )
    found = recaller.recall(ask)
    return {"recall": found.to_json(), "block": render(found, max_bytes=recaller.room(ask))}


def _hook_answer(
    request: Request, host: Host, event: HookEvent | None, found: HookOutcome
) -> bytes:
    shown = host.render(event, found) if event is not None else None
    result = cast("JsonValue", shown)
    if request.text("reply") == "raw":
        return raw_line(result)
    return answer_line(request.id, result)


def _nothing(request: Request, why: str) -> bytes:
    """The empty answer in the shape that the client reads."""
    if request.text("reply") == "raw":
        return raw_line(None)
    return failure_line(request.id, why)


def _optional(request: Request, name: str) -> int | None:
    value = request.fields.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _texts(value: JsonValue) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(text for text in value if isinstance(text, str))[:4]


def resident_bytes() -> int:
    """Memory of this process in RAM; its peak where the system does not tell the present."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 -- no Path needed
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
