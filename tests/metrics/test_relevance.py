from __future__ import annotations

import pytest
from ragmeter.metrics.answer_text import AnswerText
from ragmeter.metrics.comparison import compare_texts
from ragmeter.metrics.text_index import PassageIndex, QueryText

from tests.metrics.help import KB, outcome, score_of


def graded(query: str, *texts: str) -> list[float | None]:
    pages = PassageIndex.read(texts)
    return compare_texts(pages, AnswerText(), QueryText.read(query)).grade_passages()


def test_a_passage_with_the_whole_query_beats_a_part_beats_nothing() -> None:
    whole, part, nothing = graded(
        "reset forgotten password",
        "You can reset a forgotten password in the settings.",
        "A password has eight letters at least.",
        "Refunds take fourteen days.",
    )
    assert whole is not None
    assert part is not None
    assert whole > part > 0 or part == 0
    assert whole > 2
    assert nothing == 0.0


def test_scattered_words_count_less_than_words_that_stand_together() -> None:
    filler = " Some other things are written about trees and rivers here." * 20
    near, far = graded(
        "reset password",
        "Reset your password." + filler + filler,
        "Reset the clock." + filler + " A password is long." + filler,
    )
    assert near is not None
    assert far is not None
    assert near > far


def test_the_value_is_the_mean_over_passages_with_text() -> None:
    score = score_of("relevance", passages=[*KB, {"id": "empty"}])
    assert score.detail is not None
    known = [g for g in score.detail["grades"] if g is not None]
    assert score.detail["grades"][3] is None
    assert score.value == pytest.approx(sum(known) / 3, abs=1e-3)


def test_states_of_relevance() -> None:
    assert outcome("relevance", passages=None) == ("unscored", None, "no_passages_captured")
    assert outcome("relevance", passages=[]) == ("not_applicable", None, "no_passages")
    assert outcome("relevance", query=None) == ("unscored", None, "no_query")
    assert outcome("relevance", query="  ") == ("unscored", None, "no_query")
    assert outcome("relevance", query="what is the") == ("unscored", None, "no_query")
    assert outcome("relevance", passages=[{"id": "a"}]) == ("unscored", None, "no_text")


def test_relevance_does_not_need_an_answer() -> None:
    assert outcome("relevance", status="error", answer=None)[0] == "scored"
