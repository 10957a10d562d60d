"""Whether texts are cut without loss, and windows overlap enough."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ragmeter.scorers.hhem.windowing import CountTokens, TextTooLong, cut_windows, split_span

MOST, OVERLAP = 40, 8


def words(text: str) -> int:
    """Tokens like those of a subword vocabulary: one for each four letters begun of a word."""
    return sum(-(-len(word) // 4) for word in text.split())


def letters(text: str) -> int:
    return len(text)


def rounded(text: str) -> int:
    """Not additive: the whole may have more tokens than its parts."""
    return len(text) // 3 + (5 if len(text) > 60 else 0)


counters = st.sampled_from([words, letters, rounded])
PARTS = ["Prices rise. ", "No! ", "e.g. ", "and so, ", "\n", "on", " ", "x" * 90, "Dr. ", "  \t "]
PARTS += ["one two three four five six seven eight nine ten. ", "价格上涨。", "1,000 ", "[2]. "]
prose = st.lists(st.sampled_from(PARTS), max_size=400).map("".join)
texts = st.one_of(prose, st.text(max_size=300)).filter(lambda text: not text.isspace() and text)


def cut(text: str, count: CountTokens) -> list[tuple[int, int]]:
    return cut_windows(text, MOST, OVERLAP, count, lambda window: count(window) <= MOST)


@settings(deadline=None)
@given(texts, counters)
@example("No. " * 700, words)  # more sentences than are looked for at a time
@example("x" * 5_000, words)
@example("A" + " " * 5_000, words)
def test_every_character_is_in_a_window_that_fits(text: str, count: CountTokens) -> None:
    spans = cut(text, count)
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    for (start, end), (following, later) in pairwise(spans):
        assert start < following <= end < later
    assert all(count(text[start:end]) <= MOST for start, end in spans)
    assert cut(text, count) == spans


@settings(deadline=None)
@given(prose.filter(lambda text: not text.isspace() and text))
def test_every_stretch_of_half_the_overlap_is_whole_in_a_window(text: str) -> None:
    spans = cut(text, words)
    found = [match.span() for match in re.finditer(r"\S+", text)]
    for first in range(len(found)):
        last = first
        while last + 1 < len(found) and words(text[found[first][0] : found[last + 1][1]]) <= 4:
            last += 1
        start, end = found[first][0], found[last][1]
        if words(text[start:end]) <= OVERLAP // 2:
            assert any(a <= start and end <= b for a, b in spans)


def test_windows_end_where_sentences_do_and_share_the_last_one() -> None:
    lines = [f"Sentence {n:02d} ends here." for n in range(20)]  # 6 tokens each
    shown = [" ".join(lines)[start:end].strip() for start, end in cut(" ".join(lines), words)]
    assert all(any(line in window for window in shown) for line in lines)
    for before, after in pairwise(shown):
        assert before[-22:] == after[:22]
    assert len(shown) == 4


@settings(deadline=None)
@given(st.lists(st.integers(1, 27), min_size=1, max_size=30))
def test_a_sentence_that_leaves_room_for_the_overlap_is_whole_in_a_window(sizes: list[int]) -> None:
    lines = [" ".join(["it"] * size) + "." for size in sizes]
    text = " ".join(lines)
    spans = cut(text, words)
    at = 0
    for line in lines:
        start, at = at, at + len(line) + 1
        assert any(a <= start and start + len(line) <= b for a, b in spans)


def test_a_long_sentence_is_cut_after_a_clause_or_between_words() -> None:
    text = "alpha beta gamma, delta epsilon zeta eta theta iota"
    spans = split_span(text, (0, len(text)), 8, words)
    shown = [text[start:end] for start, end in spans]
    assert shown == ["alpha beta gamma, ", "delta epsilon ", "zeta eta theta iota"]


@settings(deadline=None)
@given(st.text(max_size=200), st.integers(1, 20))
def test_pieces_lie_side_by_side(text: str, most: int) -> None:
    spans = split_span(text, (0, len(text)), most, letters)
    assert "".join(text[a:b] for a, b in spans) == text
    assert all(b - a <= most for a, b in spans)


def test_what_can_never_fit_is_too_long() -> None:
    with pytest.raises(TextTooLong):
        split_span("abc", (0, 3), 2, lambda text: 5)
    with pytest.raises(TextTooLong):
        cut_windows("abc", MOST, OVERLAP, words, lambda text: False)
