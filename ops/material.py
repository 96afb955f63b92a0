"""What the first run reads: this user's sessions of the project, named transcripts, or the sample.

Owns recognising a transcript, whose project it is, and the private copy through which a session of
another folder is read when a person names it: redacted line by line, its folder replaced by the
project's, every line in its place. Leaves reading and learning to `tasks`. Transcripts themselves
are never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ops.originals import FOLDER, remember_original
from storage.atomic import replace_file
from storage.config import SourceSettings
from storage.connection import private_directory
from storage.errors import Invalid, Refused, SourceUnavailable
from storage.jobs import JobKind, JobSpec, Priority
from storage.names import is_clean_path
from storage.paths import HomePaths, ProjectPaths
from storage.projects import lookup
from storage.records import JsonValue, ProjectId, canonical_json, digest_of
from storage.redaction import is_clean, redact_json
from storage.sentences import sentences
from tasks.sources import Checkouts
from tasks.sources.catalogue import claude_projects, pi_sessions
from tasks.sources.claude import ClaudeSource
from tasks.sources.lines import Batch, Position, open_source, scan
from tasks.sources.pi import PiSource
from tasks.sync import RULES, analyze_job

Adapter = Literal["pi", "claude"]
SAMPLE_FOLDER: Final = "sample"
SAMPLE_QUESTION: Final = "Install zod with npm, then run the integration tests."
"""A next prompt that the sample has something to say to."""
HEAD_LINES: Final = 10_000
HEAD_BYTES: Final = 268_435_456
"""A transcript says what it is within so much; its first lines may be giants."""
WINDOW_BYTES: Final = 4_194_304
_UNREADABLE: Final = b"?\n"
"""Stands for a line that cannot be read: it is counted, and the lines after it keep their place."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """A session file of a known agent."""

    path: Path
    adapter: Adapter
    cwd: str
    """The folder in which the agent ran."""


def found_transcripts(
    folder: Path, environment: Mapping[str, str], settings: SourceSettings
) -> list[str]:
    """This user's sessions that ran in the folder, as the background sync will find them."""
    checkouts = Checkouts(roots=(str(folder),))
    limit = settings.max_line_bytes
    found: list[str] = []
    if settings.pi:
        pi = PiSource(pi_sessions(environment, settings), checkouts, max_line_bytes=limit)
        found += pi.discover()
    if settings.claude:
        folders = claude_projects(environment, settings)
        found += ClaudeSource(folders, checkouts, max_line_bytes=limit).discover()
    return found


def sample_transcripts() -> list[Path]:
    """The bundled sessions."""
    return sorted((Path(__file__).parent / "sample").glob("*.jsonl"))


def sample_project(paths: HomePaths) -> Path:
    """A folder of ours that stands for the sample's project: none of the user's is bound by it."""
    return private_directory(private_directory(paths.shared) / SAMPLE_FOLDER)


def recognised(path: Path, *, max_line_bytes: int) -> Transcript:
    """The transcript in a file.

    Raises:
        Invalid: no such file, not readable, or not a session of Pi or Claude Code.
    """
    for batch in _batches(path, max_line_bytes):
        for _, line in batch.objects:
            cwd = line.get("cwd")
            if isinstance(cwd, str) and cwd.startswith("/"):
                if line.get("type") == "session":
                    return Transcript(Path(_real(path)), "pi", cwd)
                if "sessionId" in line:
                    return Transcript(Path(_real(path)), "claude", cwd)
        if batch.position.line >= HEAD_LINES or batch.position.offset >= HEAD_BYTES:
            break
    raise Invalid(f"{path} is not a session of Pi or Claude Code (JSON lines that name a folder).")


def strangers(
    transcripts: Sequence[Transcript], paths: HomePaths, folder: Path
) -> list[Transcript]:
    """Those that were recorded in a folder without a memory, which is not `folder` or within it.

    Raises:
        Refused: one was recorded in a folder that has a memory of its own.
    """
    ours = lookup(paths, folder)
    place = folder.resolve()
    found = []
    for transcript in transcripts:
        there = Path(_real(Path(transcript.cwd)))
        owner = lookup(paths, there)
        if owner is not None and (ours is None or owner.project_id != ours.project_id):
            raise Refused(
                f"{transcript.path} is a session of {owner.location}, which has a memory of its"
                f" own: it is not read into the memory of {place}."
            )
        if owner is None and place != there and place not in there.parents:
            found.append(transcript)
    return found


def belongs_to(transcript: Transcript, paths: HomePaths, project: ProjectId) -> bool:
    """Whether the session ran in a folder of this project."""
    binding = lookup(paths, Path(transcript.cwd))
    return binding is not None and binding.project_id == project


def jobs_for(
    transcripts: Sequence[Transcript],
    paths: HomePaths,
    project: ProjectId,
    *,
    location: Path,
    max_line_bytes: int,
) -> list[JobSpec]:
    """The jobs that read these transcripts into the project's memory."""
    jobs = []
    for transcript in transcripts:
        own = belongs_to(transcript, paths, project)
        path = (
            transcript.path
            if own
            else _adopted(transcript, paths.project(project), location, max_line_bytes)
        )
        jobs.append(analyze_job(project, transcript.adapter, str(path), RULES))
    return jobs


def sync_job(project: ProjectId) -> JobSpec:
    """The job that looks for the project's own sessions."""
    return JobSpec(kind=JobKind.SYNC, project=project, priority=Priority.INTERACTIVE)


def _adopted(
    transcript: Transcript, project: ProjectPaths, location: Path, max_line_bytes: int
) -> Path:
    """A private copy that reads as a session of `location`; rewritten only when it differs."""
    copied = bytearray()
    written = 0
    for batch in _batches(transcript.path, max_line_bytes):
        damaged = batch.skipped.total()
        for number, line in batch.objects:
            gap = number - 1 - written
            copied += _UNREADABLE * min(gap, damaged) + b"\n" * (gap - min(gap, damaged))
            copied += _copied_line(line, location)
            damaged -= min(gap, damaged)
            written = number
        gap = batch.position.line - written
        copied += _UNREADABLE * min(gap, damaged) + b"\n" * (gap - min(gap, damaged))
        written = batch.position.line
    folder = private_directory(project.root / FOLDER)
    stem = transcript.path.stem[:80]
    name = stem if is_clean_path(stem) else "session"
    copy = folder / f"{name}-{digest_of(str(transcript.path))[:8]}.jsonl"
    if not copy.exists() or copy.read_bytes() != copied:
        replace_file(copy, bytes(copied))
    remember_original(copy, transcript.path)
    return copy


def _copied_line(line: Mapping[str, JsonValue], location: Path) -> bytes:
    moved = {**line, "cwd": str(location)} if "cwd" in line else line
    try:
        return canonical_json(redact_json(_without_secrets(moved))) + b"\n"
    except (ValueError, RecursionError):
        # Numbers that JSON has not (NaN, 1e999), or nesting without end: nothing that an agent
        # writes, and nothing that a memory could keep.
        return _UNREADABLE


def _without_secrets(value: JsonValue) -> JsonValue:
    """The value less every sentence that holds a credential.

    Such a statement is never learned; its redacted form, read again, would look like a clean one.
    """
    if isinstance(value, str):
        if is_clean(value):
            return value
        for sentence in sentences(value):
            if not is_clean(sentence):
                value = value.replace(sentence, "")
        return value
    if isinstance(value, Mapping):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_without_secrets(item) for item in value]
    return value


def _batches(path: Path, max_line_bytes: int) -> Iterator[Batch]:
    """The file's lines, a window at a time; one that cannot be read is counted in its window."""
    try:
        with open_source(_real(path)) as file:
            batch = scan(file, Position(), limit=WINDOW_BYTES, max_line_bytes=max_line_bytes)
            yield batch
            while batch.more:
                batch = scan(
                    file, batch.position, limit=WINDOW_BYTES, max_line_bytes=max_line_bytes
                )
                yield batch
    except (SourceUnavailable, OSError) as cause:
        raise Invalid(f"{path} is not a file that can be read.") from cause


def _real(path: Path) -> str:
    # `Path.resolve` raises for links in a ring; this leaves them to whoever opens the file.
    return os.path.realpath(path)
