"""The regression estimate, the choice of the narrowest, and what few labels are drawn to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ragmeter.parts.questions.estimator import (
    MODEL_SPREAD,
    draw_to_model,
    narrowest,
    regression_estimate,
)
from ragmeter.windows.estimators import Cell, Interval, mean_interval

Numbers = NDArray[Any]
EDGES = tuple(at / 10 for at in range(1, 10))


def plain_interval(values: Numbers, weights: Numbers, total: float) -> Interval:
    mean = float(np.average(values, weights=weights))
    kish = float(weights.sum() ** 2 / (weights**2).sum())
    spread = float(np.average((values - mean) ** 2, weights=weights))
    cell = Cell(
        size=total,
        n=len(values),
        effective=kish,
        mean=mean,
        variance=spread * kish / max(1.0, kish - 1),
        sampled=len(values) / total,
    )
    return mean_interval([cell], 0.0, 1.0)


def draw(seed: int, total: int = 500, r: float = 0.8) -> tuple[Numbers, Numbers]:
    """All values, 0 or 1, and a cheap score of correlation `r` with what they come from."""
    rng = np.random.default_rng(seed)
    good, other = rng.standard_normal((2, total))
    values = 1.0 * (good > -1.0)
    return values, 1 / (1 + np.exp(-(r * good + math.sqrt(1 - r * r) * other) - 0.9))


def estimate(
    values: Numbers, cheap: Numbers, picked: Numbers, total: int, weight: float = 0.0
) -> Interval | None:
    weights = np.full(len(picked), weight or total / len(picked))
    return regression_estimate(
        values[picked],
        weights,
        cheap[picked, None],
        cheap[:, None],
        np.ones(total),
        plain=plain_interval(values[picked], weights, total),
        total=total,
    )


def test_a_helpful_score_makes_it_narrower_and_more_worth() -> None:
    values, cheap = draw(1, r=0.95)
    picked = np.arange(100)
    plain = plain_interval(values[picked], np.full(100, 5.0), 500)
    helped = estimate(values, cheap, picked, 500)
    assert helped is not None
    assert helped.upper - helped.lower < 0.9 * (plain.upper - plain.lower)
    assert helped.lower <= helped.value <= helped.upper
    ratio = (plain.upper - plain.lower) / (helped.upper - helped.lower)
    assert helped.effective == pytest.approx(plain.effective * ratio**2)


def test_it_has_no_bias() -> None:
    values, cheap = draw(2, total=400, r=0.9)
    rng = np.random.default_rng(3)
    found = []
    for _ in range(300):
        picked = rng.permutation(400)[:40]
        one = estimate(values, cheap, picked, 400)
        found.append(float(values[picked].mean()) if one is None else one.value)
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - values.mean()) < 3 * error


def test_unequal_weights_have_no_bias() -> None:
    """Half of what has a low cheap score is drawn, and a tenth of the rest."""
    values, cheap = draw(4, total=600, r=0.9)
    chance = np.where(cheap < 0.5, 0.5, 0.1)
    rng = np.random.default_rng(5)
    found = []
    for _ in range(300):
        picked = np.flatnonzero(rng.random(600) < chance)
        weights = 1 / chance[picked]
        one = regression_estimate(
            values[picked],
            weights,
            cheap[picked, None],
            cheap[:, None],
            np.ones(600),
            plain=Interval(0.5, 0.0, 1.0, 1.0),
            total=600,
        )
        assert one is not None
        found.append(one.value)
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - values.mean()) < 3 * error + 0.002  # the ratio's own, of order 1/n


def test_the_predictions_are_those_of_fits_without_each_value() -> None:
    """By brute force: a ridge regression for each value that is left out."""
    values, cheap = draw(6, total=200)
    picked = np.arange(30)
    rng = np.random.default_rng(7)
    weights = rng.uniform(2, 9, 30)
    found = regression_estimate(
        values[picked],
        weights,
        cheap[picked, None],
        cheap[:, None],
        np.ones(200),
        plain=Interval(0.5, 0.0, 1.0, 10.0),
        total=200,
    )
    assert found is not None

    ordered = np.sort(cheap)
    cuts = (math.inf, ordered[29], ordered[99])  # the quantiles .15 and .5
    background = np.stack([np.minimum(cheap, cut) for cut in cuts], 1)
    features = (background - background.mean(0)) / background.std(0)
    relative = weights / weights.mean()

    def fit(keep: Numbers) -> tuple[float, Numbers]:
        """Intercept and slopes, of which only the slopes are held at 0."""
        design = np.column_stack([np.ones(keep.sum()), features[picked][keep]])
        gram = (relative[keep, None] * design).T @ design + np.diag([0.0, 4.0, 4.0, 4.0])
        solved = np.linalg.solve(gram, (relative[keep] * values[picked][keep]) @ design)
        return float(solved[0]), solved[1:]

    unseen = np.empty(30)
    for left_out in range(30):
        intercept, slopes = fit(np.arange(30) != left_out)
        unseen[left_out] = intercept + features[left_out] @ slopes
    mean = np.average(values[picked], weights=relative)
    centred = unseen - np.average(unseen, weights=relative)
    power = (relative * (values[picked] - mean)) @ centred / (relative @ centred**2)
    assert 0 < power < 1
    _, slopes = fit(np.ones(30, bool))
    of_sample = np.average(features[picked], axis=0, weights=relative)
    assert found.value == pytest.approx(mean - power * of_sample @ slopes, rel=1e-9)


def test_bins_of_a_histogram_are_as_good_as_all_scores() -> None:
    values, cheap = draw(8, total=1_000, r=0.95)
    picked = np.arange(100)
    weights = np.full(100, 10.0)
    place = np.minimum((cheap * 10).astype(int), 9)
    counts = np.bincount(place, minlength=10).astype(float)
    means = np.bincount(place, cheap, minlength=10)[counts > 0] / counts[counts > 0]
    plain = plain_interval(values[picked], weights, 1_000)
    found = []
    for traffic, of_each in ((cheap, np.ones(1_000)), (means, counts[counts > 0])):
        one = regression_estimate(
            values[picked],
            weights,
            cheap[picked, None],
            traffic[:, None],
            of_each,
            plain=plain,
            total=1_000,
            edges=EDGES,
        )
        assert one is not None
        found.append(one)
    assert found[0].value == pytest.approx(found[1].value, abs=0.002)
    assert found[0].upper - found[0].lower == pytest.approx(
        found[1].upper - found[1].lower, rel=0.02
    )


def test_a_score_that_bad_answers_lack_tells_of_them() -> None:
    rng = np.random.default_rng(9)
    values = 1.0 * (rng.random(500) < 0.8)
    missing = rng.random(500) < np.where(values > 0, 0.05, 0.8)
    cheap = np.where(missing, np.nan, 0.7)
    picked = np.arange(100)
    plain = plain_interval(values[picked], np.full(100, 5.0), 500)
    found = estimate(values, cheap, picked, 500)
    assert found is not None
    assert found.upper - found.lower < 0.85 * (plain.upper - plain.lower)
    assert estimate(values, np.full(500, np.nan), picked, 500) is None


def test_a_larger_sample_has_an_error_of_its_own() -> None:
    values, cheap = draw(10, total=2_000, r=0.9)
    picked = np.arange(60)
    weights = np.full(60, 2_000 / 60)
    widths = []
    for known, second in ((2_000, None), (300, 300.0), (150, 150.0)):
        one = regression_estimate(
            values[picked],
            weights,
            cheap[picked, None],
            cheap[:known, None],
            np.ones(known),
            plain=Interval(0.5, 0.0, 1.0, 10.0),
            total=2_000,
            second=second,
        )
        assert one is not None
        widths.append(one.upper - one.lower)
    assert widths[0] < widths[1] < widths[2]


def test_what_cannot_help_gives_nothing() -> None:
    values, cheap = draw(11)
    assert estimate(values, cheap, np.arange(7), 500) is None  # too few
    assert estimate(values, np.full(500, 0.5), np.arange(100), 500) is None  # a constant score
    noise = np.random.default_rng(12).random(500)
    one = estimate(values, noise, np.arange(100), 500)
    plain = plain_interval(values[:100], np.full(100, 5.0), 500)
    assert one is None or one.upper - one.lower < plain.upper - plain.lower


def test_all_judged_leaves_nothing_to_estimate() -> None:
    values, cheap = draw(13, total=60)
    plain = plain_interval(values, np.ones(60), 60)
    assert plain.upper == plain.lower
    assert estimate(values, cheap, np.arange(60), 60, weight=1.0) is None


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_values_give_no_regression(value: float) -> None:
    _, cheap = draw(14)
    assert estimate(np.full(500, value), cheap, np.arange(50), 500) is None


def test_the_narrowest_is_chosen_and_plain_where_much_is_judged() -> None:
    plain = Interval(0.8, 0.7, 0.9, 60.0)
    narrow = Interval(0.81, 0.75, 0.87, 160.0)
    wide = Interval(0.79, 0.6, 0.95, 20.0)
    assert narrowest([plain, wide, narrow], 0.1) is narrow
    assert narrowest([plain, narrow], 0.4) is plain
    assert narrowest([plain, wide], 0.0) is plain
    assert narrowest([plain, plain._replace(value=0.75)], 0.0) is plain


def test_without_a_label_the_model_speaks_with_its_spread() -> None:
    level = draw_to_model(None, mean=0.8, error=0.0, spread=MODEL_SPREAD)
    assert level.value == 0.8
    assert 1.2 * MODEL_SPREAD < (level.upper - level.lower) / 2 < 2 * MODEL_SPREAD
    assert level.effective == pytest.approx(0.16 / MODEL_SPREAD**2)
    unsure = draw_to_model(None, mean=0.8, error=0.1, spread=MODEL_SPREAD)
    assert unsure.upper - unsure.lower > level.upper - level.lower
    assert draw_to_model(None, mean=0.97, error=0.0, spread=0.2, offset=0.1).value == 1.0


def test_labels_draw_the_number_from_the_model_to_themselves() -> None:
    values = [
        draw_to_model(
            mean_interval([Cell(1e9, n, n, 0.6, 0.24 * n / (n - 1))], 0.0, 1.0),
            mean=0.9,
            error=0.0,
            spread=0.15,
        )
        for n in (10, 30, 300, 3_000)
    ]
    assert [round(one.value, 2) for one in values] == sorted(
        (round(one.value, 2) for one in values), reverse=True
    )
    assert 0.7 < values[0].value < 0.85
    assert values[-1].value == pytest.approx(0.6, abs=0.01)
    widths = [one.upper - one.lower for one in values]
    assert widths == sorted(widths, reverse=True)
