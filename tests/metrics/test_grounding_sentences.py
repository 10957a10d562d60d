from __future__ import annotations

import math

import pytest
from ragmeter.metrics import grounding
from ragmeter.metrics.answer_text import parse_answer
from ragmeter.metrics.comparison import compare_texts
from ragmeter.metrics.grounding_features import SENTENCE_FEATURES
from ragmeter.metrics.text_index import PassageIndex, QueryText

from tests.metrics.help import score_of

PASSAGE = (
    "Nepal issued 347 permits on Monday. Three Nigerian climbers were injured in the avalanche,"
    " and sixteen guides died. The season opens in spring."
)


def rows(answer: str, passage: str = PASSAGE, query: str = "") -> list[dict[str, float]]:
    pages = PassageIndex.read([passage])
    text = parse_answer(answer)
    asked = QueryText.read(query)
    got = compare_texts(pages, text, asked).extract_features().sentences
    return [dict(zip(SENTENCE_FEATURES, row, strict=True)) for row in got]


def test_each_sentence_has_a_row_and_copies_have_nothing_novel() -> None:
    got = rows(PASSAGE)
    assert len(got) == 3
    assert all(row["novel"] == row["novel_mass"] == row["strayed_numbers"] == 0 for row in got)
    assert [row["first"] for row in got] == [1, 0, 0]
    assert got[2]["place"] == pytest.approx(2 / 3)


def test_other_forms_and_numbers_in_digits_are_not_novel() -> None:
    (row,) = rows("Climbers of Nigeria were injured, 3 of them, and 16 guides died.")
    assert row["novel"] == row["novel_numbers"] == 0
    (row,) = rows("The article mentioned that guides died.")
    assert row["novel"] == 0  # "article" tells of the passages themselves


def test_additions_are_told_apart_by_kind() -> None:
    (row,) = rows("Nepal issued 350 permits to Zorblatt on Friday.")
    assert row["novel"] == pytest.approx(math.log1p(3))
    assert row["novel_numbers"] == 1
    assert row["novel_names"] == 2  # Zorblatt, Friday
    assert row["novel_times"] == 1


def test_a_number_that_counts_something_else_strays() -> None:
    assert rows("The avalanche killed 347 guides in spring.")[0]["strayed_numbers"] >= 0.5
    assert rows("There were 347 permits issued.")[0]["strayed_numbers"] == 0


def test_sentences_lean_towards_the_worst_one() -> None:
    assert grounding.combine_log_odds([]) == 0.0
    assert grounding.combine_log_odds([-1.0, -1.0]) == pytest.approx(-1.0)
    assert 0.0 < grounding.combine_log_odds([-3.0, 1.0]) < 1.0


def test_a_preamble_claims_nothing() -> None:
    passages = [{"id": "p", "text": PASSAGE}]
    plain = score_of("grounding", passages=passages, answer="Nepal issued 347 permits.")
    for opening in ("Sure! Here is a summary of the article in 20 words:\n", "Here's the answer: "):
        led = score_of("grounding", passages=passages, answer=opening + "Nepal issued 347 permits.")
        assert led.value == pytest.approx(plain.value, abs=1e-12)
    assert parse_answer("Here is a list:").claims  # nothing else: then it is the answer
