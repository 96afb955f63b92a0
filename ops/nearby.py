"""Asking a memory inside the command itself, as the recall server would.

For a person who asks while the server does not run, or has not loaded its encoder: the same index,
the same encoder, the same answer, a few hundred milliseconds later. Leaves the server's and the
agents' way to `hooks`.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ops.invocation import Invocation
from ops.project import Project, opened
from retrieval.results import Recall
from storage.errors import MemorydError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retrieval.embedding import Encoder
    from retrieval.index import IndexSnapshot
    from storage.authority.reads import Reads

MAX_CHUNKS: Final = 20_000
"""Indexing takes a second up to here; a larger memory is left to the server, or to words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A project's index in this process, over one snapshot."""

    index: IndexSnapshot
    reads: Reads
    encoder: Encoder | None
    now_at: int
    words_only: str
    """Why there is no meaning to compare; "" when there is, or nothing to compare with."""

    def recall(self, project: Project, question: str, as_of: int | None) -> Recall:
        """What the server would answer."""
        from retrieval import search

        settings = project.settings.recall
        return search.recall(
            self.index,
            question,
            reads=self.reads,
            now_at=self.now_at,
            encoder=self.encoder,
            limit=settings.max_items,
            max_bytes=settings.max_bytes,
            as_of=as_of,
        )


@contextmanager
def opened_here(invocation: Invocation, project: Project) -> Iterator[Opened | None]:
    """The project's index and its encoder, loaded; None when the memory is too large for that.

    Raises:
        MemorydError: the memory cannot be read.
    """
    from retrieval.index import build_index

    with opened(invocation, project) as authority:
        generation = authority.generation()
        with authority.read() as reads:
            if reads.stats().chunks > MAX_CHUNKS:
                yield None
                return
            encoder, why = _encoder(project, reads)
            collection = encoder.collection if encoder else None
            index = build_index(reads, generation=generation, collection=collection)
            with closing(_Unload(encoder)):
                yield Opened(
                    index=index,
                    reads=reads,
                    encoder=encoder,
                    now_at=invocation.clock.now_ms(),
                    words_only=why,
                )


@dataclass(frozen=True, slots=True)
class _Unload:
    encoder: Encoder | None

    def close(self) -> None:
        if self.encoder is not None:
            self.encoder.close()


def _encoder(project: Project, reads: Reads) -> tuple[Encoder | None, str]:
    """The encoder, loaded, when the memory has its vectors; and why there is none."""
    from retrieval.encoders import shared_encoder

    if not reads.stats().chunks:
        return None, ""
    try:
        encoder = shared_encoder(project.settings.encoder)
        if encoder is None:
            return None, "the setting encoder.provider is none"
        if encoder.collection not in reads.collections():
            return None, "nothing is encoded yet (the consumer does it: ops start)"
        encoder.warm()
    except MemorydError as problem:
        return None, f"the encoder cannot be loaded ({problem})"
    return encoder, ""
