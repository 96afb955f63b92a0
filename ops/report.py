"""What people see of the first run: each step as it happens, then what was learned and recalled.

Owns the words and their layout. With --json they go to standard error, so that the object stays
alone on standard output.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ops.answers import Answer
from ops.drain import Progress
from ops.exits import Failure
from ops.lessons import Lesson, rows
from ops.material import Transcript
from ops.originals import skipped_sentence
from ops.output import console, count, printable, styled, table
from storage.paths import HomePaths

if TYPE_CHECKING:
    from rich.status import Status

WAITS = {
    "model": "needs a language model, and none is configured",
    "budget": "the day's budget is spent",
    "paused": "paused by a person",
}
SHOWN = 12
"""Facts listed; the rest is counted."""


class Report:
    """The first run, told as it goes."""

    def __init__(self, *, as_json: bool) -> None:
        self._screen = console(stderr=as_json)
        self._status: Status | None = None
        self._sample = False
        self._program = str(Path(sys.executable).parent / "ops")

    def planned(
        self, origin: str, folder: Path, number: int, wished: Path | None, paths: HomePaths
    ) -> None:
        """Say what is read and where memory goes, before anything happens."""
        self._sample = origin == "sample"
        if origin == "found":
            self.step(f"Reading {count(number, 'session')} of {folder} (never changed)")
        elif origin == "given":
            self.step(f"Reading {count(number, 'given transcript')} into the memory of {folder}")
        else:
            where = wished or Path.cwd()
            self.step(
                f"No Pi or Claude Code session of {where} was found: reading a sample instead"
            )
            self._say(
                "Two recorded sessions about an invented project; none of your folders is bound."
            )
        self._say(f"Memory lives in {paths.home}; the project itself is not touched.")

    def strange(self, transcript: Transcript, folder: Path) -> None:
        """A session of another folder is read because it was named: said where nobody misses it."""
        words = f"{transcript.path} was recorded in {transcript.cwd}, another folder (without a"
        print(
            printable(f"quickstart: {words} memory): what it teaches goes to {folder}."),
            file=sys.stderr,
        )

    def bound(self, folder: Path) -> None:
        """The folder has a memory from now on."""
        self._say(f"{folder} has a memory from now on (undo: {self._program} project unlink).")

    def others(self, running: Sequence[str]) -> None:
        """What runs already, and is not this run's to stop."""
        if running:
            self._say(f"Running already, used and left running: {' and '.join(running)}.")
            self._say(f"To stop what runs: {self._program} stop")

    def skipped(self, number: int) -> None:
        """What could not be read."""
        if number:
            self._say(f"{skipped_sentence(number)}.")

    def step(self, what: str) -> None:
        """One line for one step."""
        self._screen.print(styled(f"> {what}", "bold"), soft_wrap=True)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A line that lives while the background works."""
        self.step("Learning in the background")
        with self._screen.status("waiting for the consumer") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None

    def progress(self, line: str) -> None:
        """What the background does now."""
        if self._status is not None:
            self._status.update(styled(line))

    def done(self, progress: Progress) -> None:
        """What the background did, what waits, and what was lost."""
        self._say(f"{count(progress.finished, 'job')} done.")
        waits = Counter((job.kind, job.waiting_for) for job in progress.held)
        for (kind, reason), number in sorted(waits.items()):
            jobs = count(number, f"{kind} job")
            self._say(f"{jobs} left for later: {WAITS.get(reason, reason)}.")
        for job in progress.lost:
            self._screen.print(styled(f"  Failed: {job.kind}: {job.error}", "red"))
        if progress.lost:
            self._say(f"What failed is kept and listed by: {self._program} jobs --state dead")

    def kept(self, titles: Sequence[str]) -> None:
        """What goes on running."""
        if titles:
            self._say(f"Still running, as you asked: {' and '.join(titles)}. {self._program} stop")

    def finished(
        self,
        lessons: Sequence[Lesson],
        answer: Answer,
        new: int,
        progress: Progress,
        seconds: float,
    ) -> None:
        """What is known, the answer, and what to do next."""
        known = count(len(lessons), "fact")
        heading = f"Nothing new; {known} known" if not new else f"Learned {new:,}; {known} known"
        self.step(heading)
        if lessons:
            columns = ("kind", "what was learned, and where it was said")
            self._screen.print(table(columns, rows(lessons[:SHOWN])))
        if len(lessons) > SHOWN:
            self._say(f"... and {len(lessons) - SHOWN:,} more: {self._program} facts")
        self.step(f"Asked: {answer.question}")
        if answer.block:
            size = len(answer.block.encode("utf-8"))
            self._say(f"Your agent would receive these {size:,} bytes before that prompt:")
            self._screen.print()
            for line in answer.block.splitlines():
                self._screen.print(styled(line, "cyan"), soft_wrap=True)
            self._screen.print()
        else:
            self._say(f"Nothing fits, so nothing would be added ({answer.recall.reason}).")
        self._next_steps(seconds)

    def failed(self, failure: Failure) -> None:
        """Why it ended, and what to do."""
        self._screen.print(styled(f"quickstart: {failure.sentence}", "bold red"))
        if failure.hint:
            self._say(failure.hint)

    def _next_steps(self, seconds: float) -> None:
        self.step(f"Done in {seconds:.1f} s. Next:")
        steps = [
            ("use it in a project of yours", f"cd YOUR-PROJECT && {self._program} init"),
            ("connect an agent", f"{self._program} host install pi   (or claude)"),
            ("learn in the background", f"{self._program} start"),
            ("see what it knows", f'{self._program} status, learned, recall "a question"'),
        ]
        for what, how in steps if self._sample else steps[1:]:
            self._say(f"{what + ':':<30} {how}")

    def _say(self, text: str) -> None:
        self._screen.print(styled("  " + text), soft_wrap=True)
