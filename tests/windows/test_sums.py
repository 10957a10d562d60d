from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.core.arithmetic import WEIGHT_ONE, value_units, weight_units
from ragmeter.windows.sums import (
    DEFAULT_STRATUM,
    NO_SUMS,
    ScoreSums,
    StrataSums,
    StratumKey,
    StratumSums,
    add_strata,
    add_sums,
    stratum_key,
    subtract_strata,
    subtract_sums,
    upstream_stratum,
)

numbers = st.lists(st.integers(-(10**30), 10**30), max_size=20)


@settings(deadline=None, derandomize=True)
@given(numbers, numbers, numbers)
def test_adding_is_associative_and_commutative(a: list[int], b: list[int], c: list[int]) -> None:
    assert add_sums(add_sums(a, b), c) == add_sums(a, add_sums(c, b))


@settings(deadline=None, derandomize=True)
@given(numbers, numbers)
def test_taking_away_undoes_adding(a: list[int], b: list[int]) -> None:
    both = add_sums(a, b)
    left = subtract_sums(both, b)
    assert left == a + [0] * (len(both) - len(a))


def test_the_sums_of_a_weighted_score() -> None:
    y = value_units(0.75)
    sums = StratumSums.of_scores(weight_units(0.25), y, y * y)
    w = 4 * WEIGHT_ONE
    expected = {
        "n": 1,
        "w": w,
        "w2": w * w,
        "wy": w * y,
        "w2y": w * w * y,
        "w2yy": w * w * y * y,
        "y": y,
        "yy": y * y,
    }
    assert {name: v for name, v in sums._asdict().items() if v} == expected


def test_sums_with_a_number_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="wrong number"):
        StratumSums.load([1, 2])


def test_an_emptied_stratum_disappears() -> None:
    sums = StratumSums.of_scores(weight_units(0.5), 3, 9)
    strata: StrataSums = add_strata(None, {"tail": sums, DEFAULT_STRATUM: sums})
    assert subtract_strata(strata, {"tail": sums}) == {DEFAULT_STRATUM: sums}


def test_unit_and_weighted_scores_share_the_default_stratum() -> None:
    y = value_units(0.5)
    sums = StratumSums.of_scores(weight_units(0.1), y, y * y)
    cell = ScoreSums([7, 2, 1, 1, 3, 3 * y, 3 * y * y], {DEFAULT_STRATUM: sums})
    assert list(cell.sums()) == [DEFAULT_STRATUM]
    default = cell.sums()[DEFAULT_STRATUM]
    assert cell.scored == 4
    assert default.w == default.size == 13 * WEIGHT_ONE
    assert default.yy == 4 * y * y
    assert cell.unscored_share() == 2 / 6  # not_applicable and sampled_out need no value


def stratum(
    size: int, probabilities: list[float], not_applicable: int = 0, no_value: int = 0
) -> StratumSums:
    sums = NO_SUMS
    for probability in probabilities:
        sums = sums.plus(StratumSums.of_scores(weight_units(probability), 0, 0))
    return sums._replace(
        size=size * WEIGHT_ONE,
        not_applicable=not_applicable * WEIGHT_ONE,
        no_value=no_value * WEIGHT_ONE,
    )


def sizes(cell: ScoreSums) -> dict[str, float]:
    return {name: sums.size / WEIGHT_ONE for name, sums in cell.sums().items()}


def test_the_default_stratum_is_as_large_as_what_was_scored_in_it_stands_for() -> None:
    tail = stratum(30, [0.5])
    assert sizes(ScoreSums([0, 5, 0, 0, 2, 0, 0], {"tail": tail})) == {"": 2, "tail": 30}
    assert sizes(ScoreSums([0, 5, 0, 0, 0, 0, 0], {"tail": tail})) == {"tail": 30}


def test_a_stratum_is_cut_to_the_traces_that_the_metric_applies_to() -> None:
    half = stratum(100, [0.5, 0.5], not_applicable=4)
    rest = stratum(40, [], not_applicable=9)
    cell = ScoreSums([2, 96, 0, 0, 0, 0, 0], {"low": half, "rest": rest})
    assert sizes(cell) == {"low": 50}


def test_the_classes_of_the_cheap_score_are_parts_of_a_stratum() -> None:
    names = [stratum_key("low:3", cheap) for cheap in (None, 0.0, 0.3, 1.0, 3.0)]
    assert names == ["low:3-", "low:3|0", "low:3|1", "low:3|5", "low:3|7"]
    assert StratumKey.parse("low:3|5") == StratumKey("low", 3, 5)
    assert StratumKey.parse("low:3-") == StratumKey("low", 3)
    assert StratumKey.parse("low") == StratumKey("low")
    cell = ScoreSums([0] * 7, {name: stratum(10, [0.5]) for name in names})
    assert sizes(cell) == {"low:3": 40, "low:3-": 10}
    assert len(cell.parts()) == 5


def test_the_name_of_a_stratum_has_the_probability_of_an_earlier_sampler() -> None:
    assert upstream_stratum("low:3", 1.0) == "low:3"
    for probability, stands_for in ((0.5, 2.0), (0.1, 11.3), (1e-6, 1.05e6)):
        name = stratum_key(upstream_stratum("low:3", probability), 1.0)
        key = StratumKey.parse(name)
        assert (key.stratum, key.octave, key.cheap) == ("low", 3, 5)
        assert key.stands_for == pytest.approx(stands_for, rel=0.01), "rounded up"


def test_the_unscored_share_weighs_strata_by_their_size() -> None:
    strata = {
        "low": stratum(10, [0.5], no_value=2),
        "rest": stratum(90, [0.1, 0.1, 0.1], no_value=10),
    }
    share = ScoreSums([0, 0, 2, 0, 0, 0, 0], strata).unscored_share()
    assert share == (10 * 0.5 + 90 * 0.25) / 100
    assert ScoreSums([3, 8, 0, 0, 0, 0, 0], None).unscored_share() is None


def test_a_version_of_a_scorer_has_the_strata_of_the_scorer() -> None:
    whole = ScoreSums([0, 9, 0, 0, 0, 0, 0], {"low": stratum(10, []), "rest": stratum(90, [])})
    own = ScoreSums([0, 0, 0, 0, 0, 0, 0], {"low": stratum(0, [0.5])})
    joined = own.join_traffic(whole)
    assert sizes(joined) == {"low": 10, "rest": 90}
    assert (joined.scored, joined.sampled_out) == (1, 0)
    assert own.join_traffic(None) is own
