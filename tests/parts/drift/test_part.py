"""Drift in the running aggregate: what becomes an alert and what it knows, restarts, size."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rule_sets import load_configured_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.judge_agreement import PROBE_SERVICE
from ragmeter.parts.drift.score_histograms import _SCORE_GRAIN, _SCORE_SLOTS

from tests.parts.drift.running import drift_of
from tests.parts.drift.saved import state_of
from tests.traces import START

HOUR = 3600
BASE = START - START % HOUR
EVERY = 7.5  # seconds between two traces
CHANGE = 7 * HOUR
END = 9 * HOUR
RATE = 0.35  # of the traces, judged


def story(
    begin: float = 0.0,
    end: float = END,
    bad: bool = False,
    swapped: bool = False,
    slow: bool = False,
    blind: bool = False,
) -> Iterator[ScoredTrace]:
    """Two models, a score and a latency. From CHANGE on model b is `bad`, the judge of another
    version and stricter, or everything slower. `blind`: no cheap score goes with the judged one."""
    rng = random.Random(5)
    for n in range(int(end / EVERY)):
        at = n * EVERY
        late = at >= CHANGE
        model = "ab"[n % 2]
        score = rng.betavariate(8, 2) * (0.3 if bad and late and model == "b" else 1.0)
        results = [
            Score("error", "builtin", ScoreState.SCORED, float(rng.random() < 0.02)),
            Score("grounding", "builtin", ScoreState.SCORED, score),
        ]
        judge = min(1.0, max(0.0, score + rng.gauss(0, 0.05) - 0.3 * (swapped and late)))
        judged = rng.random() < RATE
        seconds = rng.lognormvariate(0, 0.5) * (3 if slow and late else 1)
        if at < begin:
            continue
        cheap = None if blind else score
        more: dict[str, Any] = {"probability": RATE, "stratum": "all", "cheap": cheap}
        if judged:
            version = "new" if swapped and late else "old"
            more |= {"value": judge, "fingerprint": version}
        state = ScoreState.SCORED if judged else ScoreState.SAMPLED_OUT
        rest = Score("grounding", "judge", state, **more)
        if not judged:
            results.append(rest)
        yield ScoredTrace(
            f"t{n}", "bot", BASE + at, "ok", results, timings={"total": seconds},
            tags={"model": model},
            pending=(("grounding", "judge", "all", cheap),) if judged else (),
        )  # fmt: skip
        if judged:
            yield ScoredTrace(
                f"t{n}", "bot", BASE + at, "ok", [rest], tags={"model": model}, partial=True
            )


def fresh(**changes: Any) -> Aggregator:
    # rules are asked as often as drift is looked at
    tree: dict[str, Any] = {"segments": ["model"], "alerts": {"evaluation_seconds": 60}}
    settings = load_settings(environ={}, overrides={**tree, **changes})
    rules = [rule for rule in load_configured_rules(settings) if rule.name == "RagJudgeDrift"]
    return Aggregator(settings, rules, [], parts=PARTS)


class Saved:
    """What the store would hold."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}
        self.meta: dict[str, Any] = {}

    def commit(self, one: Aggregator) -> dict[str, str]:
        changes = one.changes()
        self.rows |= {row[:4]: row for row in changes.buckets}
        parts = {name: json.dumps(part) for name, part in changes.meta.items()}
        self.meta |= parts
        for name in changes.forget_meta:
            self.meta.pop(name, None)
        return parts

    def reopen(self) -> Aggregator:
        one = fresh()
        buckets = [row for row in self.rows.values() if row[4] is not None]
        meta = {name: json.loads(text) for name, text in self.meta.items()}
        one.restore(buckets, [], meta)
        return one


def play(one: Aggregator, traces: Iterable[ScoredTrace]) -> list[Alert]:
    moved: list[Alert] = []
    for scored in traces:
        if scored.partial:
            one.finish(scored)
        else:
            moved += one.apply(scored).alerts
    return moved


@cache
def begun(blind: bool = False) -> tuple[Saved, Aggregator]:
    """Seven hours until CHANGE, which all stories have in common: saved, and going on."""
    one, saved = fresh(), Saved()
    assert play(one, story(end=CHANGE, blind=blind)) == []
    saved.commit(one)
    return saved, one


def calm(blind: bool = False) -> Saved:
    saved, copy = begun(blind)[0], Saved()
    copy.rows, copy.meta = dict(saved.rows), dict(saved.meta)
    return copy


@cache
def never_restarted() -> tuple[list[Alert], Aggregator]:
    one = begun()[1]
    return play(one, story(begin=CHANGE, end=CHANGE + HOUR, bad=True)), one


def after(**changes: bool) -> tuple[list[Alert], Aggregator]:
    """The two hours after CHANGE."""
    one = calm(changes.get("blind", False)).reopen()
    return play(one, story(begin=CHANGE, **changes)), one


notified = cache(after)


def test_detectors_of_another_version_are_left_out_and_learned_anew() -> None:
    saved = calm()
    old = [name for name in saved.meta if name.startswith("drift/1/")]
    assert old
    for name in old:
        saved.meta[name.replace("/1/", "/0/")] = '{"something": "else"}'
        del saved.meta[name]
    one = saved.reopen()
    assert drift_of(one).baselines() == []
    play(one, story(begin=CHANGE, end=CHANGE + HOUR))
    assert {row["state"] for row in drift_of(one).baselines()} == {"learning"}
    saved.commit(one)
    assert drift_of(saved.reopen()).baselines() == drift_of(one).baselines()


def test_a_fall_of_quality_is_an_alert_with_all_there_is_to_know() -> None:
    moved, one = notified(bad=True)
    assert {(a.rule, a.severity, a.state) for a in moved} == {("RagDrift", "warning", "firing")}
    alert = next(a for a in moved if (a.scorer, a.labels["kind"]) == ("builtin", "mean"))
    found = alert.drift
    assert found is not None
    assert (alert.service, alert.metric, alert.window) == ("bot", "grounding", "1h")
    change = BASE + CHANGE
    assert alert.fired_at is not None
    assert change < alert.fired_at < change + 3000
    assert abs(alert.since - change) < 600
    assert found["since_earliest"] <= alert.since <= found["since_latest"]
    assert alert.baseline == pytest.approx(0.8, abs=0.02)
    assert alert.lower is not None
    assert alert.upper is not None
    assert alert.lower < 0.52 < alert.upper < 0.75
    assert found["statistic"] >= alert.threshold > 1000
    assert alert.effective_samples > 20
    assert (alert.top_segment, found["provisional"]) == ("model=b", True)
    assert len(alert.worst) == 5
    for name in alert.worst:  # since the change, and of the segment
        assert int(name[1:]) * EVERY >= CHANGE - 600
        assert int(name[1:]) % 2 == 1
    assert "grounding went from 0.8" in alert.summary
    assert "model=b" in alert.summary
    assert [a.id for a in one.parts.alerts()].count(alert.id) == 1
    count = one.counters.get(
        "ragmeter_drift_alarms_total",
        (("service", "bot"), ("metric", "grounding"), ("scorer", "builtin"), ("kind", "mean")),
    )
    assert count == 1


def test_without_drift_there_is_no_alert_and_detectors_say_how_near_they_are() -> None:
    moved, one = notified()
    assert moved == []
    gauges = {labels: value for _, labels, value in drift_of(one).samples()}
    latency = (("service", "bot"), ("metric", "total"), ("kind", "latency"))
    assert latency in gauges
    assert all(0 <= value < 1 for value in gauges.values())
    judged = [dict(labels)["kind"] for labels in gauges if ("scorer", "judge") in labels]
    assert sorted(judged) == ["judge", "mean"]


def test_a_swapped_judge_is_told_as_such_with_its_fingerprint_and_is_no_fall_of_quality() -> None:
    moved, _ = notified(swapped=True)
    assert [(a.rule, a.scorer, a.state) for a in moved] == [("RagJudgeChanged", "judge", "firing")]
    found = moved[0].drift
    assert found is not None
    assert moved[0].fingerprint == "new"
    assert "the judge has changed" in found["cause"]


def test_slowness_is_an_alert_of_the_stage() -> None:
    moved, _ = notified(slow=True)
    assert [(a.metric, a.labels) for a in moved] == [
        ("latency", {"kind": "latency", "stage": "total"})
    ]
    assert moved[0].drift is not None
    assert moved[0].drift["edge"] > 0.5
    assert len(moved[0].worst) == 5


@pytest.mark.parametrize("every", [97, 400])
def test_restarts_and_batches_change_nothing(every: int) -> None:
    """Saved at each commit, restarted at every second; the change and its alerts in between."""
    expected, through = never_restarted()
    assert expected
    saved = calm()
    one = saved.reopen()
    moved: list[Alert] = []
    traces = list(story(begin=CHANGE, end=CHANGE + HOUR, bad=True))
    for n, start in enumerate(range(0, len(traces), every)):
        moved += play(one, traces[start : start + every])
        saved.commit(one)
        if n % 2:
            one = saved.reopen()
    assert [a.to_dict() for a in moved] == [a.to_dict() for a in expected]
    assert [a.to_dict() for a in drift_of(one).alerts()] == [
        a.to_dict() for a in drift_of(through).alerts()
    ]
    assert drift_of(one).monitor.ratios() == drift_of(through).monitor.ratios()


def test_a_commit_between_two_looks_writes_no_detectors() -> None:
    one, saved = calm().reopen(), Saved()
    one.advance(BASE + CHANGE + 120)
    whole = saved.commit(one)
    assert len(whole['drift/1/["bot"]']) > 10_000
    later = saved.commit(one)
    assert 'drift/1/["bot"]' not in later
    assert sum(map(len, later.values())) < 20_000


def test_a_trace_too_late_for_every_window_leaves_drift_as_it_was() -> None:
    """Saved buckets share slots in turn: one of long ago would replace an open one in the saved
    state, and a restart would lose its scores."""
    traces = list(story(end=120.0))
    *_, last = (trace for trace in traces if not trace.partial)
    turn = _SCORE_SLOTS * _SCORE_GRAIN  # seconds between two buckets of one slot
    ago = turn * math.ceil(2 * 24 * HOUR / turn)
    late = last._replace(trace_id="late", timestamp=last.timestamp - ago)
    found = []
    for extra in ([], [late]):
        one, saved = fresh(), Saved()
        play(one, [*traces, *extra])
        saved.commit(one)
        found.append(state_of(drift_of(saved.reopen()).monitor))
    without, with_late = found
    assert without["scores"]
    assert with_late == without


def test_switched_off_it_watches_nothing() -> None:
    one = fresh(drift={"enabled": False})
    assert play(one, story(end=HOUR)) == []
    assert drift_of(one).monitor.monitors() == {}
    assert list(drift_of(one).samples()) == [("ragmeter_drift_series_refused", (), 0.0)]


def test_a_new_baseline_ends_the_alert() -> None:
    moved, one = after(bad=True)
    assert moved
    drift_of(one).monitor.promote("bot", BASE + END)
    ended = one.advance(BASE + END + 120)
    assert {a.state for a in ended} == {"resolved"}
    assert {a.reason for a in ended} == {"no longer watched, or by a new baseline"}


def probes(at: float, changed: float) -> Iterator[ScoredTrace]:
    for n in range(40):
        score = Score("judge_probe_change", "judge", ScoreState.SCORED, changed)
        yield ScoredTrace(f"p{n}@{at}", PROBE_SERVICE, at, "ok", [score], partial=True)


@pytest.mark.parametrize("probed", [False, True])
def test_probes_that_a_swapped_judge_judges_otherwise_hold_back_its_fall(probed: bool) -> None:
    """No cheap score tells the judge from the answers here; the probes do."""
    one = calm(blind=True).reopen()
    for probe in probes(BASE + CHANGE - 60, 0.5) if probed else ():
        one.add_extra(probe)
    moved = play(one, story(begin=CHANGE, swapped=True, blind=True))
    rule = "RagJudgeDrift" if probed else "RagDrift"
    assert [(a.rule, a.scorer, a.state) for a in moved] == [(rule, "judge", "firing")]
    (active,) = drift_of(one).monitor.active()
    assert (active.scorer, active.kind) == ("judge", "mean")
    assert active.state == ("held" if probed else "firing")
    assert ("stored items are judged differently" in active.cause) == probed


def test_what_is_out_ends_with_the_alert_on_the_probes_and_a_restart_keeps_the_hold() -> None:
    moved, one = after(swapped=True, blind=True)
    assert [a.rule for a in moved] == ["RagDrift"]
    for probe in probes(BASE + END - 60, 0.5):
        one.add_extra(probe)
    reported = one.advance(BASE + END + 60)
    assert [(a.rule, a.state) for a in reported] == [
        ("RagJudgeDrift", "firing"),
        ("RagDrift", "resolved"),
    ]
    assert "stored items are judged differently" in reported[1].reason
    saved = Saved()
    saved.commit(one)
    one = saved.reopen()
    assert not drift_of(one).hear([reported[0]], BASE + END + 90)
    assert [a.state for a in drift_of(one).monitor.active()] == ["held"]


def test_a_night_without_traffic_costs_no_looks() -> None:
    one = fresh()
    one.apply(next(story()))
    one.advance(BASE + 20 * HOUR)
    looks = drift_of(one)._due(BASE + 30 * HOUR)
    assert list(looks) == []


def test_windows_without_buckets_of_a_minute_cannot_be_watched() -> None:
    assert not drift_of(fresh(windows=["24h"])).enabled
    assert drift_of(fresh(windows=["1h"])).monitor.settings.finest == 60
