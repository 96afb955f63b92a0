"""Vectors for the chunks that have none: the body of the `embed` job.

Runs for about `WORK_MS`, stores what it made in one stamped commit, and asks for itself once more
while chunks are left: so a large store never holds a lease for long and a crash costs one slice.
Lexical recall never waits for any of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Final

from retrieval.multilingual import foreign_of
from retrieval.quantize import packed
from storage.errors import EncoderLost, Snooze, Transient, Unavailable
from storage.jobs import JobKind, JobSpec, Priority
from storage.records import JsonValue
from tasks.context import Context, Finished

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from storage.authority.port import Authority
    from storage.authority.reads import Reads
    from storage.records import Chunk

WORK_MS: Final = 20_000
BATCH: Final = 16
"""Chunks between two looks at the clock and the lease: about a second of long texts."""
MAX_CHUNKS: Final = 4_096
"""Chunks of one run: 1.5 MB of vectors in one commit."""


def run(context: Context, args: Mapping[str, JsonValue]) -> Finished:
    """Encode chunks without a vector in the encoder's collection.

    Raises:
        LeaseLost: nothing was stored.
        Snooze: the encoder cannot be used now; says why.
        Transient: its process died over a batch, which uses up an attempt.
    """
    encoder = _encoder(context)
    if encoder is None:
        return Finished(note="no encoder is configured")
    with closing(context.open_authority()) as authority:
        with authority.read() as reads:
            done = reads.is_applied(context.lease.stamp.job_id)
        # A run that stored its slice and was killed before saying so only asks for the next one.
        stored = 0 if done else _slice(context, authority, _needed(authority, encoder))
        with authority.read() as reads:
            more = lacks_vectors(reads, encoder)
    if not more:
        # Loading takes half a second, keeping 150 MB: a consumer idles far longer than it works.
        encoder.close()
    again = JobSpec(kind=JobKind.EMBED, project=context.project, priority=Priority.BULK)
    return Finished(successors=(again,) if more else (), note=f"{stored} chunks embedded")


def _encoder(context: Context) -> Encoder | None:
    try:
        return context.encoder()
    except Unavailable as problem:
        raise Snooze(str(problem)) from problem


def lacks_vectors(reads: Reads, encoder: Encoder) -> bool:
    """Whether a chunk lacks a vector in one of the encoder's collections."""
    return any(reads.chunks_without_vector(one.collection, limit=1) for one in _parts(encoder))


def _needed(authority: Authority, encoder: Encoder) -> Encoder:
    """The part of the encoder whose turn it is: the first before the multilingual one."""
    with authority.read() as reads:
        for one in _parts(encoder):
            if reads.chunks_without_vector(one.collection, limit=1):
                return one
    return encoder


def _parts(encoder: Encoder) -> tuple[Encoder, ...]:
    second = foreign_of(encoder)
    return (encoder,) if second is None else (encoder, second)


def _slice(context: Context, authority: Authority, encoder: Encoder) -> int:
    """Encode for about WORK_MS and commit once; how many vectors are new."""
    with authority.read() as reads:
        waiting = reads.chunks_without_vector(encoder.collection, limit=MAX_CHUNKS)
    # Chunks of similar length share a batch without padding; which come first does not matter.
    waiting.sort(key=lambda chunk: len(chunk.text))
    began = context.clock.boot_ms()
    rows: list[tuple[int, bytes]] = []
    for start in range(0, len(waiting), BATCH):
        context.lease.check()
        batch = waiting[start : start + BATCH]
        rows += zip((chunk.rowid for chunk in batch), _encoded(encoder, batch), strict=True)
        if context.clock.boot_ms() - began >= WORK_MS:
            break
    if not rows:
        return 0
    return authority.store_vectors(
        encoder.collection, rows, stamp=context.lease.stamp, guard=context.lease.check
    )


def _encoded(encoder: Encoder, batch: list[Chunk]) -> list[bytes]:
    texts = [f"{chunk.title}\n{chunk.text}".strip() for chunk in batch]
    try:
        encoder.warm()
        return packed(encoder.encode(texts), encoder.collection.scale)
    except EncoderLost as problem:
        # Perhaps these very texts: a job that always ends so must not be tried for ever.
        raise Transient(str(problem)) from problem
    except Unavailable as problem:
        raise Snooze(str(problem)) from problem
