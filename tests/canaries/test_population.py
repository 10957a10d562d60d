"""Canaries are a population of their own: what they say, and all that they must not move."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path
from typing import Any

from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.rules import parse_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import REFERENCE_SCORER, ScoreState
from ragmeter.kafka.score_records import ScoreRecord, SourceOffset, decode_score, encode_score
from ragmeter.metrics.registry import metric_specs
from ragmeter.offline.score_file import score_file
from ragmeter.offline.scored_lines import decode_scored_line
from ragmeter.parts.views import ControlSource
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import CANARY, Trace

from tests.kafka.state.partition import record, state_of
from tests.parts.drift.running import state_of as drift_state_of
from tests.traces import START, make_trace, trace_line

SCORER = Scorer()
GOLD: dict[str, Any] = {"answer": "Click Forgot password.", "facts": ["Forgot password"]}
RULE = {
    "name": "FactsLow",
    "severity": "warning",
    "metric": "fact_coverage",
    "scorer": REFERENCE_SCORER,
    "statistic": "value",
    "op": "<",
    "threshold": 0.5,
    "window": "5m",
    "for": "0s",
    "min_samples": 5,
    "summary": "{service}: {value}",
}


def canary(number: int, **changes: Any) -> Trace:
    base = {"trace_id": f"c{number}", "reference": GOLD, "tags": {"category": "factual"}}
    return make_trace(number, **{**base, **changes})


def aggregator() -> Aggregator:
    rules = parse_rules([{"rules": [RULE]}], metrics=metric_specs())
    settings = load_settings(environ={}, overrides={"segments": ["category"]})
    return Aggregator(settings, rules, SCORER.pairs, parts=PARTS)


def apply(to: Aggregator, traces: list[Trace]) -> None:
    for trace in traces:
        to.apply(SCORER.score(trace).trace)
    to.settle()


def live(of: Aggregator) -> dict[str, Any]:
    """All that is measured of traffic."""
    windows = of.windows
    counters = {
        (name, labels): value
        for (name, labels), value in of.counters.items()
        if ("scorer", REFERENCE_SCORER) not in labels and name != "rag_canaries_total"
    }
    assert any(name == "rag_requests_total" for name, _ in counters)
    series = [pair for pair in windows.series("bot") if pair[1] != REFERENCE_SCORER]
    return {
        "counters": counters,
        "seen": windows.count_traces("bot", "", "1h"),
        "latency": windows.quantiles("bot", "", "total", "1h"),
        "estimates": {pair: windows.estimate("bot", "", *pair, "1h") for pair in series},
        "worst": {pair: windows.worst("bot", *pair, "1h") for pair in series},
        "drift": drift_state_of(of),
        "control": of.view(ControlSource).control(1),
    }


def test_canaries_move_nothing_of_the_traffic() -> None:
    traffic = [make_trace(i) for i in range(0, 60, 2)]
    odd: list[dict[str, Any]] = [
        {},
        {"status": "error", "error": "x"},
        {"status": "timeout", "timings": {"total": 900}},
        {"answer": "", "usage": {"input_tokens": 9**9, "cost_usd": 9.0}},
        {"reference": None, "tags": {CANARY: "true"}},
    ]
    sent = [canary(i, **odd[i % 5]) for i in range(1, 60, 2)]
    alone, both = aggregator(), aggregator()
    apply(alone, traffic)
    apply(both, sorted([*traffic, *sent], key=lambda trace: trace.timestamp))
    for one in (alone, both):
        one.advance(START + 120)
        one.settle()
    assert live(both) == live(alone)
    assert both.windows.count_traces("bot", "category=factual", "1h") == 0
    assert ("fact_coverage", REFERENCE_SCORER) in both.windows.series("bot")


def test_a_canary_has_one_result_for_each_of_its_pairs_and_no_other() -> None:
    found = SCORER.score(canary(1))
    assert [(score.metric, score.scorer) for score in found.trace.results] == [*SCORER.canary_pairs]
    assert found.trace.canary
    assert not found.draws
    assert not SCORER.score(make_trace(1)).trace.canary


def test_a_scorer_that_breaks_leaves_unscored_results(monkeypatch: Any) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ragmeter.scoring.scorer.score_canary", broken)
    results = SCORER.score(canary(1)).trace.results
    assert [(score.metric, score.scorer) for score in results] == [*SCORER.canary_pairs]
    assert {(score.state, score.reason) for score in results} == {
        (ScoreState.UNSCORED, "internal_error")
    }


def test_canaries_are_measured_counted_and_alerted_on_without_traffic() -> None:
    one = aggregator()
    apply(one, [canary(i, answer="No idea, sorry.") for i in range(8)])
    one.advance(START + 60)
    estimate = one.windows.estimate("bot", "", "fact_coverage", REFERENCE_SCORER, "5m")
    assert estimate is not None
    assert (estimate.value, estimate.samples) == (0.0, 8)
    assert one.windows.estimate("bot", "category=factual", "canary_failed", REFERENCE_SCORER, "1h")
    assert [alert.rule for alert in one.parts.alerts()] == ["FactsLow"]
    counted = dict(one.counters.items())
    own = ("service", "bot")
    assert ("rag_requests_total", (own, ("status", "ok"))) not in counted
    assert {
        worst.trace_id
        for worst in one.windows.worst("bot", "fact_coverage", REFERENCE_SCORER, "5m")
    }


def test_a_file_is_scored_with_and_without_the_reference(tmp_path: Path) -> None:
    source, out = tmp_path / "traces.jsonl", tmp_path / "scores.jsonl"
    lines = [trace_line(1), trace_line(2, reference=GOLD)]
    source.write_bytes(b"\n".join(lines))
    settings = load_settings(environ={}, overrides={"judge": {"k": [2]}})
    asyncio.run(score_file(source, out, "jsonl", settings, print))
    plain, with_reference = (json.loads(line) for line in out.read_text().splitlines())
    found = {
        (one["metric"], one.get("k")): one
        for one in with_reference["results"]
        if one["scorer"] == REFERENCE_SCORER
    }
    assert found["fact_coverage", None]["value"] == 1
    assert ("recall_any_at_k", 2) in found
    assert with_reference["canary"]
    assert "canary" not in plain
    live = [one for one in with_reference["results"] if one["scorer"] != REFERENCE_SCORER]
    assert [one["metric"] for one in live] == [one["metric"] for one in plain["results"]]
    asyncio.run(score_file(source, out, "csv", settings, print))
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["fact_coverage.reference"] for row in rows] == ["", "1.0"]


def test_results_of_a_scored_file_enter_as_those_of_a_canary() -> None:
    scored = SCORER.score(canary(1)).trace
    # with the scores that `ragmeter score` writes besides
    scored = scored._replace(results=[*scored.results, *SCORER.score_cheap(canary(1))])
    line = decode_scored_line(json.dumps(scored.to_dict()).encode(), 10**6)
    assert line.trace.canary
    assert not line.unknown
    one = aggregator()
    one.apply(line.trace)
    one.settle()
    assert {scorer for _, scorer in one.windows.series("bot")} == {REFERENCE_SCORER}


def test_a_canary_crosses_kafka_and_is_reconciled_by_its_own_pairs() -> None:
    state = state_of()
    sent = decode_score(encode_score(record(1, trace_id="c", reference=GOLD)))
    assert sent.scored.canary
    sent.scored = sent.scored._replace(results=sent.scored.results[1:])
    for one in (sent, ScoreRecord(record(2).scored, SourceOffset(0, 2))):
        state.apply(one)
    state.settle()
    counted = dict(state.aggregator.counters.items())
    assert not [name for name, _ in counted if name == "ragmeter_unexpected_results_total"]
    mismatch: dict[Any, float] = {}
    for (name, labels), value in counted.items():
        sign = {"ragmeter_seen_total": 1, "ragmeter_results_total": -1}.get(name, 0)
        key = tuple(pair for pair in labels if pair[0] in ("metric", "scorer"))
        mismatch[key] = mismatch.get(key, 0.0) + sign * value
    assert set(mismatch.values()) == {0.0}
    lost = dict(record(1, reference=GOLD).scored.to_dict())["results"][0]["metric"]
    states = state.aggregator.windows.states("bot", "", lost, REFERENCE_SCORER, "1h")
    assert states["unscored"] == 1
