from __future__ import annotations

import time

import pytest
from ragmeter.metrics.sentences import find_sentence_spans

from tests.tables import each_row


def sentences(text: str) -> list[str]:
    return [text[a:b] for a, b in find_sentence_spans(text)]


@each_row(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith met J. Doe in the U.S. on Monday.", None),
        ("It costs 3.5 euros, e.g. more.", None),
        ("Claim one [1]. Claim two. [2] Claim three.[3][4] Four.", "markers"),
        ("# Title\n- first item\n- second item", ["# Title", "- first item", "- second item"]),
        ("打开设置。点击这里。", ["打开设置。", "点击这里。"]),
        ("  \n\n ", []),
        ("", []),
    ],
)
def test_sentences(text: str, expected: list[str] | str | None) -> None:
    if expected is None:
        assert sentences(text) == [text]
    elif expected == "markers":
        assert sentences(text) == [
            "Claim one [1].",
            "Claim two. [2]",
            "Claim three.[3][4]",
            "Four.",
        ]
    else:
        assert sentences(text) == expected


@pytest.mark.parametrize("text", [" " * 200_000, "." * 200_000, "\n" * 200_000, "a. " * 100_000])
def test_hostile_texts_cost_linear_time(text: str) -> None:
    before = time.process_time()
    find_sentence_spans(text)
    assert time.process_time() - before < 2
