"""The level that an alarm gives: of its own samples, within the range of the values."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ragmeter.parts.drift.alarms import Alarm
from ragmeter.parts.drift.series import SeriesAlarm
from ragmeter.windows.estimators import wilson_interval

FIELDS: dict[str, Any] = {
    "service": "bot", "metric": "grounding", "scorer": "builtin", "kind": "mean",
    "state": "firing", "at": 10_000.0, "since": 7_000.0, "since_earliest": 6_000.0,
    "since_latest": 8_000.0, "before": 0.9, "after": 0.376, "after_lower": 0.33,
    "after_upper": 0.42, "statistic": 339_539.0, "threshold": 259_200.0,
    "effective_samples": 415.0, "baseline_version": 1, "baseline_hours": 24.0,
    "provisional": "",
}  # fmt: skip


def level(
    mean: float, n: float, variance: float, low: float = 0.0, high: float | None = 1.0
) -> tuple[float, float]:
    """The interval of the level of an alarm with such samples."""
    none: dict[str, Any] = dict.fromkeys(SeriesAlarm._fields)
    sums = {"n": n, "total": n * mean, "squares": n * (variance + mean * mean)}
    return SeriesAlarm(**{**none, **sums}).estimate_level(low, high)[1:3]


def test_a_level_of_0_and_1_has_wilsons_interval() -> None:
    """The review's case: 0.376 on 415 samples was given as 0.373 to 0.379."""
    lower, upper = level(0.376, 415, 0.376 * (1 - 0.376))
    assert (lower, upper) == pytest.approx(wilson_interval(0.376, 415), abs=1e-4)
    assert upper - lower == pytest.approx(0.093, abs=0.001)


@pytest.mark.parametrize("mean", [0.0, 0.0359, 0.5, 1.0])
@pytest.mark.parametrize("n", [1.0, 9.5, 400.0])
def test_limits_stay_within_the_range(mean: float, n: float) -> None:
    for variance in (0.0, 0.01, 0.25, 9.0):
        lower, upper = level(3 * mean, n, variance, 0.0, 3.0)
        assert 0 <= lower <= 3 * mean <= upper <= 3
        assert upper - lower > 0.01


def test_without_an_upper_bound_it_is_the_t_interval_of_its_own_samples() -> None:
    assert level(7.0, 100, 4.0, 0.0, None) == pytest.approx((7 - 0.399, 7 + 0.399), abs=1e-3)
    assert level(0.1, 10, 4.0, 0.0, None)[0] == 0


@pytest.mark.parametrize("n", [10, 40, 200])
@pytest.mark.parametrize("mean", [0.5, 0.8, 0.95])
def test_graded_scores_are_covered_and_narrower_than_wilson(n: int, mean: float) -> None:
    rng, covered, widths = random.Random(n), 0, 0.0
    for _ in range(500):
        values = [rng.betavariate(6 * mean, 6 * (1 - mean)) for _ in range(n)]
        own = sum(values) / n
        variance = sum((value - own) ** 2 for value in values) / n
        lower, upper = level(own, n, variance)
        covered += lower <= mean <= upper
        low, high = wilson_interval(own, n)
        widths += (upper - lower) / (high - low)
    assert covered / 500 > 0.935
    assert widths / 500 < (0.6 if n == 200 else 0.9)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "grounding went from 0.9 to 0.376"),
        ({"scorer": "hhem"}, "grounding by hhem went from 0.9 to 0.376"),
        ({"kind": "distribution", "edge": 0.25}, "the share of grounding above 0.25 went from"),
        ({"kind": "latency", "metric": "total", "scorer": "", "edge": 2.0}, "the share of total"),
        ({"kind": "judge", "scorer": "hhem"}, "hhem judges grounding differently: its distance"),
    ],
)
def test_a_change_is_described_without_judging_it(changes: dict[str, Any], text: str) -> None:
    assert Alarm(**{**FIELDS, **changes}).describe().startswith(text)
