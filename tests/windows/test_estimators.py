from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from ragmeter.windows.estimators import (
    Cell,
    join_limits,
    mean_interval,
    student_p_value,
    t975,
    wilson_interval,
    wilson_samples,
)

from tests.tables import each_row

SCIPY_T = {1: 12.7062047, 3: 3.1824463, 4: 2.7764451, 9: 2.2621572, 30: 2.0422725, 1000: 1.9623390}
"""scipy.stats.t.ppf(.975, df), scipy 1.17."""


def cell(values: list[float], size: float | None = None) -> Cell:
    """A cell of scores of equal weight; of `size` traces, or for inference about the process."""
    n = len(values)
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / max(1, n - 1)
    return Cell(size or n, n, n, mean, variance, n / size if size else 0.0)


@each_row(("df", "expected"), SCIPY_T.items())
def test_t_quantiles(df: int, expected: float) -> None:
    assert 1 - 1e-7 < t975(df) / expected < 1.005
    if df > 3:
        assert student_p_value(t975(df), df) == pytest.approx(0.05)


def test_wilson_against_published_values() -> None:
    # Newcombe (1998), table I, method 3: 81/263 and 0/20.
    assert wilson_interval(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


@each_row("share", [0.03, 0.5, 0.8])
@each_row("n", [4, 50, 3000])
def test_the_number_of_samples_follows_from_the_width(share: float, n: int) -> None:
    lower, upper = wilson_interval(share, n)
    if lower > 0 and upper < 1:
        assert wilson_samples(share, upper - lower) == pytest.approx(n)


@each_row("n", [1, 5, 49, 50, 2000])
@each_row("share", [0.0, 1.0])
def test_a_rate_of_nothing_or_everything_has_a_proper_interval(n: int, share: float) -> None:
    found = mean_interval([cell([share] * n)], 0.0, 1.0)
    assert found.value == share
    assert 0 <= found.lower <= share <= found.upper <= 1
    assert found.upper - found.lower > 1 / (n + 5)


def test_a_rate_has_the_interval_of_wilson() -> None:
    found = mean_interval([cell([1.0] * 30 + [0.0] * 10)], 0.0, 1.0)
    assert (found.lower, found.upper) == pytest.approx(wilson_interval(0.75, 40))
    assert found.effective == pytest.approx(40)


def test_a_part_of_a_finite_population_leaves_less_to_chance() -> None:
    scores = [1.0] * 30 + [0.0] * 10
    found = mean_interval([cell(scores, 80)], 0.0, 1.0)
    assert (found.lower, found.upper) == pytest.approx(wilson_interval(0.75, 80))
    census = mean_interval([cell(scores, 40), cell(scores, 80)], 0.0, 1.0)
    assert census.upper - census.lower < found.upper - found.lower


def test_graded_scores_have_a_narrower_interval_within_their_range() -> None:
    grades = [2.5, 3.0, 2.0, 2.5, 3.0] * 20
    found = mean_interval([cell(grades)], 0.0, 3.0)
    lower, upper = (3 * limit for limit in wilson_interval(2.6 / 3, 100))
    assert found.value == pytest.approx(2.6)
    assert lower < found.lower < found.value < found.upper < upper
    assert found.effective == pytest.approx(100)
    assert mean_interval([cell([3.0] * 9)], 0.0, 3.0).upper == 3.0


def test_a_mean_without_bounds_has_the_textbook_t_interval() -> None:
    values = [2.0, 3.0, 5.0, 7.0, 11.0]
    found = mean_interval([cell(values)], None, None)
    mean = sum(values) / 5
    half = 2.776445 * math.sqrt(sum((v - mean) ** 2 for v in values) / 4 / 5)
    assert found[:3] == pytest.approx((mean, mean - half, mean + half), abs=0.005 * half)
    assert found.effective == 5
    assert mean_interval([cell([0.1, 9.0])], 0.0, None).lower == 0.0


@pytest.mark.parametrize("bounds", [(0.0, 1.0), (None, None)])
def test_cells_weigh_by_their_traffic(bounds: tuple[float | None, float | None]) -> None:
    cells = [cell([1.0] * 60, 1200), cell([0.0] * 60, 400)]
    assert mean_interval(cells, *bounds).value == pytest.approx(0.75)


def test_a_cell_judged_too_often_brings_less_than_its_samples() -> None:
    """100 + 100 judged, one half of them from a twentieth of the traffic, are worth 110."""
    rng = random.Random(7)
    values = [[float(rng.random() < 0.7) for _ in range(100)] for _ in range(2)]
    rest, tail = (Cell(*cell(v)[:5]) for v in values)
    found = mean_interval([rest._replace(size=1900), tail._replace(size=100)], 0.0, 1.0)
    assert found.effective == pytest.approx(1 / (0.95**2 / 100 + 0.05**2 / 100), rel=0.15)


def test_the_limits_of_like_cells_are_those_of_one() -> None:
    """Of four equal parts of 400 samples; plain MOVER puts the lower limit 20 % too far."""
    lower, upper = wilson_interval(0.95, 100)
    value, low, high = join_limits([(0.25, 0.95, lower, upper)] * 4)
    one = wilson_interval(0.95, 400)
    assert value == pytest.approx(0.95)
    assert (value - low, high - value) == pytest.approx((0.95 - one[0], one[1] - 0.95), rel=0.11)


def test_the_limits_of_a_single_estimate_stay() -> None:
    assert join_limits([(1.0, 0.9, 0.7, 0.95)]) == pytest.approx((0.9, 0.7, 0.95))


POPULATIONS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "0/1 at .95": lambda rng, n: (rng.random(n) < 0.95).astype(float),
    "0/1 at .99": lambda rng, n: (rng.random(n) < 0.99).astype(float),
    "claims": lambda rng, n: rng.choice([1.0, 0.0, 0.5, 0.67], n, p=[0.95, *[0.05 / 3] * 3]),
    "grades": lambda rng, n: rng.choice([0.0, 1 / 3, 2 / 3, 2 / 3, 1.0], n),
    "beta": lambda rng, n: rng.beta(8, 2, n),
}


@each_row("name", POPULATIONS)
@each_row("n", [8, 20, 100])
def test_the_interval_covers_the_mean_of_all_traffic(name: str, n: int) -> None:
    """Of 10 n traces; the t interval with its own variance covers .29 to .9 of these."""
    rng = np.random.default_rng([n, list(POPULATIONS).index(name)])
    draw = POPULATIONS[name]
    covered, runs = 0, 600
    for _ in range(runs):
        values = draw(rng, 10 * n)
        found = mean_interval([cell(values[:n].tolist(), 10 * n)], 0.0, 1.0)
        covered += found.lower - 1e-12 <= values.mean() <= found.upper + 1e-12
    assert covered / runs >= 0.925  # .95 less three standard errors of 600 runs


@pytest.mark.parametrize(("rate", "missed", "flagged"), [(0.97, 0.06, 0.025), (0.9, 0.1, 0.01)])
def test_the_interval_covers_with_the_classes_of_a_cheap_score(
    rate: float, missed: float, flagged: float
) -> None:
    """200 of 4,000 judged; regression on the cheap score covered .87 to .92 here."""
    rng = random.Random(f"{rate}")
    covered = 0
    runs = 300
    width = 0.0
    for _ in range(runs):
        cells = []
        truth = 0.0
        bad = sum(rng.random() >= rate for _ in range(4000))
        bad_flagged = sum(rng.random() >= missed for _ in range(bad))
        good_flagged = sum(rng.random() < flagged for _ in range(4000 - bad))
        truth = 1 - bad / 4000
        for wrong, all_of_it in (
            (bad_flagged, bad_flagged + good_flagged),
            (bad - bad_flagged, 4000 - bad_flagged - good_flagged),
        ):
            n = round(all_of_it / 20)
            drawn = rng.sample(range(all_of_it), n)
            cells.append(cell([float(number >= wrong) for number in drawn], all_of_it))
        found = mean_interval(cells, 0.0, 1.0)
        covered += found.lower <= truth <= found.upper
        lower, upper = wilson_interval(truth, 200)
        width += (found.upper - found.lower) / (upper - lower) / runs
    assert covered / runs >= 0.93
    assert width < 0.8
