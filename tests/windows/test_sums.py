from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ragmeter.core.arithmetic import WEIGHT_ONE, value_units, weight_units
from ragmeter.windows.sums import (
    DEFAULT_STRATUM,
    FIELDS,
    ScoreSums,
    StrataSums,
    add_scored,
    add_strata,
    add_sums,
    empty_sums,
    subtract_strata,
    subtract_sums,
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


def test_the_fourteen_sums_of_a_weighted_score() -> None:
    sums = empty_sums()
    y, f = value_units(0.75), value_units(0.5)
    add_scored(sums, weight_units(0.25), y, y * y, f=f, ff=f * f, yf=y * f)
    w = 4 * WEIGHT_ONE
    expected = {
        "n": 1,
        "w": w,
        "w2": w * w,
        "wy": w * y,
        "wf": w * f,
        "w2y": w * w * y,
        "w2yy": w * w * y * y,
        "y": y,
        "f": f,
        "yy": y * y,
        "ff": f * f,
        "yf": y * f,
    }
    assert {name: v for name, v in zip(FIELDS, sums, strict=True) if v} == expected


def test_an_emptied_stratum_disappears() -> None:
    sums = empty_sums()
    add_scored(sums, weight_units(0.5), 3, 9)
    strata: StrataSums = add_strata(None, {"tail": sums, DEFAULT_STRATUM: sums})
    assert subtract_strata(strata, {"tail": sums}) == {DEFAULT_STRATUM: sums}


def test_unit_and_weighted_scores_share_the_default_stratum() -> None:
    sums = empty_sums()
    y = value_units(0.5)
    add_scored(sums, weight_units(0.1), y, y * y)
    cell = ScoreSums([7, 2, 1, 1, 3, 3 * y, 3 * y * y], {DEFAULT_STRATUM: sums})
    assert list(cell.sums()) == [DEFAULT_STRATUM]
    default = cell.sums()[DEFAULT_STRATUM]
    assert cell.scored == 4
    assert default[FIELDS.index("w")] == default[FIELDS.index("N")] == 13 * WEIGHT_ONE
    assert default[FIELDS.index("yy")] == 4 * y * y
    assert cell.unscored_share() == 2 / 6  # not_applicable and sampled_out need no value


def stratum(size: int, probabilities: list[float], **more: int) -> list[int]:
    sums = empty_sums()
    sums[0] = size * WEIGHT_ONE
    for probability in probabilities:
        add_scored(sums, weight_units(probability), 0, 0)
    for name, value in more.items():
        sums[FIELDS.index(name)] = value * WEIGHT_ONE
    return sums


def sizes(cell: ScoreSums) -> dict[str, float]:
    return {name: sums[0] / WEIGHT_ONE for name, sums in cell.sums().items()}


def test_the_default_stratum_is_as_large_as_what_was_scored_in_it_stands_for() -> None:
    tail = stratum(30, [0.5])
    assert sizes(ScoreSums([0, 5, 0, 0, 2, 0, 0], {"tail": tail})) == {"": 2, "tail": 30}
    assert sizes(ScoreSums([0, 5, 0, 0, 0, 0, 0], {"tail": tail})) == {"tail": 30}


def test_a_stratum_is_cut_to_the_traces_that_the_metric_applies_to() -> None:
    half = stratum(100, [0.5, 0.5], wn=4, SF=60)
    cell = ScoreSums([2, 96, 0, 0, 0, 0, 0], {"low": half, "rest": stratum(40, [], wn=9)})
    assert sizes(cell) == {"low": 50}
    assert cell.sums()["low"][1] == 30 * WEIGHT_ONE


def test_the_unscored_share_weighs_strata_by_their_size() -> None:
    strata = {"low": stratum(10, [0.5], wu=2), "rest": stratum(90, [0.1, 0.1, 0.1], wu=10)}
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
