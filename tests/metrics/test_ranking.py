"""Values that are marked (reference) were computed with open-rag-eval 0.3.0."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.core.score import NoScore
from ragmeter.metrics.ranking import (
    average_precision,
    mean_grade,
    ndcg_at,
    precision_at,
    rank_order,
    ranking_names,
    ranking_scores,
    reciprocal_rank,
)
from ragmeter.trace import Passage

from tests.tables import each_row

LOST, LONG = NoScore("judge_error"), NoScore("too_long")
GRADES = st.lists(st.integers(0, 3), min_size=1, max_size=12)
HOLED = st.lists(st.one_of(st.integers(0, 3), st.sampled_from([LOST, LONG])), max_size=12)
K = st.integers(1, 14)


def test_values_of_the_reference() -> None:
    grades = [0, 3, 0, 2, 1]
    assert average_precision(grades, 3) == 0.5  # (reference): normalised within the top 3
    assert average_precision(grades, 5) == 0.5  # (reference)
    assert average_precision([0, 1], 5) == 0.0
    assert (precision_at(grades, 3), precision_at(grades, 5)) == (1 / 3, 0.4)
    assert reciprocal_rank(grades) == 0.5
    assert reciprocal_rank([0] * 9 + [2]) == 0.1  # over the full list
    assert reciprocal_rank([0, 1]) == 0.0
    assert mean_grade(grades) == 1.2


def test_precision_needs_k_passages() -> None:
    assert precision_at([3, 3, 3], 5) == NoScore("too_few_passages", applies=False)
    assert average_precision([3, 3, 3], 5) == 1.0


def test_ndcg_by_hand() -> None:
    gained = 7 / math.log2(3) + 3 / math.log2(5)
    ideal = 7 / math.log2(2) + 3 / math.log2(3)
    assert ndcg_at([0, 3, 0, 2], 4) == pytest.approx(gained / ideal)
    assert ndcg_at([0, 3, 0, 2], 1) == 0.0
    assert ndcg_at([0, 0], 2) == 0.0  # as trec_eval has it


def test_a_retriever_that_fails_does_not_lift_the_mean_of_ndcg() -> None:
    """Two labelled traces with a relevant passage, and one whose passages are all off topic."""
    found = [ndcg_at(grades, 3) for grades in ([0, 3, 1], [2, 0, 3], [0, 0, 0])]
    known = [value for value in found if not isinstance(value, NoScore)]
    assert sum(known) / 3 == pytest.approx(sum(known[:2]) / 3)


def test_no_passages_is_an_observation() -> None:
    found = ranking_scores([], [1, 5])
    assert list(found) == ranking_names([1, 5])
    assert set(found.values()) == {NoScore("no_passages", applies=False)}


def test_a_lost_grade_takes_only_what_it_could_change() -> None:
    grades: list[float | NoScore] = [0, 3, 1, LOST, LOST, LONG]
    assert mean_grade(grades) == pytest.approx(4 / 3)
    assert precision_at(grades, 3) == 1 / 3
    assert average_precision(grades, 3) == 0.5
    assert precision_at(grades, 5) == average_precision(grades, 5) == LOST
    assert reciprocal_rank(grades) == 0.5
    assert ndcg_at(grades, 3) == LOST
    assert reciprocal_rank([0, LONG, 3]) == LONG
    assert reciprocal_rank([0, LONG, 1]) == LONG
    assert set(ranking_scores([LOST, LONG, LONG], [3]).values()) == {LONG}


@given(HOLED, K, st.data())
def test_what_stands_beside_a_gap_is_what_it_would_have_been(
    holed: list[int | NoScore], k: int, data: st.DataObject
) -> None:
    whole = [data.draw(st.integers(0, 3)) if isinstance(g, NoScore) else g for g in holed]
    before, after = ranking_scores(holed, [k]), ranking_scores(whole, [k])
    for name in ranking_names([k])[1:]:
        if not isinstance(before[name], NoScore):
            assert before[name] == after[name]


@given(HOLED, K)
def test_ranges(grades: list[int | NoScore], k: int) -> None:
    for name, value in ranking_scores(grades, [k]).items():
        if not isinstance(value, NoScore):
            assert 0 <= value <= (3 if name == "relevance" else 1)


@given(GRADES, K)
def test_the_best_order_is_the_best(grades: list[int], k: int) -> None:
    best, given = ranking_scores(sorted(grades, reverse=True), [k]), ranking_scores(grades, [k])
    for name, value in best.items():
        other = given[name]
        if isinstance(value, NoScore) or isinstance(other, NoScore):
            assert value == other
        elif name == "relevance":
            assert value == pytest.approx(other)
        elif not name.startswith("average"):  # AP@k divides by what the top k holds
            assert value >= other - 1e-12
    if max(grades) > 0:
        assert best[f"ndcg_at_k:{k}"] == pytest.approx(1)


@each_row(
    ("ranks", "order"),
    [
        ([3, 1, 2], [1, 2, 0]),
        ([10, 0, 20], [1, 0, 2]),
        ([None, None, None], [0, 1, 2]),
        ([2, None, 1], [0, 1, 2]),
        ([2, 2, 1], [0, 1, 2]),
        ([], []),
    ],
)
def test_rank_order(ranks: list[int | None], order: list[int]) -> None:
    passages = [Passage(id=str(n), rank=rank) for n, rank in enumerate(ranks)]
    assert rank_order(passages) == order
