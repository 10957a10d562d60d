"""The monitor: every kind of alarm, the shared allowance, looks, restarts, bounds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.parts.drift.alarms import Alarm
from ragmeter.parts.drift.monitor import DriftMonitor
from ragmeter.windows.log_histogram import LogHistogram
from ragmeter.windows.windows import Windows

from tests.parts.drift.fakes import QUICK, SPECS, Fake, run
from tests.parts.drift.saved import restore, saved, state_of

CHANGE = 600  # minutes


def errors(source: Fake, after: float, seed: int = 1, n: int = 60) -> Callable[[int], None]:
    rng = random.Random(seed)

    def fill(minute: int) -> None:
        rate = 0.05 if minute < CHANGE else after
        for segment in ("model=a", "model=b"):
            own = rate if segment == "model=b" else 0.05
            k = sum(rng.random() < own for _ in range(n // 2))
            source.put(minute, n // 2, k, k, "error", "builtin", "bot", segment)
            source.put(minute, n // 2, k, k, "error", "builtin", "bot", "")

    return fill


def test_a_rate_that_rises_is_told_with_all_there_is_to_know() -> None:
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    reported = run(monitor, source, range(CHANGE + 120), errors(source, 0.2))
    assert [a.state for a in reported] == ["firing"]
    alarm = reported[0]
    assert alarm.key == ("bot", "error", "builtin", "rate")
    assert CHANGE < alarm.at / 60 < CHANGE + 15
    assert alarm.since_earliest <= alarm.since <= alarm.since_latest
    assert abs(alarm.since / 60 - CHANGE) <= 15
    assert alarm.before == pytest.approx(0.05, abs=0.01)
    assert alarm.after == pytest.approx(0.125, abs=0.08)
    assert alarm.after_lower < alarm.after < alarm.after_upper
    assert alarm.provisional == ""
    assert alarm.statistic >= alarm.threshold == 30 * 86400
    assert alarm.effective_samples >= 60
    assert alarm.baseline_version == 1
    assert "error went from 0.0" in alarm.describe()
    assert alarm.expected_days >= 30
    assert monitor.active() == reported
    assert saved(alarm)["metric"] == "error"


def test_it_clears_when_things_are_as_before() -> None:
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    run(monitor, source, range(CHANGE + 60), errors(source, 0.2))
    reported = run(monitor, source, range(CHANGE + 60, CHANGE + 400), errors(source, 0.05, seed=2))
    assert [a.state for a in reported] == ["cleared"]
    assert monitor.active() == []


def test_the_statistic_that_is_shown_stays_at_one_while_the_alarm_stands() -> None:
    """The detector begins anew with it; the rule for Prometheus asks for 1."""
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)

    def shown() -> float:
        return max(ratio for *_, kind, ratio in monitor.ratios() if kind == "rate")

    run(monitor, source, range(CHANGE), errors(source, 0.2))
    assert shown() < 1
    run(monitor, source, range(CHANGE, CHANGE + 60), errors(source, 0.2))
    assert [alarm.state for alarm in monitor.active()] == ["firing"]
    assert shown() == 1
    run(monitor, source, range(CHANGE + 60, CHANGE + 400), errors(source, 0.05, seed=2))
    assert shown() < 1


def test_an_improvement_of_a_rate_is_no_alarm() -> None:
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    assert run(monitor, source, range(CHANGE + 300), errors(source, 0.0)) == []


def test_how_often_one_looks_changes_nothing() -> None:
    reported = []
    for step in (1, 7, 30):
        source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
        fill = errors(source, 0.2)
        fill(0)
        found = monitor.advance(60.0, source)  # the series begins
        for minute in range(1, CHANGE + 121):
            fill(minute)
            if minute % step == 0:
                found += monitor.advance(minute * 60.0, source)
        reported.append(found)
    assert len(reported[0]) == 1
    assert reported[0] == reported[1] == reported[2]


def test_a_restart_anywhere_changes_nothing() -> None:
    through: list[Alarm] = []
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    fill = errors(source, 0.2)
    through = run(monitor, source, range(CHANGE + 200), fill)
    source, other = Fake(), DriftMonitor(QUICK, SPECS)
    fill = errors(source, 0.2)
    reported = []
    for minute in range(CHANGE + 200):
        if minute % 83 == 5:
            state = state_of(other)
            other = DriftMonitor(QUICK, SPECS)
            restore(other, state)
        reported += run(other, source, range(minute, minute + 1), fill)
    assert reported == through
    assert state_of(other) == state_of(monitor)


def test_services_share_the_allowance_and_the_series_of_a_service_its_part() -> None:
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    rng = random.Random(8)

    def fill(minute: int) -> None:
        for metric in ("error", "error:1", "error:2"):
            k = sum(rng.random() < 0.05 for _ in range(60))
            source.put(minute, 60, k, k, metric, "builtin")
        source.put(minute, 60, 3, 3, "error", "builtin", "other")

    run(monitor, source, range(CHANGE), fill)
    thresholds = [
        (one.service, monitor._threshold(one.service) / 86400)
        for one, _, series in monitor._all_series()
        if series.stream is not None
    ]
    assert sorted(thresholds) == [("bot", 2 * 3 * 30)] * 3 + [("other", 2 * 30)]
    assert {row["false_alarm_days"] for row in monitor.baselines()} == {60.0}

    def worse(minute: int) -> None:
        fill(minute)
        source.put(minute, 60, 30, 30, "error", "builtin")

    alarm = run(monitor, source, range(CHANGE, CHANGE + 15), worse)[0]
    assert alarm.threshold == 2 * 3 * 30 * 86400
    days = 30 * alarm.statistic / alarm.threshold
    assert alarm.expected_days == pytest.approx(days), "of any detector, whoever it watches"


def test_busy_series_are_watched_by_ten_seconds() -> None:
    class TenSeconds(Fake):
        def bucket(
            self, service: str, segment: str, metric: str, scorer: str, width: int, start: float
        ) -> None:
            asked.add(width)
            return super().bucket(service, segment, metric, scorer, max(width, 60), start)  # type: ignore[return-value]

    asked: set[int] = set()
    source, monitor = TenSeconds(), DriftMonitor(QUICK, SPECS)
    run(monitor, source, range(30), errors(source, 0.05, n=600))
    assert asked == {60, 10}


def latency(minute: int, scale: float, n: int, rng: random.Random) -> LogHistogram:
    hist = LogHistogram()
    for _ in range(n):
        hist.add(rng.lognormvariate(0, 0.7) * scale)
    return hist


def test_latency_that_grows_is_told_with_the_edge_it_grew_over() -> None:
    source, monitor, rng = Fake(), DriftMonitor(QUICK, SPECS), random.Random(6)
    rows = source.latencies.setdefault(("bot", "", "total"), {})

    def fill(minute: int) -> None:
        rows[minute] = latency(minute, 1.0 if minute < CHANGE else 2.0, 30, rng)

    reported = run(monitor, source, range(CHANGE + 60), fill)
    assert [(a.kind, a.metric, a.state) for a in reported] == [("latency", "total", "firing")]
    assert reported[0].edge is not None
    assert 0.9 < reported[0].edge < 7
    assert reported[0].before < reported[0].after
    assert f"the share of total above {reported[0].edge:.3g}" in reported[0].describe()


def scored(i: int, at: float, value: float) -> ScoredTrace:
    score = Score("grounding", "builtin", ScoreState.SCORED, value)
    return ScoredTrace(f"t{i}", "bot", at, "ok", [score], timings={"total": 1.0})


def test_a_distribution_that_widens_is_told_from_real_windows() -> None:
    windows, monitor = Windows(specs=SPECS), DriftMonitor(QUICK, SPECS)
    rng, reported, i = random.Random(3), [], 0
    for minute in range(CHANGE + 60):
        c = 10.0 if minute < CHANGE else 2.5
        traces = []
        for second in range(0, 60, 3):
            value = rng.betavariate(0.85 * c, 0.15 * c)
            traces.append(scored(i, minute * 60.0 + second, value))
            i += 1
        for one in traces:
            windows.add(one, "bot")
        monitor.observe(traces)
        windows.advance(minute * 60.0 + 60)
        reported += monitor.advance(minute * 60.0 + 60, windows)
    assert [(a.kind, a.state) for a in reported] == [("distribution", "firing")]
    assert abs(reported[0].since / 60 - CHANGE) < 40


def test_series_are_bounded_in_number_and_silence_is_skipped() -> None:
    source = Fake()
    for i in range(30):
        source.put(0, 10, 1, 1, f"error:{i}", "builtin")
    monitor = DriftMonitor(replace(QUICK, max_series=20), SPECS)
    monitor.advance(120.0, source)
    assert len(state_of(monitor)["monitors"]) == 20
    types = {item["type"] for item in state_of(monitor)["monitors"]}
    assert types <= {"mean", "shares", "judged"}, "as saved state has them"
    assert monitor.refused == 10
    monitor.advance(240.0, source)
    assert monitor.refused == 10  # series, not how often they were turned away
    monitor.advance(90 * 86400.0, source)  # a quarter of a year later
    assert all(item["next_start"] > 89 * 86400 for item in state_of(monitor)["monitors"])


def test_a_deploy_is_learned_anew() -> None:
    source, monitor = Fake(), DriftMonitor(QUICK, SPECS)
    fill = errors(source, 0.2)
    assert len(run(monitor, source, range(CHANGE + 60), fill)) == 1
    assert monitor.promote("bot", (CHANGE + 60) * 60.0) == 0
    assert monitor.active() == []
    run(monitor, source, range(CHANGE + 60, CHANGE + 400), fill)
    assert [row["version"] for row in monitor.baselines()] == [2]
