"""A series' life: milestones, alarm, clearing, promotion; alarms do not poison what is learned."""

from __future__ import annotations

import json
import math
import random

import pytest
from ragmeter.parts.drift.baseline import DAY, HOUR
from ragmeter.parts.drift.series import (
    MILESTONES,
    DetectorSpec,
    DriftSeries,
    SeriesAlarm,
    milestones_for,
)

from tests.parts.drift.saved import copied, saved

H = 30 * 86400.0


class Feed:
    """A rate in one-minute buckets of 60."""

    def __init__(self, series: DriftSeries, seed: int = 1) -> None:
        self.series, self.minute, self.rng = series, 0, random.Random(seed)

    def run(self, hours: float, rate: float) -> list[SeriesAlarm]:
        out = []
        for _ in range(int(hours * 60)):
            k = float(sum(self.rng.random() < rate for _ in range(60)))
            found = self.series.feed(self.minute * 60.0, 60, (k,), (k,), H)
            self.minute += 1
            out += [found] if found else []
        return out


def series(*milestones: tuple[float, int]) -> DriftSeries:
    return DriftSeries(DetectorSpec(60), milestones or ((6 * HOUR, 1),))


def test_baselines_come_at_their_milestones() -> None:
    one = series((6 * HOUR, 1), (24 * HOUR, 24), (48 * HOUR, 168))
    feed = Feed(one)
    seen = []
    for _ in range(60):
        feed.run(1, 0.05)
        levels = len(one.stream.baselines[0].levels) if one.stream else 0
        seen.append((one.version, levels))
    assert seen[5:7] == [(0, 0), (1, 1)]
    assert seen[23:25] == [(1, 1), (2, 24)]
    assert seen[47:49] == [(2, 24), (3, 168)]
    assert seen[-1] == (3, 168)


def test_an_alarm_says_since_when_and_is_said_once_until_it_clears() -> None:
    one = series()
    feed = Feed(one)
    assert feed.run(12, 0.05) == []
    found = feed.run(3, 0.15)
    assert len(found) == 1
    change = found[0].change
    assert change.earliest - 120 <= 12 * HOUR <= change.latest + 120
    assert abs(change.since - 12 * HOUR) <= 600
    assert abs(found[0].level + change.shift - 0.15) < 0.04
    alarm = found[0]
    assert alarm.n == change.n
    assert alarm.total == alarm.squares == pytest.approx(alarm.n * (alarm.level + change.shift))
    assert alarm.statistic >= H
    assert (alarm.provisional, change.open) == ("", False)
    assert one.active
    assert feed.run(4, 0.05) == []
    assert not one.active
    assert len(feed.run(2, 0.15)) == 1


def test_what_came_with_an_alarm_is_not_learned() -> None:
    clean, hit = series((6 * HOUR, 1), (24 * HOUR, 1)), series((6 * HOUR, 1), (24 * HOUR, 1))
    one, two = Feed(clean), Feed(hit)
    one.run(40, 0.05)
    two.run(12, 0.05)
    found = two.run(5, 0.30)
    assert len(found) == 1
    assert hit._learners[0].end <= found[0].change.since
    two.run(30, 0.05)
    assert clean.stream is not None
    assert hit.stream is not None
    assert hit.version == clean.version == 2
    levels = [s.stream.baselines[0].levels[0] for s in (clean, hit) if s.stream]
    assert abs(levels[0] - levels[1]) < 0.003


def test_an_acknowledged_alarm_makes_the_new_state_normal() -> None:
    one = series()
    feed = Feed(one)
    feed.run(8, 0.05)
    assert len(feed.run(7, 0.15)) == 1
    assert one.promote(feed.minute * 60.0)
    assert one.stream is not None
    assert abs(one.stream.baselines[0].levels[0] - 0.15) < 0.02
    assert (one.version, one.active) == (2, False)
    assert feed.run(10, 0.15) == []


def test_a_promotion_too_early_learns_anew_under_the_old_baseline() -> None:
    one = series()
    feed = Feed(one)
    feed.run(8, 0.05)
    assert not one.promote(feed.minute * 60.0)
    feed.run(5, 0.05)
    assert one.version == 1
    feed.run(3, 0.05)
    assert one.version == 2


def test_a_restart_in_any_phase_changes_no_bit() -> None:
    for hours, rate in ((3.3, 0.05), (9.1, 0.05), (9.5, 0.2), (13.7, 0.2)):
        feed = Feed(series((6 * HOUR, 1), (12 * HOUR, 24)))
        feed.run(min(hours, 9), 0.05)
        feed.run(max(0.0, hours - 9), rate)
        copy = Feed(copied(feed.series))
        copy.minute = feed.minute
        copy.rng.setstate(feed.rng.getstate())
        assert feed.run(8, 0.06) == copy.run(8, 0.06)
        assert feed.series == copy.series


def test_an_unchanged_shift_stays_one_alarm_and_is_dated_days_back() -> None:
    one = series()
    feed = Feed(one)
    feed.run(12, 0.05)
    found = feed.run(96, 0.056)
    assert len(found) == 1
    assert one.active
    assert found[0].change.since < feed.minute * 60 - 2 * DAY
    slow = series()
    feed = Feed(slow, seed=4)
    feed.run(12, 0.05)
    late = feed.run(200, 0.0535)
    assert len(late) == 1
    taken = slow.last_alarm - 12 * HOUR
    assert taken > 8 * HOUR  # longer than the four hours that were once kept
    assert abs(late[0].change.since - 12 * HOUR) < taken / 2
    assert not late[0].change.open


def test_a_change_from_before_what_is_kept_is_open() -> None:
    one = series()
    feed = Feed(one)
    feed.run(8, 0.05)
    one._recent = []
    found = feed.run(8, 0.15)
    assert found[0].change.open


def test_state_is_bounded() -> None:
    one = series((6 * HOUR, 1), (24 * HOUR, 24))
    feed = Feed(one)
    sizes = []
    for _ in range(14):
        feed.run(24, 0.05)
        sizes.append(len(json.dumps(saved(one))))
    assert max(sizes[7:]) < 1.2 * min(sizes[7:])
    assert max(sizes) < 30_000


def test_a_baseline_is_learned_over_the_span_that_is_set() -> None:
    """Days learned and levels of each baseline on the way."""
    assert milestones_for(0.25) == ((6 * HOUR, 1),)
    assert milestones_for(1) == ((6 * HOUR, 1), (DAY, 24))
    assert milestones_for(3) == ((6 * HOUR, 1), (DAY, 24), (3 * DAY, 24))
    assert milestones_for(7) == MILESTONES[:3]
    assert milestones_for(14) == MILESTONES
    assert milestones_for(28) == (*MILESTONES, (28 * DAY, 168))


def test_a_weekend_of_its_own_is_no_drift_from_the_first_one_on() -> None:
    """Buckets of ten minutes from a Monday on; .3 standard deviations worse on weekends."""
    rng = random.Random(3)
    one = DriftSeries(DetectorSpec(600))
    found = []
    for i in range(24 * 144):
        weekend = i // 144 % 7 >= 5
        level = 0.15 + 0.03 * math.sin(math.pi * i / 72) + 0.03 * weekend
        level += 0.05 * (i >= 23 * 144)  # on the fourth Wednesday
        total = rng.gauss(600 * level, math.sqrt(600) * 0.1)
        squares = total * total / 600 + 600 * 0.01
        alarm = one.feed(4 * DAY + i * 600.0, 600, (total,), (squares,), H)
        found += [(i, alarm)] if alarm else []
    assert len(found) == 1
    assert 0 <= found[0][0] - 23 * 144 <= 6
    assert found[0][1].provisional == ""


def test_an_alarm_of_the_first_weekend_names_the_reason_to_doubt_it() -> None:
    one = series(*MILESTONES)
    feed = Feed(one)
    feed.minute = 4 * 1440  # Monday
    assert feed.run(5 * 24 + 8, 0.05) == []
    found = feed.run(4, 0.3)
    assert [alarm.provisional for alarm in found] == ["first weekend"]
