"""`ops model`: the encoder behind recall by meaning, its files, and what this memory has of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ops.exits import Exit
from ops.invocation import Invocation, shared_options
from ops.output import count, show, table
from ops.project import current_project, opened
from storage.errors import MemorydError, Unavailable
from storage.records import JsonValue

if TYPE_CHECKING:
    from rich.table import Table

    from ops.project import Project
    from retrieval.embedding import Encoder, PackagedFile
    from storage.records import Collection

MOST_MISSING = 10_000
"""Texts without a vector are counted up to here."""


@click.command()
@click.option("--verify", is_flag=True, help="Hash the model's files, or ask its endpoint once.")
@shared_options(project=True)
def model(invocation: Invocation, verify: bool) -> None:
    """Which encoder is in use, whether it is sound, and how many texts have its vectors.

    Exit code 3 when it cannot be used; recall then goes on by words.
    """
    project = current_project(invocation)
    problem, encoder = "", None
    try:
        encoder = _encoder(project)
    except MemorydError as found:
        problem = str(found)
    files = _files(verify) if project.settings.encoder.provider == "embedded" else []
    problem = problem or next((str(file["problem"]) for file in files if file["problem"]), "")
    if encoder is not None and verify and not problem:
        problem = _asked(encoder)
    held = _held(invocation, project, encoder)
    value: dict[str, JsonValue] = {
        "ok": not problem,
        "provider": project.settings.encoder.provider,
        "model": encoder.collection.model if encoder else None,
        "dims": encoder.collection.dims if encoder else None,
        "problem": problem or None,
        "files": [dict(file) for file in files],
        **held,
    }
    show(invocation.as_json, value, [_table(value), _state(value, verify=verify)])
    if problem:
        click.get_current_context().exit(Exit.NOT_READY)


def _encoder(project: Project) -> Encoder | None:
    from retrieval.encoders import shared_encoder

    return shared_encoder(project.settings.encoder)


def _files(verify: bool) -> list[dict[str, JsonValue]]:
    from retrieval.embedding import MODEL, TOKENIZER
    from retrieval.multilingual import VOCABULARY, WEIGHTS, installed

    second = (WEIGHTS, VOCABULARY) if installed() else ()
    return [_file(file, verify) for file in (MODEL, TOKENIZER, *second)]


def _file(file: PackagedFile, verify: bool) -> dict[str, JsonValue]:
    size, problem = 0, ""
    try:
        size = file.locate().stat().st_size
        if verify:
            file.read()
    except OSError as cause:
        problem = f"{file.path}: {cause.strerror}"
    except Unavailable as cause:
        problem = str(cause)
    sound = None if not verify else not problem
    return {
        "file": f"{file.package}/{file.path}",
        "bytes": size,
        "sound": sound,
        "problem": problem,
    }


def _asked(encoder: Encoder) -> str:
    try:
        encoder.warm()
        encoder.encode_query("which encoder is this?")
    except MemorydError as problem:
        return str(problem)
    finally:
        encoder.close()
    return ""


def _held(
    invocation: Invocation, project: Project, encoder: Encoder | None
) -> dict[str, JsonValue]:
    from retrieval.multilingual import foreign_of

    second = foreign_of(encoder) if encoder is not None else None
    current = [one.collection for one in (encoder, second) if one is not None]
    with opened(invocation, project) as authority, authority.read() as reads:
        collections = reads.collections()
        counted = [(one, sum(1 for _ in reads.vectors(one))) for one in collections]
        waiting = sum(len(reads.chunks_without_vector(one, limit=MOST_MISSING)) for one in current)
    return {
        "collections": [_collection(one, number, current) for one, number in counted],
        "waiting": waiting if current else None,
    }


def _collection(one: Collection, number: int, current: list[Collection]) -> JsonValue:
    return {
        "model": one.model,
        "dims": one.dims,
        "vectors": number,
        "current": one in current,
    }


def _table(value: dict[str, JsonValue]) -> Table:
    collections = value["collections"]
    assert isinstance(collections, list)
    rows = [
        (
            str(one["model"]),
            str(one["dims"]),
            f"{one['vectors']:,}",
            "yes" if one["current"] else "no",
        )
        for one in collections
        if isinstance(one, dict)
    ]
    return table(["model", ">size", ">vectors", "in use"], rows)


def _state(value: dict[str, JsonValue], *, verify: bool) -> str:
    if value["problem"]:
        return f"Not usable: {value['problem']}. Recall goes on by words."
    if value["model"] is None:
        return "The encoder is switched off (encoder.provider): recall goes by words alone."
    proven = "its files were hashed and it answered" if verify else "ops model --verify proves it"
    waiting = value["waiting"]
    left = f"; {count(int(str(waiting)), 'text')} without a vector yet" if waiting else ""
    return f"In use: {value['model']} ({value['provider']}), {proven}{left}."
