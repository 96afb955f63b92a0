"""Chunks: deterministic slices in which every word of the text stands."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.chunking import OVERLAP_CHARS, TARGET_CHARS, pieces, slices
from storage.records import document_key

KEY = document_key("notes", "a.md")
texts = st.text(alphabet="ab .\n\t語。é\u0301", max_size=600)


@given(texts, st.sampled_from([(12, 4), (30, 0), (60, 20)]))
def test_nothing_but_white_space_lies_outside_the_slices(text: str, size: tuple[int, int]) -> None:
    """Slices are ordered, bounded, never blank, and cover every word."""
    target, overlap = size
    found = slices(text, target=target, overlap=overlap)
    covered = [False] * len(text)

    for part in found:
        assert 0 < part.end - part.start <= target
        assert text[part.start : part.end].strip()
        covered[part.start : part.end] = [True] * (part.end - part.start)

    assert all(seen or char.isspace() for seen, char in zip(covered, text, strict=True))
    assert [part.start for part in found] == sorted({part.start for part in found})


@given(texts)
def test_the_same_text_gives_the_same_chunks(text: str) -> None:
    """Ids and wording are a function of key, title and text."""
    assert pieces(KEY, "t", text) == pieces(KEY, "t", text)
    assert len({piece.chunk_id for piece in pieces(KEY, "t", text)}) == len(pieces(KEY, "t", text))


@given(texts)
def test_a_chunk_lies_where_its_bytes_say(text: str) -> None:
    """Offsets count UTF-8 bytes, so that SQLite can cut the chunk out of the stored text."""
    raw = text.encode()

    found = [raw[p.start : p.start + p.bytes].decode() for p in pieces(KEY, "t", text)]

    assert found == [text[part.start : part.end] for part in slices(text)]


def test_short_blocks_are_folded_up_to_the_target() -> None:
    """Neighbouring paragraphs share a chunk while they fit."""
    text = "\n\n".join(["x" * 500] * 5)

    found = [text[piece.start :][: piece.bytes] for piece in pieces(KEY, "", text)]

    assert found == ["x" * 500 + "\n\n" + "x" * 500] * 2 + ["x" * 500]


def test_a_giant_paragraph_is_cut_with_overlap() -> None:
    """A text without a blank line or a space still becomes bounded, overlapping chunks."""
    text = "漢字" * 2_000

    found = slices(text)

    assert all(part.end - part.start <= TARGET_CHARS for part in found)
    assert all(b.start == a.end - OVERLAP_CHARS for a, b in pairwise(found))
    assert found[-1].end == len(text)


def test_windows_end_at_sentences_where_one_is_near() -> None:
    """A cut falls behind a full stop, in any script."""
    english = "This is a sentence of some length. " * 100
    chinese = "这是一个不太长的句子。" * 300

    for text in (english.strip(), chinese):
        found = slices(text)
        assert all(text[part.end - 1] in ".。" for part in found)


def test_ids_change_only_where_wording_or_place_changed() -> None:
    """The chunk before an edit keeps its id; title and key are part of it."""
    head, tail = "h" * 1_000, "t" * 1_000
    before = pieces(KEY, "T", f"{head}\n\n{tail}")
    after = pieces(KEY, "T", f"{head}\n\nnew {tail}")

    assert before[0] == after[0]
    assert before[1].chunk_id != after[1].chunk_id
    assert pieces(KEY, "U", head)[0].chunk_id != before[0].chunk_id
    assert pieces(document_key("notes", "b"), "T", head)[0].chunk_id != before[0].chunk_id
    assert before[0].chunk_id.startswith("chk_")
    assert len(before[0].chunk_id) == 36


def test_a_text_without_words_has_no_chunk() -> None:
    """White space alone is nothing to index."""
    assert pieces(KEY, "t", " \n\n\t ") == ()


def test_an_overlap_that_large_is_a_mistake() -> None:
    """The overlap stays within a third of the target."""
    with pytest.raises(ValueError, match="third"):
        slices("text", target=30, overlap=11)
