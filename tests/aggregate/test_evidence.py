from __future__ import annotations

import json

import pytest
from ragmeter.aggregate.evidence import CUT_MARK, EvidenceKeeper, encode_evidence
from ragmeter.core.score import Score, ScoredTrace, ScoreState
from ragmeter.scoring.scorer import Scorer
from ragmeter.trace import Trace

from tests.traces import make_trace

SCORER = Scorer()


def scored(trace: Trace) -> tuple[Trace, ScoredTrace]:
    return trace, SCORER.score(trace).trace


def test_a_small_trace_is_kept_whole() -> None:
    trace, result = scored(make_trace(1, tags={"tenant": "acme"}))
    kept = json.loads(encode_evidence(trace, result, 64_000))
    assert kept["trace"]["query"] == trace.query
    assert kept["trace"]["answer"] == trace.answer
    assert [p["id"] for p in kept["trace"]["passages"]] == ["kb-1", "kb-2"]
    assert kept["trace"]["tags"] == {"tenant": "acme"}
    assert {r["metric"] for r in kept["results"]} >= {"grounding", "relevance"}


@pytest.mark.parametrize("limit", [4_000, 20_000])
def test_a_large_trace_is_cut_and_says_so(limit: int) -> None:
    passages = [{"id": f"p{n}", "text": "word " * 20_000} for n in range(10)]
    trace, result = scored(make_trace(1, passages=passages, answer="x" * 100_000))
    body = encode_evidence(trace, result, limit)
    assert len(body) <= limit
    assert CUT_MARK.strip() in json.loads(body)["trace"]["answer"]


def test_what_cannot_be_cut_keeps_ids_and_states() -> None:
    passages = [{"id": "i" * 500, "text": "t"} for _ in range(50)]
    trace, result = scored(make_trace(1, passages=passages))
    kept = json.loads(encode_evidence(trace, result, 4_000))
    assert kept["trace"]["trace_id"] == "t1"


def test_only_the_worst_are_kept_and_the_others_forgotten() -> None:
    keeper = EvidenceKeeper([("bot", "old")], 64_000)
    done = [(("bot", f"t{n}"), *scored(make_trace(n))) for n in range(3)]
    rows = keeper.rows({("bot", "t1")}, done)
    assert [row[:2] for row in rows] == [("bot", "t1")]
    assert keeper.forget({("bot", "t1")}) == [("bot", "old")]
    assert keeper.forget(set()) == [("bot", "t1")]


def partial(trace: Trace, score: Score) -> ScoredTrace:
    return ScoredTrace(trace.trace_id, trace.service, 0.0, "ok", [score], partial=True)


def test_two_tiers_that_end_in_one_step_are_both_kept() -> None:
    trace, result = scored(make_trace(1, timings={"total": 2.5}))
    key = ("bot", "t1")
    before = [score.to_dict() for score in result.results]
    judged = partial(trace, Score("answered", "judge", ScoreState.SCORED, 1.0))
    grounded = partial(trace, Score("grounding", "hhem", ScoreState.SCORED, 0.2))
    keeper = EvidenceKeeper([key], 64_000)
    rows = keeper.rows(set(), [(key, trace, judged), (key, trace, grounded)], lambda *_: before)
    assert [row[:2] for row in rows] == [key]
    kept = json.loads(rows[0][-1])
    found = {(item["metric"], item["scorer"]) for item in kept["results"]}
    assert found >= {("answered", "judge"), ("grounding", "hhem"), ("error", "builtin")}
    assert kept["trace"]["timings"] == {"total": 2.5}
