from __future__ import annotations

import pytest

from tests.metrics.help import outcome, score_of
from tests.tables import each_row


def test_presence_is_among_answers() -> None:
    assert outcome("citation_presence") == ("scored", 1.0, None)
    assert outcome("citation_presence", answer="Open Settings.") == ("scored", 0.0, None)
    assert outcome("citation_presence", answer="I do not know.")[2] == "no_answer"
    assert outcome("citation_presence", answer="")[2] == "empty_answer"
    assert outcome("citation_presence", status="timeout")[2] == "timeout"
    assert outcome("citation_presence", answer=None) == ("unscored", None, "no_text")


def test_fabricated_is_among_answers_that_cite() -> None:
    assert outcome("citation_fabricated") == ("scored", 0.0, None)
    assert outcome("citation_fabricated", answer="Open Settings [1][9].") == ("scored", 1.0, None)
    none = outcome("citation_fabricated", answer="Open Settings.")
    assert none == ("not_applicable", None, "no_citations")


def test_fabricated_needs_the_passages() -> None:
    missing = outcome("citation_fabricated", passages=None)
    assert missing == ("unscored", None, "no_passages_captured")
    assert outcome("citation_presence", passages=None)[1] == 1.0
    assert outcome("citation_fabricated", passages=[]) == ("scored", 1.0, None)


@each_row(
    ("answer", "count"),
    [
        ("Open Settings.", 0),
        ("It is in the pdf.", 1),
        ("This comes from the manual.", 1),
        ("See page 3.", 1),
        ("According to the handbook, page 3, and to page 4 of the handbook.", 2),
        ("SOURCE: Table: 5, page 3 of the PDF document.", 3),
    ],
)
def test_indicators_count_once_and_up_to_three(answer: str, count: int) -> None:
    assert score_of("source_indicators", answer=answer).value == pytest.approx(count / 3)
