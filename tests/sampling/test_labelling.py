"""The pool of traces that people are asked to label: one chance a trace."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from ragmeter.config.scoring import SamplingSettings
from ragmeter.core.feedback import PEOPLE, Feedback, Verdict
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.sampling.labelling import LabelPool
from ragmeter.windows.people_agreement import scorer_values


def pool(people: float = 1.0, horizon: float = 1e9) -> LabelPool:
    return LabelPool(SamplingSettings(people=people), horizon, random.Random(1))


def scored(number: int, service: str = "bot", cheap: float | None = 0.5) -> ScoredTrace:
    result = Score("grounding", "people", ScoreState.SAMPLED_OUT, stratum="people", cheap=cheap)
    return ScoredTrace(f"t{number}", service, float(number), "ok", [result])


def reported(trace_id: str, service: str | None = None, **labels: bool) -> Feedback:
    return Feedback(
        trace_id=trace_id,
        service=service,
        timestamp=datetime.fromtimestamp(0, UTC),
        scorer=PEOPLE,
        verdict=Verdict(**labels),
    )


def test_a_full_pool_halves_its_largest_service_and_the_probabilities() -> None:
    one = pool()
    for number in range(900):
        one.offer(scored(number))
    one.offer(scored(1, "rare"))
    assert 200 < one.state("bot")[2] <= 600
    one.draw("rare", 5)
    assert [drawn.probability for drawn in one.state("rare")[0]] == [1.0]
    waiting = one.state("bot")[2]
    one.draw("bot", 30)
    probabilities = {drawn.probability for drawn in one.state("bot")[0]}
    assert probabilities == {0.5 * 30 / waiting}
    # what they stand for is all traffic, but for the chance of the pool
    assert sum(1 / drawn.probability for drawn in one.state("bot")[0]) == pytest.approx(
        900, rel=0.1
    )


def test_a_trace_has_one_chance() -> None:
    one = pool()
    for number in range(100):
        one.offer(scored(number))
    one.draw("bot", 10)
    first = {drawn.trace_id for drawn in one.state("bot")[0]}
    one.draw("bot", 10)
    assert {drawn.trace_id for drawn in one.state("bot")[0]} == first, "some are left to label"
    for trace_id in first:
        one.label(reported(trace_id, grounded=True), [], lambda *key: [])
    assert one.state("bot") == ([], 10, 0)
    one.draw("bot", 10)
    assert one.state("bot")[0] == [], "the others were passed over"
    assert {row.trace_id for row in one.labelled} == first


def test_labels_are_kept_beside_the_scores() -> None:
    one = pool()
    one.offer(scored(1))
    one.draw("bot", 1)
    results: list[dict[str, Any]] = [
        {"metric": "grounding", "scorer": "builtin", "state": "scored", "value": 0.25},
        {"metric": "grounding", "scorer": "people", "state": "sampled_out", "probability": 0.5},
        {"metric": "ndcg_at_k", "k": 5, "scorer": "umbrela", "state": "scored", "value": 1.0},
    ]
    assert scorer_values(results) == {"grounding": {"builtin": 0.25}}
    one.label(reported("t1", grounded=False), [], lambda *key: results)
    again = pool()
    state = one.dump()
    again.load(state)
    (row,) = again.labelled
    assert row.weight == 2, "what was drawn upstream stands for two"
    (agreement,) = again.agreement("bot")
    assert (agreement.scorer, agreement.n) == ("builtin", 1)
    assert again.agreement("shop") == []
    state["labelled"] = [row[:4] for row in state["labelled"]]  # of the version before
    again.load(state)
    (row,) = again.labelled
    assert (row.labels, row.scores) == ({"grounded": False}, {"grounding": {"builtin": 0.25}})


def test_a_trace_of_another_service_with_the_same_id_is_still_asked_about() -> None:
    one = pool()
    for service in ("bot", "search", "__other__"):
        one.offer(scored(1)._replace(service=service))
        one.draw(service, 1)
    one.label(reported("t1", service="bot", grounded=True), ["bot"], lambda *key: [])
    assert [len(one.state(name)[0]) for name in ("bot", "search", "__other__")] == [0, 1, 1]
    assert [row.service for row in one.labelled] == ["bot"]
    one.label(reported("t1", grounded=True), [""], lambda *key: [])
    assert one.keys() == set(), "of any service where none is named"


@pytest.mark.parametrize("character", ["x", "\U0001f600"])
def test_a_pool_with_long_ids_fits_a_record_of_kafka(character: str) -> None:
    one = pool()
    for number in range(1000):
        one.offer(scored(number)._replace(trace_id=f"{number}".ljust(512, character)))
    waiting = one.state("bot")[2]
    assert 25 < waiting <= 600 * 50 / 512
    one.draw("bot", 1000)
    for number in range(1000, 2000):
        one.offer(scored(number)._replace(trace_id=f"{number}".ljust(512, character)))
    assert len(json.dumps(one.dump())) < 0.9 * 2**20
    for at in range(500 // waiting):
        for drawn in one.state("bot")[0]:
            one.label(reported(drawn.trace_id, grounded=True), [], lambda *key: [])
        numbers = range(2000 + 1000 * at, 3000 + 1000 * at)
        for number in numbers:
            one.offer(scored(number)._replace(trace_id=f"{number}".ljust(512, character)))
        one.draw("bot", 1000)
    assert len(one.labelled) > 400
    assert len(json.dumps(one.dump()["labelled"])) < 0.9 * 2**20


def test_traces_leave_the_pool_with_the_horizon_and_canaries_never_enter() -> None:
    one = pool(horizon=10)
    for number in range(20):
        one.offer(scored(number))
    one.expire(25.0)
    assert one.keys() == {("bot", f"t{number}") for number in range(15, 20)}
    assert not pool(people=0).offer(scored(1))
