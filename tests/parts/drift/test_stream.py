"""Streams: directions, ranges, tolerance, dependence, recovery, restart."""

from __future__ import annotations

import random

import pytest
from ragmeter.parts.drift.baseline import Baseline
from ragmeter.parts.drift.detectors import DriftStream, ScorePart

from tests.parts.drift.saved import copied, saved

H = 30 * 86400.0


def base(level: float, sd: float = 0.3, phi: float = 1.0, error: float = 0.001) -> Baseline:
    return Baseline(1, 0, 86400, (level,), (error,), sd, phi, 60.0)


def minute(level: float, sd: float = 0.3, n: int = 60) -> list[list[ScorePart]]:
    return [[ScorePart(n, n * level, n * (level * level + sd * sd))]]


def last(stream: DriftStream, level: float, sd: float = 0.3, minutes: int = 60) -> float:
    return max(stream.add(i * 60.0, 60.0, minute(level, sd)) for i in range(minutes))


def test_lower_values_are_bad_where_more_is_better() -> None:
    good, bad = DriftStream([base(0.8)], sign=-1), DriftStream([base(0.8)], sign=-1)
    assert last(good, 0.9, 0.2) < 3600 < H < last(bad, 0.7)


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_either_direction_is_found_two_sided(level: float) -> None:
    stream = DriftStream([base(0.8, 0.2)], two_sided=True)
    assert last(stream, level, 0.2) > H
    assert stream.hold() == (0, 1 if level > 0.8 else -1)


@pytest.mark.parametrize(("level", "found"), [(300, True), (500, False), (700, True)])
def test_scores_without_upper_bound_are_watched_in_both_directions(
    level: float, found: bool
) -> None:
    stream = DriftStream([base(500, 200, error=1.0)], 1, True, (0.0, None))
    assert (last(stream, level, 200) > H) is found


def test_the_unit_of_a_score_changes_nothing() -> None:
    one, two = (
        DriftStream([base(0.8)], -1),
        DriftStream([base(3.4, 0.9, error=0.003)], -1, False, (1, 4)),
    )
    assert last(one, 0.7, minutes=9) == pytest.approx(last(two, 3.1, 0.9, minutes=9), rel=1e-6)


def test_what_is_known_badly_is_tolerated() -> None:
    sharp, vague = DriftStream([base(0.1)]), DriftStream([base(0.1, error=0.05)])
    assert last(vague, 0.15) < 10 * 3600 < H < last(sharp, 0.15)


def test_dependent_scores_count_as_fewer() -> None:
    one, ten = DriftStream([base(0.1)]), DriftStream([base(0.1, phi=10.0)])
    gains = one.gains(0, minute(0.12)[0], 0, 1), ten.gains(0, minute(0.12)[0], 0, 1)
    assert gains[1] == pytest.approx([gain / 10 for gain in gains[0]])


def test_a_single_bucket_is_no_alarm() -> None:
    stream = DriftStream([base(0.01, 0.1)])
    assert stream.add(0, 60, minute(1.0, 0.0, 6000)) < H
    assert stream.add(60, 60, minute(1.0, 0.0, 6000)) > H


def test_it_recovers_when_the_mean_is_back_and_not_before() -> None:
    stream = DriftStream([base(0.1)])
    assert last(stream, 0.3) > H
    stream.hold()
    assert not any(stream.recovers(3600 + i * 60.0, minute(0.3)) for i in range(3000))
    back = [stream.recovers(183600 + i * 60.0, minute(0.1)) for i in range(60)]
    assert back.index(True) < 30
    assert all(back[30:])


def test_a_stream_restored_goes_on_bit_for_bit() -> None:
    rng = random.Random(2)
    one = DriftStream([base(0.2), base(0.5)], -1, True)

    def rows() -> list[list[list[ScorePart]]]:
        shares = [(15 * rng.random(), 15 * rng.random()) for _ in range(101)]
        return [[[ScorePart(15, k, k)] for k in pair] for pair in shares]

    for i, parts in enumerate(rows()):
        one.add(i * 60.0, 60, parts)
    other = copied(one)
    for i, parts in enumerate(rows(), 101):
        assert one.add(i * 60.0, 60, parts) == other.add(i * 60.0, 60, parts)
    assert saved(one) == saved(other)
    one.restart()
    assert one.esr.statistic == 0
