"""A recall over the arrays: the right lines, in bounds, and silence when there is nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.embedding import HashEncoder
from retrieval.index import IndexSnapshot, build_index
from retrieval.quantize import packed
from retrieval.render import render
from retrieval.results import Recall
from retrieval.search import recall, top
from storage.authority.payloads import fact_resolved
from storage.authority.reads import Reads
from storage.errors import Unavailable
from storage.records import Collection, FactKind, RedactedText, Standing
from tests.retrieval.memories import (
    FACTS,
    SOME_AT,
    Text,
    a_fact,
    a_store,
    in_memory,
    remember,
)
from tests.support import ManualClock

if TYPE_CHECKING:
    from retrieval.quantize import Floats

NOW = SOME_AT + 1_000


def small_store(texts: Sequence[str] = FACTS) -> tuple[IndexSnapshot, Reads]:
    """An index and its store, without vectors."""
    reads = in_memory([Text(text=text) for text in texts])
    return build_index(reads, generation=3), reads


def vector_store(texts: Sequence[str] = FACTS) -> tuple[IndexSnapshot, Reads, HashEncoder]:
    """An index and its store, with hashed vectors."""
    encoder = HashEncoder()
    vectors = packed(encoder.encode(texts), encoder.collection.scale)
    reads = in_memory(
        [Text(text=text) for text in texts], collection=encoder.collection, vectors=vectors
    )
    return build_index(reads, generation=3, collection=encoder.collection), reads, encoder


def texts_of(answer: Recall) -> list[str]:
    """The statements of an answer."""
    return [item.text for item in answer.items]


def test_a_question_finds_its_fact() -> None:
    """The text that has the question's words comes first, with its scores and its place."""
    index, reads = small_store()

    answer = recall(index, "Which local database is used?", reads=reads, now_at=NOW)

    assert answer.status == "ok"
    assert texts_of(answer)[0] == FACTS[0]
    assert answer.generation == 3
    item = answer.items[0]
    assert 0 < item.scores.lexical <= 1
    assert item.scores.dense is None
    assert [leg.name for leg in answer.legs] == ["exact", "lexical", "dense"]
    assert item.sources[0].adapter == "test"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("What is the capital of Mongolia?", "nothing matches"),
        ("ok, continue", "an acknowledgement"),
        ("", "nothing was asked"),
        ("Is the weather in the main square local today?", "nothing is close enough"),
    ],
)
def test_what_the_memory_does_not_know_gets_silence(query: str, reason: str) -> None:
    """No item, a reason, and an empty block."""
    index, reads = small_store()

    answer = recall(index, query, reads=reads, now_at=NOW)

    assert answer.status == "abstained"
    assert answer.items == ()
    assert answer.reason == reason
    assert render(answer, max_bytes=2_000) == ""


def test_an_empty_memory_abstains() -> None:
    """No text, no item, no error; with an encoder neither."""
    index, reads = small_store([])

    answer = recall(index, "which database", reads=reads, now_at=NOW, encoder=HashEncoder())

    assert answer.status == "abstained"


def test_a_named_identifier_is_found_as_it_stands() -> None:
    """A literal outranks common words around it."""
    index, reads = small_store()

    answer = recall(index, "what does AWS_PROFILE have to be", reads=reads, now_at=NOW)

    assert texts_of(answer)[0] == FACTS[6]
    assert answer.items[0].scores.exact > 0


def test_a_number_in_a_sentence_names_nothing() -> None:
    """A document called "505" is found by that name alone, not by every sentence with a 505."""
    reads = in_memory([Text(text=text, name=str(505 + at)) for at, text in enumerate(FACTS)])
    index = build_index(reads, generation=1)

    said = recall(index, "What happened 505 million years ago?", reads=reads, now_at=NOW)
    named = recall(index, "505", reads=reads, now_at=NOW)

    assert said.items == ()
    assert texts_of(named) == [FACTS[0]]


def test_a_document_is_found_by_its_name() -> None:
    """An external id in the question is a look-up, not a search."""
    reads = in_memory([Text(text=text, name=f"note-{at}") for at, text in enumerate(FACTS)])
    index = build_index(reads, generation=1)

    answer = recall(index, "show me note-7", reads=reads, now_at=NOW)

    assert texts_of(answer)[0] == FACTS[7]
    assert answer.items[0].scores.exact == 1.0


def test_only_what_holds_now_is_recalled_and_as_of_asks_about_then() -> None:
    """An expired text is silent today and speaks about its own time."""
    texts = [
        Text(text="The queue runs on Redis.", valid_from=10, valid_to=20),
        Text(text="The queue runs on SQLite.", valid_from=20),
    ]
    reads = in_memory(texts)
    index = build_index(reads, generation=1)

    now = recall(index, "what does the queue run on", reads=reads, now_at=30)
    then = recall(index, "what does the queue run on", reads=reads, now_at=30, as_of=19)
    before = recall(index, "what does the queue run on", reads=reads, now_at=30, as_of=5)

    assert texts_of(now) == ["The queue runs on SQLite."]
    assert texts_of(then) == ["The queue runs on Redis."]
    assert before.status == "abstained"


def test_a_retracted_fact_is_not_served_from_an_older_index(home: Path) -> None:
    """What the store says now outweighs what the index knew."""
    clock = ManualClock()
    store = a_store(home, clock)
    fact = a_fact("The project uses SQLite as its durable local database.")
    remember(store, [fact])
    with store.read() as reads:
        index = build_index(reads, generation=1)
    store.append([fact_resolved(fact.fact_id, Standing.CONTRADICTED, NOW, RedactedText("wrong"))])

    with store.read() as reads:
        answer = recall(index, "which local database", reads=reads, now_at=NOW + 10)
    store.close()

    assert answer.status == "abstained"
    assert answer.reason == "what matched no longer holds"


def test_an_unconfirmed_fact_is_marked_and_ranks_below_a_supported_one(home: Path) -> None:
    """Equal words: the supported fact comes first, the other says that nobody vouched for it."""
    store = a_store(home, ManualClock())
    remember(
        store,
        [
            a_fact("Deploy with the blue pipeline script first.", standing=Standing.NEEDS_REVIEW),
            a_fact("Deploy with the green pipeline script first.", kind=FactKind.PROCEDURE),
        ],
    )
    with store.read() as reads:
        index = build_index(reads, generation=1)
        answer = recall(index, "deploy pipeline script", reads=reads, now_at=NOW)
    store.close()

    assert [item.unconfirmed for item in answer.items] == [False, True]
    assert answer.items[0].scores.fused > answer.items[1].scores.fused
    assert answer.items[0].sources[0].line == 3
    assert '"unconfirmed":true' in render(answer, max_bytes=2_000)


def test_the_same_thing_is_not_said_twice() -> None:
    """Near-identical texts give one item; the rest is counted as omitted."""
    index, reads = small_store(
        [
            "Use pnpm instead of npm for the web client.",
            "use pnpm instead of npm for the web client",
            "Always use pnpm instead of npm for the web client.",
        ]
    )

    answer = recall(index, "pnpm or npm for the web client", reads=reads, now_at=NOW)

    assert len(answer.items) == 1
    assert answer.omitted == 2


def test_limit_and_bytes_bound_the_answer() -> None:
    """At most `limit` items whose block fits; what is left out is counted."""
    index, reads = small_store(
        [f"The build cache of module {name} is warm." for name in "abcdefgh"]
    )

    few = recall(index, "build cache warm module", reads=reads, now_at=NOW, limit=2)
    tight = recall(index, "build cache warm module", reads=reads, now_at=NOW, max_bytes=512)

    assert len(few.items) <= 2
    assert len(render(tight, max_bytes=512).encode()) <= 512


def test_kinds_and_namespaces_narrow_before_ranking() -> None:
    """A filter is no afterthought: the best of the wanted kind is found, however low it ranks."""
    texts = [Text(text=f"release branch rule {at}", kind="note") for at in range(90)]
    texts.append(Text(text="release branch", kind="rule"))
    reads = in_memory(texts)
    index = build_index(reads, generation=1)

    answer = recall(index, "release branch", reads=reads, now_at=NOW, kinds={"rule"})
    nobody = recall(index, "release branch", reads=reads, now_at=NOW, namespaces={"memory"})

    assert texts_of(answer) == ["release branch"]
    assert nobody.status == "abstained"


def test_vectors_join_the_score() -> None:
    """With vectors each item has a cosine, and the fused score is between the legs."""
    index, reads, encoder = vector_store()

    answer = recall(index, "local database SQLite", reads=reads, now_at=NOW, encoder=encoder)

    scores = answer.items[0].scores
    assert texts_of(answer)[0] == FACTS[0]
    assert scores.dense is not None
    assert min(scores.lexical, scores.dense) <= scores.fused <= max(scores.lexical, scores.dense)
    assert {leg.name for leg in answer.legs} == {"exact", "lexical", "dense", "encode"}


class ColdEncoder(HashEncoder):
    """An encoder whose model is not in memory."""

    @property
    def ready(self) -> bool:
        return False

    def encode(self, texts: Sequence[str]) -> Floats:
        raise AssertionError("recall must not wait for a model")


class BrokenEncoder(HashEncoder):
    """An encoder whose model file is gone."""

    def encode(self, texts: Sequence[str]) -> Floats:
        raise Unavailable("encoder: model.onnx is not installed")


def test_a_cold_encoder_is_a_gap_and_not_a_wait() -> None:
    """Recall goes on by words and says what was missing."""
    index, reads, _ = vector_store()

    answer = recall(index, "local database", reads=reads, now_at=NOW, encoder=ColdEncoder())

    assert answer.status == "partial"
    assert texts_of(answer)[0] == FACTS[0]
    assert answer.gaps == ("the encoder is not loaded yet",)


def test_a_broken_encoder_is_a_gap_with_its_reason() -> None:
    """The lexical answer stands; the gap names the trouble."""
    index, reads, _ = vector_store()

    answer = recall(index, "local database", reads=reads, now_at=NOW, encoder=BrokenEncoder())

    assert texts_of(answer)[0] == FACTS[0]
    assert answer.gaps == ("dense leg off: encoder: model.onnx is not installed",)


def test_vectors_of_another_model_are_never_compared() -> None:
    """A changed model means a lexical answer and a gap until the store is embedded again."""
    index, reads, _ = vector_store()
    other = HashEncoder(dims=128)

    answer = recall(index, "local database", reads=reads, now_at=NOW, encoder=other)

    assert answer.items[0].scores.dense is None
    assert answer.gaps == ("the vectors are of another model",)


def test_an_expansion_can_find_what_the_prompt_does_not_say() -> None:
    """Another wording asked beside the prompt brings its own best text."""
    index, reads = small_store()

    plain = recall(index, "how are pictures scaled", reads=reads, now_at=NOW)
    wider = recall(
        index,
        "how are pictures scaled",
        reads=reads,
        now_at=NOW,
        expansions=["image resizer memory megapixels"],
    )

    assert plain.status == "abstained"
    assert texts_of(wider) == [FACTS[9]]


@given(
    st.lists(st.sampled_from([0.0, 0.0, 0.1, 0.2, 0.5, 0.9]), max_size=400),
    st.integers(1, 12),
)
def test_top_is_the_head_of_a_full_sort(values: list[float], count: int) -> None:
    """Block maxima and partition choose scores as good as a full sort does, zeros never."""
    scores = np.array(values, dtype=np.float32)

    chosen = top(scores, count)

    expected = sorted((value for value in scores.tolist() if value > 0), reverse=True)[:count]
    assert sorted(scores[chosen].tolist(), reverse=True) == expected
    assert sorted(chosen.tolist()) == chosen.tolist()


def test_collections_of_the_same_model_at_another_scale_differ() -> None:
    """The scale belongs to the identity of vectors."""
    one = Collection(model="m", dims=8, fingerprint="f", scale=127.0)
    other = Collection(model="m", dims=8, fingerprint="f", scale=540.0)

    assert one.name != other.name
