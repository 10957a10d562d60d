"""One cause, one notification: what is announced, what is folded under it, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest
from ragmeter.alerts.alert import Alert
from ragmeter.parts.incidents.engine import AlertEngine
from ragmeter.parts.incidents.folding import NotificationFolder

from tests.exporters.alerts import drifted, make, slow, unscored

FAMILIES = {"grounding": "quality", "faithfulness": "quality"}


class Story:
    """A folder and the alerts that it is shown; times are minutes."""

    def __init__(self) -> None:
        self.folder = NotificationFolder(lambda alert: FAMILIES.get(alert.metric, "operation"))
        self.held: dict[str, Alert] = {}

    def at(self, minute: float, *fired: Alert, over: tuple[Alert, ...] = ()) -> list[str]:
        """Fire and end alerts; what is announced then, as `rule state [folded]`."""
        now = minute * 60
        for alert in fired:
            self.held[alert.id] = alert
            alert.state, alert.fired_at, alert.resolved_at = "firing", now, None
        for alert in over:
            self.held[alert.id].resolve("", now)
        notified = self.folder.update([alert.copy() for alert in self.held.values()], now)
        return [
            f"{one.rule} {one.state} {[item['rule'] for item in one.folded]}" for one in notified
        ]


def empty(**changes: Any) -> Alert:
    return make(rule="RagEmptyAnswersHigh", metric="empty_answer", **changes)


def late() -> Alert:
    return make(rule="RagTimeoutsElevated", metric="timeout", severity="warning", window="1h")


def test_an_outage_is_one_notification_with_all_that_comes_of_it() -> None:
    """The order is that of a real outage: a warning first, the page two minutes later."""
    story, errors, fast, first = Story(), make(), empty(), late()
    elevated = make(rule="RagErrorsElevated", severity="warning", window="1h")
    timeouts = make(rule="RagTimeoutsHigh", metric="timeout")
    assert story.at(1.5, first) == []
    assert story.at(3.5, errors) == ["RagErrorsHigh firing ['RagTimeoutsElevated']"]
    assert story.at(4, fast, timeouts, slow()) == []
    assert story.at(6, elevated, drifted()) == []
    assert story.at(20, over=(errors,)) == []  # a critical one goes on
    assert story.at(21, over=(timeouts, slow(), fast)) == [
        "RagErrorsHigh resolved ['RagEmptyAnswersHigh', 'RagTimeoutsHigh', 'RagLatencyHigh', "
        "'RagTimeoutsElevated', 'RagDrift', 'RagErrorsElevated']"
    ]
    assert story.at(80) == []  # the warnings were listed as still firing
    assert story.at(85, over=(elevated, first)) == []


def test_a_warning_alone_waits_ten_minutes_and_ends_by_itself() -> None:
    story, drift, later = Story(), drifted(), drifted(rule="RagGroundingLow", drift={})
    assert story.at(0, drift) == []
    assert story.at(9.9) == []
    assert story.at(10) == ["RagDrift firing []"]
    assert story.at(30, later) == []
    assert story.at(40) == []
    assert story.at(50, over=(drift,)) == ["RagDrift resolved ['RagGroundingLow']"]
    assert story.at(51) == []


def test_a_warning_that_ends_within_its_wait_is_not_announced() -> None:
    story, drift = Story(), drifted()
    assert story.at(0, drift) == []
    assert story.at(9, over=(drift,)) == []
    assert story.at(30) == []


def test_other_causes_get_a_page_of_their_own() -> None:
    """Another service, another family, and what comes more than an hour later."""
    story = Story()
    assert story.at(0, make()) == ["RagErrorsHigh firing []"]
    assert story.at(1, make(service="other")) == ["RagErrorsHigh firing []"]
    faithless = make(rule="RagFaithfulnessLow", metric="faithfulness", scorer="judge")
    assert story.at(2, faithless) == ["RagFaithfulnessLow firing []"]
    assert story.at(61, slow()) == ["RagLatencyHigh firing []"]
    assert story.at(62, empty()) == []  # folded under the latency, which is recent


def test_a_critical_alert_is_announced_beside_a_warning_that_was() -> None:
    story, drift = Story(), drifted(metric="latency")
    story.at(0, drift)
    assert story.at(10) == ["RagDrift firing []"]
    assert story.at(11, slow()) == ["RagLatencyHigh firing []"]
    assert story.at(30, over=(drift,)) == ["RagDrift resolved []"]


def test_what_fires_anew_after_an_hour_is_announced() -> None:
    story, fast = Story(), empty()
    story.at(0, make())
    story.at(1, fast)
    story.at(20, over=(fast,))
    assert story.at(90, fast) == ["RagEmptyAnswersHigh firing []"]


def test_an_alert_that_is_no_longer_held_ends() -> None:
    story, errors, fast = Story(), make(), empty()
    story.at(0, errors)
    story.at(1, fast)
    story.held.clear()
    assert story.at(2) == ["RagErrorsHigh resolved ['RagEmptyAnswersHigh']"]


def test_a_restart_continues() -> None:
    story, errors = Story(), make()
    story.at(0, errors)
    story.at(1, empty())
    rows = story.folder.rows()
    story.folder = NotificationFolder(lambda alert: "operation")
    story.folder.restore(rows)
    assert story.folder.find_leader(empty().id) == errors.id
    assert story.at(2) == []
    assert story.at(3, over=tuple(story.held.values())) == [
        "RagErrorsHigh resolved ['RagEmptyAnswersHigh']"
    ]


@pytest.mark.parametrize(
    ("alert", "family"),
    [
        (make(), "operation"),
        (slow(), "operation"),
        (make(metric="grounding"), "quality"),
        (unscored(), "measuring"),
        (make(metric="judge_probe_change"), "measuring"),
        (drifted(drift={"kind": "judge"}), "measuring"),
    ],
)
def test_families(alert: Alert, family: str) -> None:
    assert AlertEngine([])._family(alert) == family
