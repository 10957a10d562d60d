"""Events of objectives, through the aggregator that an agent has."""

from __future__ import annotations

from tests.aggregate.test_aggregator import aggregator, apply, labels
from tests.traces import make_trace


def test_slo_events_are_weighted_by_the_inverse_probability() -> None:
    one = aggregator(slos=[{"name": "fast", "bad": "slow", "seconds": 1}])
    apply(
        one,
        [
            make_trace(1, timings={"total": 2.0}, sampling={"probability": 0.25}),
            make_trace(2, timings={"total": 0.5}),
            make_trace(3, timings={}),  # not timed: not an event
        ],
    )
    key = labels(service="bot", slo="fast")
    assert one.counters.get("rag_slo_events_total", key) == 5
    assert one.counters.get("rag_slo_bad_events_total", key) == 4


def test_a_series_of_bad_events_starts_at_0() -> None:
    one = aggregator()
    apply(one, [make_trace(1)])
    found = dict(one.counters.items())
    assert found["rag_slo_bad_events_total", labels(service="bot", slo="availability")] == 0
