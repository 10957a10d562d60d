"""The first day of a service with a rhythm: calm without drift, and a large fall is found."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from ragmeter.parts.drift.baseline import DAY, HOUR
from ragmeter.parts.drift.series import MILESTONES, DetectorSpec, DriftSeries

from tests.parts.drift.saved import copied

H = 30 * 86400.0
N = 60  # traces a minute

Level = Callable[[float], float]
"""Badness by hour of the day."""


def swing(level: float, part: float) -> Level:
    return lambda hour: level * (1 + part * math.sin(2 * math.pi * hour / 24))


ERRORS, SCORES = swing(0.05, 0.5), swing(0.2, 0.3)


class Play:
    """Minutes from `begin` (an hour of the day) on; spread as of a rate, or as of a score."""

    def __init__(self, level: Level, begin: float, rate: bool, plan: object = MILESTONES) -> None:
        self.series = DriftSeries(DetectorSpec(60), plan)  # type: ignore[arg-type]
        self.level, self.begin, self.rate = level, begin, rate
        self.rng, self.minute = random.Random(begin), 0

    def run(self, hours: float, more: float = 0.0) -> list[float]:
        """Hours since the beginning at which alarms came."""
        out = []
        for _ in range(int(hours * 60)):
            at = self.begin + self.minute / 60
            p = self.level(at) + more
            variance = p * (1 - p) * (1.0 if self.rate else 0.09)
            total = self.rng.gauss(N * p, math.sqrt(N * variance))
            if self.rate:
                total = max(0.0, float(round(total)))
            squares = total if self.rate else total * total / N + N * variance
            self.minute += 1
            if self.series.feed(at * HOUR, N, (total,), (squares,), H):
                out.append(self.minute / 60)
        return out


@pytest.mark.parametrize(("level", "rate"), [(ERRORS, True), (SCORES, False)])
def test_a_rhythm_is_no_drift_from_the_first_minute_on(level: Level, rate: bool) -> None:
    """Sixteen services over three days each: promised are 1.6 alarms. To take six hours for the
    day gives 25 and more."""
    reported = [at for begin in range(16) for at in Play(level, 1.5 * begin, rate).run(72)]
    assert len(reported) <= 1


@pytest.mark.parametrize(
    ("level", "rate", "more"),
    [(ERRORS, True, 0.25), (swing(0.01, 0.5), True, 0.19), (SCORES, False, 0.3)],
)
def test_a_large_fall_on_the_first_day_is_found(level: Level, rate: bool, more: float) -> None:
    for begin in (0.0, 6.0, 12.0, 18.0):
        one = Play(level, begin, rate)
        assert one.run(9) == []
        found = one.run(3, more)
        assert len(found) == 1
        assert found[0] - 9 <= 3


def test_what_the_day_has_shown_stays_normal_until_a_day_is_known() -> None:
    one = Play(ERRORS, 18.0, True)
    widths = []
    for _ in range(27):
        one.run(1)
        stream = one.series.stream
        widths.append(stream.baselines[0].slack if stream else None)
    assert widths[5] is None
    first = widths[6]
    assert first is not None
    ups = [width[1] for width in widths[6:23] if width]
    assert ups == sorted(ups)
    assert ups[-1] > 1.5 * first[1]
    assert widths[-1] is not None
    assert widths[-1][1] != ups[-1]
    assert one.series.describe()["provisional"]


def test_a_plan_that_ends_with_six_hours_is_taken_at_its_word() -> None:
    one = Play(lambda hour: 0.05, 0.0, True, ((6 * HOUR, 1),))
    one.run(8)
    assert one.series.stream is not None
    assert one.series.stream.baselines[0].slack == (0.0, 0.0)


def test_a_promotion_of_less_than_a_week_is_refined_as_the_first_baseline_was() -> None:
    one = Play(lambda hour: 0.05, 0.0, True, ((6 * HOUR, 1), (DAY, 1)))
    one.run(8)
    assert len(one.run(7, 0.2)) == 1
    assert one.series.promote(15 * HOUR)
    assert one.series.version == 2
    assert one.series.stream is not None
    assert any(one.series.stream.baselines[0].slack)
    copy = copied(one.series)
    assert copy == one.series
    assert one.run(20, 0.2) == []
    assert one.series.version == 3
    assert one.series.stream.baselines[0].slack == (0.0, 0.0)
