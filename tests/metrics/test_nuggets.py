"""Values that are marked (reference) are what open-rag-eval 0.3.0 gives for the same input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.metrics.nuggets import IMPORTANCE, NAMES, SUPPORT, Importance, Support, keep
from agent.metrics.nuggets import nugget_scores as score
from agent.metrics.results import Gap

LOST = Gap("unparsable")
NUGGETS = st.lists(st.tuples(st.sampled_from(SUPPORT), st.sampled_from(IMPORTANCE)), min_size=1)


@pytest.mark.parametrize("kind", IMPORTANCE)
@pytest.mark.parametrize("count", [1, 4])
def test_a_perfect_answer_scores_1(kind: Importance, count: int) -> None:
    found = score(["support"] * count, [kind] * count)  # (reference): 0.667 to 0.8889
    assert found["nugget_all"] == found["nugget_weighted"] == 1.0
    assert found["nugget_weighted_strict"] == 1.0
    vital = Gap("no_vital_nuggets", applies=False)  # (reference): 0.0, as if all were missed
    assert found["nugget_vital"] == (1.0 if kind == "vital" else vital)


def test_values_by_hand() -> None:
    supports: list[Support] = ["support", "partial_support", "not_support", "partial_support"]
    found = score(supports, ["vital", "vital", "okay", "okay"])
    assert found == {
        "nugget_all": 0.5,
        "nugget_vital": 0.75,
        "nugget_weighted": pytest.approx((1.5 + 0.5 * 0.5) / (2 + 0.5 * 2)),  # as (reference)
        "nugget_all_strict": 0.25,
        "nugget_vital_strict": 0.5,
        "nugget_weighted_strict": pytest.approx(1 / 3),
    }


def test_without_nuggets_there_is_no_score() -> None:
    assert set(score([], []).values()) == {Gap("no_nuggets", applies=False)}


def test_a_lost_assignment_takes_the_classes_it_belongs_to() -> None:
    found = score(["support", LOST], ["vital", "okay"])
    assert found["nugget_vital"] == found["nugget_vital_strict"] == 1.0
    assert found["nugget_all"] == found["nugget_weighted"] == LOST
    assert score(["support", LOST], ["okay", "vital"])["nugget_vital"] == LOST


def test_unknown_importance_leaves_all_nuggets() -> None:
    found = score(["support", "partial_support"], LOST)
    assert (found["nugget_all"], found["nugget_all_strict"]) == (0.75, 0.5)
    assert {found[n] for n in NAMES if "all" not in n} == {LOST}


@given(NUGGETS)
def test_ranges_and_order(pairs: list[tuple[Support, Importance]]) -> None:
    supports, importance = [s for s, _ in pairs], [i for _, i in pairs]
    found = score(supports, importance)
    assert list(found) == sorted(found, key=NAMES.index)
    for name, value in found.items():
        if isinstance(value, Gap):
            assert value.reason == "no_vital_nuggets"
            assert "vital" not in importance
        else:
            assert 0 <= value <= 1
            if not name.endswith("_strict"):
                strict = found[f"{name}_strict"]
                assert not isinstance(strict, Gap)
                assert strict <= value
    turned = score(supports[::-1], importance[::-1])
    for name in NAMES:
        assert turned[name] == (
            found[name] if isinstance(found[name], Gap) else pytest.approx(found[name])
        )


def test_vital_nuggets_come_first_and_20_are_kept() -> None:
    importance: list[Importance] = ["okay", "vital"] * 15
    kept = keep(importance)
    assert kept == [*range(1, 30, 2), 0, 2, 4, 6, 8]
    assert keep(["okay", "vital", "okay"]) == [1, 0, 2]
