"""`ops backup`, `restore`, `export`, `import`: a memory out of its home, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click

from ops.invocation import Invocation, shared_options
from ops.output import console, count, moment, moment_json, show
from ops.project import current_project, opened
from storage.authority.copies import Progress
from storage.connection import private_directory
from storage.errors import Invalid, Unavailable
from storage.records import JsonValue


@contextmanager
def progress_bar(as_json: bool, what: str) -> Iterator[Progress | None]:
    """A bar for a person at a terminal; nothing for anybody else."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import Progress as Bar

    with Bar(console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield advance


@click.command()
@click.option("--to", "target", metavar="FILE", help="[default: the memory's backups folder]")
@shared_options(project=True)
def backup(invocation: Invocation, target: str | None) -> None:
    """Copy a memory into one proven file.

    The file is an SQLite database with the journal inside; it can be made while everything runs.
    Backups in the default folder forget along with the memory; one that you put elsewhere cannot.
    """
    from storage.backup import back_up

    project = current_project(invocation)
    with progress_bar(invocation.as_json, "Copying") as progress:
        made = back_up(
            project.paths,
            project.binding.project_id,
            Path(target).expanduser().absolute() if target else None,
            clock=invocation.clock,
            settings=project.settings.storage,
            progress=progress,
        )
    value: dict[str, JsonValue] = {
        "ok": True,
        "file": str(made.file),
        "bytes": made.bytes,
        "events": made.report.events,
        "facts": made.report.facts,
        "documents": made.report.documents,
    }
    sizes = f"{made.bytes:,} bytes, {count(made.report.facts, 'fact')}"
    show(invocation.as_json, value, [f"{made.file} ({sizes}); it was unpacked and verified."])


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace the memory that is there; a copy is kept.")
@shared_options(project=True)
def restore(invocation: Invocation, file: Path, force: bool) -> None:
    """Put a backup back in a memory's place.

    A memory that is there is never overwritten without --force, and then a copy of it is kept. What
    that memory was told to forget is forgotten in the restored one too.
    """
    from storage.backup import restore as put_back

    project = current_project(invocation)
    done = put_back(
        project.paths,
        project.binding.project_id,
        file.absolute(),
        clock=invocation.clock,
        settings=project.settings.storage,
        force=force,
    )
    value: dict[str, JsonValue] = {
        "ok": True,
        "made_at": moment_json(done.made_at),
        "events": done.report.events,
        "facts": done.report.facts,
        "kept": None if done.kept is None else str(done.kept),
        "forgotten": done.forgotten,
    }
    lines = [f"Restored as of {moment(done.made_at)}: {count(done.report.facts, 'fact')}."]
    if done.kept is not None:
        lines.append(f"What was there before: {done.kept}")
    if done.forgotten is None:
        lines.append("What was there could not be read: what it was told to forget is not known.")
    show(invocation.as_json, value, lines)


@click.command()
@click.option("--out", metavar="FILE", help="[default: standard output]")
@click.option("--no-history", is_flag=True, help="Leave the events out.")
@shared_options(project=True)
def export(invocation: Invocation, out: str | None, no_history: bool) -> None:
    """Write a memory as JSON lines.

    One object a line: a header with the version, then facts with their quotes, documents, waiting
    statements, and the events of history.
    """
    from storage import portable

    project = current_project(invocation)
    with opened(invocation, project) as authority:
        lines = portable.lines_of(
            portable.export(authority, now=invocation.clock.now_ms(), history=not no_history)
        )
        if out is None:
            for line in lines:
                sys.stdout.write(line.decode("ascii"))
            return
        target = Path(out).expanduser().absolute()
        written = _write_private(target, lines)
    value: dict[str, JsonValue] = {"ok": True, "file": str(target), "lines": written}
    show(invocation.as_json, value, [f"{target}: {count(written, 'line')}"])


@click.command(name="import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@shared_options(project=True)
def import_(invocation: Invocation, file: Path) -> None:
    """Take an export into a memory.

    What is there already stays as it is, and what was forgotten here stays forgotten; running it
    again takes in only what is missing.
    """
    from storage import portable

    project = current_project(invocation)
    with file.open("rb") as lines:
        parcel = portable.parse(lines)
    with opened(invocation, project) as authority:
        done = portable.take_in(authority, parcel)
    value: dict[str, JsonValue] = {
        "ok": True,
        "from": parcel.project,
        "facts": done.facts,
        "documents": done.documents,
        "deferred": done.deferred,
        "known": done.known,
        "forgotten": done.forgotten,
    }
    taken = (
        f"{count(done.facts, 'fact')}, {count(done.documents, 'document')} and"
        f" {count(done.deferred, 'waiting statement')} taken in"
    )
    rest = f"; {done.known:,} were known, {done.forgotten:,} were forgotten here"
    show(invocation.as_json, value, [taken + rest + "."])


def _write_private(target: Path, lines: Iterator[bytes]) -> int:
    """Write a new private file; an existing one is refused."""
    import os

    private = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
    try:
        if not target.parent.is_dir():
            private_directory(target.parent)
        fd = os.open(target, private, 0o600)
    except FileExistsError as cause:
        raise Invalid(f"{target} is there already; an export never overwrites a file") from cause
    except OSError as cause:
        raise Unavailable(f"{target}: cannot be written ({cause.strerror})") from cause
    count_ = 0
    with closing(os.fdopen(fd, "wb")) as file:
        for line in lines:
            file.write(line)
            count_ += 1
        file.flush()
        os.fsync(file.fileno())
    return count_
