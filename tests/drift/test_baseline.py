"""Baselines: learning in pieces, season, over-dispersion, quarantine, thin and missing data."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmeter.drift.baseline import (
    DAY,
    HOUR,
    QUARANTINE,
    Baseline,
    BaselineLearner,
    dispersion_widths,
)

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
    assert not baseline.dependent
    assert (baseline.buckets, baseline.typical, baseline.end) == (1440, 60, DAY)
    z, tol = baseline.z(60, mean + 2 * sd / math.sqrt(60), 0)
    assert z == pytest.approx(2 / math.sqrt(baseline.phi))
    assert tol == pytest.approx(2 / math.sqrt(1440))


def test_waves_longer_than_a_bucket_widen_it_threefold() -> None:
    rng, wave, buckets = random.Random(3), 0.0, []
    for i in range(1440):
        wave = 0.95 * wave + rng.gauss(0, 0.02)
        total = 60 * wave + rng.gauss(0, math.sqrt(60) * 0.2)
        buckets.append((i * 60.0, 60.0, total, total**2 / 60 + 60 * 0.04))
    baseline = frozen(learned(buckets))
    one = sum(b[2] ** 2 / 60 for b in buckets) / 1440 / 0.04
    assert baseline.dependent
    assert baseline.phi > 3 * one


def test_the_hours_of_the_day_have_levels_of_their_own_and_thin_ones_lean_on_all() -> None:
    buckets = rates(7 * 24, swing=0.5)
    thin = [b for b in buckets if int(b[0] // HOUR) % 24 != 4 or b[0] < 5 * 60 + 4 * HOUR]
    baseline = frozen(learned(thin), 24)
    assert baseline.levels[6] == pytest.approx(0.05 * 1.5, rel=0.05)
    assert baseline.levels[18] == pytest.approx(0.05 * 0.5, rel=0.05)
    assert baseline.slot(18.5 * HOUR + 3 * DAY) == 18
    own = [b for b in thin if int(b[0] // HOUR) % 24 == 4]
    n, total = sum(b[1] for b in own), sum(b[2] for b in own)
    overall = sum(b[2] for b in thin) / sum(b[1] for b in thin)
    assert baseline.levels[4] == pytest.approx((total + 50 * overall) / (n + 50))
    # ... and what is known badly is tolerated more
    assert baseline.z(60, 0.05, 4)[1] > 2 * baseline.z(60, 0.05, 5)[1]


def test_more_traffic_than_when_it_was_learned_does_not_sharpen_a_shared_wave() -> None:
    baseline = Baseline(1, 0, DAY, (0.0,), (86400.0,), 1.0, 4.0, False, 60.0, 1440)
    assert baseline.variance(30) == pytest.approx(4 / 30)
    assert baseline.variance(60) == pytest.approx(4 / 60)
    assert baseline.variance(6000) == pytest.approx(1 / 6000 + 3 / 60)
    # the level's own error is a bound on the mean, not on z: tolerance grows with n
    calm = Baseline(1, 0, DAY, (0.0,), (86400.0,), 1.0, 1.0, False, 60.0, 1440)
    assert calm.z(6000, 0.0, 0)[1] == pytest.approx(2 * math.sqrt(6000 / 86400))


def test_a_day_without_errors_does_not_make_one_error_an_alarm() -> None:
    baseline = frozen(learned([(i * 60.0, 10.0, 0.0, 0.0) for i in range(144)]))
    z, tol = baseline.z(10, 0.1, 0)
    assert z == pytest.approx(0.1 / math.sqrt(1 / 1440 / 10))
    assert z < 15
    assert tol > 0.1


def test_small_changes_can_be_of_no_interest() -> None:
    baseline = frozen(learned(rates(24)))
    m = baseline.levels[0]
    z, tol = baseline.z(60, m + 0.005, 0)
    assert baseline.z(60, m + 0.005, 0, 0.005)[0] == z
    assert baseline.z(60, m + 0.005, 0, 0.005)[1] == pytest.approx(tol + z)


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
        st.tuples(st.integers(1, 400), st.floats(0, 50), st.floats(0, 1)), min_size=2, max_size=80
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
    resumed = BaselineLearner.load(json.loads(json.dumps(stopped.dump())))
    for bucket in buckets[cut:]:
        resumed.add(*bucket)
    assert resumed.dump() == through.dump()
    frozen_twice = through.freeze(3, 24), resumed.freeze(3, 24)
    assert frozen_twice[0] == frozen_twice[1]
    if frozen_twice[0] is not None:
        state = json.loads(json.dumps(frozen_twice[0].dump()))
        assert Baseline.load(state) == frozen_twice[0]
