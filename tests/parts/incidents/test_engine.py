"""The state machine on a time line: one sign is one evaluation, a minute apart."""

from __future__ import annotations

import time

import pytest
from ragmeter.alerts.alert import alert_id
from ragmeter.app.settings import load_settings
from ragmeter.parts.incidents.engine import AlertEngine

from tests.parts.incidents.fakes import (
    FakeWindows,
    Worst,
    around,
    look,
    make_quantile,
    play,
    restarted,
    rule,
)
from tests.tables import each_row

NO_DATA = {"no_data_for": "3m"}

# readings (# true, . false, ? no data), states after each, announced, rule keys
LINES = [
    # `for`: true for long enough fires, once; anything else starts over
    ("..###..", "--FFFrr", "FR", {}),
    (".####.", "-ppFFr", "FR", {"for": "2m"}),
    ("##.##.###", "pp-pp-ppF", "F", {"for": "2m"}),
    # `keep_firing_for`: a short relief does not resolve, and starts over at the next true
    ("#.#..#.", "FFFFFFF", "F", {"keep_firing_for": "2m"}),
    ("#.#...", "FFFFFr", "FR", {"keep_firing_for": "2m"}),
    ("#..", "FFF", "F", {"keep_firing_for": "2m"}),
    # flapping fires and resolves each time without it
    ("#.#.", "FrFr", "FRFR", {}),
    # no data: a pending alert is dropped, a firing one stays for a bound, then resolves
    ("??", "--", "", {}),
    ("#?##", "p-pp", "", {"for": "2m"}),
    ("#???", "FNNN", "F", NO_DATA),
    ("#????", "FNNNr", "FR", NO_DATA),
    ("#???#???#", "FNNNFNNNF", "F", NO_DATA),
    ("#??.", "FNNr", "FR", NO_DATA),
    ("#????#", "FNNNrF", "FRF", NO_DATA),
    # no data is not relief: it neither counts as false nor hides that it was false before
    ("#.?#?.?.", "FFNFNFNr", "FR", {"keep_firing_for": "2m", "no_data_for": "3m"}),
    # after resolving, `for` holds again
    ("###.##", "ppFrpp", "FR", {"for": "2m"}),
]


@each_row("restarts", [False, True], ids=["one process", "one per step"])
@each_row(("line", "states", "announced", "keys"), LINES)
def test_states_on_a_time_line(
    line: str, states: str, announced: str, keys: dict[str, object], restarts: bool
) -> None:
    found, alerts = play(line, rule(**keys), restarts=restarts)
    assert found == states
    assert "".join("F" if alert.state == "firing" else "R" for alert in alerts) == announced


@pytest.mark.parametrize(
    ("alerts", "link"),
    [
        ({}, ""),
        ({"page_url": "https://rag.test/"}, "https://rag.test/runbooks/faithfulness.md"),
        (
            {"page_url": "https://rag.test", "runbook_url": "https://wiki.test/rag/"},
            "https://wiki.test/rag/faithfulness.md",
        ),
    ],
)
def test_an_alert_leads_to_its_runbook_or_to_that_of_its_rule(
    alerts: dict[str, str], link: str
) -> None:
    base = load_settings(environ={}, overrides={"alerts": alerts}).alerts.runbook_base
    own = "https://wiki.test/mine"
    rules = [rule(name="RagFaithfulnessLow"), rule(name="Mine", runbook=own)]
    engine = AlertEngine(rules, runbooks=base)
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    engine.evaluate(windows, 0.0)
    expected = {"RagFaithfulnessLow": link, "Mine": own}
    held = engine.alerts()
    engine.complete(held)
    assert {alert.rule: alert.runbook for alert in held} == expected


def test_a_resolved_alert_is_kept_for_fifteen_minutes() -> None:
    states, _ = play("#" + "." * 20, rule())
    assert states == "F" + "r" * 15 + "-" * 5


def test_times_are_those_of_the_events() -> None:
    _, (fired, resolved) = play("###.", rule(**{"for": "2m"}))
    assert (fired.since, fired.fired_at, fired.resolved_at) == (1000.0, 1120.0, None)
    assert (resolved.since, resolved.fired_at, resolved.resolved_at) == (1000.0, 1120.0, 1180.0)
    assert fired.id == resolved.id == alert_id("Errors", "bot")


def test_an_alert_carries_its_evidence_and_refreshes_it_while_firing() -> None:
    engine = AlertEngine([rule(labels={"team": "search"})])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    windows.bad = [Worst("t1", 1.0), Worst("t2", 1.0)]
    (fired,) = engine.evaluate(windows, 0.0)
    assert (fired.value, fired.lower, fired.upper) == (0.2, 0.2 - 0.02, 0.2 + 0.02)
    assert (fired.samples, fired.effective_samples, fired.threshold) == (100, 90.0, 0.05)
    assert fired.worst == ["t1", "t2"]
    assert fired.labels == {"team": "search"}
    windows.bad = [Worst("t3", 1.0)]
    windows.estimates["bot", "", "error", "builtin"] = around(0.3)
    assert engine.evaluate(windows, 60.0) == []
    (now,) = engine.alerts()
    assert (now.value, now.worst, now.updated_at) == (0.3, ["t1", "t2", "t3"], 60.0)
    assert fired.worst == ["t1", "t2"], "what was announced is a copy"
    windows.bad = [Worst("fine", 0.0)]
    windows.estimates["bot", "", "error", "builtin"] = around(0.01)
    (resolved,) = engine.evaluate(windows, 120.0)
    assert resolved.worst == ["t1", "t2", "t3"], "frozen when it is over"


def test_a_summary_does_not_claim_the_condition_once_it_is_over() -> None:
    own = rule(keep_firing_for="1m", summary="{value} failed, even {lower} is above {threshold}")
    engine = AlertEngine([own])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    (fired,) = engine.evaluate(windows, 0.0)
    assert fired.summary == "0.2 failed, even 0.18 is above 0.05"
    windows.estimates["bot", "", "error", "builtin"] = around(0.03)
    engine.evaluate(windows, 60.0)
    over = (
        "bot: error over 5m is 0.03 (95 % interval 0.01 to 0.05, 100 samples); rule: lower > 0.05"
    )
    assert engine.alerts()[0].summary == over
    (resolved,) = engine.evaluate(windows, 120.0)
    assert resolved.summary == f"Resolved: {over}"


def test_the_traces_that_an_alert_named_stay_named_whatever_is_worse_later() -> None:
    engine = AlertEngine([rule()])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    windows.bad = [Worst(f"t{number}", 1.0) for number in range(5)]
    (fired,) = engine.evaluate(windows, 0.0)
    windows.bad = [Worst(f"worse{number}", 2.0) for number in range(5)]
    engine.evaluate(windows, 60.0)
    assert engine.alerts()[0].worst == fired.worst == ["t0", "t1", "t2", "t3", "t4"]


def test_worst_traces_that_the_windows_forget_stay_with_the_alert() -> None:
    engine = AlertEngine([rule()])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    windows.bad = [Worst("t1", 1.0)]
    engine.evaluate(windows, 0.0)
    windows.bad = []
    engine.evaluate(windows, 60.0)
    assert engine.alerts()[0].worst == ["t1"]


def test_traces_on_the_good_side_are_no_evidence() -> None:
    engine = AlertEngine([rule()])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    windows.bad = [Worst("failed", 1.0), Worst("fine", 0.0)]
    (fired,) = engine.evaluate(windows, 0.0)
    assert fired.worst == ["failed"]


def test_no_data_is_told_in_the_summary() -> None:
    engine = AlertEngine([rule(no_data_for="1m")])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    engine.evaluate(windows, 0.0)
    windows.estimates["bot", "", "error", "builtin"] = None
    assert engine.evaluate(windows, 60.0) == []
    (held,) = engine.alerts()
    assert held.no_data
    assert held.value == 0.2
    assert "no traffic now" in held.summary
    (resolved,) = engine.evaluate(windows, 120.0)
    assert resolved.reason == "no data, so not known to be over"
    assert resolved.summary.endswith("(no data, so not known to be over)")


def test_a_service_that_vanishes_is_no_data_too() -> None:
    engine = AlertEngine([rule(no_data_for="1m")])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    engine.evaluate(windows, 0.0)
    windows.estimates.clear()
    engine.evaluate(windows, 60.0)
    assert look(engine) == "N"
    (resolved,) = engine.evaluate(windows, 120.0)
    assert resolved.state == "resolved"


def test_a_removed_rule_ends_its_alerts() -> None:
    first = AlertEngine([rule(), rule(name="Slow", **{"for": "5m"})])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    first.evaluate(windows, 0.0)
    second = AlertEngine([])
    restarted(first, second)
    (resolved,) = second.evaluate(windows, 60.0)
    assert resolved.rule == "Errors"
    assert resolved.reason == "the rule is no longer in force"
    assert [alert.state for alert in second.alerts()] == ["resolved"], "the pending one is dropped"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"services": ["other-*"]}, "no longer covers"),
        ({"segment": "model"}, "no longer covers"),
        ({"metric": "timeout"}, "watches something else"),
    ],
)
def test_a_rewritten_rule_ends_the_alerts_it_no_longer_means(
    changes: dict[str, object], reason: str
) -> None:
    first = AlertEngine([rule()])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    first.evaluate(windows, 0.0)
    second = AlertEngine([rule(**changes)])
    restarted(first, second)
    (resolved,) = second.evaluate(windows, 60.0)
    assert resolved.state == "resolved"
    assert reason in resolved.reason


def test_a_changed_threshold_keeps_the_alert_and_shows_the_new_one() -> None:
    first = AlertEngine([rule()])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    first.evaluate(windows, 0.0)
    second = AlertEngine([rule(threshold=0.1)])
    restarted(first, second)
    assert second.evaluate(windows, 60.0) == []
    assert second.alerts()[0].threshold == 0.1


def test_a_segment_rule_keeps_an_alert_for_each_value() -> None:
    engine = AlertEngine([rule(segment="model")])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    windows.estimates["bot", "model=good", "error", "builtin"] = around(0.01)
    windows.estimates["bot", "model=bad", "error", "builtin"] = around(0.4)
    windows.estimates["bot", "tenant=x", "error", "builtin"] = around(0.4)
    (fired,) = engine.evaluate(windows, 0.0)
    assert fired.segment == "model=bad"
    assert fired.id != alert_id("Errors", "bot")


def test_services_are_chosen_by_glob() -> None:
    engine = AlertEngine([rule(services=["search-*", "chat"])])
    windows = FakeWindows()
    for service in ("search-eu", "chat", "chat-eu"):
        windows.estimates[service, "", "error", "builtin"] = around(0.2)
    assert [alert.service for alert in engine.evaluate(windows, 0.0)] == ["chat", "search-eu"]


def test_event_time_never_goes_back() -> None:
    engine = AlertEngine([rule(**{"for": "2m"})])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    engine.evaluate(windows, 1000.0)
    engine.evaluate(windows, 10.0)
    (alert,) = engine.alerts()
    assert alert.since == alert.updated_at == 1000.0
    assert engine.evaluate(windows, 1120.0)[0].fired_at == 1120.0


def test_event_time_does_not_go_back_over_a_restart_either() -> None:
    first = AlertEngine([rule()])
    second = AlertEngine([rule()])
    windows = FakeWindows()
    first.evaluate(windows, 1000.0)
    restarted(first, second)
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    assert second.evaluate(windows, 10.0)[0].fired_at == 1000.0


def test_the_number_of_alerts_is_bounded_and_critical_ones_come_first() -> None:
    rules = [rule(name="A", severity="warning"), rule(name="B")]
    engine = AlertEngine(rules, max_alerts=5)
    windows = FakeWindows()
    for index in range(4):
        windows.estimates[f"s{index}", "", "error", "builtin"] = around(0.2)
    fired = engine.evaluate(windows, 0.0)
    assert [alert.rule for alert in fired] == ["B", "B", "B", "B", "A"]
    assert engine.overflow == 3
    assert len(engine.alerts()) == 5


def test_the_alert_resolved_longest_ago_makes_room() -> None:
    engine = AlertEngine([rule()], max_alerts=2)
    windows = FakeWindows()
    bad, good = around(0.2), around(0.01)
    for now, older, newer in [(0.0, bad, bad), (60.0, good, bad), (120.0, good, good)]:
        windows.estimates["older", "", "error", "builtin"] = older
        windows.estimates["newer", "", "error", "builtin"] = newer
        engine.evaluate(windows, now)
    windows.estimates["new", "", "error", "builtin"] = bad
    (fired,) = engine.evaluate(windows, 180.0)
    assert fired.service == "new"
    assert [alert.service for alert in engine.alerts()] == ["new", "newer"]
    assert engine.overflow == 0


def test_a_latency_alert_says_stage_and_quantile() -> None:
    made = rule(latency={"stage": "retrieval", "quantile": 0.99}, threshold=2, op=">")
    engine = AlertEngine([made])
    windows = FakeWindows()
    windows.latency["bot", "", "retrieval"] = [
        make_quantile(0.5, 0.1, 0.1, 0.1),
        make_quantile(0.99, 3.0, 2.5, 4.0),
    ]
    (fired,) = engine.evaluate(windows, 0.0)
    assert (fired.metric, fired.scorer, fired.value, fired.lower) == ("latency", "", 3.0, 2.5)
    assert fired.labels == {"stage": "retrieval", "quantile": "0.99"}
    assert "retrieval latency p99 over 5m is 3 s" in fired.summary
    assert windows.asked == ("bot", "latency", "retrieval", "5m")


def test_absence_fires_for_a_service_seen_before_and_ends_when_it_speaks() -> None:
    engine = AlertEngine([rule(absence=True, min_samples=10)])
    windows = FakeWindows()
    windows.counts = {("bot", "5m"): 3, ("bot", "24h"): 50, ("rare", "24h"): 9}
    assert engine.evaluate(windows, 0.0) == []
    windows.counts["bot", "5m"] = 0
    (fired,) = engine.evaluate(windows, 60.0)
    assert (fired.service, fired.metric, fired.value) == ("bot", "traces", 0.0)
    assert fired.summary == "bot: no traces in the last 5m"
    windows.counts["bot", "5m"] = 1
    (resolved,) = engine.evaluate(windows, 120.0)
    assert resolved.state == "resolved"


def test_a_service_forgotten_by_every_window_ends_its_absence_with_the_reason() -> None:
    engine = AlertEngine([rule(absence=True, no_data_for="1m")])
    windows = FakeWindows()
    windows.counts = {("bot", "24h"): 50}
    assert len(engine.evaluate(windows, 0.0)) == 1
    windows.counts = {}
    assert engine.evaluate(windows, 60.0) == []
    assert look(engine) == "N"
    (resolved,) = engine.evaluate(windows, 120.0)
    assert "no data" in resolved.reason


def test_a_rule_on_a_window_that_is_not_kept_has_no_data() -> None:
    engine = AlertEngine([rule()])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    engine.evaluate(windows, 0.0)
    windows.names = ("1h",)
    assert engine.evaluate(windows, 60.0) == []
    assert look(engine) == "N"


def test_rows_are_typed_and_survive_json() -> None:
    engine = AlertEngine([rule()])
    windows = FakeWindows()
    windows.estimates["bot", "", "error", "builtin"] = around(0.2)
    engine.evaluate(windows, 0.1)
    rows = engine.rows()
    (alert,) = engine.alerts()
    assert rows.keys() == {"evaluated", f"rule/{alert.id}"}
    assert restarted(engine, AlertEngine([])).rows() == rows


def test_fifty_services_and_fifteen_rules_are_evaluated_quickly() -> None:
    rules = [rule(name=f"R{index}", severity="warning") for index in range(15)]
    engine = AlertEngine(rules)
    windows = FakeWindows()
    for index in range(50):
        windows.estimates[f"s{index}", "", "error", "builtin"] = around(0.01)
    engine.evaluate(windows, 0.0)
    costs = []
    for index in range(5):
        begin = time.process_time()
        engine.evaluate(windows, 60.0 * index)
        costs.append(time.process_time() - begin)
    # The engine's own share; the fake's `series` scans all, so it is no faster than the real one.
    assert min(costs) < 0.020
