"""The engine on the real windows with rules of a user, and the default rules on real traces."""

from __future__ import annotations

import json
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import AlertRule, load_rules
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.builtin import PreparedTrace, score_builtin, score_cheap
from ragmeter.metrics.registry import metric_specs
from ragmeter.parts.incidents.engine import AlertEngine
from ragmeter.trace import Trace
from ragmeter.windows.windows import Windows

from tests.parts.incidents.fakes import rule

START = 1_700_000_000.0
ERRORS = {
    "name": "ErrorsHigh",
    "op": ">",
    "threshold": 0.05,
    "statistic": "lower",
    "for": "2m",
    "keep_firing_for": "5m",
    "min_samples": 20,
}
"""Changes to the rule on errors of `fakes`, over five minutes."""
COLLAPSE = {
    "name": "GroundingCollapsed",
    "metric": "grounding",
    "op": "<",
    "threshold": 0.7,
    "statistic": "upper",
    "relative_to": "24h",
    "for": "2m",
    "keep_firing_for": "5m",
    "min_samples": 40,
}
EXAMPLE = Path(__file__).parents[3] / "examples" / "mtrag.jsonl"


def traced(index: int, at: float, *, failed: bool, total: float = 1.0) -> ScoredTrace:
    score = Score("error", "builtin", ScoreState.SCORED, float(failed))
    return ScoredTrace(f"t{index}", "bot", at, "ok", [score], timings={"total": total})


def play(rules: list[AlertRule], traces: list[ScoredTrace], until: float) -> list[Alert]:
    """Feed traces in order, evaluate every 30 s of event time, collect the transitions."""
    windows = Windows(specs=metric_specs())
    engine = AlertEngine(rules)
    announced = list[Alert]()
    step = START
    waiting = iter([*traces, None])
    trace = next(waiting)
    while step <= until:
        while trace is not None and trace.timestamp < step:
            windows.add(trace, trace.service)
            trace = next(waiting)
        windows.advance(step)
        announced += engine.evaluate(windows, step)
        step += 30.0
    return announced


def test_an_outage_pages_names_the_failures_and_ends() -> None:
    """One trace a second for half an hour; every third fails from minute 10 to minute 15."""
    traces = [traced(i, START + i, failed=600 <= i < 900 and i % 3 == 0) for i in range(1800)]
    moved = play([rule(**ERRORS)], traces, START + 1800)
    assert [alert.state for alert in moved] == ["firing", "resolved"]
    begin, resolved = moved
    assert begin.fired_at is not None
    # 2 min of `for` after the lower bound has passed 5 % of a 5-minute window.
    assert 600 + 120 < begin.fired_at - START < 900
    assert len(begin.worst) == 5
    assert all(int(name[1:]) % 3 == 0 and int(name[1:]) >= 600 for name in begin.worst)
    assert begin.lower is not None
    assert begin.lower > 0.05
    assert resolved.resolved_at is not None
    assert 900 + 300 < resolved.resolved_at - START < 1800


def test_a_few_failures_among_few_traces_never_page() -> None:
    """Four failures of nineteen traces: 21 %, and nothing is known."""
    traces = [traced(i, START + 15 * i, failed=i % 5 == 4) for i in range(19)]
    assert play([rule(**ERRORS)], traces, START + 900) == []


def grounded(seed: int, per_minute: int, bad_from: float, minutes: int) -> list[ScoredTrace]:
    """Grounding of .9 on average; from a minute on 60 % of the answers have .1."""
    rng = random.Random(seed)
    traces = []
    for index in range(per_minute * minutes):
        at = index / per_minute
        bad = at >= bad_from and rng.random() < 0.6
        value = rng.betavariate(1, 9) if bad else rng.betavariate(9, 1)
        score = Score("grounding", "builtin", ScoreState.SCORED, value)
        traces.append(ScoredTrace(f"t{index}", "bot", START + 60 * at, "ok", [score]))
    return traces


def test_a_rule_relative_to_the_day_fires_on_a_collapse_in_a_young_service() -> None:
    (page,) = play([rule(**COLLAPSE)], grounded(1, 20, 120, 135), START + 135 * 60)
    assert page.severity == "critical"
    assert page.fired_at is not None
    assert 122 < (page.fired_at - START) / 60 < 130
    assert page.upper is not None
    assert page.upper < page.threshold < 0.7 * 0.9
    assert page.worst
    assert page.baseline is not None
    assert page.baseline > 0.85


def test_a_collapse_needs_forty_traces_and_a_calm_service_never_pages() -> None:
    assert play([rule(**COLLAPSE)], grounded(2, 7, 120, 150), START + 150 * 60) == []
    assert play([rule(**COLLAPSE)], grounded(3, 20, 1e9, 240), START + 240 * 60) == []


def test_a_latency_rule_reads_the_histograms() -> None:
    made = rule(latency={"quantile": 0.95}, op=">", threshold=5, statistic="lower", min_samples=100)
    slow = [traced(i, START + i, failed=False, total=8.0) for i in range(290)]
    (fired,) = play([made], slow, START + 290)
    assert fired.value is not None
    assert abs(fired.value - 8.0) < 0.1
    fast = [traced(i, START + i, failed=False, total=1.0) for i in range(290)]
    assert play([made], fast, START + 290) == []


def test_silence_is_seen_by_an_absence_rule() -> None:
    made = rule(absence=True, min_samples=50)
    (fired,) = play([made], [traced(i, START + i, failed=False) for i in range(100)], START + 900)
    assert fired.fired_at is not None
    assert 390 <= fired.fired_at - START <= 430, "five minutes, give or take a bucket and a step"


def test_empty_windows_have_nothing_to_say() -> None:
    engine = AlertEngine(load_rules())
    assert engine.evaluate(Windows(specs=metric_specs()), START) == []


@cache
def example() -> tuple[dict[str, Any], ...]:
    with EXAMPLE.open(encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def fired_on(traces: list[Trace]) -> set[str]:
    """The default rules that hold at the end of an hour in which these traces came."""
    windows = Windows(specs=metric_specs())
    for index, trace in enumerate(traces):
        scores = [*score_cheap(PreparedTrace(trace)), *score_builtin(PreparedTrace(trace))]
        at = START + index * 3000 / len(traces)
        windows.add(
            ScoredTrace(trace.trace_id, trace.service, at, trace.status, scores), trace.service
        )
    windows.advance(START + 3000)
    engine = AlertEngine(load_rules())
    engine.evaluate(windows, START + 3000)
    return {alert.rule for alert in engine.alerts()}


def test_the_defaults_are_quiet_on_the_bundled_real_traces() -> None:
    assert fired_on([Trace.model_validate(entry) for entry in example()]) == set()


def test_fifty_services_are_evaluated_quickly_on_real_windows() -> None:
    windows = Windows(specs=metric_specs())
    kinds = [spec.name for spec in metric_specs().values()]
    rng = random.Random(2)

    def busy(service: int, index: int, at: float) -> None:
        scores = [
            Score(kind, "builtin", ScoreState.SCORED, float(rng.random() < 0.5)) for kind in kinds
        ]
        name = f"s{service}"
        windows.add(ScoredTrace(str(index), name, at, "ok", scores, timings={"total": 1.0}), name)

    for service in range(50):
        for index in range(20):
            busy(service, index, START + index)
    engine = AlertEngine([rule.model_copy(update={"for_": 1e9}) for rule in load_rules()])
    engine.evaluate(windows, START + 20)
    costs = []
    for round_ in range(10):
        for service in range(50):  # every service has changed, so no estimate is remembered
            busy(service, 100 + round_, START + 21 + round_)
        windows.services()  # folds what came: that is the price of adding, not of evaluating
        begin = time.process_time()
        engine.evaluate(windows, START + 21 + round_)
        costs.append(time.process_time() - begin)
        if costs[-1] < 0.060:
            break
    # 20 ms is the goal on a quiet machine; three times that so that a busy one does not fail.
    assert min(costs) < 0.060
    print(f"\n50 services, {len(engine.rules)} rules: {min(costs) * 1e3:.1f} ms")
