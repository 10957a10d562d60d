from __future__ import annotations

import pytest
from ragmeter.core.score import NoScore
from ragmeter.metrics.abstention import answered_value
from ragmeter.metrics.canary.abstention import abstention_accuracy, unanswerable_hallucination
from ragmeter.metrics.canary.conflicts import acknowledges_conflict
from ragmeter.metrics.language import NOT_MEASURED
from ragmeter.trace import Reference

from tests.metrics.help import trace
from tests.tables import each_row

NO = Reference(answerable=False)
REFUSAL = "I'm sorry, but the documents do not mention the capital of Mars."


@each_row(
    ("fields", "accuracy"),
    [
        ({"answer": REFUSAL}, 1.0),
        ({"answer": "It is Olympus City."}, 0.0),
        ({"answer": ""}, 1.0),
        ({"answer": "It is Olympus City.", "abstained": True}, 1.0),
        ({"answer": REFUSAL, "abstained": False}, 0.0),
        ({"answer": None}, NoScore("no_text")),
        ({"answer": "密码重置"}, NOT_MEASURED),
        ({"answer": "密码重置", "abstained": True}, 1.0),
    ],
)
def test_abstaining_where_nothing_can_be_answered(
    fields: dict[str, object], accuracy: float | NoScore
) -> None:
    one = trace(**fields)
    found = abstention_accuracy(one, NO, answered_value(one))
    assert found == accuracy
    hallucinated = unanswerable_hallucination(found)
    assert hallucinated == (accuracy if isinstance(accuracy, NoScore) else 1 - accuracy)


@pytest.mark.parametrize("answerable", [True, None])
def test_questions_that_can_be_answered_have_no_abstention_accuracy(
    answerable: bool | None,
) -> None:
    one = trace(answer=REFUSAL)
    gap = NoScore("answerable", applies=False)
    assert abstention_accuracy(one, Reference(answerable=answerable), answered_value(one)) == gap


@each_row(
    ("answer", "found"),
    [
        ("The 2024 note says 14 days; the newer one says 30.", True),
        ("The two documents contradict each other.", True),
        ("Sources are inconsistent here.", True),
        ("Refunds take 30 days.", False),
        ("A difference engine.", False),
        ("密码重置", NOT_MEASURED),
    ],
)
def test_saying_that_sources_disagree(answer: str, found: bool | NoScore) -> None:
    assert acknowledges_conflict(answer) == found
