"""Canaries count for objectives on their own metrics, and for no objective of the traffic."""

from __future__ import annotations

from ragmeter.core.score import REFERENCE_SCORER

from tests.aggregate.test_aggregator import aggregator, apply, labels
from tests.traces import make_trace

FACTS = {
    "name": "facts",
    "bad": "low",
    "metric": "fact_coverage",
    "scorer": REFERENCE_SCORER,
    "threshold": 0.5,
}
UP = {"name": "up", "bad": "failed"}
GOLD = {"answer": "Click Forgot password.", "facts": ["Forgot password"]}


def test_canaries_count_for_the_objectives_on_their_metrics_alone() -> None:
    one = aggregator(slos=[FACTS, UP])
    apply(one, [make_trace(n, reference=GOLD, answer="No idea, sorry.") for n in range(8)])
    facts = labels(service="bot", slo="facts")
    assert one.counters.get("rag_slo_bad_events_total", facts) == 8
    assert one.counters.get("rag_slo_events_total", facts) == 8


def test_failing_canaries_break_no_objective_of_the_traffic() -> None:
    one = aggregator(slos=[UP])
    failing = {"reference": GOLD, "status": "error", "error": "x"}
    apply(one, [make_trace(1), make_trace(2, **failing)])
    up = labels(service="bot", slo="up")
    assert one.counters.get("rag_slo_events_total", up) == 1
    assert one.counters.get("rag_slo_bad_events_total", up) == 0
