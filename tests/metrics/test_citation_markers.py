from __future__ import annotations

import time
from typing import Any

import pytest
from ragmeter.metrics.citations import MAX_MARKS, resolve_citations

from tests.metrics.help import trace
from tests.tables import each_row


def cites(answer: str, **fields: Any) -> list[tuple[list[int], int]]:
    return [
        (m.passages, m.dangling) for m in resolve_citations(trace(answer=answer, **fields)).marks
    ]


@each_row(
    ("answer", "expected"),
    [
        ("Yes [1].", [([0], 0)]),
        ("Yes[2].", [([1], 0)]),
        ("Yes [1, 3].", [([0, 2], 0)]),
        ("Yes [1;3].", [([0, 2], 0)]),
        ("Yes [1-3].", [([0, 1, 2], 0)]),
        ("Yes [ 1 – 2 ].", [([0, 1], 0)]),
        ("Yes [1][2].", [([0], 0), ([1], 0)]),
        ("Yes 【1†source】.", [([0], 0)]),
        ("Yes 【4:0†kb.pdf】.", [([0], 0)]),
        ("Yes [kb-2].", [([1], 0)]),
        ("Yes [KB-2].", [([1], 0)]),
        ("Yes [kb-1, kb-3].", [([0, 2], 0)]),
        ("Yes [kb-9].", [([], 1)]),
        ("Yes [Document 2].", [([1], 0)]),
        ("Yes [doc-7].", [([], 1)]),
        ("Yes [4].", [([], 1)]),
        ("Yes [1, 9].", [([0], 1)]),
        ("Yes [1](https://example.org/a).", [([0], 0)]),
        ("A note.[^1]", [([0], 0)]),
    ],
)
def test_markers_resolve_to_passages(answer: str, expected: list[tuple[list[int], int]]) -> None:
    assert cites(answer) == expected


@each_row(
    "answer",
    [
        "Use arr[0] here.",
        "Use values[1] = 3 here.",
        "Set x[1] to 2.",
        "my_list[2] holds it.",
        "itemList[2] holds it.",
        "See [the manual](https://example.org).",
        "[1]: https://example.org",
        "Run `[1]` now.",
        "```\nprint(a, [1])\n```",
        "As of [2019] it was so.",
        "In the interval [0, 1].",
        "He said [sic] so [...] and [x] done [ ].",
        "[]",
        "",
    ],
)
def test_what_only_looks_like_a_citation_is_none(answer: str) -> None:
    assert cites(answer) == []


def test_a_number_is_an_id_first_then_a_rank_then_a_position() -> None:
    ids = [{"id": "7", "text": "a"}, {"id": "8", "text": "b"}]
    assert cites("x [8].", passages=ids) == [([1], 0)]
    assert cites("x [2].", passages=ids) == [([1], 0)]
    ranked = [{"id": "a", "rank": 2}, {"id": "b", "rank": 1}]
    assert cites("x [1].", passages=ranked) == [([1], 0)]
    from_zero = [{"id": "a", "rank": 0}, {"id": "b", "rank": 1}]
    assert cites("x [1].", passages=from_zero) == [([0], 0)]


def test_a_page_stands_for_the_only_passage_that_has_it() -> None:
    passages = [
        {"id": f"p{index}", "text": "", "metadata": {"page": page}}
        for index, page in enumerate((3, 4, 3))
    ]
    found = resolve_citations(trace(answer="It holds (page 4).", passages=passages))
    assert [mark.passages for mark in found.marks] == [[1]]
    shared = resolve_citations(trace(answer="It holds (page 3).", passages=passages))
    assert (shared.marks, shared.unread) == ([], [9])


def test_explicit_citations_win_over_markers() -> None:
    explicit = [{"start": 0, "end": 4, "passage_ids": ["kb-2", "[3]", "nope"]}]
    found = resolve_citations(trace(answer="Yes [1].", citations=explicit))
    assert found.explicit
    assert [(m.passages, m.dangling, m.start, m.end) for m in found.marks] == [([1, 2], 1, 0, 4)]


def test_an_explicit_citation_without_a_place_stands_for_the_answer() -> None:
    assert resolve_citations(trace(citations=[{"passage_ids": ["kb-1"]}])).marks[0].start == -1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "【" * 200_000,
        "[1" * 100_000,
        "[1]" * 70_000,
        "[1-9999999]" * 9,
        "<1>" * 40_000,
        "<d1>" * 40_000,
        "75 m ^" * 20_000,
        "1 U.S. " * 30_000,
        "Aa Bb (" * 20_000,
        "{{cite web " * 20_000,
        "press [1] " * 10_000,
        "note 1" * 30_000,
    ],
)
def test_hostile_brackets_cost_linear_time(text: str) -> None:
    before = time.process_time()
    assert len(cites(text)) <= MAX_MARKS
    assert time.process_time() - before < 2
