"""The alerts that alarms become: their words, and the judge told from the answers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from ragmeter.alerts.alert import format_days
from ragmeter.alerts.explanation import Explanation
from ragmeter.core.arithmetic import WEIGHT_ONE, value_units
from ragmeter.parts.drift import alerts as drift_alerts
from ragmeter.parts.drift.alarms import Alarm, with_state
from ragmeter.parts.drift.alerts import DriftAlerts, expected_cheap_move, has_not_followed
from ragmeter.parts.views import Explainer
from ragmeter.windows.contrasts import Contrast
from ragmeter.windows.sums import NO_SUMS, ScoreSums, StratumSums
from ragmeter.windows.windows import Windows

from tests.parts.drift.test_alarms import FIELDS


def summary(**changes: Any) -> str:
    alarm = Alarm(**{**FIELDS, **changes})
    alerts = DriftAlerts(max_alerts=10)
    (alert,) = alerts.apply_alarms([alarm], [alarm], Windows(), alarm.at)
    return alert.summary


def test_the_summary_is_what_a_pager_shows() -> None:
    assert summary(expected_days=39.3) == (
        "bot: grounding went from 0.9 to 0.376 (95 % interval 0.33 to 0.42 on 415 samples),"
        " 50 min before the alarm. False alarm at most every 39 days"
    )


def test_a_change_that_is_older_than_what_was_kept_is_at_least_so_old() -> None:
    text = summary(since=-5_000.0, since_at_least=True, expected_days=400, provisional="first day")
    assert "), at least 4.2 h before the alarm. " in text
    assert text.endswith("at most every 400 days (less than a day of history)")


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (0.04, "0.0 days"), (3.21, "3.2 days"), (39.3, "39 days"), (339.0, "340 days"),
        (1290.0, "1300 days"), (1e9, "10 years"),
    ],
)  # fmt: skip
def test_what_chance_does_is_rounded(days: float, text: str) -> None:
    assert format_days(days) == text


class Told:
    """Stories in place of those from windows: at each look the next, then the last again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *rules: str) -> None:
        self.rules, self.looks = list(rules), list[float]()
        monkeypatch.setattr(drift_alerts, "_find_story", self)

    def __call__(self, alarm: Alarm, windows: Windows, now: float, explainer: Explainer) -> Any:
        self.looks.append(now)
        rule = self.rules.pop(0) if len(self.rules) > 1 else self.rules[0]
        text = f"look {len(self.looks)}"
        return drift_alerts._Story(rule, f"cause {len(self.looks)}", Explanation("", text))


def test_an_alert_is_explained_again_whenever_the_time_since_has_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notified = Told(monkeypatch, "RagDrift")
    alarm = Alarm(**{**FIELDS, "since": 0.0, "at": 600.0})
    alerts = DriftAlerts(max_alerts=10)
    alerts.apply_alarms([alarm], [alarm], Windows(), 600.0)
    for minute in range(11, 1500):
        assert alerts.apply_alarms([], [alarm], Windows(), 60.0 * minute) == []
    assert notified.looks == [600.0 * 2**n for n in range(7)]
    (alert,) = alerts.alerts()
    assert "look 7" in alert.summary
    assert alert.fired_at == 600.0


def test_a_quality_alarm_is_taken_back_if_the_judge_turns_out_to_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Told(monkeypatch, "RagDrift", "RagJudgeChanged", "RagDrift")
    alarm = Alarm(**{**FIELDS, "since": 0.0, "at": 600.0, "scorer": "hhem"})
    alerts = DriftAlerts(max_alerts=10)
    (first,) = alerts.apply_alarms([alarm], [alarm], Windows(), 600.0)
    moved = alerts.apply_alarms([], [alarm], Windows(), 1200.0)
    assert [(a.rule, a.state, a.reason) for a in moved] == [
        ("RagDrift", "resolved", "cause 2"), ("RagJudgeChanged", "firing", ""),
    ]  # fmt: skip
    assert moved[0].id == first.id != moved[1].id
    assert alerts.judge_changes() == {alarm.key}
    state, alerts = alerts.dump(), DriftAlerts(max_alerts=10)
    alerts.load(state)
    assert alerts.dump() == state
    assert alerts.apply_alarms([], [alarm], Windows(), 6000.0) == []
    assert [a.rule for a in alerts.alerts()] == ["RagJudgeChanged"]
    (cleared,) = alerts.apply_alarms([with_state(alarm, "cleared")], [], Windows(), 6060.0)
    assert (cleared.rule, cleared.state) == ("RagJudgeChanged", "resolved")


def contrast(value: float, error: float) -> Contrast:
    return Contrast(value, value - 1.96 * error, value + 1.96 * error, 0.5)


def judged_cell(rng: random.Random, apart: float, n: int = 400, bad: float = 0.1) -> ScoreSums:
    """A judge's 0/1 verdicts with cheap scores that are `apart` higher for good answers."""
    sums = NO_SUMS
    for _ in range(n):
        y = float(rng.random() >= bad)
        f = rng.gauss(0.5 + apart * y, 0.15)
        v, x = value_units(y), value_units(f)
        one = StratumSums.of_scores(WEIGHT_ONE, v, v * v, f=x, ff=x * x, yf=v * x)
        sums = sums.plus(one)._replace(size=sums.size + WEIGHT_ONE)
    return ScoreSums([0, 0, 0, 0, 0, 0, 0], {"rest": sums})


def test_the_cheap_score_is_expected_to_move_by_its_slope() -> None:
    cell = judged_cell(random.Random(1), 0.2, 20_000)
    move, error = expected_cheap_move(cell, contrast(-0.3, 0.02))
    assert move == pytest.approx(-0.06, abs=0.003)
    assert error == pytest.approx(0.2 * 0.02, rel=0.2)
    bare = ScoreSums([0, 0, 0, 0, 50, value_units(40), value_units(40) << 30], None)
    assert expected_cheap_move(bare, contrast(-0.3, 0.02)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("cheap", "expected", "not_followed"),
    [
        (contrast(-0.001, 0.004), (-0.05, 0.005), True),
        (contrast(0.02, 0.004), (-0.05, 0.005), True),  # it went up, even
        (contrast(-0.05, 0.004), (-0.05, 0.005), False),
        (contrast(-0.03, 0.004), (-0.05, 0.005), False),  # it followed by more than half
        (contrast(-0.001, 0.03), (-0.05, 0.005), False),  # it may have followed
        (contrast(0.001, 0.004), (0.05, 0.005), True),
        (contrast(0.0, 0.001), (0.0, 0.0), False),  # it would not have moved anyway
    ],
)
def test_a_score_that_should_have_moved_and_did_not_is_told(
    cheap: Contrast, expected: tuple[float, float], not_followed: bool
) -> None:
    assert has_not_followed(cheap, expected) == not_followed


@pytest.mark.parametrize(("apart", "least_found"), [(0.05, 0.0), (0.1, 0.7), (0.2, 0.95)])
def test_a_fall_of_quality_is_hardly_ever_put_down_to_the_judge(
    apart: float, least_found: float
) -> None:
    """400 judged before and 100 since, 2,000 cheap scores since: correlations .1 to .37."""
    rng = random.Random(int(100 * apart))
    blamed = found = 0
    runs = 400
    for _ in range(runs):
        cell = judged_cell(rng, apart, 400)
        fall = rng.gauss(0.25, 0.046)
        expected = expected_cheap_move(cell, contrast(-fall, 0.046))
        noise = rng.gauss(0, 0.0034)
        blamed += has_not_followed(contrast(-0.25 * apart + noise, 0.0034), expected)
        found += has_not_followed(contrast(noise, 0.0034), expected)
    assert blamed / runs <= 0.02
    assert found / runs >= least_found
