"""When it changed: the estimate, and how often its set holds the truth once an alarm came."""

from __future__ import annotations

import random

import pytest
from ragmeter.parts.drift.baseline import Baseline
from ragmeter.parts.drift.detectors import BucketDeviation, DriftStream, ScorePart, find_change


def test_a_clear_change_is_dated_to_the_bucket() -> None:
    steps = [BucketDeviation(i * 60.0, 10, 0.0 if i < 20 else 30.0, 10.0) for i in range(30)]
    found = find_change(steps, 1800)
    assert (found.since, found.earliest, found.latest) == (1200, 1140, 1260)
    assert (found.shift, found.n, found.open) == (3, 100, False)
    assert found.error == pytest.approx(0.1)


def test_a_change_older_than_what_is_kept_is_said_to_be_open() -> None:
    found = find_change([BucketDeviation(i * 60.0, 10, 5.0, 10.0) for i in range(30)], 1800)
    assert found.open
    assert found.since == 0


def test_nothing_to_see_is_dated_to_the_present_and_anything_before() -> None:
    found = find_change([BucketDeviation(i * 60.0, 10, -5.0, 10.0) for i in range(30)], 1800)
    assert (found.earliest, found.latest, found.open) == (0, 1800, True)


@pytest.mark.parametrize("n", [5, 50, 500])
@pytest.mark.parametrize("shift", [0.3, 1.0])
def test_the_set_covers_a_change_within_a_bucket_however_many_samples_it_has(
    n: int, shift: float
) -> None:
    """The starts of buckets alone held 2 in 100 such changes of 500 samples a bucket."""
    rng, hit, runs = random.Random(n), 0, 200
    for _ in range(runs):
        change = rng.uniform(20, 30)
        after = [min(1.0, max(0.0, i + 1 - change)) for i in range(40)]
        steps = [
            BucketDeviation(float(i), n, rng.gauss(shift * n * part, n**0.5), float(n))
            for i, part in enumerate(after)
        ]
        found = find_change(steps, 40.0)
        hit += found.earliest <= change <= found.latest
    assert hit >= 0.93 * runs


def test_the_set_covers_the_true_time_of_shifts_of_several_sizes() -> None:
    rng = random.Random(11)
    baseline = Baseline(1, 0, 86400, (0.2,), (0.0,), 0.4, 1.0, 50.0)
    hit, runs, width = 0, 0, 0.0
    for shift in (0.04, 0.06, 0.12):  # .7 to 2 standard errors of a bucket
        for _ in range(60):
            stream, steps, change = DriftStream([baseline]), [], 100 * 60.0
            for i in range(1000):
                at = i * 60.0
                rate = 0.2 + (shift if at >= change else 0.0)
                k = sum(rng.random() < rate for _ in range(50))
                steps.append(BucketDeviation(at, 50, k - 10.0, 50 * 0.16))
                if stream.add(at, 60.0, [[ScorePart(50, k, k)]]) >= 30 * 86400:
                    break
            if steps[-1].start < change:
                continue
            dated = find_change(steps[-240:], steps[-1].start + 60)
            hit += dated.earliest <= change <= dated.latest
            width += dated.latest - dated.earliest
            runs += 1
    assert runs > 150
    assert hit / runs >= 0.93
    assert width / runs < 45 * 60  # of 240 minutes kept
