"""A throw-away memory with a corpus in it, made by the real path: admission, events, embedding.

Owns the temporary home and one project a group; `close` removes all of it. What it hands out is
what the recall server would hold: an index snapshot and the reads behind it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ops.eval.corpus import CorpusText
from storage.admission import admit_document
from storage.authority import open_authority
from storage.authority.payloads import document_upserted
from storage.clock import Clock
from storage.config import Settings
from storage.errors import Refused
from storage.paths import HomePaths
from storage.records import Document, JobStamp, JsonValue, ProjectId, Trust
from tasks import embed
from tasks.context import Context

if TYPE_CHECKING:
    from retrieval.embedding import Encoder
    from retrieval.index import IndexSnapshot
    from storage.authority.port import Authority
    from storage.authority.reads import Reads
    from tasks.llm import LanguageModel

NAMESPACE: Final = "eval"
AT_ONCE: Final = 256
"""Documents of one append."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """One group's memory, open for questions."""

    index: IndexSnapshot
    reads: Reads
    latest: int
    """The newest observation: a question without `as_of` is asked after it."""


class EvalMemory:
    """All groups of a corpus, ingested."""

    def __init__(
        self,
        texts: Sequence[CorpusText],
        *,
        clock: Clock,
        encoder: Encoder | None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="memoryd-eval-"))
        self._clock, self._encoder, self._say = clock, encoder, say
        self._groups: dict[str, ProjectId] = {}
        self._latest: dict[str, int] = {}
        self.refused = 0
        """Texts that admission did not let in."""
        by_group: dict[str, list[CorpusText]] = {}
        for text in texts:
            by_group.setdefault(text.group, []).append(text)
        try:
            for group, members in by_group.items():
                self._ingest(group, members)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove the home."""
        shutil.rmtree(self._home, ignore_errors=True)

    @contextmanager
    def opened(self, group: str) -> Iterator[Shelf | None]:
        """The memory of a group; None for a group without texts."""
        from retrieval.index import build_index

        if group not in self._groups:
            yield None
            return
        collection = self._encoder.collection if self._encoder else None
        with ExitStack() as stack:
            authority = self._authority(self._groups[group])
            stack.callback(authority.close)
            generation = authority.generation()
            reads = stack.enter_context(authority.read())
            index = build_index(reads, generation=generation, collection=collection)
            yield Shelf(index, reads, self._latest[group])

    def _authority(self, project: ProjectId, *, create: bool = False) -> Authority:
        paths = HomePaths(self._home).project(project)
        settings = Settings().storage
        return open_authority(paths, project, clock=self._clock, settings=settings, create=create)

    def _ingest(self, group: str, texts: Sequence[CorpusText]) -> None:
        project = ProjectId(f"p_eval_{len(self._groups)}")
        self._groups[group] = project
        documents = []
        now = self._clock.now_ms()
        for text in texts:
            try:
                documents.append(admitted(text, now))
            except Refused:
                self.refused += 1
        self._latest[group] = max((document.observed_at for document in documents), default=now)
        authority = self._authority(project, create=True)
        try:
            for start in range(0, len(documents), AT_ONCE):
                part = documents[start : start + AT_ONCE]
                authority.append([document_upserted(document) for document in part])
        finally:
            authority.close()
        if self._encoder is not None:
            self._say(f"embedding {len(documents):,} texts")
            self._embed(project)

    def _embed(self, project: ProjectId) -> None:
        """Run the embed job's body until it asks for itself no more."""
        encoder = self._encoder

        def refuse_model() -> LanguageModel:
            raise AssertionError("embedding asks no language model")

        number = 0
        more = True
        while more:
            number += 1
            context = Context(
                paths=HomePaths(self._home),
                environment={},
                settings=Settings(),
                clock=self._clock,
                project=project,
                lease=_OwnLease(JobStamp(job_id=f"eval-{number}", token=1)),
                open_authority=lambda: self._authority(project),
                model=refuse_model,
                encoder=lambda: encoder,
            )
            more = bool(embed.run(context, {}).successors)


@dataclass(frozen=True, slots=True)
class _OwnLease:
    """Nobody else works in this home: the lease never ends."""

    stamp: JobStamp

    def check(self) -> None:
        return


def admitted(text: CorpusText, now: int) -> Document:
    """The document of a corpus text, through the one way in.

    Raises:
        Refused: out of bounds.
    """
    metadata: dict[str, JsonValue] = {}
    if text.session:
        metadata["session"] = text.session
    if text.order is not None:
        metadata["order"] = text.order
    if text.lang:
        metadata["lang"] = text.lang
    return admit_document(
        namespace=NAMESPACE,
        external_id=text.id,
        source=text.source or "corpus",
        kind="note",
        text=text.text,
        title=text.title,
        observed_at=0 if text.observed_at is None else text.observed_at,
        valid_to=text.valid_to,
        trust=Trust.USER,
        adapter="eval",
        metadata=metadata,
    )
