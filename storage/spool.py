"""The way in when the database is busy: one synced file per entry, taken in later by the worker.

An entry counts as accepted once its file is on disk. Taking in is exactly once: the file's name is
recorded in the transaction that applies it, and only then is the file removed.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import apsw

from storage import activity
from storage.activity import Activity
from storage.atomic import replace_file
from storage.connection import private_directory
from storage.errors import Invalid, Unavailable
from storage.jobs import MAX_MESSAGE_BYTES, JobKind, JobSpec, Priority
from storage.paths import HomePaths
from storage.queue_line import lines, put
from storage.records import JsonValue, ProjectId, canonical_json

SPOOL_VERSION = 1
SUFFIX = ".json"
MAX_ENTRY_BYTES = 4 * MAX_MESSAGE_BYTES
BATCH = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What one accepted event asks for: count activity, enqueue jobs, or both."""

    project: ProjectId
    counted: Activity | None = None
    specs: tuple[JobSpec, ...] = ()


def append(paths: HomePaths, entry: Entry, now: int) -> Path:
    """Put an entry on disk, durably; returns its file.

    Raises:
        Unavailable: the folder cannot be written.
        Invalid: too large.
    """
    data = _encode(entry)
    if len(data) > MAX_ENTRY_BYTES:
        raise Invalid(f"a spool entry has {len(data)} bytes; at most {MAX_ENTRY_BYTES} are allowed")
    folder = private_directory(paths.spool)
    path = folder / f"{now:015d}-{secrets.token_hex(8)}{SUFFIX}"
    replace_file(path, data)
    return path


def waiting(paths: HomePaths, limit: int = BATCH) -> list[Path]:
    """Entries to take in, oldest first.

    Raises:
        Unavailable: the folder cannot be read.
    """
    try:
        names = [path for path in paths.spool.iterdir() if path.name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise Unavailable(f"{paths.spool}: cannot be read ({cause.strerror})") from cause
    return sorted(path for path in names if not path.name.startswith("."))[:limit]


def folder_changed_at(paths: HomePaths) -> int | None:
    """Modification time of the spool's folder, ns; None while there is none."""
    try:
        return paths.spool.stat().st_mtime_ns
    except OSError:
        return None


TAKE: Final = (
    "INSERT INTO spooled (name, taken_at) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING 1"
)


def take_in(db: apsw.Connection, files: Sequence[Path], now: int) -> tuple[int, list[Path]]:
    """Apply entries in a FULL transaction; the jobs asked for, and files that are not entries."""
    jobs, refused = 0, []
    for path in files:
        try:
            entry = _decode(path.read_bytes())
        except FileNotFoundError:
            continue
        except (Invalid, OSError):
            refused.append(path)
            continue
        if not db.execute(TAKE, (path.name, now)).fetchall():
            continue
        jobs += apply(db, entry, now)
    return jobs, refused


def apply(db: apsw.Connection, entry: Entry, now: int) -> int:
    """Count and enqueue what the entry asks for, and the sync that its activity makes due."""
    specs = entry.specs
    if entry.counted is not None and entry.project:
        activity.add(db, entry.project, entry.counted)
        at = activity.sync_due_at(db, entry.project, now)
        if at is not None:
            specs += (JobSpec(kind=JobKind.SYNC, project=entry.project, run_at=at),)
    put(db, lines(specs), now)
    return len(specs)


def remove(files: Sequence[Path]) -> None:
    """Delete entries whose transaction committed."""
    for path in files:
        with suppress(OSError):
            path.unlink()


def quarantine(files: Sequence[Path]) -> None:
    """Set unreadable entries aside, so that people can look at them."""
    for path in files:
        with suppress(OSError):
            path.rename(path.with_suffix(".refused"))


def _encode(entry: Entry) -> bytes:
    counted: JsonValue = None
    if entry.counted is not None:
        counted = {
            "turns": entry.counted.turns,
            "tokens": entry.counted.tokens,
            "inserts": entry.counted.inserts,
        }
    specs: list[JsonValue] = [
        {
            "kind": spec.kind.value,
            "project": spec.project,
            "subject": spec.subject,
            "args": spec.args,
            "priority": int(spec.priority),
            "run_at": spec.run_at,
        }
        for spec in entry.specs
    ]
    return canonical_json(
        {"v": SPOOL_VERSION, "project": entry.project, "counted": counted, "specs": specs}
    )


def _decode(data: bytes) -> Entry:
    try:
        value = json.loads(data)
        if value["v"] != SPOOL_VERSION:
            raise Invalid(f"a spool entry of version {value['v']}")
        counted = value["counted"]
        return Entry(
            project=ProjectId(str(value["project"])),
            counted=None
            if counted is None
            else Activity(**{str(name): int(count) for name, count in counted.items()}),
            specs=tuple(_spec(item) for item in value["specs"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as cause:
        raise Invalid("not a spool entry") from cause


def _spec(item: dict[str, Any]) -> JobSpec:  # Any: JSON, checked by the constructors below
    run_at = item["run_at"]
    args = item["args"]
    if not isinstance(args, dict):
        raise Invalid("a spool entry without arguments")
    return JobSpec(
        kind=JobKind(item["kind"]),
        project=ProjectId(str(item["project"])),
        subject=str(item["subject"]),
        args=cast("dict[str, JsonValue]", args),
        priority=Priority(item["priority"]),
        run_at=None if run_at is None else int(run_at),
    )
