"""The tests behind a comparison: by hand, beside scipy and statsmodels, where nothing differs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ragmeter.core.arithmetic import value_units
from ragmeter.offline.report import significance
from ragmeter.offline.report.significance import (
    adjust_holm,
    independent_difference,
    independent_p,
    randomisation_p,
)
from ragmeter.windows.estimators import Interval, wilson_interval

from tests.offline.report.recorded import recorded
from tests.tables import each_row


def test_by_hand() -> None:
    # the 8 turns of 3, 1 and 1 have the sums 5, 3, 3, 1 and their opposites
    assert randomisation_p([3, 1, -1], seed=0) == 6 / 8
    assert randomisation_p([3, 1, 1], seed=0) == 2 / 8
    assert randomisation_p([2] * 5, seed=0) == 2 / 32
    assert randomisation_p([0, 0], seed=0) == 1.0
    assert randomisation_p([], seed=0) == 1.0
    # pairs that do not differ say nothing
    assert randomisation_p([3, 0, 1, 0, 1], seed=0) == 2 / 8


@each_row("case", recorded("paired"))
def test_like_scipy(case: dict[str, Any]) -> None:
    pairs = zip(case["first"], case["second"], strict=True)
    found = randomisation_p([value_units(two) - value_units(one) for one, two in pairs], seed=0)
    # scipy doubles the smaller tail, which is the same of a law that has two like ones
    assert found == pytest.approx(case["p"], abs=1e-12)


def test_random_turns_and_the_normal_law_come_near_to_all_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = random.Random(3)
    differences = [rng.randint(-90, 110) for _ in range(13)]
    exact = randomisation_p(differences, seed=0)
    monkeypatch.setattr(significance, "ALL_UP_TO", 5)
    drawn = randomisation_p(differences, seed=0)
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=0.02)
    assert randomisation_p(differences, seed=0) == drawn
    assert randomisation_p(differences, seed=1) != drawn
    many = [rng.randint(-100, 106) for _ in range(400)]
    drawn = randomisation_p(many, seed=0)
    monkeypatch.setattr(significance, "MANY", 100)
    assert randomisation_p(many, seed=0) == pytest.approx(drawn, abs=0.02)


def test_never_surer_than_the_turns_that_were_tried() -> None:
    assert randomisation_p([1] * 100, seed=0) == 1 / 10_001


def test_where_nothing_differs_few_p_are_small() -> None:
    rng = random.Random(5)
    found = [
        randomisation_p([rng.choice((-1, 1)) * rng.randint(0, 50) for _ in range(12)], seed=0)
        for _ in range(400)
    ]
    # 20 are expected; 35 and more in one of 1,000 such tests
    assert sum(p < 0.05 for p in found) < 35
    assert sum(p < 0.5 for p in found) > 150


@each_row("case", recorded("unpaired"))
def test_shares_like_newcombe(case: dict[str, Any]) -> None:
    def interval(yes: int, n: int) -> Interval:
        return Interval(yes / n, *wilson_interval(yes / n, n), n)

    difference, lower, upper = independent_difference(
        interval(*case["first"]), interval(*case["second"])
    )
    assert [lower, upper] == pytest.approx(case["interval"], abs=1e-9)
    p = independent_p(difference, lower, upper)
    assert (p < 0.05) == (not lower <= 0 <= upper)


def test_p_of_what_has_no_width() -> None:
    assert independent_p(0.0, 0.0, 0.0) == 1.0
    assert independent_p(0.2, 0.2, 0.2) == 0.0
    assert independent_p(0.5, 0.0, 1.0) == pytest.approx(0.05)


@each_row("case", recorded("holm"))
def test_adjusted_like_statsmodels(case: dict[str, Any]) -> None:
    assert adjust_holm(case["p"]) == pytest.approx(case["adjusted"])


def test_adjusted_by_hand() -> None:
    # .01 * 3; then .03 * 2; .04 * 1 would be less than what came before
    assert adjust_holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert adjust_holm([]) == []
