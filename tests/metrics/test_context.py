from __future__ import annotations

import pytest
from ragmeter.core.score import NoScore
from ragmeter.metrics.ranking import context_recall, context_scores

from tests.metrics.peers import recorded

TIMEOUT = NoScore("judge_timeout")


@pytest.mark.parametrize(
    ("grades", "relevancy", "precision"),
    [
        ([3, 3], 1.0, 1.0),
        ([0, 1], 1 / 6, 0.0),
        # relevant at ranks 2 and 4: (1/2 + 2/4) / 2
        ([1, 2, 0, 3], 0.5, 0.5),
        # at ranks 1 and 3: (1 + 2/3) / 2
        ([2, 0, 2], 4 / 9, 5 / 6),
    ],
)
def test_worked_by_hand(grades: list[float], relevancy: float, precision: float) -> None:
    found = context_scores(grades)
    assert found["context_relevancy"] == pytest.approx(relevancy)
    assert found["context_precision"] == pytest.approx(precision)


def test_a_grade_that_is_missing_takes_only_what_rests_on_it() -> None:
    found = context_scores([3, TIMEOUT, 0])
    assert found == {"context_relevancy": 0.5, "context_precision": TIMEOUT}
    assert set(context_scores([TIMEOUT]).values()) == {TIMEOUT}


def test_nothing_retrieved() -> None:
    assert set(context_scores([]).values()) == {NoScore("no_passages", applies=False)}


def test_share_of_the_statements_that_were_found() -> None:
    assert context_recall([True, True, False, True]) == 0.75
    assert context_recall([False]) == 0.0
    assert context_recall([]) == NoScore("no_reference_answer", applies=False)


@pytest.mark.parametrize(("no", "yes"), [(0, 2), (1, 3)])
def test_formulas_are_those_of_ragas(no: int, yes: int) -> None:
    for case in recorded("verdicts"):
        grades = [yes if one else no for one in case["verdicts"]]
        # theirs adds 1e-10 to the number of relevant ones
        expected = pytest.approx(case["ragas"]["context_precision"], abs=1e-9)
        assert context_scores(grades)["context_precision"] == expected
        recall = context_recall([bool(one) for one in case["verdicts"]])
        assert recall == pytest.approx(case["ragas"]["context_recall"])
