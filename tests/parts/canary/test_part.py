"""Canaries are counted by how they ended, through the aggregator that an agent has."""

from __future__ import annotations

from tests.aggregate.test_aggregator import SCORER, aggregator, apply, labels
from tests.traces import make_trace

GOLD = {"answer": "Click Forgot password.", "facts": ["Forgot password"]}


def test_canaries_are_counted_apart_from_traffic() -> None:
    one = aggregator()
    failing = {"reference": GOLD, "status": "error", "error": "x"}
    apply(one, [make_trace(1), make_trace(2, reference=GOLD), make_trace(3, **failing)])
    counted = {
        status: one.counters.get("rag_canaries_total", labels(service="bot", status=status))
        for status in ("ok", "error", "timeout")
    }
    assert counted == {"ok": 1, "error": 1, "timeout": 0}
    key = "rag_canaries_total", labels(service="bot", status="timeout")
    assert key in dict(one.counters.items())  # a series that begins at 0


def test_results_that_a_judge_finds_later_count_no_canary_again() -> None:
    one = aggregator()
    scored = SCORER.score(make_trace(1, reference=GOLD)).trace
    one.apply(scored)
    one.finish(scored._replace(results=[], partial=True))
    one.settle()
    assert one.counters.get("rag_canaries_total", labels(service="bot", status="ok")) == 1
