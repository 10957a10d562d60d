"""Live canaries before the judge: each is asked about, under names and in accounts of its own."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ragmeter.aggregate.aggregator import Aggregator
from ragmeter.alerts.rules import parse_rules
from ragmeter.app.parts import PARTS
from ragmeter.app.settings import load_settings
from ragmeter.core.score import REFERENCE_SCORER, Score, ScoreState
from ragmeter.metrics.canary.specs import canary_judge_pairs, is_canary_scorer
from ragmeter.metrics.judge_agreement import AGREEMENT_METRICS
from ragmeter.metrics.registry import metric_specs
from ragmeter.sampling.sampler import Sampler
from ragmeter.scoring.scorer import DrawTerms, Scorer
from ragmeter.trace import CANARY
from ragmeter_exporters.prometheus import PrometheusExporter

from tests.canaries.test_population import GOLD, RULE, canary
from tests.embedded.test_slow_tiers import mismatch, states
from tests.scorers.judge.stub_process import stub_judge
from tests.scoring.test_slow_tiers import running, values
from tests.traces import START, good, make_trace
from tests.waiting import until

PAIRS = [("faithfulness", "judge"), ("relevance", "umbrela"), ("judge_disagreement", "judge")]
OWN = [("faithfulness", "canary/judge"), ("relevance", "canary/umbrela")]
FAMILIES = ["claims", "context_recall"]
PAID = ("ragmeter_canary_judge_requests_total", ())


def scorer(judge_canaries: bool = True, rate: float = 1e-9) -> Scorer:
    sampling = load_settings(
        environ={}, overrides={"sampling": {"judge": rate, "model": 1}}
    ).sampling
    tiers: dict[Any, Any] = {"judge": PAIRS, "model": [("grounding", "hhem")]}
    return Scorer(sampler=Sampler(sampling), tiers=tiers, judge_canaries=judge_canaries)


def test_a_canary_is_judged_whatever_the_rate_and_by_the_judge_alone() -> None:
    one = scorer()
    found = one.score(canary(1))
    assert found.draws == {"judge": DrawTerms(1.0, "")}
    assert list(one.pending_pairs(found, "judge")) == OWN
    assert [*one.canary_pairs[-2:]] == OWN
    assert set(one.score(make_trace(1)).draws) == {"model"}
    assert one.pending_pairs(one.score(make_trace(1)), "judge") == tuple(PAIRS)


def test_the_services_own_record_of_a_canary_has_nothing_to_be_judged_by() -> None:
    found = scorer().score(make_trace(1, tags={CANARY: "true"}))
    own = [score for score in found.trace.results if score.scorer != REFERENCE_SCORER]
    assert [(score.metric, score.scorer) for score in own] == OWN
    assert {(score.state, score.reason) for score in own} == {
        (ScoreState.NOT_APPLICABLE, "no_reference")
    }
    assert not found.draws


def test_without_a_part_of_the_budget_canaries_have_no_judged_results() -> None:
    one = scorer(judge_canaries=False)
    assert {by for _, by in one.canary_pairs} == {REFERENCE_SCORER}
    assert not one.score(canary(1)).draws


def test_what_is_shed_is_shed_under_their_names() -> None:
    one = scorer()
    found = one.score(canary(1))
    found = one.shed(found, "judge")
    shed = [
        (score.metric, score.scorer)
        for score in found.trace.results
        if score.state is ScoreState.SHED
    ]
    assert shed == OWN


def test_every_judged_metric_can_be_asked_for_of_canaries() -> None:
    own = set(AGREEMENT_METRICS)
    for name, spec in metric_specs().items():
        named = [by for by in spec.scorers if by.startswith("canary/")]
        pairs = canary_judge_pairs([("answered", "judge"), *((name, by) for by in spec.scorers)])
        assert set(named) == {by for metric, by in pairs if metric == name}
        assert not (named and name in own)
    assert "canary/judge" in metric_specs()["context_recall"].scorers
    assert is_canary_scorer("canary/judge")
    assert is_canary_scorer(REFERENCE_SCORER)
    assert not is_canary_scorer("judge")


def test_a_rule_on_what_a_judge_says_of_canaries_needs_no_traffic() -> None:
    wanted = {**RULE, "metric": "context_recall", "scorer": "canary/judge"}
    rules = parse_rules([{"rules": [wanted]}], metrics=metric_specs())
    pairs = [("context_recall", "judge")]
    one = Aggregator(load_settings(environ={}), rules, pairs, parts=PARTS)
    sampler = Sampler(load_settings(environ={}).sampling)
    half = Scorer(sampler=sampler, tiers={"judge": pairs})
    for number in range(8):
        found = half.score(canary(number))
        low = Score("context_recall", "canary/judge", ScoreState.SCORED, 0.1)
        one.apply(half.add_results(found, "judge", [low]).trace)
    one.advance(START + 60)
    assert [alert.rule for alert in one.parts.alerts()] == [RULE["name"]]
    assert one.windows.count_traces("bot", "", "1h") == 0


def sent(count: int, **changes: Any) -> list[Any]:
    """Canaries of today, each with words of its own: none is known to the judge's memory."""
    return [
        good(1_000 + n, reference=GOLD, query=f"Canary {n}?", timestamp=time.time(), **changes)
        for n in range(count)
    ]


def traffic(count: int) -> list[Any]:
    return [good(n, query=f"Traffic {n}?", timestamp=time.time()) for n in range(count)]


def results(agent: Any, metric: str, scorer: str) -> int:
    return sum(states(agent, metric, scorer).values())


def test_live_canaries_are_judged_apart_from_the_traffic(tmp_path: Path) -> None:
    with (
        stub_judge() as stub,
        running(
            tmp_path,
            stub,
            live=True,
            metrics=[*FAMILIES, "answered"],
            concurrency=512,
            second={"share": 1},
        ) as agent,
    ):
        agent.accept([*traffic(10), *sent(8)], "test", live=True)
        until(lambda: results(agent, "faithfulness", "judge") == 10)
        until(lambda: results(agent, "faithfulness", "canary/judge") == 8)
        assert states(agent, "context_recall", "canary/judge") == {"scored": 8}
        assert states(agent, "context_recall", "judge") == {"not_applicable": 10}
        assert states(agent, "answered", "canary/judge") == {"scored": 8}
        assert results(agent, "judge_disagreement", "judge") == 10
        assert results(agent, "judge_disagreement", "canary/judge") == 0
        # what the judge was paid is counted with the commit after the results
        until(lambda: dict(agent.counters.items()).get(PAID) == 8 * 3)
        exporter = PrometheusExporter(agent)
        text = (exporter.render() + exporter.render_detail()).decode()
        gauges = values(text, "rag_context_recall_mean")
        assert {'scorer="canary/judge"' in labels for labels, _ in gauges} == {True}
        assert all('fingerprint="' in labels for labels, _ in gauges)
        # three families of one call each; whether the traffic's are judged twice is no matter here
        own = dict(agent.counters.items())
        assert own[PAID] == 8 * 3
        assert own["ragmeter_canary_judge_tokens_total", ()] > 0
        assert own["ragmeter_canary_judge_cost_usd_total", ()] > 0
        calls = sum(value for _, value in values(text, "ragmeter_judge_requests_total"))
        assert stub.stats()["calls"] == calls
        # the second judge is asked for both families of the traffic, and to label claims, if any
        assert 8 * 3 + 10 * 4 <= calls <= 8 * 3 + 10 * 5
        assert mismatch(agent) == 0
        assert all(value == 0 for _, value in values(text, "ragmeter_accounting_mismatch"))


def test_the_part_of_the_budget_bounds_them_and_says_what_was_left_out(tmp_path: Path) -> None:
    # 0.1 of 8 calls a minute are 12 in the quarter of an hour that there is to begin with: at two
    # calls each six of them, or the one beyond that a first guess of 10 calls lets in
    budget = {"requests_per_minute": 8}
    with (
        stub_judge() as stub,
        running(tmp_path, stub, live=True, metrics=FAMILIES, budget=budget) as agent,
    ):
        agent.accept(sent(40), "test", live=True)
        until(lambda: results(agent, "context_recall", "canary/judge") == 40)
        found = states(agent, "context_recall", "canary/judge")
        assert 0 < found["scored"] <= 6
        assert found["unscored"] == 40 - found["scored"]
        reasons: Counter[str] = Counter()
        for (name, labels), value in agent.counters.items():
            notified = dict(labels)
            if name == "ragmeter_results_total" and notified["metric"] == "context_recall":
                reasons[notified["reason"]] += int(value)
        assert reasons["budget"] == found["unscored"]
        assert stub.stats()["calls"] <= 12
        assert mismatch(agent) == 0


def test_a_replay_judges_each_and_a_restart_loses_none(tmp_path: Path) -> None:
    budget = {"requests_per_minute": 1}
    with stub_judge(latency=0.2) as stub:
        with running(tmp_path, stub, metrics=FAMILIES, budget=budget, concurrency=1) as agent:
            agent.accept(sent(12), "test")
        with running(tmp_path, stub, metrics=FAMILIES, budget=budget) as agent:
            agent.wait_idle()
            assert states(agent, "context_recall", "canary/judge") == {"scored": 12}
            assert mismatch(agent) == 0


def test_after_a_restart_those_that_wait_are_in_the_account_of_the_canaries(
    tmp_path: Path,
) -> None:
    with stub_judge(latency=60.0) as stub:
        for again in (False, True):
            with running(tmp_path, stub, live=True, metrics=FAMILIES) as agent:
                if not again:
                    agent.accept(sent(3), "test", live=True)
                    until(lambda: stub.stats()["max_in_flight"] >= 3)
                controller = agent._worker.draws.tiers.controllers["judge"]
                until(lambda: controller._canaries._demand.pending == 3)  # noqa: B023
                assert controller.pending == {}


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_the_draws_of_the_traffic_are_the_same_beside_canaries(share: float) -> None:
    """Without a budget that is used up: canaries take part in no draw, count as no arrival and
    belong to no stratum."""
    alone, beside = scorer(share > 0, rate=0.3), scorer(share > 0, rate=0.3)
    first = [alone.score(make_trace(n)).draws for n in range(100)]
    second = []
    for n in range(100):
        beside.score(canary(n))
        second.append(beside.score(make_trace(n)).draws)
    assert first == second
