"""A gap of event time gives the alerts that stepping through it gives, at little cost."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.alert import Alert
from ragmeter.alerts.rules import load_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import ScoredTrace
from ragmeter.parts.incidents.engine import AlertEngine
from ragmeter.parts.views import Incident
from ragmeter.scoring.scorer import Scorer

from tests.parts.drift.running import state_of
from tests.traces import START, make_trace

SCORER = Scorer()
LONG = [pytest.mark.slow, pytest.mark.long]
STEP = 60.0  # not 15, as usual: each step is taken, and gives the same in a gap of any size
RULES = {
    "rules": [
        {
            "name": "ErrorsHigh",
            "severity": "critical",
            "metric": "error",
            "statistic": "lower",
            "op": ">",
            "threshold": 0.05,
            "window": "5m",
            "for": "2m",
            "keep_firing_for": "5m",
            "min_samples": 20,
        },
        {
            "name": "Silent",
            "severity": "warning",
            "absence": True,
            "window": "5m",
            "for": "10m",
            "min_samples": 20,
        },
        {
            "name": "ErrorsOfATenant",
            "severity": "critical",
            "metric": "error",
            "statistic": "value",
            "op": ">",
            "threshold": 0.3,
            "window": "1h",
            "for": "5m",
            "segment": "tenant",
        },
    ]
}


def aggregator(services: int = 50) -> Aggregator:
    settings = load_settings(
        environ={},
        overrides={
            "segments": ["tenant"],
            "limits": {"services": services},
            "alerts": {"evaluation_seconds": STEP},
            "goals": {"works": 0.9, "fast": 0.5},
        },
    )
    return Aggregator(settings, load_rules(brought=[RULES]), SCORER.pairs, parts=PARTS)


@cache
def traffic(start: float, services: int, number: int, seed: int) -> list[ScoredTrace]:
    """A third of the services fail half of the time; two traces a second."""
    rng = random.Random(seed)
    traces = []
    for index in range(number):
        service = rng.randrange(services)
        failed = rng.random() < (0.5 if service % 3 == 0 else 0.02)
        trace = make_trace(
            seed * 100_000 + index,
            service=f"bot{service}",
            timestamp=start + index / 2,
            status="error" if failed else "ok",
            answer="It is 5 [1].",
            tags={"tenant": rng.choice("ab")},
            timings={"total": rng.lognormvariate(0, 1)},
        )
        traces.append(SCORER.score(trace).trace)
    return traces


def story(alerts: list[Alert]) -> list[dict[str, Any]]:
    return [alert.to_dict() for alert in alerts]


def run(blocks: list[list[ScoredTrace]], stepping: bool) -> tuple[Any, ...]:
    one = aggregator()
    moved = list[Alert]()
    notified: list[Incident] = []
    for block in blocks:
        for trace in block:
            now = one.windows.now
            if stepping and now is not None:
                first, last = int(now // STEP) + 1, int(trace.timestamp // STEP)
                for number in range(first, last + 1):
                    moved += one.advance(number * STEP)
            moved += one.apply(trace).alerts
        one.settle()
        one.changes()
        notified += one.take_notifications()
    held = [alert for alert in one.parts.alerts() if alert.state != "resolved"]
    saved = state_of(one)
    return story(moved), notified, story(held), saved, sorted(one.counters.items())


@pytest.mark.parametrize("gap", [100, 1_300, 4_000, pytest.param(100_000, marks=LONG)])
def test_a_gap_gives_what_every_step_gives(gap: float) -> None:
    blocks = [traffic(START, 3, 600, 1), traffic(START + 300 + gap, 3, 60, 2)]
    jumped, stepped = run(blocks, stepping=False), run(blocks, stepping=True)
    assert jumped == stepped
    if gap > 30_000:  # what fired before has ended, and silence was noticed
        states = {(row["rule"], row["state"]) for row in jumped[0]}
        assert {("ErrorsHigh", "resolved"), ("Silent", "firing")} <= states


def test_a_month_costs_as_many_evaluations_as_there_are_edges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = aggregator(services=40)
    for trace in traffic(START, 40, 400, 3):
        one.apply(trace)
    calls = 0
    evaluate = AlertEngine.evaluate

    def counted(engine: AlertEngine, *args: Any) -> list[Alert]:
        nonlocal calls
        calls += 1
        return evaluate(engine, *args)

    monkeypatch.setattr(AlertEngine, "evaluate", counted)
    one.advance(START + 30 * 86_400)
    assert calls < 1_500  # of 43,200 steps
    assert one.windows.services() == []
    calls = 0
    one.advance(START + 60 * 86_400)
    assert calls <= 2  # nothing is left that could change


@pytest.mark.parametrize("gap", [20_000, pytest.param(200_000, marks=LONG)])
def test_a_restart_after_an_outage_continues_likewise(gap: float) -> None:
    blocks = [traffic(START, 3, 600, 1), traffic(START + gap, 3, 60, 2)]
    whole, first = aggregator(), aggregator()
    for trace in blocks[0]:
        whole.apply(trace)
        first.apply(trace)
    changes = first.changes()
    again = aggregator()
    counters = [(key, value) for key, value in changes.counters if value is not None]
    again.restore(changes.buckets, counters, changes.meta)
    moved = [
        [a.to_dict() for t in blocks[1] for a in one.apply(t).alerts] for one in (whole, again)
    ]
    assert moved[0] == moved[1]
    assert moved[0]
    assert state_of(whole) == state_of(again)
