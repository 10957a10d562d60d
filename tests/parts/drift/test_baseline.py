"""Baselines: learning in pieces, season, over-dispersion, quarantine, thin and missing data."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ragmeter.parts.drift.baseline import (
    DAY,
    HOUR,
    QUARANTINE,
    Baseline,
    BaselineLearner,
    dispersion_widths,
    is_weekend,
)
from ragmeter.parts.drift.detectors import DriftStream, ScorePart

from tests.parts.drift.saved import copied

Bucket = tuple[float, float, float, float]


def rates(
    hours: int, n: int = 60, rate: float = 0.05, seed: int = 1, swing: float = 0.0
) -> list[Bucket]:
    rng = random.Random(seed)
    out = []
    for i in range(hours * 60):
        p = rate * (1 + swing * math.sin(2 * math.pi * i * 60 / DAY))
        k = float(sum(rng.random() < p for _ in range(n)))
        out.append((i * 60.0, float(n), k, k))
    return out


def learned(buckets: list[Bucket], width: int = 60) -> BaselineLearner:
    learner = BaselineLearner(width)
    for bucket in buckets:
        learner.add(*bucket)
    return learner


def frozen(learner: BaselineLearner, slots: int = 1) -> Baseline:
    baseline = learner.freeze(1, slots)
    assert baseline is not None
    return baseline


def test_rungs_divide_the_hour() -> None:
    assert dispersion_widths(60) == (1, 5, 15, 30, 60)
    assert dispersion_widths(10) == (1, 6, 30, 90, 180, 360)
    assert dispersion_widths(300) == (1, 3, 6, 12)


def test_level_spread_and_over_dispersion_are_those_of_the_definition() -> None:
    buckets = rates(24)
    baseline = frozen(learned(buckets))
    n = sum(b[1] for b in buckets)
    mean = sum(b[2] for b in buckets) / n
    sd = math.sqrt(mean * (1 - mean) + 1 / n)
    phi = sum((s - c * mean) ** 2 / c for _, c, s, _ in buckets) / len(buckets) / sd**2
    assert list(baseline.levels) == pytest.approx([mean])
    assert baseline.sd == pytest.approx(sd)
    assert baseline.phi == pytest.approx(max(1.0, phi))
    assert (baseline.typical, baseline.end) == (60, DAY)
    assert baseline.error(0) == pytest.approx(sd * math.sqrt(baseline.phi / n), rel=1e-5)


def test_waves_longer_than_a_bucket_widen_it_threefold() -> None:
    rng, wave, buckets = random.Random(3), 0.0, []
    for i in range(1440):
        wave = 0.95 * wave + rng.gauss(0, 0.02)
        total = 60 * wave + rng.gauss(0, math.sqrt(60) * 0.2)
        buckets.append((i * 60.0, 60.0, total, total**2 / 60 + 60 * 0.04))
    baseline = frozen(learned(buckets))
    one = sum(b[2] ** 2 / 60 for b in buckets) / 1440 / 0.04
    assert baseline.phi > 3 * one


def test_a_day_with_a_rhythm_gives_hours_levels_and_one_without_a_level() -> None:
    flat, swinging = frozen(learned(rates(24)), 24), frozen(learned(rates(24, swing=0.5)), 24)
    assert len(set(flat.levels)) == 1
    assert (flat.slack, flat.provisional) == ((0.0, 0.0), "")
    assert flat.error(0) == pytest.approx(math.sqrt(0.05 * 0.95 / 86400), rel=0.1)
    assert swinging.level(6 * HOUR) == pytest.approx(0.075, abs=0.012)
    assert swinging.level(18 * HOUR) == pytest.approx(0.025, abs=0.008)
    # a single day does not tell a rhythm from a day of its own
    assert swinging.slack[1] == pytest.approx(2 * 0.025 / math.sqrt(2), rel=0.15)
    assert swinging.provisional == "first two weeks"
    assert swinging.phi < 2


def week(weeks: int, level: Callable[[int], float]) -> list[Bucket]:
    """Buckets of ten minutes; `level` by hour since Thursday."""
    rng, out = random.Random(4), []
    for i in range(weeks * 7 * 144):
        p = level(i // 6)
        k = round(rng.gauss(600 * p, math.sqrt(600 * p * (1 - p))))
        out.append((i * 600.0, 600.0, float(k), float(k)))
    return out


def test_in_the_second_week_a_weekend_of_its_own_is_known_and_days_off_by_chance_are_not() -> None:
    """The same seven levels: two of them on the weekend, or in an order of chance."""

    def weekend(hour: int) -> float:
        return 0.1 if is_weekend(hour % 168) else 0.05

    def chance(hour: int) -> float:
        return 0.1 if hour // 24 % 7 in (0, 3) else 0.05

    known, unknown = (frozen(learned(week(1, level), 600), 168) for level in (weekend, chance))
    assert known.level(60 * HOUR) == pytest.approx(0.1, abs=0.01)
    assert known.slack == (0.0, 0.0)
    assert unknown.level(0.0) == pytest.approx(0.1, abs=0.01)
    assert unknown.slack[0] == unknown.slack[1] > 0.015


def test_a_weekend_is_known_after_a_week_and_its_shape_after_two() -> None:
    def level(hour: int) -> float:
        return 0.08 if is_weekend(hour % 168) else 0.05 + 0.02 * math.sin(math.pi * hour / 12)

    one, two = (frozen(learned(week(n, level), 600), 168) for n in (1, 2))
    weekend, night = 60 * HOUR, 18 * HOUR
    assert one.level(weekend) == pytest.approx(0.08, abs=0.012)
    for start in (weekend, night, 2.5 * DAY):
        assert two.level(start) == pytest.approx(level(int(start // HOUR)), abs=0.01)
    assert (two.slack, two.provisional) == ((0.0, 0.0), "")
    assert two.level(weekend) == two.level(weekend + 7 * DAY)


def test_days_that_differ_by_chance_are_dependence_not_rhythm() -> None:
    """Hours of their own in every week: two weeks have the same ones nowhere."""
    rng = random.Random(8)
    chance = [rng.gauss(0, 0.02) for _ in range(14 * 24)]
    baseline = frozen(learned(week(2, lambda hour: 0.2 + chance[hour]), 600), 168)
    assert baseline.phi > 5
    assert max(abs(x - 0.2) for x in baseline.levels) < 0.02


def test_a_kind_of_day_is_new_until_half_of_one_was_seen() -> None:
    """Day 0 was a Thursday."""
    for hours, new in ((30, "weekend"), (59, "weekend"), (61, ""), (7 * 24, "")):
        assert learned(rates(hours, n=1)).new_days == new
    saturday = [(b[0] + 2 * DAY, *b[1:]) for b in rates(24, n=1)]
    assert learned(saturday).new_days == "workday"
    baseline = replace(frozen(learned(rates(24))), new_days="weekend", new_slack=(0.1, 0.2))
    assert baseline.slack_at(DAY) == (0.0, 0.0)
    assert baseline.slack_at(2.5 * DAY) == (0.1, 0.2)


def test_more_traffic_than_when_it_was_learned_does_not_sharpen_a_shared_wave() -> None:
    baseline = Baseline(1, 0, DAY, (0.0,), (0.0,), 1.0, 4.0, 60.0)
    assert baseline.variance(30) == pytest.approx(4 / 30)
    assert baseline.variance(60) == pytest.approx(4 / 60)
    assert baseline.variance(6000) == pytest.approx(1 / 6000 + 3 / 60)


def test_a_day_without_errors_does_not_make_one_error_an_alarm() -> None:
    baseline = frozen(learned([(i * 60.0, 10.0, 0.0, 0.0) for i in range(1440)]))
    stream = DriftStream([baseline])
    found = [stream.add(i * 600.0, 60.0, [[ScorePart(10, i == 3, i == 3)]]) for i in range(9)]
    assert max(found) < 3 * DAY


def test_an_alarm_takes_back_what_was_learned_since_and_nothing_older() -> None:
    normal, bad = rates(20), [(20 * HOUR + i * 60.0, 60.0, 30.0, 30.0) for i in range(150)]
    learner = learned(normal + bad)
    learner.forget(20 * HOUR)
    assert frozen(learner) == frozen(learned(normal))
    learner = learned(normal + bad)
    learner.forget(20.5 * HOUR)  # the hour in which it began goes with it
    assert frozen(learner).levels == frozen(learned(normal)).levels
    learner = learned(normal)
    learner.forget(0.0)  # the quarantine is four hours, no more
    assert learner.hours == pytest.approx(20 - QUARANTINE)


def test_nothing_learned_is_no_baseline() -> None:
    assert BaselineLearner(60).freeze(1, 1) is None


@settings(max_examples=40)
@given(
    st.lists(
        # no score weighs less than one: the least of the weights keeps their inverses finite
        st.tuples(st.integers(1, 400), st.just(0.0) | st.floats(0.01, 50), st.floats(0, 1)),
        min_size=2,
        max_size=80,
    ),
    st.integers(0, 80),
    st.sampled_from([10, 60, 300]),
)
def test_a_restart_at_any_bucket_changes_no_bit(
    rows: list[tuple[int, float, float]], cut: int, width: int
) -> None:
    at, buckets = 0, []
    for gap, n, x in rows:
        at += gap
        if n:
            buckets.append((float(at * width), n, n * x, n * x * x))
    through = learned(buckets, width)
    stopped = learned(buckets[:cut], width)
    resumed = copied(stopped)
    for bucket in buckets[cut:]:
        resumed.add(*bucket)
    assert resumed == through
    frozen_twice = through.freeze(3, 168), resumed.freeze(3, 168)
    assert frozen_twice[0] == frozen_twice[1]
    if frozen_twice[0] is not None:
        assert copied(frozen_twice[0]) == frozen_twice[0]
