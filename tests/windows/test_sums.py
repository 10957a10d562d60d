from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.windows.exact import WEIGHT_ONE, units, weight
from agent.windows.sums import (
    DEFAULT_STRATUM,
    FIELDS,
    Cell,
    Strata,
    add_scored,
    add_strata,
    add_up,
    empty_sums,
    subtract_strata,
    take_away,
)

numbers = st.lists(st.integers(-(10**30), 10**30), max_size=20)


@settings(deadline=None, derandomize=True)
@given(numbers, numbers, numbers)
def test_adding_is_associative_and_commutative(a: list[int], b: list[int], c: list[int]) -> None:
    assert add_up(add_up(a, b), c) == add_up(a, add_up(c, b))


@settings(deadline=None, derandomize=True)
@given(numbers, numbers)
def test_taking_away_undoes_adding(a: list[int], b: list[int]) -> None:
    both = add_up(a, b)
    left = take_away(both, b)
    assert left == a + [0] * (len(both) - len(a))


def test_the_fourteen_sums_of_a_weighted_score() -> None:
    sums = empty_sums()
    y, f = units(0.75), units(0.5)
    add_scored(sums, weight(0.25), y, y * y, f=f, ff=f * f, yf=y * f)
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
    add_scored(sums, weight(0.5), 3, 9)
    strata: Strata = add_strata(None, {"tail": sums, DEFAULT_STRATUM: sums})
    assert subtract_strata(strata, {"tail": sums}) == {DEFAULT_STRATUM: sums}


def test_unit_and_weighted_scores_share_the_default_stratum() -> None:
    sums = empty_sums()
    y = units(0.5)
    add_scored(sums, weight(0.1), y, y * y)
    cell = Cell([7, 2, 1, 1, 3, 3 * y, 3 * y * y], {DEFAULT_STRATUM: sums})
    (default,) = cell.sums()
    assert cell.scored == 4
    assert default[FIELDS.index("N")] == 4 + 2 + 1 + 1  # not_applicable is not eligible
    assert default[FIELDS.index("w")] == 13 * WEIGHT_ONE
    assert default[FIELDS.index("yy")] == 4 * y * y


def test_named_strata_take_their_size_from_the_default() -> None:
    tail = empty_sums()
    tail[0] = 3
    add_scored(tail, weight(0.5), 0, 0)
    cell = Cell([0, 5, 0, 0, 2, 0, 0], {"tail": tail})
    assert [sums[0] for sums in cell.sums()] == [5, 3]
