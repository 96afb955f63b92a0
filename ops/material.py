"""What the first run reads: this user's sessions of the project, named transcripts, or the sample.

Owns recognising a transcript, whose project it is, and the private copy through which a session of
another folder is read when a person names it: redacted line by line, its folder replaced by the
project's, every line in its place. Leaves reading and learning to `tasks`. Transcripts themselves
are never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from storage.atomic import replace_file
from storage.config import SourceSettings
from storage.connection import private_directory
from storage.errors import Invalid, SourceUnavailable
from storage.jobs import JobKind, JobSpec, Priority
from storage.paths import HomePaths, ProjectPaths
from storage.projects import lookup
from storage.records import JsonValue, ProjectId, canonical_json, digest_of
from storage.redaction import is_clean, redact_json
from storage.sentences import sentences
from tasks.sources import Checkouts
from tasks.sources.catalogue import claude_projects, pi_sessions
from tasks.sources.claude import ClaudeSource
from tasks.sources.lines import Position, open_source, scan
from tasks.sources.pi import PiSource
from tasks.sync import RULES, analyze_job

Adapter = Literal["pi", "claude"]
SAMPLE_FOLDER: Final = "sample"
SAMPLE_QUESTION: Final = "Install zod with npm, then run the integration tests."
"""A next prompt that the sample has something to say to."""
HEAD_BYTES: Final = 1_048_576
"""A transcript says what it is within its first lines."""
WINDOW_BYTES: Final = 4_194_304
_UNREADABLE: Final = b"?\n"
"""Stands for a line that cannot be read, so that the lines after it keep their numbers."""


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
    for _, line in _lines(path, max_line_bytes, limit=HEAD_BYTES):
        cwd = line.get("cwd")
        if isinstance(cwd, str) and cwd.startswith("/"):
            if line.get("type") == "session":
                return Transcript(path.resolve(), "pi", cwd)
            if "sessionId" in line:
                return Transcript(path.resolve(), "claude", cwd)
    raise Invalid(f"{path} is not a session of Pi or Claude Code (JSON lines that name a folder).")


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
    folder = private_directory(project.root / "given")
    name = f"{transcript.path.stem[:80]}-{digest_of(str(transcript.path))[:8]}.jsonl"
    copied = bytearray()
    written = 0
    for number, line in _lines(transcript.path, max_line_bytes):
        copied += _UNREADABLE * (number - 1 - written)
        moved = {**line, "cwd": str(location)} if "cwd" in line else line
        copied += canonical_json(redact_json(_without_secrets(moved))) + b"\n"
        written = number
    copy = folder / name
    if not copy.exists() or copy.read_bytes() != copied:
        replace_file(copy, bytes(copied))
    return copy


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


def _lines(
    path: Path, max_line_bytes: int, *, limit: int | None = None
) -> Iterator[tuple[int, Mapping[str, JsonValue]]]:
    """(1-based number, object) of every readable line, or of the first `limit` bytes."""
    try:
        with open_source(str(path.resolve())) as file:
            batch = scan(
                file, Position(), limit=limit or WINDOW_BYTES, max_line_bytes=max_line_bytes
            )
            yield from batch.objects
            while batch.more and limit is None:
                batch = scan(
                    file, batch.position, limit=WINDOW_BYTES, max_line_bytes=max_line_bytes
                )
                yield from batch.objects
    except SourceUnavailable as cause:
        raise Invalid(f"{path} is not a file that can be read.") from cause
