"""Values that are marked (reference) are what open-rag-eval 0.3.0 gives for the same input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragmeter.core.score import NoScore
from ragmeter.metrics.nuggets import (
    NUGGET_IMPORTANCE,
    NUGGET_METRICS,
    NUGGET_SUPPORT,
    NuggetImportance,
    NuggetSupport,
    select_nuggets,
)
from ragmeter.metrics.nuggets import nugget_scores as score

LOST = NoScore("unparsable")
NUGGETS = st.lists(
    st.tuples(st.sampled_from(NUGGET_SUPPORT), st.sampled_from(NUGGET_IMPORTANCE)), min_size=1
)


@pytest.mark.parametrize("kind", NUGGET_IMPORTANCE)
@pytest.mark.parametrize("count", [1, 4])
def test_a_perfect_answer_scores_1(kind: NuggetImportance, count: int) -> None:
    found = score(["support"] * count, [kind] * count)  # (reference): 0.667 to 0.8889
    assert found["nugget_all"] == found["nugget_weighted"] == 1.0
    assert found["nugget_weighted_strict"] == 1.0
    vital = NoScore("no_vital_nuggets", applies=False)  # (reference): 0.0, as if all were missed
    assert found["nugget_vital"] == (1.0 if kind == "vital" else vital)


def test_values_by_hand() -> None:
    supports: list[NuggetSupport] = ["support", "partial_support", "not_support", "partial_support"]
    found = score(supports, ["vital", "vital", "okay", "okay"])
    assert found == {
        "nugget_all": 0.5,
        "nugget_vital": 0.75,
        "nugget_weighted": pytest.approx((1.5 + 0.5 * 0.5) / (2 + 0.5 * 2)),  # as (reference)
        "nugget_all_strict": 0.25,
        "nugget_vital_strict": 0.5,
        "nugget_weighted_strict": pytest.approx(1 / 3),
        "nugget_count": 4.0,
        "nugget_vital_count": 2.0,
        "nugget_okay_count": 2.0,
    }


def test_without_nuggets_there_is_no_score() -> None:
    assert set(score([], []).values()) == {NoScore("no_nuggets", applies=False)}


def test_a_lost_assignment_takes_the_classes_it_belongs_to() -> None:
    found = score(["support", LOST], ["vital", "okay"])
    assert found["nugget_vital"] == found["nugget_vital_strict"] == 1.0
    assert found["nugget_all"] == found["nugget_weighted"] == LOST
    assert score(["support", LOST], ["okay", "vital"])["nugget_vital"] == LOST


def test_unknown_importance_leaves_all_nuggets() -> None:
    found = score(["support", "partial_support"], LOST)
    assert (found["nugget_all"], found["nugget_all_strict"]) == (0.75, 0.5)
    assert found["nugget_count"] == 2.0
    shares = {"nugget_all", "nugget_all_strict", "nugget_count"}
    assert {found[n] for n in NUGGET_METRICS if n not in shares} == {LOST}


@given(NUGGETS)
def test_ranges_and_order(pairs: list[tuple[NuggetSupport, NuggetImportance]]) -> None:
    supports, importance = [s for s, _ in pairs], [i for _, i in pairs]
    found = score(supports, importance)
    assert list(found) == sorted(found, key=NUGGET_METRICS.index)
    for name, value in found.items():
        if isinstance(value, NoScore):
            assert value.reason == "no_vital_nuggets"
            assert "vital" not in importance
        elif name.endswith("_count"):
            assert 0 <= value <= len(pairs)
        else:
            assert 0 <= value <= 1
            if not name.endswith("_strict"):
                strict = found[f"{name}_strict"]
                assert not isinstance(strict, NoScore)
                assert strict <= value
    turned = score(supports[::-1], importance[::-1])
    for name in NUGGET_METRICS:
        assert turned[name] == (
            found[name] if isinstance(found[name], NoScore) else pytest.approx(found[name])
        )


def test_vital_nuggets_come_first_and_20_are_kept() -> None:
    importance: list[NuggetImportance] = ["okay", "vital"] * 15
    kept = select_nuggets(importance)
    assert kept == [*range(1, 30, 2), 0, 2, 4, 6, 8]
    assert select_nuggets(["okay", "vital", "okay"]) == [1, 0, 2]
