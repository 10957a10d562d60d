"""The pool of traces that people are asked to label: one chance a trace."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pydantic import TypeAdapter
from ragmeter.config.scoring import SamplingSettings
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.metrics.merged_labels import trace_key
from ragmeter.parts.labels.pool import LabelPool, PoolState
from ragmeter.windows.people_agreement import scorer_values


def pool(people: float = 1.0, horizon: float = 1e9) -> LabelPool:
    return LabelPool(SamplingSettings(people=people), horizon, random.Random(1))


def scored(number: int, service: str = "bot", cheap: float | None = 0.5) -> ScoredTrace:
    result = Score("grounding", "people", ScoreState.SAMPLED_OUT, stratum="people", cheap=cheap)
    return ScoredTrace(f"t{number}", service, float(number), "ok", [result])


def give(one: LabelPool, trace_id: str, services: list[str] | None = None, **labels: bool) -> None:
    one.label(trace_key(trace_id).hex(), services, labels, lambda *key: [])


def restored(one: LabelPool) -> LabelPool:
    again = pool()
    again.restore([row for row in one.changes().values() if row is not None])
    return again


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
        give(one, trace_id, grounded=True)
    assert one.state("bot") == ([], 10, 0)
    one.draw("bot", 10)
    assert one.state("bot")[0] == [], "the others were passed over"
    assert {row.trace_id for row in one.labelled.values()} == first


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
    one.label(trace_key("t1").hex(), ["bot"], {"grounded": False}, lambda *key: results)
    again = restored(one)
    (row,) = again.labelled.values()
    assert row.weight == 2, "what was drawn upstream stands for two"
    assert (row.labels, row.scores) == ({"grounded": False}, {"grounding": {"builtin": 0.25}})
    (agreement,) = again.agreement("bot")
    assert (agreement.scorer, agreement.n) == ("builtin", 1)
    assert again.agreement("shop") == []


def test_a_trace_of_another_service_with_the_same_id_is_still_asked_about() -> None:
    one = pool()
    for service in ("bot", "search", "__other__"):
        one.offer(scored(1)._replace(service=service))
        one.draw(service, 1)
    give(one, "t1", ["bot"], grounded=True)
    assert [len(one.state(name)[0]) for name in ("bot", "search", "__other__")] == [0, 1, 1]
    assert [row.service for row in one.labelled.values()] == ["bot"]
    give(one, "t1", grounded=True)
    assert one.keys() == set(), "of any service where none is named"


@pytest.mark.parametrize("character", ["x", "\U0001f600"])
def test_a_pool_with_long_ids_fits_a_record_of_kafka(character: str) -> None:
    one = pool()
    for number in range(1000):
        one.offer(scored(number)._replace(trace_id=f"{number}".ljust(512, character)))
    waiting = one.state("bot")[2]
    assert 25 < waiting <= 600 * 50 / 512
    one.draw("bot", 1000)
    rows = TypeAdapter(PoolState)
    sizes = [len(rows.dump_json(row)) for row in one.changes().values() if row is not None]
    assert max(sizes) < 0.9 * 2**20
    assert len(one.state("bot")[0]) == waiting


def test_a_restored_pool_goes_on_where_it_was() -> None:
    one = pool()
    for number in range(30):
        one.offer(scored(number))
    one.draw("bot", 4)
    for number in range(30, 40):
        one.offer(scored(number))
    (first, *_) = one.state("bot")[0]
    give(one, first.trace_id, grounded=True)
    again = restored(one)
    assert again.state("bot") == one.state("bot")
    assert (again.keys(), again.labelled) == (one.keys(), one.labelled)
    assert one.changes() == {}
    one.expire(1e12)
    assert [row for row in one.changes().values() if row is None], "what has gone is deleted"


def test_traces_leave_the_pool_with_the_horizon_and_canaries_never_enter() -> None:
    one = pool(horizon=10)
    for number in range(20):
        one.offer(scored(number))
    one.expire(25.0)
    assert one.keys() == {("bot", f"t{number}") for number in range(15, 20)}
    assert not pool(people=0).offer(scored(1))
